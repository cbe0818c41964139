"""Every fenced block of the pages for users runs, in an empty folder."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NEEDS = {"network": ("torch", "onnx", "onnxscript"), "compilers": ("torch", "onnx", "onnxscript")}
_SLOW = {"network", "compilers", "tune", "README"}

PAGES = [
    ROOT / "README.md",
    ROOT / "docs/index.md",
    *sorted((ROOT / "docs/tutorials").glob("*.md")),
    *sorted((ROOT / "docs/concepts").glob("*.md")),
    *sorted((ROOT / "docs/howto").glob("*.md")),
]


def script(page):
    """One program in Python of all blocks of a page."""
    lines = []
    for language, code in _BLOCK.findall(page.read_text()):
        shell = f"__import__('subprocess').run(['bash', '-euc', {code!r}], check=True)"
        lines.append(code if language == "python" else shell)
    return "\n".join(lines)


def case(page):
    return pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in _SLOW else [])


@pytest.mark.parametrize("page", [case(page) for page in PAGES if script(page)])
def test_every_block_of_a_page_runs(page, tmp_path):
    for package in _NEEDS.get(page.stem, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        [sys.executable, "-"],
        input=script(page),
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
