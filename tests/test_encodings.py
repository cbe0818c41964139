"""Texts are read and written in UTF-8, whatever the locale says."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import loopwright
from tests.interpreter import environment

PACKAGE = Path(loopwright.__file__).parent


def texts_without_encoding(source: str) -> list[int]:
    """The lines of calls that read or write text in the encoding of the locale."""
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        method = isinstance(call.func, ast.Attribute)
        name = call.func.attr if method else getattr(call.func, "id", "")
        keywords = {k.arg: k.value for k in call.keywords}
        if name == "open" and method and ast.unparse(call.func.value) in ("os", "tarfile", "gzip"):
            continue
        if name in ("open", "fdopen"):
            place = 0 if name == "open" and method else 1
            mode = keywords.get("mode", call.args[place] if len(call.args) > place else None)
            text = mode is None or not isinstance(mode, ast.Constant) or "b" not in mode.value
        elif name in ("read_text", "write_text"):
            text = len(call.args) <= (name == "write_text")
        else:
            runs = name in ("run", "Popen", "check_output")
            text = runs and bool({"text", "universal_newlines"} & set(keywords))
        if text and "encoding" not in keywords:
            found.append(call.lineno)
    return found


def test_no_text_is_read_or_written_in_the_encoding_of_the_locale():
    assert (
        texts_without_encoding("p.read_text(); p.write_text(s); open(p); run(c, text=1)")
        == [1] * 4
    )
    files = [
        Path(folder) / f for folder, _, files in os.walk(PACKAGE, followlinks=True) for f in files
    ]
    wrong = {
        str(file.relative_to(PACKAGE)): lines
        for file in files
        if file.suffix == ".py"
        and (lines := texts_without_encoding(file.read_text(encoding="utf-8")))
    }
    assert not wrong


def test_libraries_are_built_and_exported_where_the_locale_knows_ascii_alone(tmp_path):
    program = """
import loopwright as lw
for target in ("cpu", "c"):
    library = lw.build(lw.ops.relu(lw.tensor("X", (3,))), target=target, threads=1)
    library.export("relu.so")
    assert lw.load("relu.so")([-1.0, 0.0, 2.0]).tolist() == [0.0, 0.0, 2.0]
"""
    ascii_alone = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    folder = tmp_path / "größe"
    folder.mkdir()
    command = [sys.executable, "-c", program]
    subprocess.run(command, cwd=folder, env=environment(**ascii_alone), check=True)
