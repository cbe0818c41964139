"""Libraries as folders of C source: the kernels, their header, the run-time, a CMakeLists.txt.

The folder NAME has NAME.c, NAME.h, CMakeLists.txt, the run-time in runtime/, and NAME_weights.c
where arrays are bound. A C11 compiler that knows GCC's attributes is all it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from loopwright.codegen.library.arrays import Array
from loopwright.codegen.library.bound import without_bound
from loopwright.codegen.library.export import write_together
from loopwright.codegen.library.header import (
    C_TYPES,
    MADE_BY,
    Functions,
    check_name,
    define,
    header,
    shared_functions,
)
from loopwright.codegen.library.linker import RUNTIME
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.dsl.dtypes import item_bytes
from loopwright.dsl.errors import LibraryError
from loopwright.paths import new_folder, why

_RUNTIME_FILES = (
    *("base.h", "base.c", "pool.c", "workspace.c", "order.c", "order.h"),
    "elements.h",
)
_PER_LINE = 8  # numbers of a weight
_LEAST = str(-(1 << 63))


def export_folder(
    signature: Signature, kernels: Mapping[str, str], path: Path, bound: Mapping[str, Array]
) -> Path:
    """Write the folder `path` of C source in parts (see `Origin`); return it. Raises
    `LibraryError`."""
    name = path.name
    _check_folder(path)
    left = without_bound(signature, bound) if bound else signature
    functions = _Functions(name, left, signature)
    # What is bound is laid out already.
    text = "".join(part for n, part in kernels.items() if n != "prepare" or left.prepared)
    about = f"""{MADE_BY}. Compile {name}.c and runtime/base.c with it, or use CMakeLists.txt.
 *
 * Arrays are dense, in C order:"""
    files = {f"{name}.c": _source(functions, text, bound)}
    if bound:
        files[f"{name}_weights.c"] = "".join(_weights(functions, signature, bound))
    files |= {
        f"runtime/{file}": (RUNTIME / file).read_text(encoding="utf-8") for file in _RUNTIME_FILES
    }
    files["CMakeLists.txt"] = _cmake(name, left.threads, bool(bound))
    files[f"{name}.h"] = header(Functions(name, left), about)
    try:
        (path / "runtime").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LibraryError(f"cannot write the library: {why(error)}") from error
    write_together({path / file: text.encode() for file, text in files.items()})
    return path


def _check_folder(path: Path) -> None:
    """Raises `LibraryError` where no folder of ours can be: it is new, empty, or an export."""
    new_folder(path, "the library", LibraryError)
    check_name(path.name, suffix="")
    if not path.exists():
        return
    beside = path / f"{path.name}.h"
    ours = (
        beside.is_file()
        and MADE_BY in beside.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    )
    if not ours and any(path.iterdir()):
        raise LibraryError(f"{path} holds other files: give the export a folder of its own")


class _Functions(Functions):
    """Functions that call the kernels of C source."""

    def __init__(self, name: str, left: Signature, whole: Signature) -> None:
        """`left` is the signature without what is bound."""
        super().__init__(name, left)
        self.all_parameters = {"main": whole.main_parameters, "prepare": whole.prepare_parameters}

    def weight(self, name: str) -> str:
        """The C name of a bound array."""
        numbers = [p.name for p in self.all_parameters["main"]]
        return f"{self.name}_weight{numbers.index(name)}"

    def call(self, step: str, pointers: Sequence[str]) -> str:
        own = self.signature
        given, written = {
            "main": (own.main_parameters, own.outputs),
            "prepare": (own.prepare_parameters, own.prepared),
        }[step]
        at = {p.name: pointer for p, pointer in zip(given, pointers, strict=True)}
        rows = "".join(
            f"      {{{at[p.name]}, {p.nbytes}u, {item_bytes(p.dtype)}, {int(p in written)}}},\n"
            for p in given
        )
        arguments = ", ".join(self._argument(p, at.get(p.name)) for p in self.all_parameters[step])
        return f"""  const lw_array arrays[] = {{
{rows}  }};
  const int status = lw_check(arrays, {len(given)});
  return status ? status : kernel_{step}({arguments});"""

    def _argument(self, p: Parameter, pointer: str | None) -> str:
        if pointer is None:
            return self.weight(p.name)
        return f"(void *){pointer}" if p in self.signature.prepared else pointer


def _source(functions: _Functions, kernels: str, bound: Mapping[str, Array]) -> str:
    name, signature = functions.name, functions.signature
    declared = "".join(
        f"LW_HIDDEN extern const {C_TYPES[p.dtype]} {functions.weight(p.name)}[];\n"
        for p in functions.all_parameters["main"]
        if p.name in bound
    )
    return "\n".join(
        (
            kernels,
            f'/* ---- what {name}.h declares ---- */\n\n#include "{name}.h"\n{declared}',
            f"const int lw_default_threads = {signature.threads};\n",
            functions.definitions(),
            *(define(prototype, body) for prototype, body in shared_functions(name)),
        )
    )


def _weights(
    functions: _Functions, signature: Signature, bound: Mapping[str, Array]
) -> Iterator[str]:
    """C source of the arrays that are bound, as the kernels read them."""
    yield f'/* Weights of {functions.name}. */\n#include "base.h"\n\n#include <math.h>\n'
    for p in signature.main_parameters:
        if p.name not in bound:
            continue
        kind = C_TYPES[p.dtype]
        declared = f"const {kind} {functions.weight(p.name)}[{max(p.elements, 1)}]"
        yield f"\nLW_HIDDEN extern {declared};\n_Alignas(64) {declared} = {{\n"
        numbers = list(_numbers(bound[p.name], p.dtype)) or ["0"]
        for first in range(0, len(numbers), _PER_LINE):
            yield f"    {', '.join(numbers[first : first + _PER_LINE])},\n"
        yield "};\n"


def _numbers(array: Array, dtype: str) -> Iterator[str]:
    """The elements as C has them: floats with all digits that they need, halves as bits."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype in ("float16", "bfloat16"):
        flat = flat.view(np.uint16)
    elif dtype == "bool":
        flat = flat.view(np.uint8)
    suffix = {"float32": "f", "uint64": "u", "uint32": "u"}.get(dtype, "")
    special = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}
    for value in flat:
        text = str(value)
        if text in special:
            yield special[text]
        elif text == _LEAST:
            yield f"{int(value) + 1} - 1"  # C has no literal for it
        else:
            yield text + suffix


def _cmake(name: str, threads: int, weights: bool) -> str:
    more = f" {name}_weights.c" if weights else ""
    return f"""# {name}: {MADE_BY}.
#
#     cmake -B build -DCMAKE_C_FLAGS=-march=native && cmake --build build
cmake_minimum_required(VERSION 3.13)
project({name} C)

option(LOOPWRIGHT_THREADS "Run parallel loops on several threads" {"ON" if threads > 1 else "OFF"})
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library({name} {name}.c{more} runtime/base.c)
target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}} PRIVATE runtime)
target_compile_definitions({name} PRIVATE LW_PREFIX={name})
target_compile_options({name} PRIVATE -fno-math-errno -ffp-contract=fast)
set_target_properties({name} PROPERTIES
  C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
target_link_libraries({name} PUBLIC m)
if(LOOPWRIGHT_THREADS)
  find_package(Threads REQUIRED)
  target_link_libraries({name} PUBLIC Threads::Threads)
else()
  target_compile_definitions({name} PRIVATE LW_ONE_THREAD)
endif()
"""
