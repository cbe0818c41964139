"""The live page: what it serves, to whom."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request

import pytest

from loopwright.measure.device import DeviceError
from loopwright.measure.fleet.page import make_server, serve

SHOWN = {"machines": [], "tuners": [], "queue": 3}


@pytest.fixture
def url():
    server = make_server(lambda: SHOWN, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def get(url, host=None):
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        kind = answer.headers["Content-Type"]
        return kind, answer.readline() if kind == "text/event-stream" else answer.read()


def test_one_file_is_the_page_and_needs_no_other(url):
    kind, page = get(f"{url}/")
    assert kind.startswith("text/html")
    assert b'new EventSource("events")' in page
    assert b"http" not in page.replace(b'"http://www.w3.org/2000/svg"', b"")


def test_what_the_fleet_is_at_comes_as_events_and_at_once(url):
    assert json.loads(get(f"{url}/status.json")[1]) == SHOWN
    kind, line = get(f"{url}/events")
    assert kind == "text/event-stream"
    assert json.loads(line.removeprefix(b"data: ")) == SHOWN


@pytest.mark.parametrize(
    ("path", "host", "code"), [("/../x", None, 404), ("/", "evil.com:80", 403)]
)
def test_other_files_and_names_of_others_for_loopback_are_refused(url, path, host, code):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(url + path, host)
    refused.value.close()
    assert refused.value.code == code


def test_a_port_that_is_taken_is_an_error(url):
    with pytest.raises(DeviceError, match="no page can be served at"):
        serve(dict, "127.0.0.1", int(url.rpartition(":")[2]), print)
