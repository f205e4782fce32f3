"""The fixtures of all tests. Tests marked ``gpu`` are skipped, with the reason, where there is no usable driver."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from factories import command_line, fork_server, forked_processes, kept_results, processes, recordings
from factories.command_line import Command, Process
from factories.fork_server import Preload
from factories.processes import Parent
from factories.terminal import OpenTerminal, Terminal
from factories.virtual_session import virtual_sessions
from stallprobes.recording.recording import Recording
from stallprobes.watch.reading import folder

TESTS = Path(__file__).parent
PROBES = TESTS.parent / "probes"
# Folders of tests that mostly wait, in the order in which they run.
WAITING = {name: number for number, name in enumerate(("screen", "watch", "engine", "cli", "browser"))}
# Modules of tests that fork the process of pytest: 5 ms each time at first, 40 ms once it has grown to 700 MB.
FORKING = ("unit/files/test_atomic.py", "watch/attaching/test_attaching_trust.py")
# Folders whose tests are marked ``quick``: they compute, and start, compile and wait for little.
QUICK = ("unit", "watch/attribution", "watch/causes", "watch/division")
# Folders and modules of these whose tests are not: each module takes 3 s or more of a processor, or starts processes.
NOT_QUICK = (
    *(f"unit/{name}" for name in ("engine", "files", "measurement", "native", "recording", "report")),
    *(f"unit/test_{name}.py" for name in ("doctor", "library", "mutants", "recorded_logs", "recorded_verdicts")),
    *(f"unit/matrix/test_{name}.py" for name in ("check_document", "compare", "merge")),
    *("unit/tui/test_demo_tour.py", "unit/verdicts/test_idle_on_a_noisy_server.py"),
    *(f"watch/attribution/test_{name}.py" for name in ("replayed_streams", "stream_numbers")),
    *(f"watch/division/test_{name}.py" for name in ("divided_instants", "divider", "recorded_divisions")),
)
# Variables by which the program, Rich and Textual choose what they print.
_CHANGES_OUTPUT = re.compile(
    r"(CI|COLUMNS|LINES|COLORTERM|NO_COLOR|FORCE_COLOR|(CLICOLOR|LC_|LANG|TTY_|TEXTUAL|RICH_)\w*)$"
)
# Asked for once: that takes longer than their handlers.
SIGNALS = signal.valid_signals()
# Set in the process that compiles the test modules.
_COMPILING = "STALLSCOPE_TESTS_COMPILING"

# Hypothesis fails examples that take longer than 200 ms or are made slowly, as any are on a busy machine.
# STALLSCOPE_EXAMPLES: more of them for a long run.
settings.register_profile(
    "stallscope",
    deadline=None,
    max_examples=int(os.environ.get("STALLSCOPE_EXAMPLES", "25")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("stallscope")


def _why_no_gpu() -> str | None:
    """Why the driver shows no GPU, None if it does."""
    try:
        libcuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no NVIDIA driver: {error}"
    status = libcuda.cuInit(0)
    if status != 0:
        return f"cuInit answers {status}"
    count = ctypes.c_int(0)
    status = libcuda.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        return f"cuDeviceGetCount answers {status} with {count.value} GPUs"
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what the processes that tests start inherit."""
    # A worker that ends too early ends the run, which names its test. A new worker in its place can make the run wait
    # for ever: pytest-xdist also gives it modules that are complete, and waits for the results.
    config.option.maxworkerrestart = config.getoption("maxworkerrestart", None) or "0"
    # Ignored in a shell's background job.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    # Ignored under nohup. A handler is not inherited: the tests ignore the signal, and what they start does not.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    # Some hundred processes import the package; without bytecode each would compile it. Nor does a worker rewrite
    # the assertions of all tests each time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # What the program prints is the same in a terminal of any size, any language and continuous integration.
    for name in [name for name in os.environ if _CHANGES_OUTPUT.match(name)]:
        del os.environ[name]
    os.environ.update(LANG="C.UTF-8", TERM="xterm-256color")
    # As the program's own entry point does: a thread for each processor, started with numpy, costs every process 0.1 s.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What the program remembers for the user who runs the tests stays as it is.
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="stallscope-state-")
    if not _is_worker():
        os.environ[kept_results.VARIABLE] = tempfile.mkdtemp(prefix="stallscope-kept-")


def pytest_unconfigure() -> None:
    """Remove what the processes of the tests remembered.

    One garbage collection finds what pytest looks for in its five at the end, which then take no time.
    """
    gc.collect()
    gc.freeze()
    for name in ("XDG_STATE_HOME", *(() if _is_worker() else (kept_results.VARIABLE,))):
        shutil.rmtree(os.environ[name], ignore_errors=True)


def _is_worker() -> bool:
    """Whether another process of pytest has started this one."""
    return "PYTEST_XDIST_WORKER" in os.environ


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """The handlers of signals are the same after a test as before it and its fixtures.

    From the import of the console script's module on, SIGINT ends the process, and a command ignores signals from its
    end on. A later test that sends this process a signal would end it, or wait for ever.
    """
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        return (yield)
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests marked ``trust`` may not be skipped where STALLSCOPE_REQUIRE_TRUST is 1."""
    report = yield
    if report.skipped and item.get_closest_marker("trust") and os.environ.get("STALLSCOPE_REQUIRE_TRUST") == "1":
        report.outcome, report.longrepr = "failed", f"it is required here, and was skipped: {report.longrepr}"
    return report


def is_quick(module: Path) -> bool:
    """True if the tests of ``module`` are marked ``quick``."""
    return _is_below(module, QUICK) and not _is_below(module, NOT_QUICK)


def _is_below(module: Path, places: Iterable[str]) -> bool:
    """Whether a module is one of ``places`` or in a folder of them."""
    return any(module == TESTS / place or TESTS / place in module.parents for place in places)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the quick tests, skip those marked ``gpu`` where they cannot run, and order the modules for several
    processes."""
    quick = {path: is_quick(path) for path in {item.path for item in items}}
    for item in items:
        if quick[item.path]:
            item.add_marker(pytest.mark.quick)
    # Several tests at a time would disturb each other's measurements.
    parallel = _is_worker()
    if parallel:
        items.sort(key=_places(items).__getitem__)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    reason = "not beside other tests: pytest -m gpu tests/gpu" if parallel else _why_no_gpu()
    if reason is not None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def _places(items: list[pytest.Item]) -> dict[pytest.Item, float]:
    """The place of each test in the whole run, 0 to 1, one for all tests of a module; 0 for those that fork.

    Modules that wait for programs and screens are spread evenly between those that compute: side by side they would
    leave the processors idle. The folders whose modules take longest come first, so that no process ends late.
    """
    folders = {item.path: item.path.relative_to(TESTS).parts[0] for item in items}
    waiting = sorted((path for path in folders if folders[path] in WAITING), key=lambda path: WAITING[folders[path]])
    computing = [path for path in folders if folders[path] not in WAITING]
    place = {path: (n + 0.5) / len(group) for group in (waiting, computing) for n, path in enumerate(group)}
    place |= {path: 0.0 for path in folders if _is_below(path, FORKING)}
    return {item: place[item.path] for item in items}


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Where several processes run the tests for the first time, one of them compiles for all while the others wait.

    Hardly anything that the collection makes is garbage.
    """
    gc.disable()
    several = _is_worker() or session.config.getoption("numprocesses", None)
    if several and not _is_compiled():
        with open(__file__, "rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(lock, fcntl.LOCK_EX)
            else:
                _compile(session.config.rootpath)
    collected = yield
    if _COMPILING in os.environ:
        _fill_hypothesis_tables()
    return collected


def _compile(root: Path) -> None:
    """Compile the test modules, in two processes of their own; the first one also fills Hypothesis' tables."""
    hidden = (_COMPILING, "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    modules = sorted(str(path) for path in TESTS.rglob("test_*.py"))
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only"]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [
        subprocess.Popen([*command, *half], env=environment | more, cwd=root, **silent)  # type: ignore[call-overload]
        for half, more in ((modules[::2], {_COMPILING: "1"}), (modules[1::2], {}))
    ]
    for process in processes:
        process.wait()


@settings(max_examples=1, database=None)
@given(st.text(), st.integers())
def _fill_hypothesis_tables(_text: str, _number: int) -> None:
    """Let Hypothesis write its tables of Unicode and of the constants in the modules, which takes seconds."""


def _is_compiled() -> bool:
    """Whether pytest's bytecode of all test modules is there."""
    ending = f"{sys.implementation.cache_tag}-pytest-{pytest.__version__}.pyc"
    return all(
        (module.parent / "__pycache__" / f"{module.stem}.{ending}").exists() for module in TESTS.rglob("test_*.py")
    )


def pytest_collection_finish() -> None:
    """Keep the imported modules and the collected tests out of every garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.fixture
def stallscope_command() -> Command:
    """Run ``stallscope`` with arguments, in a process of its own."""
    return command_line.run


@pytest.fixture
def measuring() -> Iterator[Callable[..., Process]]:
    """Start ``stallscope`` on a made-up machine and wait until it measures; killed at the end of the test."""
    started: list[Process] = []

    def start(*arguments: str, mode: str) -> Process:
        process = command_line.start(*arguments, mode=mode)
        started.append(process)
        assert process.stderr is not None
        assert process.stderr.readline() == "ready\n"
        return process

    yield start
    for process in started:
        with process:
            process.kill()


@pytest.fixture(scope="module")
def forked_engines() -> Iterator[None]:
    """Engines of this process start by a fork of a server that has imported their modules."""
    # Now, so that no test finds a descriptor and a child more than before.
    fork_server.server(Preload.ENGINE).prepare()
    with forked_processes.engines():
        yield


@pytest.fixture(scope="module")
def in_this_process() -> Iterator[None]:
    """Runs and checks of the simulated GPU start no engine process."""
    with virtual_sessions():
        yield


@pytest.fixture(scope="session")
def stall_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a new recording of a stall."""
    path = tmp_path_factory.mktemp("recordings") / "stall.rec"
    recordings.record_stall(path)
    return path


@pytest.fixture(scope="session")
def stall(stall_file: Path) -> Recording:
    """A new recording of a stall."""
    return Recording(stall_file)


@pytest.fixture
def terminal() -> Iterator[OpenTerminal]:
    """Open ``stallscope`` in a terminal of its own: arguments, then ``size`` and changes to the environment."""
    opened: list[Terminal] = []

    def start(*arguments: str, size: tuple[int, int] = (120, 36), shell: bool = False, **environment: str) -> Terminal:
        opened.append(Terminal(list(arguments), size, environment, shell))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def parent() -> Iterator[Parent]:
    """Start Python source in a process of its own that can import the package; killed at the end of the test.

    ``forked``: it and its engines are forks, for programs that end by a signal, not as the interpreter does.
    """
    started = []

    def run(source: str, *, forked: bool = False) -> subprocess.Popen[str]:
        kind: type[subprocess.Popen[str]] = forked_processes.ForkedEngineWithSecond if forked else subprocess.Popen
        paths = [str(PROBES), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        process = kind(
            [sys.executable, "-c", source], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails when a test leaves a descriptor, a child process or a block of shared memory behind."""

    def state() -> Counter[str]:
        # Folders of watched programs belong to tests that run beside this one.
        shared = [name for name in os.listdir("/dev/shm") if not name.startswith(folder.PREFIX)]
        children = processes.children(os.getpid(), ended=True)
        return Counter([*_descriptors(), *shared, *(f"process {pid}" for pid in children)])

    before = state()
    yield
    # What earlier tests left may have gone during this one.
    assert not state() - before


def _descriptors() -> list[str]:
    """What each open descriptor of this process refers to."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        # That of the folder itself is closed by now.
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found
