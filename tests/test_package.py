"""The package as a whole: it installs, imports cheaply, and has a sub-package for each folder."""

import inspect
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import loopwright

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(init.parent.name for init in ROOT.glob("*/__init__.py"))
"""The top-level folders, `loopwright` among them."""
MODULES = {
    str(path if folder == "loopwright" else Path("loopwright", path))
    for folder in FOLDERS
    for path in (p.relative_to(ROOT) for p in (ROOT / folder).rglob("*.py"))
}
"""The files of all modules, as they are installed."""
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


@pytest.mark.parametrize("name", ["", ".__main__", ".dsl", ".schedule"])
def test_what_defines_and_derives_imports_nothing_heavy(name: str, tmp_path: Path) -> None:
    program = f"import json, sys, loopwright{name}; print(json.dumps(list(sys.modules)))"
    assert HEAVY.isdisjoint(json.loads(python("-c", program, cwd=tmp_path)))


@pytest.mark.parametrize("name", ["tune", "tune_model", "tune_passes", "tune_many"])
def test_what_takes_minutes_imports_what_is_heavy_in_the_call(name: str, tmp_path: Path) -> None:
    program = f"import json, sys, loopwright; loopwright.{name}; print(json.dumps([*sys.modules]))"
    assert HEAVY.isdisjoint(json.loads(python("-c", program, cwd=tmp_path)))


def test_the_command_that_explains_imports_nothing_heavy(tmp_path: Path) -> None:
    program = "import sys; from loopwright.__main__ import main; main(standalone_mode=False)"
    asked = ("explain", "ij,jk->ik", "i=8", "j=8", "k=8")
    shown = python("-c", f"{program}; print(*sys.modules)", *asked, cwd=tmp_path)
    assert "default: direct" in shown
    assert HEAVY.isdisjoint(shown.splitlines()[-1].split())


_SEARCH = """
import sys
import loopwright as lw
from loopwright.measure.programs import ProgramDevice

begin, early = ProgramDevice.prepare, []

def prepare(device):
    early.append("loopwright.explore.search" not in sys.modules)
    begin(device)

ProgramDevice.prepare = prepare
A, B = lw.tensor("A", (16, 16)), lw.tensor("B", (16, 16))
product = lw.workload(lw.ops.matmul(A, B))
lw.space(product), lw.explain(product)
tuned = lw.tune(product, threads=1, trials=3, records=None, strategy="random", progress=False)
assert early == [True]
assert len(tuned.history) == 3 and tuned.seconds > 0
print(*{"tvm", "torch", "xgboost"}.intersection(sys.modules))
"""


def test_a_search_begins_its_processes_first_and_leaves_tvm_to_them(tmp_path: Path) -> None:
    assert python("-c", _SEARCH, cwd=tmp_path) == ""


def test_version() -> None:
    assert loopwright.__version__ == version("loopwright")
    cited = (ROOT / "CITATION.cff").read_text().splitlines()
    assert f"version: {loopwright.__version__}" in cited


def test_command_line(tmp_path: Path) -> None:
    expected = f"loopwright, version {loopwright.__version__}"
    assert python("-m", "loopwright", "--version", cwd=tmp_path) == expected
    script = Path(sys.executable).with_name("loopwright")
    assert subprocess.check_output([script, "--version"], text=True).strip() == expected


def test_every_top_level_folder_is_linked_as_a_sub_package() -> None:
    linked = {p.name: p.readlink() for p in (ROOT / "loopwright").iterdir() if p.is_symlink()}
    assert linked == {n: Path("..", n) for n in FOLDERS if n != "loopwright"}


def test_every_folder_with_modules_is_a_package() -> None:
    assert {str(Path(m).with_name("__init__.py")) for m in MODULES} <= MODULES


@pytest.mark.parametrize("where", ["root", "elsewhere"])
def test_sub_packages_import_from(where: str, tmp_path: Path) -> None:
    names = ", ".join(f"loopwright.{n}" for n in FOLDERS if n != "loopwright")
    python("-c", f"import {names}", cwd=ROOT if where == "root" else tmp_path)


def test_without_its_dependencies_the_checkout_says_what_to_install() -> None:
    # Without site-packages; -P would leave the folder out.
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import loopwright"],
        cwd=ROOT, env={}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "not installed" in done.stderr.splitlines()[-1]
    assert "`make` installs them" in done.stderr.splitlines()[-1]
    assert "circular" not in done.stderr


def test_dir_lists_what_users_use_and_nothing_else() -> None:
    assert dir(loopwright) == sorted(loopwright.__all__)
    assert {"Library", "build", "tune", "not_equal"} <= set(dir(loopwright))
    assert all(getattr(loopwright, name) is not None for name in dir(loopwright))


def test_dir_lists_operators_and_no_modules_among_them() -> None:
    assert dir(loopwright.ops) == sorted(loopwright.ops.__all__)
    assert all(inspect.isfunction(getattr(loopwright.ops, name)) for name in dir(loopwright.ops))
    assert loopwright.ops.einsum is loopwright.einsum


@pytest.mark.slow
def test_a_file_that_uses_the_installed_package_is_type_checked(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        "import loopwright as lw\n"
        'library = lw.build(lw.ops.relu(lw.tensor("x", (4,))))\n'
        "reveal_type(library)\n"
        "library.frobnicate()\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "user.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        'user.py:3: note: Revealed type is "loopwright.codegen.library.library.Library"',
        'user.py:4: error: "Library" has no attribute "frobnicate"  [attr-defined]',
    ]
    assert lines[2:] == ["Found 1 error in 1 file (checked 1 source file)"]
