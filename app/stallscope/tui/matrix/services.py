"""What the desk does its work with: the check, its files, and a comparison; each is loaded when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stallprobes.errors import CheckFileError, NotComparable
from stallprobes.matrix.matrix import Matrix

if TYPE_CHECKING:
    from stallprobes.matrix.compare import Comparison
    from stallprobes.matrix.plan import Plan
    from stallprobes.matrix.runner import CheckProgress
    from stallscope.tui.sources.live import EngineTarget


class Refusal(Exception):
    """What was asked for cannot be done; the text is one sentence. ``anyway`` does it all the same, where that makes
    sense, and ``yes`` says so."""

    def __init__(self, sentence: str, yes: str = "", anyway: Callable[[], None] | None = None) -> None:
        super().__init__(sentence)
        self.yes = yes
        self.anyway = anyway


class MatrixServices:
    """The real ones."""

    def plan(self, quick: bool) -> Plan:
        """What a check of all there is measures."""
        from stallprobes.matrix import plan

        return plan.plan(quick=quick)

    def run(
        self,
        plan: Plan,
        ground: EngineTarget,
        seed: int,
        progress: Callable[[CheckProgress], None],
        stop: Callable[[], bool],
    ) -> Matrix:
        """Measure ``plan``. Raises EngineFailed."""
        from stallprobes.matrix import runner

        return runner.run(
            plan,
            backend=ground.backend,
            gpu=ground.gpu,
            options=ground.options,
            seed=seed,
            progress=progress,
            cells=True,
            stop=stop,
            survey=ground.survey,
        )

    def machine(self, ground: EngineTarget) -> Mapping[str, object]:
        """What is known of the machine without an engine."""
        from stallprobes.machine.fingerprint import fingerprint as found_by

        gpu = ground.gpu.split(",")[0] if ground.gpu else None
        return found_by(gpu, {}, ground.survey)

    def load(self, path: Path) -> Matrix:
        """The matrix in a file. Raises Refused."""
        from stallprobes.matrix import document as check_document

        try:
            return check_document.load(path)
        except CheckFileError as error:
            raise Refusal(str(error)) from error

    def save(self, matrix: Matrix, path: Path, force: bool) -> None:
        """Write a matrix to a file, over another one only with ``force``. Raises Refused."""
        from stallprobes.matrix import document as check_document

        try:
            check_document.save(matrix, path, force=force)
        except (CheckFileError, FileExistsError) as error:
            raise Refusal(str(error)) from error

    def compare(self, old: Matrix, new: Matrix, force: bool) -> Comparison:
        """What changed. Raises Refused, with a way to do it all the same unless ``force``."""
        from stallprobes.matrix import compare

        try:
            return compare.compare(old, new, force=force)
        except NotComparable as error:
            raise Refusal(str(error), "" if force else "compare them all the same") from error
