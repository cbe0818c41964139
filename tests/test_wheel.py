"""The package as users install it: a wheel and a source archive, and the wheel alone at work."""

import glob
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.test_package import FOLDERS, MODULES, ROOT

pytestmark = pytest.mark.slow

WORK = """
import numpy as np
import loopwright as lw

i, j, k = lw.indices("i j k")
A, B, C = lw.tensor("A", (4, 3)), lw.tensor("B", (3, 2)), lw.tensor("C")
C[i, j] += A[i, k] * B[k, j]
a, b = np.arange(12, dtype="float32").reshape(4, 3), np.ones((3, 2), "float32")
library = lw.build(lw.workload(C))
np.testing.assert_array_equal(library(a, b), a @ b)
library.export("matmul.so")
np.testing.assert_array_equal(lw.load("matmul.so")(a, b), a @ b)
tuned = lw.tune(lw.workload(C), trials=3, records="tuning.db")
np.testing.assert_array_equal(tuned.library(a, b), a @ b)
try:
    tuned.plot("curve.png")
except lw.LoopwrightError as error:
    assert str(error).endswith('pip install "loopwright[plots]"'), error
else:
    raise AssertionError("a plot without matplotlib")
"""

PROGRAM = r"""
#include <stdio.h>
#include "matmul.h"

int main(void) {
  float A[4][3] = {{1, 2, 3}}, B[3][2] = {{1, 0}, {0, 1}, {1, 1}}, C[4][2];
  if (matmul(&A[0][0], &B[0][0], &C[0][0])) return 1;
  printf("%g %g\n", C[0][0], C[0][1]);
  return 0;
}
"""


def done(*command, cwd, env=None):
    """What a command prints."""
    result = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout


def interpreter(version):
    """Path of a Python of a version that runs here; None if there is none."""
    root = os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))
    found = [shutil.which(f"python{version}")]
    found += sorted(glob.glob(f"{root}/versions/{version}.*/bin/python"))
    for path in filter(None, found):
        if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source archive, made of a copy of what git has."""
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    for name in [*FOLDERS, "pyproject.toml", "README.md", "LICENSE"]:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, checkout / name)
    done(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), cwd=checkout)
    (wheel,), (archive,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, archive


def test_every_module_is_once_in_a_wheel_and_once_in_a_source_archive(built):
    wheel, archive = built
    with zipfile.ZipFile(wheel) as file:
        found = file.namelist()
    assert sorted(n for n in found if n.endswith(".py")) == sorted(MODULES)
    assert "loopwright/py.typed" in found
    with tarfile.open(archive) as sources:
        files = [m.name.partition("/")[2] for m in sources if m.isfile()]
    assert sorted(n for n in files if n.endswith(".py")) == sorted(MODULES)


@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_the_wheel_alone_builds_tunes_and_exports_what_c_programs_call(version, built, tmp_path):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} here")
    done(python, "-m", "venv", "env", cwd=tmp_path)
    there, work = str(tmp_path / "env/bin/python"), tmp_path / "work"
    work.mkdir()
    done(there, "-m", "pip", "install", "--quiet", str(built[0]), cwd=work)
    assert "matplotlib" not in done(there, "-m", "pip", "list", cwd=work)
    (work / "work.py").write_text(WORK)
    done(there, "work.py", cwd=work)
    (work / "main.c").write_text(PROGRAM)
    done("cc", "main.c", "./matmul.so", "-o", "main", "-Wl,-rpath,$ORIGIN", cwd=work)
    assert done("./main", cwd=work, env={}) == "4 5\n"
    command = [str(tmp_path / "env/bin/loopwright"), "tune", "ij,jk->ik", "i=8", "j=8", "k=8"]
    done(*command, "--trials=2", "-o", "product.so", cwd=work)
    assert (work / "product.h").exists()
