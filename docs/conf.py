"""Sphinx's settings for the site; `make docs` builds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from loopwright.version import __version__

project = "Loopwright"
author = copyright = "The Loopwright maintainers"  # noqa: A001
release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "docstrings",
    "notebooks",
    "pages",
]
exclude_patterns = ["lab", "_build"]
html_theme = "furo"
html_title = f"Loopwright {release}"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
