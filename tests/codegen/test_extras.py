"""What stands beside exported libraries, and the examples in other languages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import loopwright as lw
from loopwright.dsl.errors import LibraryError
from tests.codegen import kernels

EXAMPLES = Path(__file__).parents[2] / "examples"


def told(example: Path, folder: Path, monkeypatch) -> list[str]:
    """What an example prints, compiled and run in a folder as its head tells."""
    monkeypatch.chdir(folder)
    shutil.copy(example, folder)
    lines = [t[7:] for t in example.read_text().splitlines() if t.startswith("//     ")]
    exec("\n".join(lines[:-1]), {})
    done = subprocess.run(lines[-1], shell=True, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout.splitlines()


def test_the_cpp_example_runs_with_the_library_that_it_tells_to_make(tmp_path, monkeypatch):
    for tool in ("c++", "pkg-config"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool}")
    assert told(EXAMPLES / "cpp/main.cpp", tmp_path, monkeypatch) == [
        "24 24",
        "shape: A has shape [12, 16], and must have [24, 12]",
        "overlap: 9, an output overlaps an input or another output",
    ]


def test_the_rust_example_runs_with_the_library_that_it_tells_to_make(tmp_path, monkeypatch):
    if not shutil.which("rustc"):
        pytest.skip("needs rustc")
    lines = told(EXAMPLES / "rust/main.rs", tmp_path, monkeypatch)
    assert lines == ["24", "a pointer is null"]


MISTAKES = """
#include "product.hpp"
#include <vector>
namespace lib = loopwright::product;
int main() {
  std::vector<float> values(5);
  try {
    lib::view<const float, 2>(values, {2, 3});
  } catch (const lib::shape_error &mistake) {
    return std::string(mistake.what()) != "5 elements are no array of shape [2, 3]";
  }
  return 2;
}
"""


def test_the_cpp_header_compiles_without_a_warning_whatever_is_bound(tmp_path):
    if not shutil.which("g++"):
        pytest.skip("needs g++")
    A = lw.tensor("view", (3, 4), "float16")
    B, C = lw.tensor("loopwright", (4,), constant=True), lw.tensor("product")
    i, j = lw.indices("i j")
    C[i] += lw.cast(A[i, j], "float32") * B[j]
    library = lw.build(lw.workload(C), target="c")
    library.export(tmp_path / "product.so", extras=["c++"])
    (tmp_path / "main.cpp").write_text(MISTAKES)
    flags = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic")
    command = ["g++", *flags, "main.cpp", "./product.so", "-o", "main", "-Wl,-rpath,."]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run(["./main"], cwd=tmp_path, check=True)
    folder = library.export(tmp_path / "product", extras=["c++"])
    assert (folder / "product.hpp").read_text() == (tmp_path / "product.hpp").read_text()


def test_extras_that_there_are_not_are_refused_before_anything_is_written(tmp_path):
    library = kernels.matmul()
    with pytest.raises(LibraryError, match=r"no extra 'rust'; there are c\+\+, pkg-config"):
        library.export(tmp_path / "mm.so", extras=["rust"])
    with pytest.raises(LibraryError, match=r"give a list, such as \['c\+\+'\]"):
        library.export(tmp_path / "mm.so", extras="c++")
    with pytest.raises(LibraryError, match="pkg-config is for shared objects"):
        library.export(tmp_path / "mm", extras=["pkg-config"])
    assert not list(tmp_path.iterdir())


def test_a_library_of_open_sizes_has_no_extras(tmp_path):
    library = lw.build(lw.ops.relu(lw.tensor("x", (lw.dim("n", 1, 4), 3))))
    with pytest.raises(LibraryError, match="libraries of processors and of fixed sizes"):
        library.export(tmp_path / "relu_rows.so", extras=["c++"])
    assert not list(tmp_path.iterdir())
