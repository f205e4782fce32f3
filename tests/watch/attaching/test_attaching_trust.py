"""Programs that mean harm to who attaches to them, or are unlucky: stallscope, as root, obeys none of them."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from factories.attaching import (
    NOBODY,
    Attached,
    RunningProgram,
    as_user,
    open_to_all,
    run_attacher,
    use_built,
)
from factories.command_line import Command, start
from factories.hostile_program import ForgedControl, hostile
from factories.stand_in import MEDDLING, StandIn
from factories.waiting import wait_until
from stallprobes.errors import WatchError
from stallprobes.native.layouts.attaching import CONTROL_NAME
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE
from stallprobes.watch.attaching import access as access_module
from stallprobes.watch.attaching import helper as helper_module
from stallprobes.watch.attaching import loaded_functions, memory_files
from stallprobes.watch.attaching.helper import TargetHelper
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.in_flight import threads_in_driver
from stallprobes.watch.attaching.refusals import refusal
from stallprobes.watch.attaching.rights import CAP_SYS_PTRACE, Identity
from stallprobes.watch.attaching.target import Target, family
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.py_spy import find_py_spy
from stallprobes.watch.reading.words import ProcessState

pytestmark = [pytest.mark.trust, pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")]

SECRET = "of root alone\n"
OTHER = Identity(NOBODY, NOBODY, ())
# What a helper keeps: the capability to trace.
TRACING = 1 << CAP_SYS_PTRACE


@pytest.fixture(autouse=True)
def _built(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_built(stand_in, monkeypatch)
    open_to_all(stand_in.folder)
    yield
    Attached.close_all()


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of root's alone, in a folder into which nobody else can write, and that nobody else can list."""
    folder = tmp_path / "root-only"
    folder.mkdir()
    file = folder / "victim"
    file.write_text(SECRET)
    file.chmod(0o600)
    open_to_all(tmp_path)
    folder.chmod(0o711)
    yield file
    assert file.read_text() == SECRET
    assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (0, 0o600)
    assert os.listdir(folder) == [file.name]


def watched(stallscope_command: Command, settings: dict[str, str], pid: int) -> subprocess.CompletedProcess[str]:
    """Root's watch of a process for a moment: it ends by itself, with a report or a sentence."""
    done = stallscope_command("watch", "--pid", str(pid), "--headless", "--seconds", "0.3", env=settings)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 125), done.stderr
    return done


def _place_of(kind: str, victim: Path) -> int:
    """A descriptor of some kind in the process that calls this."""
    match kind:
        case "file of root":
            return os.open(victim, os.O_PATH)
        case "pipe":
            os.mkfifo(pipe := f"/tmp/stallscope-test-{os.getpid()}")
            place = os.open(pipe, os.O_PATH)
            os.unlink(pipe)
            return place
        case "socket":
            return socket.socket(socket.AF_UNIX).detach()
        case "device":
            return os.open("/dev/zero", os.O_PATH)
        case "folder":
            return os.open("/", os.O_PATH)
        case _:
            return 1 << 20


@pytest.mark.parametrize("kind", ["file of root", "pipe", "socket", "device", "folder", "nothing"])
@pytest.mark.parametrize("field", ["cupti_descriptor", "file_descriptor"])
def test_a_descriptor_that_is_offered_is_used_only_if_it_is_a_memfd(
    settings: dict[str, str], victim: Path, stallscope_command: Command, field: str, kind: str
) -> None:
    def act() -> None:
        control = ForgedControl()
        control.serve({field: _place_of(kind, victim) + 1})

    with hostile(act) as pid:
        watched(stallscope_command, settings, pid)


def test_a_descriptor_that_changes_all_the_time_is_used_only_if_it_is_a_memfd(victim: Path) -> None:
    """What is taken is what was checked."""

    def act() -> None:
        place, memory = os.open(victim, os.O_PATH), os.memfd_create(f"{CONTROL_NAME}-other")
        os.dup2(place, 100)
        if not os.fork():
            while True:
                os.dup2(memory, 100)
                os.dup2(place, 100)

    with hostile(act) as pid:
        # The changing one is the child, which has the same descriptors.
        (child,) = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        try:
            for _ in range(2000):
                with suppress(OSError):
                    taken = memory_files.take(Target(child), 100, os.O_RDWR)
                    assert memory_files.name_of(taken).startswith(CONTROL_NAME)
                    os.close(taken)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"state": 77}, "is damaged: restart the program"),
        ({"recording": 1 << 31}, "is damaged: restart the program"),
        ({"state": 4, "recording": 0, "lack": 1 << 31}, "cannot be recorded"),
        ({"held_ns": (1 << 64) - 1}, ""),
        ({"stub_at": (1 << 64) - 1, "code": -5, "file_descriptor": (1 << 32) - 1}, ""),
        ({"cupti_descriptor": (1 << 32) - 1}, ""),
    ],
)
def test_numbers_of_the_control_are_checked(
    settings: dict[str, str], stallscope_command: Command, fields: dict[str, int], sentence: str
) -> None:
    with hostile(lambda: ForgedControl().serve(fields)) as pid:
        done = watched(stallscope_command, settings, pid)
    assert sentence in " ".join(done.stderr.split())


def test_an_unknown_state_is_a_sentence_before_anything_is_asked(
    settings: dict[str, str], stallscope_command: Command
) -> None:
    with hostile(lambda: ForgedControl().write("state", 99)) as pid:
        done = watched(stallscope_command, settings, pid)
    assert "is damaged: restart the program" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("seals", "sentence"),
    [
        (0, "is of another version of stallscope: restart it"),
        (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE, "has sealed the memory of the library in it: restart it"),
    ],
)
def test_a_control_that_could_be_cut_off_is_refused(
    settings: dict[str, str], stallscope_command: Command, seals: int, sentence: str
) -> None:
    kept: list[ForgedControl] = []
    with hostile(lambda: kept.append(ForgedControl(seals))) as pid:
        done = watched(stallscope_command, settings, pid)
    assert done.returncode == 125
    assert sentence in done.stderr


def test_the_control_of_the_library_cannot_be_cut_off(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll", user=NOBODY) as program:
        Attached(program.pid).detach()
        ((number, _),) = memory_files.numbers_of(Target(program.pid), CONTROL_NAME)
        with open(f"/proc/{program.pid}/fd/{number}", "r+b") as memory:
            assert memory_files.seals(memory.fileno()) & fcntl.F_SEAL_SHRINK
            with pytest.raises(OSError, match="Operation not permitted") as raised:
                os.ftruncate(memory.fileno(), 0)
        assert raised.value.errno == errno.EPERM
        program.launches()


def test_the_library_is_written_to_no_file_that_takes_the_place_of_its_memfd(stand_in: StandIn, victim: Path) -> None:
    settings = {"LD_PRELOAD": str(stand_in.folder / MEDDLING), "MEDDLING_SWAP": str(victim)}
    with RunningProgram(stand_in, "poll", user=NOBODY, settings=settings) as program:
        for _ in range(10):
            with suppress(WatchError):
                Attached(program.pid).detach()
            program.launches()
        assert program.end() == (0, "", "")


def test_a_program_that_executes_itself_again_and_again_is_attached_or_left_alone(stand_in: StandIn) -> None:
    settings = {"LD_PRELOAD": str(stand_in.folder / MEDDLING), "MEDDLING_EXEC_MS": "20"}
    with RunningProgram(stand_in, "poll", settings=settings) as program:
        for _ in range(60):
            with suppress(WatchError):
                attached = Attached(program.pid)
                wait_until(lambda: attached.attachment.is_replaced, "another program")  # noqa: B023
                attached.detach()
            assert not Target(program.pid).has_ended
        assert not Target(program.pid).has_ended


def test_an_attacher_of_a_program_that_is_gone_leaves_the_next_one_alone(stand_in: StandIn, tmp_path: Path) -> None:
    """Its addresses are those of the program before."""
    when = tmp_path / "when"
    settings = {"LD_PRELOAD": str(stand_in.folder / MEDDLING), "MEDDLING_EXEC_WHEN": str(when)}
    with RunningProgram(stand_in, "poll", settings=settings) as program:
        target = Target(program.pid)
        with ProcessImage.of(program.pid) as image:
            functions = loaded_functions.find_functions(target, image)
            when.touch()
            wait_until(lambda: target.name == "sleep", "another program")
            with pytest.raises(OSError, match="it has executed another program"):
                image.read(functions[0], 3)
            with pytest.raises(WatchError, match="has executed another program meanwhile and was left as it was"):
                _load_as_found(stand_in, target, image, functions)
        assert target.name == "sleep"


def _load_as_found(stand_in: StandIn, target: Target, image: ProcessImage, functions: tuple[int, ...]) -> None:
    """Load the library by addresses that were found before."""
    from stallprobes.watch.attaching import access, loading

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "find_functions", lambda *_: functions)
        access.OwnAccess().load(target, image, target.sleeping_threads())


def test_a_program_that_executes_another_one_has_its_report(
    stand_in: StandIn, settings: dict[str, str], tmp_path: Path
) -> None:
    when = tmp_path / "when"
    changed = {"LD_PRELOAD": str(stand_in.folder / MEDDLING), "MEDDLING_EXEC_WHEN": str(when)}
    with RunningProgram(stand_in, "poll", settings=changed) as program:
        with start("watch", "--pid", str(program.pid), "--headless", env=settings) as watch:
            assert watch.stderr is not None
            assert "attached to attached" in watch.stderr.readline()
            when.touch()
            output, errors = watch.communicate()
        assert watch.returncode == 0, errors
    assert "1 process" in output
    assert "has executed another program, of which nothing is recorded" in " ".join(output.split())


def test_a_program_that_is_stopped_is_called_stopped(
    stand_in: StandIn, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stallprobes.watch.attaching.attachment.DETACH_S", 0.1)
    with RunningProgram(stand_in, "poll") as program:
        attached = Attached(program.pid)
        os.kill(program.pid, signal.SIGSTOP)
        wait_until(lambda: Target(program.pid).state == "T", "a stop")
        with pytest.raises(WatchError, match="is stopped: its recording ends once it continues"):
            attached.detach()
        os.kill(program.pid, signal.SIGCONT)
        program.launches()


def test_numbers_of_a_process_are_no_offsets(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunningProgram(stand_in, "poll") as program, ProcessImage.of(program.pid) as image:
        target = Target(program.pid)
        for number in ((1 << 64) - 1, 1 << 63, (1 << 63) - 1, -1):
            assert list(threads_in_driver(target, image, {program.pid: number})) == []
            table = {5: number, 6: number, 10: number}
            monkeypatch.setattr(loaded_functions, "_dynamic", lambda *_, table=table: table.items())
            with pytest.raises(WatchError, match=r"cannot be (read|found)"):
                loaded_functions.find_functions(target, image)


# Three kinds of processes whose names lead elsewhere than stallscope's: how each is started by root.
FOREIGN = {
    "another user": ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"),
    "a mapped root": (
        "setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups",
        "unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc",
    ),
    "root in a mount namespace": ("unshare", "--mount", "--pid", "--fork", "--mount-proc"),
}  # fmt: skip


@contextmanager
def foreign(stand_in: StandIn, kind: str, before: str = "true") -> Iterator[int]:
    """A program beside the stand-ins, started by ``kind``, behind commands of a shell: its number here."""
    program = f"{before} && {stand_in.folder}/attached poll; exit $?"
    words = [*FOREIGN[kind], "sh", "-c", program]
    started = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
    try:
        assert started.stdout is not None
        if started.stdout.readline().strip() != "ready":
            pytest.fail(f"{kind} cannot be started")
        yield next(pid for pid in family(started.pid) if Target(pid).name == "attached")
    finally:
        started.communicate()
    assert started.returncode == 0


@pytest.mark.parametrize("kind", FOREIGN)
def test_of_a_foreign_process_no_name_is_opened(stand_in: StandIn, settings: dict[str, str], kind: str) -> None:
    """stallscope itself opens only numbers in /proc, and what is its own."""
    with foreign(stand_in, kind) as pid:
        opened, code = as_user(0, lambda: _audited(pid, settings))
    assert code == 0
    assert opened
    root = f"/proc/{pid}/root"
    assert [path for path in opened if path.startswith((root, str(stand_in.folder)))] == [
        path for path in opened if path.startswith(str(stand_in.folder)) and path.endswith("libcupti.so.13")
    ]


def _audited(pid: int, settings: dict[str, str]) -> tuple[list[str], int]:
    """The names that root's watch opens, and its exit code."""
    from stallscope.cli.watching.attached import run_attached
    from stallscope.cli.watching.files import WatchFiles

    os.environ.update(settings)
    output = os.open("/dev/null", os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    opened: list[str] = []
    # Opened for reading or execution, listed, linked or removed.
    sys.addaudithook(
        lambda event, words: opened.append(str(words[0])) if event.startswith(("open", "os.")) and words else None
    )
    code = run_attached(pid, WatchOptions(cost=1.0), WatchFiles(), 1.0)
    return [path for path in opened if path.startswith("/")], code


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_process_is_recorded(
    stand_in: StandIn, settings: dict[str, str], kind: str, stallscope_command: Command
) -> None:
    with foreign(stand_in, kind) as pid:
        done = watched(stallscope_command, settings, pid)
        text = " ".join(done.stdout.split())
        # What bounds it depends on the CPUs that it gets.
        named = "attached is " in text or "What bounds attached is not known" in text
        assert (done.returncode, named) == (0, True), done.stderr
        # By the program's file, which the helper opens; a libcupti that was sent is no part of the program.
        assert "launching_thread in attached" in text


def test_a_user_records_a_process_of_their_own_with_another_root(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container without rights: it has the same rights as stallscope, and its code has other names."""

    def watch() -> str:
        attached = Attached(pid)
        attached.detach()
        (process,) = attached.contents().processes
        opened = attached.attachment.access.open_module(Target(pid), str(stand_in.folder / "attached"))
        Attached.close_all()
        return process.state if opened is not None else ""

    monkeypatch.setenv(CUPTI_VARIABLE, str(stand_in.folder / "libcupti.so.13"))
    with foreign(stand_in, "a mapped root") as pid:
        assert as_user(NOBODY, watch) == ProcessState.RECORDING


@pytest.mark.parametrize("kind", ["a mapped root", "root in a mount namespace"])
def test_folders_of_a_foreign_root_are_not_used(
    stand_in: StandIn, settings: dict[str, str], victim: Path, kind: str, stallscope_command: Command
) -> None:
    """Its /dev/shm has a link to a folder of root's, and its /proc has pipes in place of files."""
    new = "/var/tmp"
    before = (
        f"mount -t tmpfs none {new} && mkdir {new}/1 && mkfifo {new}/1/stat {new}/1/maps {new}/1/status"
        f" && mount -t tmpfs none /dev/shm && ln -s {victim.parent} /dev/shm/shm && mount --bind {new}/1 /proc/1"
    )
    with foreign(stand_in, kind, before) as pid:
        done = watched(stallscope_command, settings, pid)
        assert (done.returncode, "1 process" in done.stdout) == (0, True), done.stderr


def test_a_process_that_is_not_dumpable_is_recorded(
    stand_in: StandIn, settings: dict[str, str], stallscope_command: Command
) -> None:
    changed = {"LD_PRELOAD": str(stand_in.folder / MEDDLING), "MEDDLING_UNDUMPABLE": "1"}
    with RunningProgram(stand_in, "poll", user=NOBODY, settings=changed) as program:
        assert os.stat(f"/proc/{program.pid}/environ").st_uid == 0
        done = watched(stallscope_command, settings, program.pid)
        assert (done.returncode, "1 process" in done.stdout) == (0, True), done.stderr
        assert program.end() == (0, "", "")


@pytest.fixture
def helper() -> Iterator[TargetHelper]:
    """A helper that has become another user."""
    started = TargetHelper(OTHER)
    yield started
    started.close()


def test_a_helper_has_the_rights_of_the_target_and_nothing_of_the_callers(helper: TargetHelper) -> None:
    target = Target(helper._process.pid)
    assert target.identity == OTHER
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(target.field(name), 16) == TRACING
    assert target.numbers("NoNewPrivs") == (1,)
    assert target.numbers("Threads") == (1,)
    links = [os.readlink(link) for link in (target.folder / "fd").iterdir()]
    programs = {str(path) for path in (*access_module.native_programs(), find_py_spy())}
    assert sorted(link.partition(":")[0] for link in links if link not in programs) == ["/dev/null"] * 3 + ["socket"]
    # In the file of the process, the number of its terminal.
    assert (target.folder / "stat").read_text().rpartition(")")[2].split()[4] == "0"
    assert as_user(NOBODY, lambda: os.listdir(target.folder / "fd")) == (
        f"[Errno 13] Permission denied: '{target.folder}/fd'"
    )


def test_a_helper_ends_with_stallscope(stand_in: StandIn, settings: dict[str, str]) -> None:
    with (
        RunningProgram(stand_in, "poll", user=NOBODY) as program,
        start("watch", "--pid", str(program.pid), "--headless", env=settings) as watch,
    ):
        assert watch.stderr is not None
        assert "attached to attached" in watch.stderr.readline()
        started = [pid for pid in _children(watch.pid) if Target(pid).identity == OTHER]
        assert started
        watch.kill()
        watch.communicate()
        wait_until(lambda: all(Target(pid).has_ended for pid in started), "the end of the helper")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


@pytest.mark.parametrize(
    ("number", "sentence"), [(signal.SIGSTOP, "was stopped"), (signal.SIGKILL, "was ended"), (None, "did not answer")]
)
def test_a_helper_that_the_targets_user_meddles_with_is_a_sentence(
    stand_in: StandIn,
    helper: TargetHelper,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals | None,
    sentence: str,
) -> None:
    with RunningProgram(stand_in, "poll", user=NOBODY) as program:
        target = Target(program.pid)
        assert helper.environment(target) == {}
        if number is None:
            monkeypatch.setattr(helper_module, "_STOPPED_S", 1000.0)
            os.kill(helper._process.pid, signal.SIGSTOP)
        else:
            assert as_user(NOBODY, lambda: os.kill(helper._process.pid, number)) is None
        with (
            ProcessImage.of(program.pid) as image,
            pytest.raises(WatchError, match=f"helper process for user .* {sentence}"),
        ):
            helper.in_driver(target, image, {program.pid: 1})
        assert sentence in helper.problem
        # What follows is missing, not waited for.
        assert helper.open_module(target, "/bin/sh") is None


@pytest.mark.parametrize("limit", [resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE])
def test_a_helper_that_the_targets_user_limits_loses_what_it_cannot_do(
    stand_in: StandIn, helper: TargetHelper, limit: int
) -> None:
    with RunningProgram(stand_in, "poll", user=NOBODY) as program:
        target = Target(program.pid)
        assert as_user(NOBODY, lambda: resource.prlimit(helper._process.pid, limit, (0, 0)) and None) is None
        opened = helper.open_module(target, str(stand_in.folder / "attached"))
        assert (opened is None) is (limit == resource.RLIMIT_NOFILE)
        if opened is not None:
            os.close(opened)
        with suppress(WatchError):
            attached = Attached(program.pid)
            attached.detach()
        program.launches()


def test_a_helper_opens_regular_files_within_the_root_of_the_target_alone(
    stand_in: StandIn, helper: TargetHelper, tmp_path: Path, victim: Path
) -> None:
    folder = tmp_path / "nobody"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    links: dict[str, str] = {
        "to root's file": str(victim),
        "to a folder": "/usr",
        "to root's folder": f"/proc/{os.getpid()}/cwd/pyproject.toml",
        "to root's root": f"/proc/{os.getpid()}/root/bin/sh",
        "to root's descriptor": f"/proc/{os.getpid()}/fd/0",
        "to itself": str(folder / "to itself"),
    }
    with RunningProgram(stand_in, "poll", user=NOBODY) as program:
        target = Target(program.pid)

        def make() -> None:
            for name, leads_to in links.items():
                os.symlink(leads_to, folder / name)
            os.mkfifo(folder / "a pipe")

        assert as_user(NOBODY, make) is None
        refused = [folder / name for name in (*links, "a pipe")]
        refused += [Path("/dev/zero"), Path("/"), folder, victim, Path("relative"), Path(f"/proc/{os.getpid()}/cwd")]
        refused += [Path(f"/proc/self/fd/{number}") for number in range(6)]
        for path in refused:
            assert helper.open_module(target, str(path)) is None, path
        assert helper.problem == ""
        opened = helper.open_module(target, str(stand_in.folder / "attached"))
        assert opened is not None
        assert os.path.sameopenfile(opened, os.open(stand_in.folder / "attached", os.O_RDONLY))
        os.close(opened)


def test_who_cannot_become_the_user_is_refused_with_the_remedy(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stallprobes.watch.attaching import refusals

    monkeypatch.setattr(refusals, "may_become_others", lambda: False)
    with RunningProgram(stand_in, "poll", user=NOBODY) as program:
        found = refusal(program.pid)
    assert found is not None
    assert "and may not (CAP_SETUID and CAP_SETGID): run stallscope as that user, or give root both" in found


def test_a_process_with_two_groups_is_refused(stand_in: StandIn, tmp_path: Path) -> None:
    copy = tmp_path / "sleep"
    copy.write_bytes(Path("/bin/sleep").read_bytes())
    os.chown(copy, 0, 1)
    copy.chmod(0o2755)
    open_to_all(tmp_path)
    started = subprocess.Popen([str(copy), "1000"], user=NOBODY, group=NOBODY, extra_groups=[])
    try:
        wait_until(lambda: Target(started.pid).field("Name") == "sleep", "the program")
        found = refusal(started.pid)
    finally:
        started.kill()
        started.wait()
    assert found is not None
    assert "is a set-gid program, which runs with the rights of group " in found


def test_ids_that_change_are_seen_behind_the_change(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    identities = iter([OTHER, Identity(NOBODY - 1, NOBODY, ())])
    monkeypatch.setattr(Target, "identity", property(lambda self: next(identities)))
    with RunningProgram(stand_in, "poll", user=NOBODY) as program:
        with pytest.raises(WatchError, match="has ended, or changes its user: try again"):
            Attached(program.pid)
        program.launches()


def test_the_attacher_takes_only_an_empty_memfd(stand_in: StandIn) -> None:
    """Beside the swaps: without them it works, and leaves no descriptor."""
    with RunningProgram(stand_in, "poll", user=NOBODY) as program:
        before = len(os.listdir(f"/proc/{program.pid}/fd"))
        assert run_attacher(stand_in, program.pid).returncode == 0
        # That of the control, which stays.
        wait_until(lambda: len(os.listdir(f"/proc/{program.pid}/fd")) == before + 1, "the control alone")
        program.launches()
