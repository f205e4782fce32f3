"""GPM counters: two samples, their values, and GPUs without them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from factories.gpu_machine import FakeNvmlError
from stallprobes.errors import NvmlUnavailable
from stallprobes.machine.gpm import METRICS, NO_FUNCTION, PCIE, UNSUPPORTED, GpmCounters, ask
from stallprobes.machine.telemetry import all_fields

NOT_SUPPORTED, NAN = 3, float("nan")
READ = {**METRICS, **PCIE}


class Module:
    """NVML with counters whose values are given, each as (return code, value)."""

    NVML_GPM_METRICS_GET_VERSION = 1
    NVMLError = FakeNvmlError

    def __init__(self, values: dict[str, tuple[int, float]], supported: bool = True) -> None:
        self.supported = supported
        self.samples: list[list[int]] = []
        self.pairs: list[tuple[int, int]] = []
        self.taken = 0
        for number, constant in enumerate(READ.values()):
            setattr(self, constant, number)
        self.by_id = {number: values.get(name, (0, 0.0)) for number, name in enumerate(READ)}

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:
        return uuid

    def nvmlGpmQueryDeviceSupport(self, _: object) -> SimpleNamespace:
        return SimpleNamespace(isSupportedDevice=int(self.supported))

    def nvmlGpmSampleAlloc(self) -> list[int]:
        self.samples.append([0])
        return self.samples[-1]

    def nvmlGpmSampleGet(self, _: object, sample: list[int]) -> None:
        self.taken += 1
        sample[0] = self.taken

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        metrics = [SimpleNamespace(metricId=None, nvmlReturn=0, value=0.0) for _ in READ]
        return SimpleNamespace(version=0, sample1=None, sample2=None, numMetrics=0, metrics=metrics)

    def nvmlGpmMetricsGet(self, request: Any) -> None:
        assert request.numMetrics == len(READ)
        self.pairs.append((request.sample1[0], request.sample2[0]))
        for metric in request.metrics:
            metric.nvmlReturn, metric.value = self.by_id[metric.metricId]


class ModuleOfOneThread(Module):
    """NVML that notes calls of its functions of GPM which another thread is in as well."""

    def __init__(self) -> None:
        super().__init__({})
        self.together: list[str] = []
        self._inside = threading.Lock()

    def _call(self, name: str) -> None:
        if not self._inside.acquire(blocking=False):
            self.together.append(name)
            return
        # Lets other threads run.
        time.sleep(0.0005)
        self._inside.release()

    def nvmlGpmSampleGet(self, _: object, sample: list[int]) -> None:
        self._call("nvmlGpmSampleGet")
        super().nvmlGpmSampleGet(_, sample)

    def nvmlGpmMetricsGet(self, request: Any) -> None:
        self._call("nvmlGpmMetricsGet")
        super().nvmlGpmMetricsGet(request)


def test_two_gpus_are_never_read_at_once() -> None:
    module = ModuleOfOneThread()

    def read(handle: object) -> None:
        counters = GpmCounters()
        for _ in range(20):
            counters.read(module, handle)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(read, ("a", "b")))
    assert module.together == []


def test_each_reading_is_of_the_time_since_the_one_before() -> None:
    module, counters, handle = Module({"sm_active_percent": (0, 0.7)}), GpmCounters(), object()
    assert set(counters.read(module, handle).values()) == {None}
    for _ in range(3):
        assert counters.read(module, handle)["sm_active_percent"] == 0.7
    assert module.pairs == [(1, 2), (2, 3), (3, 4)]
    assert len(module.samples) == 2


def test_a_value_that_nvml_cannot_compute_is_none() -> None:
    module = Module({"dram_percent": (0, NAN), "tensor_percent": (NOT_SUPPORTED, 5.0), "fp32_percent": (0, 63.0)})
    counters, handle = GpmCounters(), object()
    counters.read(module, handle)
    found = counters.read(module, handle)
    assert (found["dram_percent"], found["tensor_percent"], found["fp32_percent"]) == (None, None, 63.0)


def test_traffic_over_pcie_takes_the_place_of_a_reading_that_blocks() -> None:
    module = Module({"pcie_to_gpu_kb_s": (0, 10.0), "pcie_from_gpu_kb_s": (NOT_SUPPORTED, 0.0)})
    asked: list[str] = []

    def throughput(_: object, direction: str) -> int:
        asked.append(direction)
        return 7

    module.NVML_PCIE_UTIL_RX_BYTES, module.NVML_PCIE_UTIL_TX_BYTES = "to", "from"  # type: ignore[attr-defined]
    module.nvmlDeviceGetPcieThroughput = throughput  # type: ignore[attr-defined]
    fields, handle = {one.name: one.read for one in all_fields()}, object()
    names = ("pcie_to_gpu_kb_s", "pcie_from_gpu_kb_s")
    assert [fields[name](module, handle) for name in names] == [7, 7]
    for _ in range(2):
        assert set(fields["gpm"](module, handle)) == set(METRICS)
    asked.clear()
    assert [fields[name](module, handle) for name in names] == [pytest.approx(10 * 1048.576), 7]
    assert asked == ["from"]


@pytest.mark.parametrize(
    ("module", "why"),
    [(Module({}, supported=False), UNSUPPORTED), (SimpleNamespace(), NO_FUNCTION)],
    ids=["gpu", "package"],
)
def test_without_counters_it_says_so(module: Any, why: str) -> None:
    with pytest.raises(NvmlUnavailable, match=why):
        GpmCounters().read(module, object())


def test_one_question_takes_two_samples_of_each_gpu() -> None:
    module = Module({"sm_active_percent": (0, 0.7)})
    found = ask(["GPU-1", "GPU-2"], lambda: module)
    assert [one["sm_active_percent"] for one in found if not isinstance(one, NvmlUnavailable)] == [0.7, 0.7]
    assert module.pairs == [(1, 3), (2, 4)]


@pytest.mark.parametrize(
    ("code", "words", "remedy"),
    [(NOT_SUPPORTED, "not supported", ""), (13, "the driver does not", "newer driver"), (4, "no permission", "root")],
)
def test_an_error_of_nvml_is_the_answer_with_its_remedy(code: int, words: str, remedy: str) -> None:
    class Refusing(Module):
        def nvmlGpmSampleGet(self, _: object, sample: list[int]) -> None:
            raise FakeNvmlError(code)

    (answer,) = ask(["GPU-1"], lambda: Refusing({}))
    assert isinstance(answer, NvmlUnavailable)
    assert words in answer.reason
    assert remedy in answer.remedy


def test_a_driver_that_hangs_is_an_answer_too() -> None:
    answered = threading.Event()

    def load() -> Any:
        answered.wait()
        raise NvmlUnavailable("too late", "")

    (answer,) = ask(["GPU-1"], load, timeout_s=0.01)
    answered.set()
    assert isinstance(answer, NvmlUnavailable)
    assert "did not answer" in answer.reason


def test_counters_that_are_not_wanted_say_so_and_ask_nothing() -> None:
    (field,) = (one for one in all_fields(gpm_counters=False) if one.name == "gpm")
    with pytest.raises(NvmlUnavailable, match="does not read the GPM counters"):
        field.read(None, None)
    assert field.names == tuple(METRICS)


def test_nvml_has_every_constant() -> None:
    """The fake modules above take them from the same tables, so they would agree with a name that NVML lacks."""
    module = pytest.importorskip("pynvml")
    assert [constant for constant in READ.values() if not hasattr(module, constant)] == []
