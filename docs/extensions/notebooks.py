"""A Sphinx extension: the tutorials as notebooks, in the site's folder `notebooks`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import jupytext

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)  # what tests need to know
_LINK = re.compile(r"(!?)\[([^]]*)\]\((?:\.\./)?([\w./-]+?)\.(md|png)(#[\w-]*)?\)")


def notebook(page: Path) -> str:
    """A page as a notebook, in JSON: a cell for each block, and links into the site."""
    made = jupytext.read(page)
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    for number, cell in enumerate(made.cells):
        cell.id = f"cell-{number}"  # not drawn: the same page gives the same notebook
        if cell.cell_type == "markdown":
            cell.source = _LINK.sub(_to_site, _COMMENT.sub("", cell.source))
    text: str = jupytext.writes(made, fmt="ipynb")
    return text


def _to_site(link: re.Match[str]) -> str:
    image, words, place, kind, part = link.groups()
    if image:  # Sphinx gathers them in one folder
        return f"![{words}](../_images/{place}.{kind})"
    folder = "" if "(../" in link[0] else "tutorials/"
    return f"[{words}](../{folder}{place}.html{part or ''})"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""

    def write(app: Sphinx, error: Exception | None) -> None:
        if error is None and app.builder.format == "html":
            folder = Path(app.outdir, "notebooks")
            folder.mkdir(exist_ok=True)
            for page in sorted(Path(app.srcdir, "tutorials").glob("*.md")):
                (folder / f"{page.stem}.ipynb").write_text(notebook(page), encoding="utf-8")

    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
