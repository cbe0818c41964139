"""How the tests run: Hypothesis's profiles, and what is skipped where something is missing."""

import contextlib
import gc
import glob
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.hosts import HOSTS, pretend
from tests.sampling import sampled
from tests.thin import set_slow, share, unoptimized

# Builds and first imports take seconds, so no deadline. HYPOTHESIS_PROFILE=thorough digs deeper.
settings.register_profile(
    "default",
    deadline=None,
    max_examples=24,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "ci", settings.get_profile("default"), derandomize=True, database=None, print_blob=True
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
_USUAL = "ci" if "CI" in os.environ else "default"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _USUAL))


# Interpreters that tests start would compile all modules each time: seconds, dozens of times.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Two workers on two cores: threads that spin while they wait for another's take ten times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# TVM and torch leave a million objects, which every full collection walks: a tenth of all time.
gc.set_threshold(50_000, 20, 100)

# Processes of one run do not wait for each other, nor for tuners outside of it.
_OWN_LEASE = os.path.join(tempfile.gettempdir(), f"loopwright-tests-{os.getpid()}.lease")
os.environ.setdefault("LOOPWRIGHT_LEASE", _OWN_LEASE)


def pytest_unconfigure() -> None:
    """Remove the lease, which outlives its holders."""
    for path in glob.glob(f"{_OWN_LEASE}*"):
        os.remove(path)


def _modules(*names: str) -> bool:
    return all(importlib.util.find_spec(name) is not None for name in names)


def _distribution(name: str) -> bool:
    return any(importlib.metadata.distributions(name=name))


def _programs(*names: str) -> bool:
    return all(shutil.which(name) is not None for name in names)


def _postgresql() -> bool:
    """Return whether a server can be started, which refuses to be root."""
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb") or _programs("initdb")
    return bool(found) and (os.geteuid() != 0 or _programs("runuser"))


_PRESENT: dict[str, Callable[[], bool]] = {
    "cuda": lambda: os.path.exists("/dev/nvidiactl"),
    "nvcc": lambda: _programs("nvcc"),
    "opencl": lambda: _modules("pyopencl") and bool(glob.glob("/etc/OpenCL/vendors/*.icd")),
    "aarch64": lambda: _programs("aarch64-linux-gnu-gcc", "qemu-aarch64"),
    "sshd": lambda: _programs("ssh", "ssh-keygen") and os.path.exists("/usr/sbin/sshd"),
    "postgresql": lambda: _modules("psycopg") and _postgresql(),
    "ray": lambda: _modules("ray"),
    "llvm": lambda: _distribution("karellen-llvm-core"),
    "torch": lambda: _modules("torch"),
    "onnx": lambda: _modules("onnx", "onnxruntime"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden texts")
    parser.addoption("--host", choices=HOSTS, help="the machine to pretend to be")


def pytest_configure(config: pytest.Config) -> None:
    """Pretend before test modules are imported: they may resolve targets, and count cases."""
    set_slow(config.getoption("--slow"))
    if config.getoption("--host"):
        pretend(config.getoption("--host"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what this machine cannot do; leave out slow tests, and cases that are no sample.

    Where tests are named, slow ones among them are skipped, which says how to run them.
    """
    skips = {
        name: pytest.mark.skip(reason=f"no {name} here")
        for name, present in _PRESENT.items()
        if not present()
    }
    slow = config.getoption("--slow")
    named = bool(config.option.keyword) or any("::" in arg for arg in config.args)
    if not slow and not named:
        kept = sampled(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    elif not slow:
        skips["slow"] = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        for name, skip in skips.items():
            if item.get_closest_marker(name) is not None:
                item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Let LLVM optimize nothing, but in tests marked `optimized` and in the slow suite: most tests
    are of what programs compute, and a third of their time went into making them fast. The fast
    suite shares what is the same in many tests, too."""
    slow = item.config.getoption("--slow")
    if not slow:
        share()
    full = slow or item.get_closest_marker("optimized") is not None
    with _own_signals(), contextlib.nullcontext() if full else unoptimized():
        return (yield)


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Take back what the command line does about signals where a test calls it in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draw the same numbers whatever ran before, in any process; others where a seed is named."""
    seed = int(os.environ.get("LOOPWRIGHT_TEST_SEED", "0"))
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    """A PostgreSQL server for tests marked `postgresql`."""
    from tests.transfer.cluster import Cluster

    made = Cluster()
    yield made
    made.remove()


@pytest.fixture
def cluster(server: Any) -> Any:
    """The server without a record store."""
    server.empty()
    return server


@pytest.fixture
def brief() -> Iterator[None]:
    """Searches on this machine are short, and share what they are built by."""
    from tests.brief import brief

    with brief():
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with `golden/NAME.txt` beside the test; --update-golden rewrites the file."""

    def compare(name: str, text: str) -> None:
        path = request.path.parent / "golden" / f"{name}.txt"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{path.name} differs; --update-golden rewrites it"

    return compare
