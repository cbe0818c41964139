"""The structure of the package: which folder may import which, and no cycles."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FLOORS = {
    "": ("dsl", "schedule", "costmodel", "codegen", "measure", "transfer", "explore", "graph"),
    "schedule": ("tree", "program", "sketch", "loops", "cpu", "gpu", "rewrites", "open"),
    "schedule.rewrites": ("contract", "bilinear"),
    "codegen": (
        "processors",
        "library",
        "devices",
        "facts",
        "gpu_target",
        "llvm",
        "target",
        "tvm_target",
        "c",
        "tir",
        "passes",
        "builtin",
        "gpu",
        "open",
        "either",
        "load",
    ),
    "costmodel": ("model", "features", "models", "sequence", "source"),
    "measure": (
        "timing",
        "machine",
        "device",
        "lease",
        "workers",
        "builder",
        "runner",
        "programs",
        "local",
        "pass_device",
        "remote",
        "fleet",
        "opening",
        "nest",
    ),
    "transfer": ("records", "pretrained"),
    "explore": (
        "budget",
        "strategies",
        "report",
        "recorder",
        "session",
        "finalize",
        "passes",
        "open",
        "tune",
    ),
    "graph": (
        "loops",
        "network",
        "importers",
        "transforms",
        "tasks",
        "compile",
        "open",
        "placed",
        "build",
        "tuning",
    ),
}
"""Of each folder, the floors that it has: none imports one that stands behind it."""


def modules():
    """The modules of the package, by name."""
    folders = (ROOT / name for name in ("loopwright", *FLOORS[""]))
    found = {}
    for path in (p for folder in folders for p in folder.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[1:] if parts[0] == "loopwright" else parts)
        found[name.removesuffix("__init__").rstrip(".")] = path
    return found


def imports(path, known):
    """The modules that a module imports, also inside of functions; not what types alone need."""

    def statements(node):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            for child in getattr(node, part, ()):
                yield from statements(child)

    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("loopwright"):
            source = node.module.removeprefix("loopwright").lstrip(".")
            for alias in node.names:
                inner = f"{source}.{alias.name}".lstrip(".")
                yield inner if inner in known else source


MODULES = modules()


@functools.cache
def arrows():
    """Of each module, those that it imports."""
    return {name: set(imports(path, MODULES)) - {name} for name, path in MODULES.items()}


def test_no_module_imports_itself_by_way_of_others():
    left = dict(arrows())
    while free := [name for name, used in left.items() if not used & set(left)]:
        for name in free:
            del left[name]
    assert not left, f"in a cycle, or above one: {sorted(left)}"


@pytest.mark.parametrize("folder", FLOORS)
def test_folders_import_only_what_stands_on_lower_floors(folder):
    order = FLOORS[folder]
    inside = f"{folder}." if folder else ""

    def floor(name):
        first = name.removeprefix(inside).partition(".")[0]
        return order.index(first) if name.startswith(inside) and first in order else None

    for name, used in arrows().items():
        for other in used:
            if floor(name) is not None and floor(other) is not None:
                assert floor(other) <= floor(name), f"{name} imports {other}"


def test_folders_are_small_enough_to_be_one_role():
    for folder in {Path(*name.split(".")[:-1]) for name in MODULES if "." in name}:
        inside = [n for n in MODULES if Path(*n.split(".")[:-1]) == folder]
        assert len([n for n in inside if MODULES[n].name != "__init__.py"]) <= 18, folder


def test_each_folder_says_what_it_is():
    for name, path in MODULES.items():
        if path.name == "__init__.py":
            assert ast.get_docstring(ast.parse(path.read_text())), name


def test_names_of_modules_in_prose_are_those_of_modules_that_exist():
    folders = "|".join(FLOORS[""])
    for path in MODULES.values():
        for name in re.findall(rf"`((?:{folders})\.[a-z_.]+)(?:\.[A-Z]\w*)?`", path.read_text()):
            module, _, word = name.rpartition(".")
            defined = module in MODULES and re.search(rf"\b{word}\b", MODULES[module].read_text())
            assert name in MODULES or defined, f"{path} names `{name}`, which is not there"
