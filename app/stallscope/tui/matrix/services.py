"""Operations of the matrix screen: check, files, comparison. Each imports its modules when it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from stallprobes.errors import CheckFileError, NotComparable, TimelinesDiffer
from stallprobes.matrix.matrix import Matrix

if TYPE_CHECKING:
    from stallprobes.matrix.check.plan import Plan
    from stallprobes.matrix.check.progress import CheckProgress
    from stallprobes.matrix.comparing.comparison import Comparison
    from stallscope.tui.sources.engine_request import EngineTarget


class RequestRejected(Exception):
    """A request that is not done; the text is one sentence.

    ``force`` does it if the user confirms; ``confirm_label`` names that answer.
    """

    def __init__(self, sentence: str, confirm_label: str = "", force: Callable[[], None] | None = None) -> None:
        super().__init__(sentence)
        self.confirm_label = confirm_label
        self.force = force


class MatrixServices:
    """Measures on the GPU, reads and writes files, compares."""

    def plan(self, quick: bool) -> Plan:
        """Plan of the default check."""
        from stallprobes.matrix.check import plan

        return plan.plan(quick=quick)

    def run(
        self,
        plan: Plan,
        target: EngineTarget,
        seed: int,
        progress: Callable[[CheckProgress], None],
        stop: Callable[[], bool],
    ) -> Matrix:
        """Measure ``plan``. Raises EngineFailed."""
        from stallprobes.matrix.check import runner

        return runner.run(
            plan,
            backend=target.backend,
            gpu=target.gpu,
            options=target.options,
            seed=seed,
            progress=progress,
            cells=True,
            stop=stop,
            survey=target.survey,
        )

    def machine(self, target: EngineTarget) -> Mapping[str, object]:
        """Fingerprint of the machine, as far as it is known without an engine."""
        from stallprobes.machine.fingerprint import fingerprint as found_by

        gpu = target.gpu.split(",")[0] if target.gpu else None
        return found_by(gpu, {}, target.survey)

    def load(self, path: Path) -> Matrix:
        """The matrix in a file. Raises RequestRejected."""
        from stallprobes.matrix import check_file

        try:
            return check_file.load(path)
        except CheckFileError as error:
            raise RequestRejected(str(error)) from error

    def save(self, matrix: Matrix, path: Path, force: bool) -> None:
        """Write a matrix to a file, over another one only with ``force``. Raises RequestRejected."""
        from stallprobes.matrix import check_file

        try:
            check_file.save(matrix, path, force=force)
        except (CheckFileError, FileExistsError) as error:
            raise RequestRejected(str(error)) from error

    def compare(self, old: Matrix, new: Matrix, force: bool) -> Comparison:
        """The comparison. Raises RequestRejected, with a label to confirm unless ``force``."""
        from stallprobes.matrix.comparing import compare

        try:
            return compare.compare(old, new, force=force)
        except TimelinesDiffer as error:
            raise RequestRejected(str(error)) from error
        except NotComparable as error:
            raise RequestRejected(str(error), "" if force else "compare them anyway") from error
