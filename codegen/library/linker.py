"""From an object file to a shared object: finds the C compiler, keeps the run-time compiled."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loopwright.dsl.errors import BuildError, TargetError
from loopwright.temporary import TemporaryFolder

RUNTIME = Path(__file__).parent / "runtime"
TABLE = "loopwright_runtime"
"""The one symbol that every library has: the table that `binary.py` reads."""

_COMPILE = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-ffunction-sections")
_LAUNCHER_LIBRARIES = ("-ldl", "-pthread")
_TIMEOUT = 120.0  # seconds; a compiler that needs more hangs
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}


def architecture(triple: str | None = None) -> str:
    """The processor family of a target triple, or of this machine: "x86_64", "aarch64", …"""
    name = triple.split("-")[0] if triple else platform.machine()
    return _ALIASES.get(name.lower(), name.lower())


def is_native(triple: str | None) -> bool:
    """Return whether code for `triple` (None: this machine) runs here. Raises `TargetError` but
    for Linux."""
    if triple and "linux" not in triple:
        raise TargetError(f"libraries are made for Linux only; the target is {triple}")
    return architecture(triple) == architecture()


@dataclass(frozen=True)
class Compiler:
    """A C compiler driver: the command that starts it, and what makes this build of it unique."""

    command: tuple[str, ...]
    identity: str

    def run(self, *arguments: str | Path) -> str:
        """Runs it; returns what it prints. Raises `BuildError` with its messages on failure."""
        return _run([*self.command, *map(str, arguments)])

    @functools.cached_property
    def linker(self) -> str | None:
        """The linker that it would start, for starting that directly, in half the time; None
        where the command says more than a name and so may choose between several."""
        if len(self.command) > 1:
            return None
        return shutil.which(self.run("-print-prog-name=ld").strip())

    @functools.cached_property
    def helpers(self) -> str:
        """The archive of functions that compiled code may call, such as AArch64's atomics."""
        return self.run("-print-libgcc-file-name").strip()


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"could not run the C compiler: {error}") from error
    if done.returncode:
        status = done.returncode
        how = f"failed with status {status}"
        if status < 0:
            how = f"was ended by a signal: {signal.strsignal(-status)}"
        raise BuildError(
            f"the C compiler {how}\ncommand: {shlex.join(command)}\n{done.stderr.strip()[-4000:]}"
        )
    return done.stdout


def find_compiler(triple: str | None = None) -> Compiler:
    """The C compiler for `triple` (None: this machine).

    Here: $CC, then cc, gcc, clang. For another machine: <triple>-gcc, with and without the
    vendor part. Raises `BuildError` where there is none.
    """
    if triple is None or is_native(triple):
        wanted = [os.environ.get("CC", ""), "cc", "gcc", "clang"]
        advice = "install one (Debian: apt-get install gcc libc6-dev) or set CC to it"
    else:
        short = "-".join((triple.split("-")[0], *triple.split("-")[-2:]))
        wanted = [f"{triple}-gcc", f"{short}-gcc"]
        advice = f"install one (Debian: apt-get install gcc-{short})"
    for name in wanted:
        command = tuple(shlex.split(name))
        if command and (path := shutil.which(command[0])):
            return _compiler(command, f"{shlex.join(command)} {_identity(path)}")
    tried = ", ".join(dict.fromkeys(name for name in wanted if name))
    raise BuildError(f"no C compiler found: looked for {tried} on the PATH; {advice}")


@functools.cache
def _compiler(command: tuple[str, ...], identity: str) -> Compiler:
    return Compiler(command, identity)  # one object, for what it remembers


def _identity(path: str) -> str:
    real = os.path.realpath(path)
    status = os.stat(real)
    return f"{real} {status.st_size} {status.st_mtime_ns}"


def disassembly(code: bytes) -> str:
    """Instructions of an object file, as objdump shows them without its heading, which names a
    temporary file. Raises `BuildError`."""
    program = find_compiler().run("-print-prog-name=objdump").strip()
    with TemporaryFolder() as folder:
        path = folder / "kernel.o"
        path.write_bytes(code)
        shown = _run([program, "-d", "-M", "intel", "--no-show-raw-insn", str(path)])
        return shown[shown.index("\n\n") :].lstrip()


def runtime_objects(compiler: Compiler) -> list[Path]:
    """The run-time, compiled; from the user's cache after the first time:
    $XDG_CACHE_HOME/loopwright, by default ~/.cache/loopwright, or a temporary folder. Processes
    may do this at once."""
    return [_cached_object(compiler, source) for source in ("runtime.c", "variants.c")]


_HOST = """#include "runtime.h"
int __tvm_ffi_main(void *self, const lw_any *arguments, int32_t count, lw_any *result) {
  (void)self, (void)arguments, (void)count, (void)result;
  return 0;
}
"""


def host_library() -> Path:
    """A library that has the run-time and a function that does nothing; from the same cache."""
    compiler = find_compiler()

    def make(path: Path) -> None:
        with TemporaryFolder() as folder:
            source, built, script = (folder / name for name in ("host.c", "host.o", "symbols.map"))
            source.write_text(_HOST, encoding="utf-8")
            compiler.run(*_COMPILE, "-I", RUNTIME, "-c", source, "-o", built)
            script.write_text(f"{{ global: {TABLE}; local: *; }};\n", encoding="utf-8")
            options = f"-Wl,-S,--version-script={script}"
            objects = runtime_objects(compiler)
            compiler.run("-shared", options, built, *objects, "-o", path, "-pthread")

    return cached_file((compiler.identity, *_COMPILE, _HOST, _sources()), ".so", make)


def launcher(output: Path) -> None:
    """Links the launcher of CUDA programs into the file `output`. Raises `BuildError`."""
    compiler = find_compiler()
    compiler.run("-shared", _cached_object(compiler, "cuda.c"), "-o", output, *_LAUNCHER_LIBRARIES)


def link_launcher(source: str, output: Path) -> None:
    """The same of C source that sees cuda.h, as a whole library. Raises `BuildError`."""
    compiler = find_compiler()
    with TemporaryFolder() as folder:
        text, built = folder / "library.c", folder / "library.o"
        text.write_text(source, encoding="utf-8")
        compiler.run(*_COMPILE, "-I", RUNTIME, "-c", text, "-o", built)
        objects = (built, _cached_object(compiler, "cuda.c"))
        options = f"-Wl,-S,-soname,{output.name},-z,defs"
        compiler.run("-shared", options, *objects, "-o", output, *_LAUNCHER_LIBRARIES)


@functools.cache
def _sources() -> str:
    return "\0".join(p.read_text(encoding="utf-8") for p in sorted(RUNTIME.glob("*.[ch]")))


def _cached_object(compiler: Compiler, source: str) -> Path:
    def make(path: Path) -> None:
        compiler.run(*_COMPILE, "-c", RUNTIME / source, "-o", path)

    return cached_file((compiler.identity, *_COMPILE, source, _sources()), ".o", make)


def cached_file(parts: Sequence[str], suffix: str, make: Callable[[Path], None]) -> Path:
    """The file that `make` writes, kept in the user's cache by the hash of `parts`: see
    `runtime_objects`. Raises `BuildError`."""
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    problem = BuildError(
        "found no folder to write to: neither the user's cache nor a temporary one"
    )
    for folder in _cache_folders():
        path = folder / f"{key}{suffix}"
        if path.is_file():
            return path
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=folder, suffix=suffix)
        except OSError:
            continue
        os.close(descriptor)
        try:
            make(Path(name))
            os.replace(name, path)
        except BuildError as error:  # there may be no room, and then there is in the next one
            problem = error
        else:
            return path
        finally:
            Path(name).unlink(missing_ok=True)
    raise problem


def _cache_folders() -> Iterator[Path]:
    root = os.environ.get("XDG_CACHE_HOME", "")
    with contextlib.suppress(RuntimeError):  # this user may have no home
        yield (
            Path(root) if os.path.isabs(root) else Path.home() / ".cache"
        ) / "loopwright/runtime"
    yield Path(_own_temporary().name)


@functools.cache
def _own_temporary() -> TemporaryFolder:
    # Private to this process: in a shared folder, somebody else could plant an object.
    return TemporaryFolder()


def link(
    objects: Sequence[bytes],
    output: Path,
    *,
    triple: str | None = None,
    wrapper: str | None = None,
    public: Sequence[str] = (),
    complete: bool = False,
    wrap: bool = False,
) -> None:
    """Links object files with the run-time into the shared object `output`. Raises `BuildError`.

    `wrapper` is C source that goes in too, and sees runtime.h. `public` symbols are shown beside
    `TABLE`. `complete` names libc and libm as dependencies, for files that must stand alone;
    without it the link is three times as fast, and fails later for missing symbols. With `wrap`
    the objects have a plan around their `main` (`plan.object_files`).
    """
    compiler = find_compiler(triple)
    with TemporaryFolder() as folder:
        files = []
        for number, code in enumerate(objects):
            files.append(folder / f"{number}.o")
            files[-1].write_bytes(code)
        if wrapper is not None:
            source, built = folder / "wrapper.c", folder / "wrapper.o"
            source.write_text(wrapper, encoding="utf-8")
            compiler.run(*_COMPILE, "-I", RUNTIME, "-c", source, "-o", built)
            files.append(built)
        files += runtime_objects(compiler)
        script = folder / "symbols.map"
        script.write_text(
            f"{{ global: {'; '.join((TABLE, *public))}; local: *; }};\n", encoding="utf-8"
        )
        options = ["-S", f"--version-script={script}", "-soname", output.name, "--eh-frame-hdr"]
        if wrap:
            options.append("--wrap=__tvm_ffi_main")
        target = ["-shared", "-o", str(output), *map(str, files)]
        if complete:
            options += ["-z", "defs", "--as-needed"]
            compiler.run(f"-Wl,{','.join(options)}", *target, "-lm", "-pthread")
        elif compiler.linker:
            _run([compiler.linker, *options, *target, *_helpers(compiler, triple)])
        else:
            helpers = _helpers(compiler, triple)
            compiler.run("-nostdlib", f"-Wl,{','.join(options)}", *target, *helpers)


def _helpers(compiler: Compiler, triple: str | None) -> list[str]:
    """Files that a fast link takes beside its objects: on x86-64 the run-time calls no helpers."""
    return [] if architecture(triple) == "x86_64" else [compiler.helpers]
