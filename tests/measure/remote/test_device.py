"""Remote devices as users have them: URLs, ssh, boards of another architecture, two tuners."""

from __future__ import annotations

import getpass
import itertools
import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import loopwright as lw
from loopwright.__main__ import main
from loopwright.dsl.errors import TargetError
from loopwright.dsl.oracle import tolerance
from loopwright.explore.budget import TuningError
from loopwright.measure.builder import Task
from loopwright.measure.device import DeviceError
from loopwright.measure.machine import fingerprint
from loopwright.measure.remote.device import RemoteDevice, target_of
from loopwright.measure.remote.facts import Facts
from loopwright.measure.remote.route import SSH, Route, route
from loopwright.measure.runner import Data, Runner
from loopwright.measure.timing import Timing
from loopwright.schedule.target import Target
from loopwright.transfer.records.store import RecordStore
from tests.measure import faults
from tests.measure.remote import links

pytestmark = pytest.mark.usefixtures("brief")

FAST = Timing(cap=0.01)


def product() -> lw.Workload:
    return lw.workload(lw.ops.matmul(lw.tensor("A", (24, 17)), lw.tensor("B", (17, 40))))


# ---- ways to machines


def test_urls_become_commands_over_whose_streams_all_goes(monkeypatch):
    monkeypatch.delenv(SSH, raising=False)
    command = route("ssh://pi@board.local:2222").command
    assert command[0] == "ssh"
    assert command[-5:] == ("-p", "2222", "--", "pi@board.local", "exec sh")
    assert "BatchMode=yes" in command
    assert route("ssh://[fe80::1%eth0]").command[-2] == "fe80::1%eth0"
    assert route("docker://box").command == ("docker", "exec", "-i", "box", "sh")
    assert route("adb://123").command == ("adb", "-s", "123", "shell", "-T", "exec sh")
    assert "-s" not in route("adb://").command


@pytest.mark.parametrize(
    "url",
    ["board", "ftp://board", "ssh://", "ssh://-oProxyCommand=evil", "ssh://a b", "ssh://a:b:c",
     "docker://", "docker://-x", "ssh://a;rm", "adb://$(x)", "ssh://me@-x"],
)  # fmt: skip
def test_other_urls_are_refused_with_what_is_allowed(url):
    with pytest.raises(DeviceError, match=r"device .*: "):
        route(url)


# ---- what a machine says of itself


ZEN = """\
architecture x86_64
system Linux 6.1
processor A processor
vendor V
family 23
model 1
flags sse4_2 avx avx2 fma
memory 8589934592
share 150000 100000
cpu 0 0,2
cache 0 1 Data 32K 0,2
cache 0 1 Instruction 64K 0,2
cache 0 2 Unified 512K 0,2
cache 0 3 Unified 8192K 0-3
cpu 1 1,3
cache 1 1 Data 32K 1,3
cache 1 2 Unified 512K 1,3
cache 1 3 Unified 8192K 0-3
cpu 2 0,2
cpu 3 1,3
nonsense
cache 9 x y z
"""


def test_facts_are_read_and_what_is_no_fact_is_left_out():
    facts = Facts.read(ZEN)
    assert facts.one_per_core == (0, 1)
    assert facts.threads == 2
    assert facts.private_caches() == (32 << 10, 512 << 10)
    assert facts.memory == 8 << 30
    assert facts.flushed()[0] == 8 << 20
    assert facts.fingerprint()["caches"] == "L1 32 KiB, L2 512 KiB, L3 8192 KiB"
    assert "nonsense" not in facts.words
    assert Facts.read("").threads == 1


def test_the_target_is_what_the_machine_reports():
    made = target_of(Facts.read(ZEN), "cpu", None)
    assert (made.triple, made.mcpu, made.threads) == ("x86_64-unknown-linux-gnu", "", 2)
    assert {"+avx2", "+fma"} <= set(made.features)
    assert made.vector_bytes == 32
    arm = target_of(Facts.read("architecture aarch64\nflags asimd asimddp\n"), "cpu", 4)
    assert arm.features == ("+neon", "+dotprod")
    assert target_of(Facts.read(ZEN), "c", None).kind == "c"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu"}, "the device is x86_64"),
        ({"kind": "llvm", "mcpu": "skylake-avx512"}, "lacks features of the target: .*avx512f"),
        ({"kind": "cuda", "arch": "sm_90"}, "target cuda.*: remote devices are processors"),
        ("cuda", "target 'cuda': remote devices are processors"),
    ],
)
def test_a_target_that_the_machine_is_not_is_refused(target, words):
    with pytest.raises(TargetError, match=words):
        target_of(Facts.read(ZEN), target, None)


# ---- searches


@pytest.fixture
def board(tmp_path, monkeypatch):
    """The URL of this machine, with a shell in place of ssh."""
    script = tmp_path / "ssh"
    script.write_text(f"#!/bin/sh\nXDG_CACHE_HOME={shlex.quote(str(tmp_path))} exec sh\n")
    script.chmod(0o755)
    monkeypatch.setenv(SSH, str(script))
    return "ssh://me@board"


def test_a_command_tunes_on_another_machine_and_keeps_its_records(board, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["tune", "ij,jk->ik", "i=8", "j=8", "k=8", "--effort=instant", "--device", board]
    done = CliRunner().invoke(main, [*words, "--transfer=none", "-o", "o.so"])
    assert done.exit_code == 0, done.output
    assert "on ssh://me@board: " in done.output
    assert Path("o.so").exists()
    with RecordStore(Path("tuning.db")) as records:
        machines = {tuple(sorted(r.machine.items())) for r in records}
    assert machines == {tuple(sorted(fingerprint().items()))}, "it is this machine after all"
    again = re.search("again: loopwright (.*)", done.output)
    assert again is not None
    assert again[1].endswith(f"--device {board}")
    done = CliRunner().invoke(main, again[1].split())
    assert "its results are right" in done.output
    shown = CliRunner().invoke(main, ["devices", board])
    assert "built by:     python 3" in shown.output
    assert "\nnumpy:" not in shown.output, "it may have none"
    unreached = CliRunner().invoke(main, ["devices", "ssh:/x"])
    assert unreached.exit_code == 1
    assert unreached.output.startswith("Error: device 'ssh:/x': give \"ssh://")
    refused = CliRunner().invoke(main, [*words[:-1], "telnet://x"])
    assert refused.exit_code == 1
    assert 'give "ssh://user@host' in refused.output


@pytest.mark.slow
def test_a_network_is_tuned_on_another_machine(board, tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    net = torch.nn.Sequential(torch.nn.Linear(9, 5), torch.nn.ReLU()).eval()
    options = {"trials": 4, "device": board, "records": tmp_path / "r.db", "transfer": None}
    tuned = lw.tune_model(net, [torch.zeros(2, 9)], **options)
    assert tuned is not None
    with RecordStore(tmp_path / "r.db") as records:
        assert len(list(records)) >= 2


CONFIG = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
UsePAM no
PidFile none
"""


@pytest.mark.sshd
def test_a_machine_is_reached_by_ssh(tmp_path, monkeypatch):
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name]
        subprocess.run(command, check=True)
    (tmp_path / "sshd").write_text(CONFIG.format(folder=tmp_path))
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it gives up its rights
    words = {
        "ProxyCommand": f"/usr/sbin/sshd -i -f {tmp_path}/sshd",
        "IdentityFile": f"{tmp_path}/user",
        "UserKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "no",
    }
    (tmp_path / "client").write_text("".join(f"{k} {v}\n" for k, v in words.items()))
    monkeypatch.setenv(SSH, f"ssh -F {tmp_path}/client")
    hasty = {"effort": "instant", "trials": 2, "transfer": None, "records": None}
    url = f"ssh://{getpass.getuser()}@here"
    tuned = lw.tune(product(), device=url, threads=1, **hasty)
    assert not tuned.failures
    A, B = np.ones((24, 17), np.float32), np.ones((17, 40), np.float32)
    np.testing.assert_allclose(tuned.library(A, B), 17.0)
    monkeypatch.setenv(SSH, f"ssh -F {tmp_path}/client -o IdentityFile=none")
    with pytest.raises(DeviceError, match=r"cannot be reached .*try: echo 'uname -a' \| ssh -F"):
        RemoteDevice("ssh://nobody-here@here")


@pytest.mark.aarch64
def test_a_board_of_another_architecture_end_to_end(tmp_path):
    """Cross-built, measured, checked and exported; qemu stands in for the board."""
    uname = tmp_path / "uname"
    uname.write_text('#!/bin/sh\n[ "$1" = -m ] && echo aarch64 || echo Linux\n')
    uname.chmod(0o755)
    way = links.loopback(tmp_path, f"PATH={tmp_path}:$PATH exec sh")
    emulator = (str(shutil.which("qemu-aarch64")), "-L", "/usr/aarch64-linux-gnu")
    way = Route("board", way.command, emulator)
    with RemoteDevice(way, threads=2, timing=FAST, build_workers=2) as device:
        assert device.target.triple.startswith("aarch64")
        assert "+neon" in device.target.features
        assert device.fingerprint()["architecture"] == "aarch64"
        hasty = {"effort": "instant", "trials": 2, "transfer": None}
        tuned = lw.tune(product(), device=device, records=tmp_path / "r.db", **hasty)
        assert tuned.target == device.target
        assert not tuned.failures
        assert device.verify(product(), tuned.config) is None
        n = lw.dim("n", 1, 64)
        many = lw.workload(lw.ops.relu(lw.tensor("x", (n,))))
        with pytest.raises(TuningError, match=r"cannot do: tune workload.at"):
            lw.tune(many, device=device, records=None)
    path = tuned.library.export(tmp_path / "product.so")
    assert path.read_bytes()[18:20] == b"\xb7\x00", "ELF's number of AArch64"


# ---- two tuners on one machine


BUSY = """{
  extern int open(const char *, int, ...), dprintf(int, const char *, ...), close(int);
  extern int getpid(void), usleep(unsigned), clock_gettime(int, void *);
  extern char *getenv(const char *);
  long b[2], e[2], s = 1000000000;
  clock_gettime(1, b); usleep(2000); good(x, y); clock_gettime(1, e);
  int f = open(getenv("LOG"), 02001);
  dprintf(f, "%d %ld %ld\\n", getpid(), b[0] * s + b[1], e[0] * s + e[1]);
  close(f);
}"""
"""A candidate that appends when it ran: write-only, to the end of the file."""


def measure_here(folder: Path, barrier: Any) -> None:
    from loopwright.measure.workers.fork_server import Kind
    from loopwright.measure.workers.pool import Pool

    measure_many(Runner(Pool(Kind("run", 0, folder), 1)), barrier)


def measure_there(folder: Path, barrier: Any) -> None:
    from loopwright.measure.remote.link import Link

    link = Link(links.loopback(folder))
    measure_many(Runner(link, lease=link), barrier)


def measure_many(runner: Runner, barrier: Any) -> None:
    workload = faults.workload()
    data = Data(Task(workload, Target()), 3, faults.expected(3), tolerance(workload), 5.0)
    for number in range(6):
        if number == 1:
            barrier.wait(30)  # both are there by now
        found = list(runner.measure(data, [faults.built("busy")] * 2, Timing(cap=0.02)))
        assert all(one.failure is None for one in found), found
    runner.close()


def test_tuners_here_and_elsewhere_never_measure_at_once(tmp_path, monkeypatch):
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setitem(faults.BODIES, "busy", BUSY)
    faults.built("busy")  # compiled once
    fork = multiprocessing.get_context("fork")
    given = (tmp_path, fork.Barrier(2))
    tuners = [fork.Process(target=f, args=given) for f in (measure_here, measure_there)]
    for tuner in tuners:
        tuner.start()
    for tuner in tuners:
        tuner.join(60)
        assert tuner.exitcode == 0
    calls = sorted((int(b), int(e), p) for p, b, e in map(str.split, log.read_text().splitlines()))
    assert len({process for *_, process in calls}) == 2
    held = [calls[0]]
    for call in calls[1:]:
        assert call[0] >= held[-1][1], "two calls overlap"
        held.append(call)
    changes = sum(one[2] != other[2] for one, other in itertools.pairwise(held))
    assert changes >= 3, "they take turns"
