"""A Sphinx extension: pages made of what the code has, before the others are read.

They are the public names, one page a namespace, and one page for each registered rewrite.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import loopwright
from loopwright import costmodel, graph
from loopwright.dsl import ops
from loopwright.schedule.registry import REWRITES
from loopwright.schedule.rewrites.contract import Rewrite

if TYPE_CHECKING:
    from sphinx.application import Sphinx

NAMESPACES: dict[str, ModuleType] = {
    "loopwright": loopwright,
    "loopwright.ops": ops,
    "loopwright.costmodel": costmodel,
    "loopwright.graph": graph,
}


def written(folder: Path) -> None:
    """Write every page into a folder, and leave alone what is as it should be."""
    folder.mkdir(exist_ok=True)
    texts = {f"{name}.md": namespace_page(name) for name in NAMESPACES}
    texts |= {f"rewrite-{rewrite.name}.md": rewrite_page(rewrite) for rewrite in REWRITES}
    for path in folder.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def namespace_page(name: str) -> str:
    """The reference of one namespace: every public name of it."""
    module = NAMESPACES[name]
    lines = [f"# {name}", "", "```{eval-rst}", f".. currentmodule:: {name}", ""]
    for public in sorted(module.__all__):
        value = getattr(module, public)
        if not isinstance(value, ModuleType) and public != "__version__":
            lines += [*_directive(public, value), ""]
    return "\n".join([*lines, "```", ""])


def _directive(name: str, value: object) -> Iterator[str]:
    if inspect.isclass(value):
        yield f".. autoclass:: {name}"
        yield "   :members:"
    else:
        yield f".. autofunction:: {name}"


def rewrite_page(rewrite: Rewrite) -> str:
    """The page of one rewrite: its entry in the registry, and what its module says of it."""
    kind = type(rewrite)
    module = inspect.getdoc(sys.modules[kind.__module__])
    return f"""# {rewrite.name}

{inspect.getdoc(kind)}

| | |
|---|---|
| serves | {rewrite.needs} |
| works on the programs of | {", ".join(f"`{name}`" for name in rewrite.of)} |
| strictest numerics | `"{rewrite.numerics}"` |
| on GPUs | {"yes" if rewrite.gpu else "no"} |
| time depends on data | {"yes" if rewrite.data_dependent else "no"} |
| prior, times the estimate | {rewrite.prior:g} |

`{kind.__module__}` says:

{module}
"""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", lambda app: written(Path(app.srcdir, "generated")))
    return {"parallel_read_safe": True}
