"""Settings of a program that cost it time."""

from __future__ import annotations

import pytest

from stallprobes.watch.settings import settings_that_cost


@pytest.mark.parametrize(
    ("environment", "cpus", "said"),
    [
        ({}, 8, []),
        ({"CUDA_LAUNCH_BLOCKING": "0", "OMP_NUM_THREADS": "8"}, 8, []),
        (
            {"CUDA_LAUNCH_BLOCKING": "1"},
            None,
            ["CUDA_LAUNCH_BLOCKING=1 is set: each launch waits until its kernel has"],
        ),
        (
            {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
            8,
            ["CUDA_DEVICE_MAX_CONNECTIONS=1 is set: all streams share one queue"],
        ),
        ({"CUDA_DEVICE_MAX_CONNECTIONS": "32", "TORCH_DISTRIBUTED_DEBUG": "INFO"}, 8, []),
        (
            {"TORCH_DISTRIBUTED_DEBUG": "detail"},
            8,
            ["TORCH_DISTRIBUTED_DEBUG=DETAIL is set: PyTorch compares the ranks"],
        ),
        (
            {"OMP_NUM_THREADS": "16,2"},
            8,
            ["OMP_NUM_THREADS=16 is set: parallel work of the host has more threads than"],
        ),
        ({"OMP_NUM_THREADS": "16"}, None, []),
        ({"JAX_DEBUG_NANS": "True"}, 8, ["JAX_DEBUG_NANS=True is set: JAX reads each result"]),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, 8, ["XLA_PYTHON_CLIENT_ALLOCATOR=PLATFORM is set: JAX has the"]),
        ({"OMP_NUM_THREADS": "9" * 5000, "NCCL_BLOCKING_WAIT": "no"}, 8, []),
    ],
)
def test_settings_that_cost_time_are_said(environment: dict[str, str], cpus: int | None, said: list[str]) -> None:
    found = list(settings_that_cost(environment, cpus, "python train.py"))
    assert len(found) == len(said)
    assert all(text.startswith(begin) and text.endswith(".") for text, begin in zip(found, said, strict=True))


def test_what_a_user_sets_is_printable_and_short() -> None:
    (text,) = settings_that_cost({"CUDA_LAUNCH_BLOCKING": "1\x1b[2J" + 5000 * "x"}, 8, "train")
    assert "\x1b" not in text
    assert len(text) < 100


@pytest.mark.parametrize(
    ("command", "tool"),
    [
        ("python -m cProfile -o out train.py", "cProfile"),
        ("/usr/bin/python3.12 -u -m coverage run train.py", "coverage"),
        ("/opt/venv/bin/python3 /opt/venv/bin/kernprof -l train.py", "kernprof"),
        ("memray run train.py", "memray"),
        ("python train.py --tool cProfile x", None),
        ("python profile train.py", None),
        ("python -m profiles train.py", None),
        ("python -m cProfile", None),
        ("", None),
    ],
)
def test_a_tool_that_runs_the_program_is_said(command: str, tool: str | None) -> None:
    found = list(settings_that_cost({}, 8, command))
    assert [text.partition(" ")[0] for text in found] == ([] if tool is None else [tool])
