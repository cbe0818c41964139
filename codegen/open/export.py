"""Libraries of open sizes as files: in C, the sizes are `int64_t` parameters before the arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopwright.c_names import is_variable
from loopwright.codegen.library.binary import DTYPE_CODES, bits
from loopwright.codegen.library.export import check_place, write_linked
from loopwright.codegen.library.header import Functions, parameter_names
from loopwright.codegen.library.manifest import describe
from loopwright.codegen.library.signature import Signature
from loopwright.codegen.open.plan import FUNCTIONS, expression
from loopwright.codegen.open.signature import OpenSignature
from loopwright.dsl.errors import LibraryError
from loopwright.dsl.index import Affine, Index, Quotient
from loopwright.dsl.size import Size
from loopwright.schedule.tree.formula import Formula

if TYPE_CHECKING:
    from loopwright.codegen.open.library import OpenLibrary


def export_open(library: OpenLibrary, path: Path) -> Path:
    """Write NAME.so, NAME.h and NAME.json, as `export` does for fixed sizes."""
    check_place(path)
    signature = library.open_signature
    bound = [p.name for p in signature.inputs if p.name not in library._names]
    if bound:
        raise LibraryError(
            f"{' and '.join(bound)} {'are' if len(bound) > 1 else 'is'} bound, and a library of "
            "open sizes is exported without: export the one that bind was called on, and lay them "
            "out in C by NAME_prepare"
        )
    functions = OpenFunctions(path.stem, signature)
    manifest = describe(path.name, signature, library.origin)
    return write_linked(path, library.origin, functions, manifest, wrap=False)


class OpenFunctions(Functions):
    """The functions by which C calls a library of open sizes."""

    def __init__(self, name: str, signature: OpenSignature) -> None:
        self.open = signature
        whole = signature.largest
        plain = Signature(
            whole.name,
            tuple(p for p in whole.inputs if p.name != signature.sizes),
            whole.outputs,
            whole.constants,
            whole.prepared,
            whole.threads,
        )
        names = parameter_names(plain)
        taken = {*names, *names.values()}
        self.of_dim = {d.name: _free(d.name, taken) for d in signature.dims}
        self.sizes = tuple(self.of_dim.values())
        super().__init__(name, plain)

    def _described(self, p: Any) -> str:
        known = {q.name: q for q in (*self.open.inputs, *self.open.outputs)}
        return super()._described(known.get(p.name, p))

    def header(self, about: str, rules: str, more: str) -> str:
        """The text of NAME.h."""
        dims = zip(self.sizes, self.open.dims, strict=True)
        sizes = (f" *   {name}: {d.allowed()}" for name, d in dims)
        return super().header("\n".join((about, *sizes)), rules, more)

    def definitions(self) -> str:
        """C source of what the header declares, and of the choice of a program."""
        count = len(self.sizes)
        rows = ",\n    ".join(
            "{" + ", ".join(map(str, (*(n for pair in r.bounds for n in pair), r.program))) + "}"
            for r in self.open.rules
        )
        tests = " && ".join(
            f"rule[{2 * k}] <= {s} && {s} <= rule[{2 * k + 1}]" for k, s in enumerate(self.sizes)
        )
        given = ", ".join(f"int64_t {size}" for size in self.sizes)
        choice = f"""{FUNCTIONS}
/* The program that sizes run: the least and the greatest of each, and its number. */
static int64_t lw_program({given}) {{
  static const int64_t rules[][{2 * count + 1}] = {{
    {rows}}};
  for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {{
    const int64_t *rule = rules[k];
    if ({tests}) return rule[{2 * count}];
  }}
  return -1;
}}

"""
        return choice + super().definitions()

    def call(self, step: str, pointers: Sequence[str]) -> str:
        """The statements that call `main` or `prepare`."""
        if step != "main":
            return super().call(step, pointers)
        checks = " || ".join(
            f"{name} < {d.low} || {name} > {d.high}"
            + (f" || {name} % {d.multiple}" if d.multiple > 1 else "")
            for name, d in zip(self.sizes, self.open.dims, strict=True)
        )
        known = {p.name: p for p in (*self.open.inputs, *self.open.outputs)}
        rows = [f"{{{1 + len(self.sizes)}, {_type('int64')}, 1, 0}}"]
        for p in self.signature.main_parameters:
            elements = " * ".join(f"({self._size(n)})" for n in known.get(p.name, p).shape) or "1"
            rows.append(f"{{{elements}, {_type(p.dtype)}, 1, {int(p in self.signature.outputs)}}}")
        listed = ", ".join(f"(void *){pointer}" for pointer in ("lw_sizes", *pointers))
        chosen, table = ", ".join(self.sizes), ",\n      ".join(rows)
        return f"""  if ({checks}) return LW_BAD_ARGUMENT;
  const int64_t lw_sizes[] = {{lw_program({chosen}), {chosen}}};
  const lw_parameter lw_parameters[] = {{
      {table}}};
  const lw_function lw_main = {{__tvm_ffi_main, lw_parameters, {len(rows)}}};
  void *const pointers[] = {{{listed}}};
  return lw_checked_call(&lw_main, pointers);"""

    def _size(self, extent: int | Size | Formula) -> str:
        if isinstance(extent, Size):
            return self._expression(extent.form)
        return expression(extent, self.of_dim)

    def _expression(self, form: Affine) -> str:
        parts = [f"INT64_C({form.const})"]
        for atom, factor in form.terms:
            if isinstance(atom, Index):
                value = self.of_dim[atom.name]
            else:
                inside = self._expression(atom.value)
                value = f"lw_floordiv({inside}, {atom.divisor})"
                if not isinstance(atom, Quotient):
                    value = f"({inside} - {atom.divisor} * {value})"
            parts.append(f"{factor} * {value}")
        return " + ".join(parts)


def _type(dtype: str) -> str:
    return f"{DTYPE_CODES[dtype]}, {bits(dtype)}"


def _free(name: str, taken: set[str]) -> str:
    name = name if is_variable(name) else f"x_{name}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name
