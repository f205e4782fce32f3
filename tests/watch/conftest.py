"""The stand-ins, built once for all tests of this folder, also in several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.shared_folder import shared_folder
from factories.stand_in import COMPILER, StandIn
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """The stand-ins with the injected library."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    return StandIn(shared_folder(tmp_path_factory, "stand_in", StandIn.build))


@pytest.fixture
def settings(stand_in: StandIn, tmp_path: Path) -> dict[str, str]:
    """Variables with which the stand-in for libcupti is used, and nothing of the user's."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return {
        "XDG_RUNTIME_DIR": str(runtime),
        "TMPDIR": str(runtime),
        CUPTI_VARIABLE: str(stand_in.folder / "libcupti.so.13"),
        "NO_COLOR": "1",
        "LANG": "C.UTF-8",
    }
