"""The stand-ins, built once for all tests of this folder, also in several processes."""

from __future__ import annotations

import pytest

from factories.shared_folder import shared_folder
from factories.stand_in import COMPILER, StandIn


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """The stand-ins with the injected library."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    return StandIn(shared_folder(tmp_path_factory, "stand_in", StandIn.build))
