"""The processes that use the GPUs, as text: 80 columns where nothing says more, and in ASCII."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from factories.gpu_machine import CONTAINER_NAMESPACE, MIB, OWN_PID, FakeGpu, FakeMachine
from factories.hostile_text import HOSTILE, forbidden
from stallprobes.machine import nvml
from stallprobes.machine.gpu_processes import GpuProcessList
from stallscope.report.columns import display_width
from stallscope.report.process_text import show_processes
from stallscope.report.text import USUAL_WIDTH, TextWriter

TRAINING = ["/opt/conda/bin/python3.11", "-u", "train.py", "--config", "configs/large.yaml", "--devices", "8"]


@pytest.fixture
def busy(tmp_path: Path) -> FakeMachine:
    gpus = [FakeGpu(compute={900: 61_641 * MIB}, samples=[(900, 0.3, 97)]) for _ in range(8)]
    gpus[0].compute |= {501: 512 * MIB, 41_234: 2 * MIB, 77: None}
    machine = FakeMachine(tmp_path, *gpus)
    machine.add(501, ["python3", "-m", "stallprobes.engine.main"], parent=OWN_PID, uid=0)
    machine.add(900, TRAINING, uid=0)
    machine.add(41_234, ["./solver", HOSTILE], uid=3_999_999_999)
    machine.refusals[41_234] = (
        "it belongs to another user: run stallscope as that user, or with sudo, which has CAP_SYS_PTRACE."
    )
    return machine


def text_of(listing: GpuProcessList, width: int = USUAL_WIDTH, ascii: bool = False) -> str:
    stream = io.StringIO()
    show_processes(TextWriter(stream, width=width, ascii=ascii), listing)
    return stream.getvalue()


@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize("width", [80, 160])
def test_no_line_is_wider_than_the_terminal(busy: FakeMachine, width: int, ascii: bool) -> None:
    text = text_of(busy.lister().read(), width, ascii)
    assert max(map(display_width, text.splitlines())) <= width
    assert not forbidden(text)
    assert text.isascii() or not ascii


def test_every_process_has_a_row_and_each_refusal_a_sentence(busy: FakeMachine) -> None:
    text = text_of(busy.lister().read())
    head, _, titles, *rows = text.splitlines()
    assert head == "4 processes on 8 GPUs, listed by NVML."
    assert titles.split() == ["PID", "USER", "GPU", "TYPE", "MEMORY", "SM", "ATTACH", "COMMAND"]
    words = {row.split()[0]: row for row in rows[:4]}
    assert words["900"].split()[:9] == ["900", "root", "0-7", "C", "482", "GiB", "97", "%", "yes"]
    assert " own " in words["501"]
    assert " no " in words["41234"]
    assert " n/a " in words["77"]
    joined = " ".join(text.split())
    assert "41234: Cannot be attached: it belongs to another user: run stallscope as that user" in joined
    assert "77: Cannot be attached: it is outside this container" in joined


def test_a_wide_terminal_has_all_arguments_and_a_narrow_one_the_program_without_its_folder(busy: FakeMachine) -> None:
    listing = busy.lister().read()
    assert f"  python3.11 {' '.join(TRAINING[1:])}\n" in text_of(listing, 200)
    assert "  python3.11 -u train.py" in text_of(listing, 80)


def test_an_empty_list_is_one_sentence(tmp_path: Path) -> None:
    text = text_of(FakeMachine(tmp_path, FakeGpu(), namespace=CONTAINER_NAMESPACE).lister().read())
    assert text.startswith("No process uses a GPU")
    assert "docker run --pid=host" in " ".join(text.split())


def test_what_could_not_be_read_is_stated(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(), FakeGpu(compute={900: MIB}))
    machine.nvml.broken["nvmlDeviceGetComputeRunningProcesses", 0] = nvml.GPU_IS_LOST
    assert "GPU 0: the GPU is lost." in text_of(machine.lister().read())
