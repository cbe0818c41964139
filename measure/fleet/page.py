"""The live view of a fleet as one page: a file, and events from the standard library's server."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from loopwright.measure.device import DeviceError

_EVERY = 1.0  # seconds
_WATCHERS = 32  # at a time
_PAGE = Path(__file__).with_name("page.html")


def serve(
    look: Callable[[], dict[str, Any]], host: str, port: int, told: Callable[[str], None]
) -> None:
    """Serve the page until Ctrl-C; `told` is given its URL. Raises `DeviceError`."""
    try:
        server = make_server(look, host, port)
    except OSError as error:
        raise DeviceError(f"no page can be served at {host}:{port}: {error.strerror}") from error
    name = f"[{host}]" if ":" in host else host
    told(f"http://{name}:{server.server_address[1]}/")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return
    finally:
        server.server_close()


def make_server(look: Callable[[], dict[str, Any]], host: str, port: int) -> ThreadingHTTPServer:
    """The server, which does not serve yet."""
    latest = _Latest(look)
    watchers = threading.BoundedSemaphore(_WATCHERS)

    class Handler(BaseHTTPRequestHandler):
        timeout = 30.0

        def do_GET(self) -> None:
            if not _is_own(self.headers.get("Host", ""), host):
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path == "/":
                self._send("text/html; charset=utf-8", _PAGE.read_bytes())
            elif self.path == "/status.json":
                self._send("application/json", latest.text().encode())
            elif self.path == "/events":
                self._events()
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _send(self, kind: str, data: bytes) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(data)

        def _events(self) -> None:
            if not watchers.acquire(blocking=False):
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
                return
            try:
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                while True:
                    self.wfile.write(f"data: {latest.text()}\n\n".encode())
                    self.wfile.flush()
                    time.sleep(_EVERY)
            except OSError:  # who watched has gone
                return
            finally:
                watchers.release()

        def log_message(self, format: str, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    return Server((host, port), Handler)


class _Latest:
    """The view of the fleet, looked up once for all who watch."""

    def __init__(self, look: Callable[[], dict[str, Any]]) -> None:
        self._look, self._lock = look, threading.Lock()
        self._text, self._at = "", -1e9

    def text(self) -> str:
        with self._lock:
            if time.monotonic() - self._at >= _EVERY / 2:
                self._text, self._at = json.dumps(self._look()), time.monotonic()
            return self._text


def _is_own(asked: str, host: str) -> bool:
    """Return whether a request names this server: else a page of others' could read this one by a
    name of its own for loopback."""
    name = asked.rpartition(":")[0] if not asked.endswith("]") else asked
    return host not in ("127.0.0.1", "::1") or name in ("127.0.0.1", "localhost", "[::1]")
