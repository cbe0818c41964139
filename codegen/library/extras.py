"""Files that may stand beside an exported library: a C++ header, and a file for pkg-config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loopwright.codegen.library.export import write_together
from loopwright.codegen.library.header import C_TYPES, MADE_BY, parameter_names
from loopwright.codegen.library.signature import Parameter, Signature
from loopwright.dsl.errors import LibraryError
from loopwright.version import __version__

EXTRAS = ("c++", "pkg-config")

_BASE = Path(__file__).parent / "runtime/view.hpp"


def check_extras(extras: Sequence[str], path: Path, for_cpu: bool = True) -> None:
    """Raises `LibraryError` for an extra that is unknown, or that an export to `path` has not."""
    if isinstance(extras, str) or not isinstance(extras, Sequence):
        raise LibraryError(f"extras is {extras!r}: give a list, such as ['c++']")
    for extra in extras:
        if extra not in EXTRAS:
            raise LibraryError(f"there is no extra {extra!r}; there are {', '.join(EXTRAS)}")
    if extras and not for_cpu:
        raise LibraryError(
            "extras are for libraries of processors and of fixed sizes: leave them out here"
        )
    if "pkg-config" in extras and path.suffix != ".so":
        raise LibraryError(f"{path} is a folder for CMake: pkg-config is for shared objects")


def write_extras(extras: Sequence[str], signature: Signature, path: Path) -> None:
    """Write NAME.hpp and NAME.pc, as far as they are asked for. Raises `LibraryError`."""
    name = path.stem
    folder = path.parent if path.suffix == ".so" else path
    files = {}
    if "c++" in extras:
        files[folder / f"{name}.hpp"] = cpp_header(name, signature)
    if "pkg-config" in extras:
        files[folder / f"{name}.pc"] = pkg_config(name, signature)
    write_together({file: text.encode() for file, text in files.items()})


def pkg_config(name: str, signature: Signature) -> str:
    """The text of NAME.pc, which finds NAME.so in its own folder."""
    outputs = ", ".join(p.name for p in signature.outputs)
    return f"""# {MADE_BY}.
libdir=${{pcfiledir}}

Name: {name}
Description: {outputs}, computed by a library that Loopwright made
Version: {__version__}
Cflags: -I${{libdir}}
Libs: -L${{libdir}} -l:{name}.so -Wl,-rpath,${{libdir}}
"""


def cpp_header(name: str, signature: Signature) -> str:
    """The text of NAME.hpp: the functions of NAME.h for views, with exceptions."""
    names = parameter_names(signature)

    def view(p: Parameter) -> str:
        const = "" if p in signature.outputs else "const "
        # Said in full, since a parameter may be called like any of these.
        return f"::loopwright_base::view<{const}{C_TYPES[p.dtype]}, {len(p.shape)}>"

    def function(called: str, parameters: Sequence[Parameter], *more: str) -> tuple[str, str]:
        """The parameters and the statements of a C++ function around one of C's."""
        declared = ", ".join(f"{view(p)} {names[p.name]}" for p in parameters)
        checks = "".join(
            f'  {names[p.name]}.check("{names[p.name]}", {{{", ".join(map(str, p.shape))}}});\n'
            for p in parameters
        )
        data = {p: f"{names[p.name]}.data()" for p in parameters}
        given = [text for p, text in data.items() if p not in signature.outputs]
        written = [text for p, text in data.items() if p in signature.outputs]
        arguments = ", ".join((*given, *more, *written))
        return declared, f"{checks}  ::loopwright::{name}::check(::{called}({arguments}));"

    shapes = "\n".join(
        f"//   {names[p.name]}: {p}" for p in (*signature.inputs, *signature.outputs)
    )
    declared, body = function(name, (*signature.inputs, *signature.outputs))
    weights = ""
    if signature.prepared:
        constants, prepare = function(
            f"{name}_prepare", signature.constant_inputs, "this->block_.get()"
        )
        plain = (*signature.plain_inputs, *signature.outputs)
        rest, run = function(f"{name}_run", plain, "this->block_.get()")
        weights = f"""
// Weights that are laid out once, for many calls.
class weights {{
 public:
  explicit weights({constants}) : block_(::loopwright_base::allocate({name}_prepared_bytes())) {{
{_indented(prepare)}
  }}

  void run({rest}) const {{
{_indented(run)}
  }}

 private:
  ::loopwright_base::block block_;
}};
"""
    return f"""// {name}: {MADE_BY}. For C++17, with {name}.h and what that needs.
//
{shapes}
#ifndef LOOPWRIGHT_LIBRARY_{name}_HPP_
#define LOOPWRIGHT_LIBRARY_{name}_HPP_

#include "{name}.h"

{_BASE.read_text(encoding="utf-8").strip()}

namespace loopwright::{name} {{

using ::loopwright_base::error;
using ::loopwright_base::shape_error;
template <class T, std::size_t Rank>
using view = ::loopwright_base::view<T, Rank>;

// Throws `error` with the words of a status, unless it is 0.
inline void check(int status) {{
  if (status) throw error(status, {name}_error(status));
}}

// Computes the outputs from the inputs. Throws `shape_error`, and `error` for what C tells.
inline void run({declared}) {{
{body}
}}
{weights}
inline void set_threads(int threads) {{ check({name}_set_threads(threads)); }}
inline int threads() {{ return {name}_threads(); }}

}}  // namespace loopwright::{name}

#endif
"""


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
