"""Choice of the check or reference that shows which pairs of calls stall on this machine."""

from __future__ import annotations

from pathlib import Path

from stallprobes.errors import CheckFileError
from stallprobes.machine import fingerprint
from stallprobes.matrix import check_file
from stallprobes.matrix.matrix import Matrix
from stallprobes.matrix.reference import gpu_model
from stallprobes.matrix.reference_choice import reference_of_gpu
from stallprobes.watch.attribution.known_stalls import KnownStalls


def stalls_of_this_machine(check: Path | None = None) -> KnownStalls | None:
    """The pairs that stall by the saved ``check``, without one by the shipped reference of this machine's GPUs.

    None without either, or if the GPUs are of several models. Raises CheckFileError for a check that cannot be read, or
    that is of a simulated GPU, of several machines or of another GPU than this machine has.
    """
    models = set(fingerprint.kernel_module_gpus())
    if check is not None:
        return KnownStalls.of_matrix(_fitting(check, models))
    reference = reference_of_gpu(models.pop(), fingerprint.kernel_module_version()) if len(models) == 1 else None
    return None if reference is None else KnownStalls.of_reference(reference)


def _fitting(path: Path, models: set[str]) -> Matrix:
    matrix = check_file.load(path)
    if matrix.simulated:
        raise CheckFileError(f"{path} is of a simulated GPU: name a check of this machine")
    if matrix.hosts:
        raise CheckFileError(f"{path} is of several machines: name the check of this one")
    gpu = gpu_model(matrix)
    if models and gpu not in models:
        raise CheckFileError(f"{path} is of {gpu or 'no GPU'}, this machine has {', '.join(sorted(models))}")
    return matrix
