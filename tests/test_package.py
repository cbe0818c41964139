"""The package as a whole: it installs, imports cheaply, and has a sub-package for each folder."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import loopwright

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
HEAVY = {
    "tvm",
    "tvm_ffi",
    "xgboost",
    "torch",
    "scipy",
    "onnx",
    "onnxruntime",
    "matplotlib",
    "pyopencl",
}


def python(*args: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *args], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def heavy_after(statement: str, cwd: Path) -> tuple[float, set[str]]:
    """How many seconds a statement takes in a fresh interpreter, and what it drags in."""
    program = (
        "import json, sys, time; start = time.perf_counter()\n"
        f"{statement}\n"
        "print(json.dumps([time.perf_counter() - start, list(sys.modules)]))"
    )
    seconds, modules = json.loads(python("-c", program, cwd=cwd))
    return seconds, HEAVY.intersection(modules)


def test_import_is_cheap(tmp_path: Path) -> None:
    runs = [heavy_after("import loopwright", tmp_path) for _ in range(3)]
    assert runs[0][1] == set()
    assert min(seconds for seconds, _ in runs) < 0.5


@pytest.mark.parametrize("name", ["__main__", "dsl", "schedule"])
def test_what_defines_and_derives_needs_no_compiler(name: str, tmp_path: Path) -> None:
    assert heavy_after(f"import loopwright.{name}", tmp_path)[1] == set()


def test_version() -> None:
    assert loopwright.__version__ == version("loopwright")


def test_command_line(tmp_path: Path) -> None:
    expected = f"loopwright, version {loopwright.__version__}"
    assert python("-m", "loopwright", "--version", cwd=tmp_path) == expected
    script = Path(sys.executable).with_name("loopwright")
    assert subprocess.check_output([script, "--version"], text=True).strip() == expected


def test_every_folder_with_code_is_listed() -> None:
    folder_of = SETUPTOOLS["package-dir"]
    found = {
        ".".join((name, *init.parent.relative_to(ROOT / folder).parts))
        for name, folder in folder_of.items()
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert found == set(SETUPTOOLS["packages"])


@pytest.mark.parametrize("where", ["root", "elsewhere"])
def test_sub_packages_import_from(where: str, tmp_path: Path) -> None:
    """From the root, ./loopwright is found before the installed one, and has no sub-packages."""
    names = ", ".join(SETUPTOOLS["packages"])
    python("-c", f"import {names}", cwd=ROOT if where == "root" else tmp_path)
