"""Streams of every call and record of programs on this GPU, replayed beside the stand-ins: the same causes follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories import program_truths as truths
from factories.call_stream import save_stream
from factories.program_truths import Truth, require_right_causes
from factories.replayed_streams import EVERY_CALL, calls_of, replayed
from factories.stand_in import COMPILER, StandIn, build_replay
from factories.watched_programs import findings_of, watch_python
from stallprobes.machine.libcuda_survey import ask
from stallprobes.watch.environment import find_cupti, library

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def replaying(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """The stand-ins with the program that replays streams."""
    if COMPILER is None:
        pytest.skip("the stand-ins need a C compiler")
    folder = tmp_path_factory.mktemp("stand_ins")
    return build_replay(folder / "replaying", StandIn.build(folder / "stand_in"))


@pytest.mark.parametrize(
    ("program", "truth"),
    [
        # Few enough calls that the file has each one with its times.
        (("read_back.py", "libcuda.so.1", "50", "5000000", "pageable"), truths.gpu_work),
        (("read_back.py", "libcuda.so.1", "50", "5000000", "pinned"), truths.gpu_work),
        (("secondary_context.py", "20"), truths.secondary_context),
        (("pageable_copies.py", "20"), truths.pageable_copies),
        (("default_stream_gate.py", "8"), truths.gate),
    ],
    ids=lambda value: " ".join(value).removesuffix(".py") if isinstance(value, tuple) else "",
)
def test_a_stream_of_this_gpu_is_replayed_with_its_causes(
    tmp_path: Path, replaying: StandIn, program: tuple[str, ...], truth: Truth
) -> None:
    there = watch_python(
        tmp_path / "recorded", *program, library=library(), options=EVERY_CALL,
        cupti=find_cupti(ask().cuda_version or 0),
    )  # fmt: skip
    stream = save_stream(tmp_path / "recorded", tmp_path / "stream")
    every = replayed(replaying, stream, tmp_path / "every", slow_ns=0)
    assert calls_of(every.process) == calls_of(there.process)
    here = replayed(replaying, stream, tmp_path / "slow")
    require_right_causes(" ".join(program), findings_of(here), truth)
