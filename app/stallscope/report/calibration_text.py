"""Text report of a calibration."""

from __future__ import annotations

from stallprobes.machine.gpu_reach import LEAST_REACHED, PCIE, UNITS, Calibration, of_model
from stallprobes.watch.division_text import percent
from stallprobes.watch.limit_text import UNIT_WORDS
from stallscope.report.table import TableColumn
from stallscope.report.text import TextWriter

# Names of the directions of PCIe.
_PCIE_WORDS = dict(zip(PCIE, ("PCIe to the GPU", "PCIe from the GPU"), strict=True))
_COLUMNS = (
    TableColumn("unit"),
    TableColumn("reached", right=True),
    TableColumn("its model", right=True, optional=True),
    TableColumn("", optional=True),
)


def show(out: TextWriter, calibration: Calibration) -> None:
    """What each unit reached, beside what the package has of the model, and which figures ``watch`` does not use."""
    out.paragraph(f"{calibration.gpu}, driver {calibration.driver}: what its units reach", style="strong")
    model, used = of_model(calibration.gpu), calibration.measures
    rows = []
    for name in (*UNITS, *PCIE):
        value = calibration.reached.get(name)
        note = "" if name in used else "not measured" if value is None else "not used: its kernel is no measure"
        words = UNIT_WORDS[name][1] if name in UNIT_WORDS else _PCIE_WORDS[name]
        rows.append((words, _figure(name, value), _figure(name, model.reached.get(name) if model else None), note))
    out.table(_COLUMNS, rows)
    out.note(
        "Shares of the peak by NVML's counters while kernels run; traffic in GiB/s. watch compares the kernels of "
        f"programs on this GPU with them. A figure below {percent(LEAST_REACHED)} is not used: its kernel may "
        "be the reason."
    )


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value / 1024:.1f}" if name in PCIE else percent(value)
