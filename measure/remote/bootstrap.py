"""From a shell on another machine to the worker there, by the shell's own streams.

The shell reads commands from the same stream that the worker's bytes come over. It would read on
beyond a command; so nothing is sent before it has said that it is where that is wanted.
"""

from __future__ import annotations

import contextlib
import shlex
import time

from loopwright.measure.device import DeviceError
from loopwright.measure.lease import readable
from loopwright.measure.remote.frames import MOST_BANNER, LinkError
from loopwright.measure.remote.program import ARCHITECTURES, worker_program
from loopwright.measure.remote.route import Route
from loopwright.measure.remote.stream import STALL, Stream

_MARK = b"LOOPWRIGHT "
_SAY = "printf '\\n%s%s %s\\n' LOOP WRIGHT"  # not the mark itself, should a terminal echo it

# Android is Linux with another C library.
_WHAT = (
    f'case "$(uname -o 2>/dev/null)" in Android) s=Android ;; *) s=$(uname -s) ;; esac; '
    f'{_SAY} "$s $(uname -m)"\n'
)
# A folder of the user's own, where programs may be kept: there may be no home. Nobody else may
# write there, since what has the worker's name is run. A power cut may leave an empty file.
_FIND = """\
for d in "${{XDG_CACHE_HOME:+$XDG_CACHE_HOME/loopwright}}" "${{HOME:+$HOME/.cache/loopwright}}" \
"${{TMPDIR:-/tmp}}/loopwright-$(id -u)"; do \
case "$d" in /?*) ;; *) continue ;; esac; \
(umask 077; mkdir -p "$d") 2>/dev/null && [ ! -L "$d" ] && [ -O "$d" ] && [ -w "$d" ] && \
chmod go-w "$d" && break; d=; done; f="$d/worker-{name}"; \
if [ -z "$d" ]; then {say} NOWHERE; \
elif [ -x "$f" ] && [ "$(wc -c <"$f")" -eq {size} ]; then {say} THERE; else {say} MISSING; fi
"""
# Workers of other versions go when they were not renewed for a month. A shell that does not keep
# the program ends: it would run what is left of that in the stream as commands.
_KEEP = """\
{say} READY; if head -c {size} >"$f.$$" && [ "$(wc -c <"$f.$$")" -eq {size} ] && \
chmod 700 "$f.$$" && mv -f "$f.$$" "$f"; then {say} KEPT; \
find "$d" -name 'worker-*' -mtime +30 -exec rm -f {{}} + 2>/dev/null; \
else rm -f "$f.$$"; {say} FAILED; exit 1; fi
"""


def start(route: Route) -> Stream:
    """A stream to a worker that waits for frames. It is copied there where it is missing.

    Raises `DeviceError` where the machine cannot be reached or cannot run it, in one line with the
    command to try.
    """
    try:
        stream = Stream(route.command)
    except LinkError as error:
        raise _unreached(route, str(error)) from error
    try:
        _dialog(route, stream)
    except LinkError as error:
        stream.close()
        raise _unreached(route, str(error)) from error
    except BaseException:
        stream.close()
        raise
    return stream


def _dialog(route: Route, stream: Stream) -> None:
    system, _, architecture = _asked(stream, _WHAT).partition(" ")
    if system != "Linux" or architecture not in ARCHITECTURES:
        raise DeviceError(
            f"{route.name} is {system or 'nothing known'} on {architecture or 'nothing known'}; "
            f"workers are made for Linux with glibc, on {' and '.join(ARCHITECTURES)}"
        )
    program = worker_program(architecture)
    size = len(program.code)
    found = _asked(stream, _FIND.format(name=program.sha256[:32], say=_SAY, size=size))
    if found == "NOWHERE":
        raise DeviceError(
            f"{route.name}: no folder there can keep the worker; set XDG_CACHE_HOME there to one "
            "that can be written and whose programs may run"
        )
    if found == "MISSING":
        _asked(stream, _KEEP.format(say=_SAY, size=size))
        with contextlib.suppress(LinkError):  # it tells why it does not take it
            stream.write([program.code])
        if _line(stream) != "KEPT":
            words = stream.last_line()
            raise DeviceError(
                f"{route.name}: the worker, {size:,} bytes, could not be kept there"
                f"{': ' + words if words else ''}; is the disk full?"
            )
    stream.write([f'exec {shlex.join(route.prefix)} "$f" "$d"\n'.encode()])


def _asked(stream: Stream, script: str) -> str:
    """Answer to a line of shell."""
    stream.write([script.encode()])
    return _line(stream)


def _line(stream: Stream) -> str:
    return readable(stream.read_line(_MARK, MOST_BANNER, time.monotonic() + STALL))


def _unreached(route: Route, why: str) -> DeviceError:
    return DeviceError(f"{route.name} cannot be reached ({why}); try: {route.trial}")
