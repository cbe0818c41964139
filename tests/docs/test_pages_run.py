"""Every block of Python and shell that the pages show runs, in an empty folder.

A comment before a block, which no reader sees, says what it needs:

    <!-- needs torch, slow -->    markers of tests: the block and those before it run apart
    <!-- elsewhere: why -->       not run here; its commands' options are compared with their help
    <!-- setup … -->              code in Python that the page does not show, behind the needs

The README always runs; the other pages run with `--slow`, as they do in CI.
"""

import functools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import interpreter

ROOT = Path(__file__).parents[2]
_PART = re.compile(
    r"^<!-- (?P<how>needs|elsewhere:|page needs) (?P<words>[^>]*) -->\n"
    r"|^<!-- setup\n(?P<setup>.*?)^-->\n"
    r"|^```(?P<language>\w*|\{[^}]*\})\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_RUN = {"python", "sh"}
_SHOWN = {"text", "pycon", "", "c"}  # pycon is doctested by test_notation_page.py

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if not {"lab", "generated", "paper"} & set(page.relative_to(ROOT).parts)
    ),
]


def blocks(page):
    """Of each block that runs, its language, its code and the markers that it needs; `None` in
    place of them where it runs elsewhere."""
    always, needs, found = set(), set(), []  # needs: of the next block
    for part in _PART.finditer(page.read_text()):
        words = set(re.split(r", *", part["words"] or ""))
        if part["how"] == "page needs":
            always = words
        elif part["how"]:
            needs = words if part["how"] == "needs" else None
        elif part["setup"] is not None:
            found.append(("python", part["setup"], needs | always))
        elif part["language"] in _RUN:
            wanted = None if needs is None else needs | always
            found.append((part["language"], part["code"], wanted))
            needs = set()
    return found


def script(page, able):
    """One program in Python of the blocks of a page that need no more than some markers. Minutes
    of a budget become seconds."""
    lines = []
    for language, code, needs in blocks(page):
        if needs is not None and needs <= able:
            shell = f"__import__('subprocess').run(['bash', '-euc', {code!r}], check=True)"
            lines.append(code if language == "python" else shell)
    return re.sub(r"(minutes[= ])[\d.]+", r"\g<1>0.3", "\n".join(lines))


def cases():
    for page in PAGES:
        for needs in {frozenset(n) for _, _, n in blocks(page) if n is not None}:
            wanted = set(needs) if page == ROOT / "README.md" else {*needs, "slow"}
            marks = [getattr(pytest.mark, name) for name in sorted(wanted)]
            name = "-".join([page.relative_to(ROOT).stem, *sorted(needs)])
            yield pytest.param(page, needs, id=name, marks=marks)


@pytest.mark.parametrize(("page", "needs"), sorted(cases(), key=lambda case: case.id))
def test_every_block_of_a_page_runs(page, needs, tmp_path):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-"],
        input=script(page, needs),
        cwd=tmp_path,
        env={**os.environ, "PATH": path} if needs else interpreter.environment(PATH=path),
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]


@functools.cache
def help_of(command):
    """Help of a command: the words of it that come before its options."""
    done = subprocess.run(
        [sys.executable, *command, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout


def options(line):
    """The program of a command line, as Python is called with it, and the options that it has."""
    words = shlex.split(line, comments=True)
    if words[:1] == ["loopwright"]:
        names = [w for w in words[1:3] if re.fullmatch(r"[a-z-]+", w)]
        names = names if words[1] in {"records", "model", "fleet"} else names[:1]
        program = ("-m", "loopwright", *names)
    elif words[:1] == ["python"] and words[1].endswith(".py"):
        program = (words[1],)
    else:
        return (), ()
    return program, [w.partition("=")[0] for w in words if re.match(r"--[a-z]", w)]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_that_run_elsewhere_have_the_options_that_a_page_gives_them(page):
    for _, code, needs in blocks(page):
        for line in code.replace("\\\n", " ").splitlines() if needs is None else ():
            program, given = options(line)
            for option in given:
                assert re.search(rf"{option}\b", help_of(program)), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_no_block_that_no_test_sees(page):
    text = page.read_text()
    outside = _PART.sub("", text)
    assert re.findall(r"\n\n    \S.*", outside) == []
    kinds = {p["language"] for p in _PART.finditer(text) if p["language"] is not None}
    assert {k for k in kinds if not k.startswith("{")} <= _RUN | _SHOWN
