"""From a shell on another machine to the worker there, by the shell's own streams.

The shell reads commands from the same stream that the worker's bytes come over. It would read on
beyond a command; so nothing is sent before it has said that it is where that is wanted.

The worker loads candidates by `dlopen`, which asks for a C library that is loaded itself: a static
program cannot do that. So it is linked with the libraries of glibc there, from version 2.17 on
(`worker/start.h`), and carries nothing else: 30 KB on x86-64, 70 KB on AArch64.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shlex
import time
from dataclasses import dataclass
from pathlib import Path

from loopwright.codegen.library.linker import RUNTIME, cached_file, find_compiler
from loopwright.measure.device import DeviceError
from loopwright.measure.lease import readable
from loopwright.measure.remote.frames import MOST_BANNER, LinkError
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


_SOURCES = Path(__file__).parent / "worker"
_OPTIONS = ("-std=gnu11", "-Os", "-fPIE", "-pie", "-s", "-fno-stack-protector", "-nostartfiles")
# Candidates find functions of mathematics and of threads in the process; before glibc 2.34 these
# had libraries of their own.
_LIBRARIES = ("-Wl,--no-as-needed", "-lm", "-l:libdl.so.2", "-l:libpthread.so.0")

ARCHITECTURES = ("x86_64", "aarch64")
"""Processor families that workers are made for, as `uname -m` names them."""


@dataclass(frozen=True)
class Program:
    """A worker, and the hash of its bytes."""

    code: bytes
    sha256: str


def triple_of(architecture: str) -> str:
    """LLVM's target triple of Linux on a family of processors."""
    return f"{architecture}-unknown-linux-gnu"


@functools.cache
def worker_program(architecture: str) -> Program:
    """The worker of a family of processors. Raises `BuildError` without a C compiler for it."""
    compiler = find_compiler(triple_of(architecture))
    sources = sorted(_SOURCES.glob("*.[ch]"))
    texts = (
        p.read_text(encoding="utf-8")
        for p in (*sources, RUNTIME / "runtime.h", RUNTIME / "base.h")
    )

    def make(path: Path) -> None:
        options = (*_OPTIONS, "-I", RUNTIME, "-o", path)
        compiler.run(*options, _SOURCES / "worker.c", *_LIBRARIES)

    parts = (compiler.identity, *_OPTIONS, *_LIBRARIES, *texts)
    code = cached_file(parts, ".worker", make).read_bytes()
    return Program(code, hashlib.sha256(code).hexdigest())
