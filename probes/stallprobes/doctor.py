"""Diagnosis of driver, CUDA and host setup as data.

Each finding has a level: ok, warn (results may be misleading, or an optional component is missing) or problem (no GPU
measurement will work). It says what was found and what to do. No CUDA context is created.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Literal

from stallprobes.errors import NvmlUnavailable
from stallprobes.files.codec import Document
from stallprobes.machine import fingerprint, gpm, gpu_settings, gpus, nvml, perf_events
from stallprobes.machine.gpu_settings import GpuSettings
from stallprobes.machine.libcuda_survey import DriverReport
from stallprobes.native.library import REMEDY
from stallprobes.native.library import problem as native_problem
from stallprobes.native.sources import LIBRARIES
from stallprobes.records import libcupti
from stallprobes.records.timeline import TimelineUnavailable

# Oldest supported CUDA version of the driver, in the driver's encoding: 12000 is version 12.0.
OLDEST_CUDA = 12000
# Packages that stallscope needs; the doctor names their versions.
PACKAGES = ("cuda-bindings", "numpy", "nvidia-ml-py", "simpy", "textual", "click", "msgspec")
# Effects of environment variables that make calls slower, change results or prevent probes. The doctor warns of each
# variable with another value than 0.
SLOWING_ENVIRONMENT = {
    "CUDA_LAUNCH_BLOCKING": "every launch waits for its kernel",
    "CUDA_DEVICE_MAX_CONNECTIONS": "streams may share hardware queues",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "MPS limits the share of the GPU",
    "CUDA_DISABLE_PTX_JIT": "the PTX of this package cannot be loaded",
}


# Remedies for low clocks, by a part of NVML's reason.
_CLOCK_REMEDIES = {
    "application": "nvidia-smi -rac, or -rgc for locked clocks, both as root, if it is not intended",
    "power": "raise the power limit (nvidia-smi -pl), or compare only with results under this limit",
    "thermal": "check cooling and air flow",
    "hardware": "check cooling and power supply",
}
# Smallest part of a maximum or default that counts as the whole.
_FULL = 0.97
# Smallest utilisation (percent) with which a GPU is under load.
_BUSY_PERCENT = 50

# Schema of the doctor's JSON document, with the number of its version.
DOCTOR_SCHEMA: Final = "stallscope.doctor/1"


class Level(StrEnum):
    """Severity of a finding, from the least severe on."""

    OK = "ok"
    WARN = "warn"
    PROBLEM = "problem"


class Finding(Document):
    """Result of one check: its subject, what was found, and what to do ("" if nothing)."""

    level: Level
    subject: str
    found: str
    do: str = ""


class Diagnosis(Document):
    """Output of `stallscope doctor --json`: diagnosis of driver, CUDA and host setup."""

    schema: Literal["stallscope.doctor/1"]
    level: Level
    """That of the worst finding."""
    findings: tuple[Finding, ...]


def examine(survey: gpus.Survey | None = None) -> Diagnosis:
    """The findings of all checks, the driver's first. ``survey`` is by default taken now."""
    survey = survey if survey is not None else gpus.survey()
    findings = (
        *_driver(survey),
        *_nvml(survey),
        *_packages(survey.driver),
        *_native(),
        *(finding for gpu in survey.gpus for finding in _gpu(gpu)),
        *_gpu_settings(survey),
        *_counters(survey),
        *_timeline(survey.driver),
        *_settings(survey.driver, os.environ),
        *_host(),
    )
    worst = max((finding.level for finding in findings), key=list(Level).index, default=Level.OK)
    return Diagnosis(DOCTOR_SCHEMA, worst, findings)


def _driver(survey: gpus.Survey) -> Iterator[Finding]:
    report = survey.driver
    module = fingerprint.kernel_module_version()
    version = survey.driver_version or module
    if report.problem is not None:
        yield Finding(Level.PROBLEM, "driver", report.problem, _remedy(report))
    elif version is None:
        yield Finding(Level.WARN, "driver", "works, version unknown", "make NVML available")
    else:
        yield Finding(Level.OK, "driver", version)
    if survey.driver_version and module and survey.driver_version != module:
        yield Finding(
            Level.PROBLEM,
            "driver versions",
            f"libraries {survey.driver_version}, kernel module {module}",
            "reboot, or reload the kernel module",
        )
    if report.cuda_version is None:
        yield Finding(Level.PROBLEM, "CUDA", "version unknown: libcuda did not answer", "see the finding on the driver")
    elif report.cuda_version < OLDEST_CUDA:
        yield Finding(
            Level.PROBLEM, "CUDA", f"{report.cuda_version_text}, too old", "install a driver for CUDA 12.0 or newer"
        )
    else:
        yield Finding(Level.OK, "CUDA", f"{report.cuda_version_text} (highest version that the driver supports)")


def _remedy(report: DriverReport) -> str:
    if report.error == "library":
        return "install the NVIDIA driver; in a container, start it with the NVIDIA runtime (--gpus all)"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and report.code in (None, 100):
        return "unset CUDA_VISIBLE_DEVICES, or set it to an existing GPU"
    if report.error in ("hang", "crash"):
        return "check dmesg for Xid errors; reset the GPU or reboot"
    return "check nvidia-smi and dmesg"


def _nvml(survey: gpus.Survey) -> Iterator[Finding]:
    if survey.nvml_problem is not None:
        # Without NVML there is no telemetry and no list of other processes; measurements work.
        yield Finding(Level.WARN, "NVML", survey.nvml_problem.reason, survey.nvml_problem.remedy)
    else:
        yield Finding(Level.OK, "NVML", survey.nvml_version or "works")
    if (fork := nvml.fork()) is not None:
        yield Finding(
            Level.WARN,
            "package pynvml",
            f"pynvml {fork} is a fork that overwrites nvidia-ml-py's module",
            "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py",
        )


def _packages(report: DriverReport) -> Iterator[Finding]:
    for name in PACKAGES:
        version = nvml.version_of(name)
        if version is None:
            level = Level.WARN if name == "nvidia-ml-py" else Level.PROBLEM
            yield Finding(level, f"package {name}", "not installed", f"pip install {name}")
        else:
            yield Finding(Level.OK, f"package {name}", version)
    bindings = (nvml.version_of("cuda-bindings") or "").split(".")[0]
    if report.cuda_version is not None and bindings.isdigit() and int(bindings) > report.cuda_version // 1000:
        yield Finding(
            Level.WARN,
            "cuda-bindings and driver",
            f"cuda-bindings {bindings} with a driver for CUDA {report.cuda_version_text}: newer functions are missing",
            f"pip install 'cuda-bindings<{report.cuda_version // 1000 + 1}', or install a newer driver",
        )


def _native(problem: Callable[[], str] = native_problem) -> Iterator[Finding]:
    """Finding on the native libraries: those of this installation can be loaded or not."""
    fault = problem()
    if fault:
        yield Finding(Level.PROBLEM, "native libraries", fault, REMEDY)
    else:
        yield Finding(Level.OK, "native libraries", f"complete, of these sources ({LIBRARIES})")


def _gpu(gpu: gpus.Gpu) -> Iterator[Finding]:
    subject = f"GPU {gpu.index}"
    memory = "" if gpu.memory_bytes is None else f", {gpu.memory_bytes / 2**30:.0f} GiB"
    cuda = "hidden from CUDA" if gpu.cuda_index is None else f"CUDA index {gpu.cuda_index}"
    index = "no NVML index" if gpu.nvml_index is None else f"NVML index {gpu.nvml_index}"
    text = f"{gpu.name}{memory}, {gpu.uuid}, {gpu.pci}, {index}, {cuda}"
    if gpu.cuda_index is None:
        yield Finding(Level.WARN, subject, text, "check CUDA_VISIBLE_DEVICES and the finding on the driver")
    else:
        yield Finding(Level.OK, subject, text)
    yield _mig(subject, gpu)
    yield _compute_mode(subject, gpu)
    yield _processes(subject, gpu)


def _gpu_settings(
    survey: gpus.Survey,
    ask: Callable[[Sequence[str]], Sequence[GpuSettings | NvmlUnavailable]] = gpu_settings.ask,
) -> Iterator[Finding]:
    """Findings on clocks, power limit and link of each GPU; none without NVML."""
    listed = survey.gpus if survey.nvml_problem is None else ()
    for gpu, answer in zip(listed, ask([gpu.uuid for gpu in listed]) if listed else (), strict=True):
        subject = f"GPU {gpu.index}"
        if isinstance(answer, NvmlUnavailable):
            yield Finding(Level.OK, f"{subject} clocks", f"n/a: {answer.reason}")
            continue
        yield _clocks(f"{subject} clocks", answer)
        yield _power_limit(f"{subject} power limit", answer)
        yield _link(f"{subject} PCIe", answer)


def _clocks(subject: str, settings: GpuSettings) -> Finding:
    clock, most, reasons = settings.sm_clock, settings.most_sm_clock, settings.clock_reasons
    if clock is None or most is None:
        return Finding(Level.OK, subject, "n/a")
    text = f"SM clock {clock} MHz of at most {most} MHz"
    limits = [reason for reason in reasons or () if reason != "idle"]
    if limits:
        does = (remedy for words, remedy in _CLOCK_REMEDIES.items() if any(words in reason for reason in limits))
        do = next(does, "nvidia-smi -q -d PERFORMANCE says more")
        return Finding(Level.WARN, subject, f"{text}, limited by {' and '.join(limits)}", do)
    own, default = settings.application_clock, settings.default_application_clock
    if own is not None and default is not None and own < default:
        text = f"{text}; the applications clock is set to {own} MHz, and {default} MHz is the default"
        return Finding(Level.WARN, subject, text, _CLOCK_REMEDIES["application"])
    if reasons == () and clock < _FULL * most and (settings.utilisation or 0) >= _BUSY_PERCENT:
        text = f"{text} under load, and NVML names no reason: they may be locked (nvidia-smi -lgc)"
        return Finding(Level.WARN, subject, text, "nvidia-smi -rgc, which needs root, unlocks them")
    return Finding(Level.OK, subject, f"{text}{', idle' if reasons else ''}")


def _power_limit(subject: str, settings: GpuSettings) -> Finding:
    limit, default = settings.power_limit, settings.default_power_limit
    if limit is None or default is None:
        return Finding(Level.OK, subject, "n/a" if limit is None else f"{limit:.0f} W")
    if limit >= _FULL * default:
        return Finding(Level.OK, subject, f"{limit:.0f} W, the default")
    return Finding(
        Level.WARN,
        subject,
        f"{limit:.0f} W, below the default of {default:.0f} W: clocks are lower under load",
        f"nvidia-smi -pl {default:.0f}, which needs root, or compare only with results under this limit",
    )


def _link(subject: str, settings: GpuSettings) -> Finding:
    link, most = settings.link, settings.most_link
    if link is None or most is None:
        return Finding(Level.OK, subject, "n/a")
    if link.width < most.width:
        text = f"{link}, but the GPU and its slot have {most}: copies take longer"
        return Finding(Level.WARN, subject, text, "check the slot, risers and dmesg, and reboot to train the link anew")
    if link.generation < most.generation and settings.performance_state == gpu_settings.HIGHEST_STATE:
        text = f"{link}, but the GPU and its slot have {most}: copies may take longer"
        return Finding(Level.WARN, subject, text, "look again while copies run, since links save power without work")
    return Finding(Level.OK, subject, f"{link} of {most}")


def _counters(
    survey: gpus.Survey,
    ask: Callable[[Sequence[str]], Sequence[gpm.GpmAnswer]] = gpm.ask,
) -> Iterator[Finding]:
    """Findings on NVML's GPM counters, such as SM active: readable or not. Measurements need none of them."""
    if survey.nvml_problem is not None or not survey.gpus:
        without = "NVML unavailable" if survey.gpus else "no GPU"
        yield Finding(Level.OK, "GPM counters", f"n/a ({without}); a simulated GPU has SM active and occupancy")
        return
    for gpu, answer in zip(survey.gpus, ask([gpu.uuid for gpu in survey.gpus]), strict=True):
        subject = f"GPU {gpu.index} GPM counters"
        if isinstance(answer, NvmlUnavailable):
            mig = " (with MIG on NVML has them for MIG devices only)" if gpu.mig else ""
            level = Level.WARN if answer.remedy else Level.OK
            yield Finding(level, subject, f"n/a: {answer.reason}{mig}", answer.remedy)
        else:
            active = answer["sm_active_percent"]
            readable = [name for name, value in answer.items() if value is not None]
            lacking = [name for name in answer if name not in readable]
            text = f"readable, SM active {active:.1f} %" if active is not None else "readable"
            yield Finding(Level.OK, subject, text + (f"; without a value: {', '.join(lacking)}" if lacking else ""))


def _timeline(
    report: DriverReport,
    libraries: Callable[[], Sequence[libcupti.LibraryFile]] = libcupti.found_libraries,
    ask: Callable[[str], int | None] = libcupti.ask_version,
) -> Iterator[Finding]:
    """Finding on a libcupti for the driver. What else may prevent the timeline is known when it is switched on."""
    if report.cuda_version is None:
        return
    try:
        candidates = libcupti.matching(report.cuda_version, libraries())
    except TimelineUnavailable as error:
        yield Finding(Level.WARN, "timeline", f"not available: {error.status.found}", error.status.do)
        return
    for library in candidates:
        version = ask(library.path)
        if version is None:
            continue
        text = f"libcupti {libcupti.version_text(version)} ({library.origin}, {library.path})"
        why, do = libcupti.without_context_switches(version)
        # Only a newer driver would help where there is nothing to do.
        yield Finding(Level.WARN if do else Level.OK, "timeline", f"{text}, {why}" if why else text, do)
        return
    yield Finding(
        Level.WARN,
        "timeline",
        f"not available: {libcupti.not_started(candidates[0].path)}",
        "install an older nvidia-cuda-cupti, or a newer driver",
    )


def _mig(subject: str, gpu: gpus.Gpu) -> Finding:
    subject = f"{subject} MIG"
    if gpu.mig is None:
        return Finding(Level.OK, subject, "n/a (not supported by the GPU, or NVML unavailable)")
    if not gpu.mig:
        return Finding(Level.OK, subject, "off")
    if not gpu.mig_uuids:
        return Finding(
            Level.PROBLEM, subject, "on, without a MIG device", "create a MIG device (nvidia-smi mig -cgi … -C)"
        )
    return Finding(
        Level.WARN,
        subject,
        f"on, {len(gpu.mig_uuids)} devices: measurements use a part of the GPU, and some values of NVML are n/a",
        "compare only with results of the same MIG profile",
    )


def _compute_mode(subject: str, gpu: gpus.Gpu) -> Finding:
    subject = f"{subject} compute mode"
    if gpu.compute_mode is None:
        return Finding(Level.OK, subject, "n/a (NVML unavailable)")
    if gpu.compute_mode == "prohibited":
        return Finding(Level.PROBLEM, subject, "prohibited: no process may use the GPU", "nvidia-smi -c DEFAULT")
    if gpu.compute_mode.startswith("exclusive"):
        return Finding(
            Level.WARN, subject, f"{gpu.compute_mode}: one process at a time may use the GPU", "nvidia-smi -c DEFAULT"
        )
    return Finding(Level.OK, subject, gpu.compute_mode)


def _processes(subject: str, gpu: gpus.Gpu) -> Finding:
    subject = f"{subject} processes"
    if gpu.processes is None:
        return Finding(Level.WARN, subject, "n/a: NVML does not list the processes", "make NVML available")
    processes = gpus.others(gpu)
    if not processes:
        return Finding(Level.OK, subject, "no other process")
    names = ", ".join(f"{process.name} ({process.pid})" for process in processes[:4])
    more = f" and {len(processes) - 4} more" if len(processes) > 4 else ""
    return Finding(
        Level.WARN,
        subject,
        f"{len(processes)} with a CUDA context: {names}{more}",
        "they distort results, and aggressors disturb them: measure on an idle GPU",
    )


def _settings(report: DriverReport, environment: Mapping[str, str]) -> Iterator[Finding]:
    if report.cuda_version is not None:
        lazy = "lazy: the first launch of a kernel loads it; first calls are recorded separately"
        mode = report.loading_mode or "n/a (a driver before CUDA 11.7)"
        yield Finding(Level.OK, "module loading", lazy if mode == "lazy" else mode)
    if fingerprint.mps_running():
        yield Finding(
            Level.WARN,
            "MPS",
            "a daemon runs: processes share one context on the GPU",
            "results differ from those without MPS: stop it (echo quit | nvidia-cuda-mps-control)",
        )
    else:
        yield Finding(Level.OK, "MPS", "off")
    for name, effect in SLOWING_ENVIRONMENT.items():
        if environment.get(name, "0") != "0":
            yield Finding(Level.WARN, name, f"{environment[name]}: {effect}", f"unset {name}, unless it is intended")


def _events(refusal: Callable[[], str] = perf_events.refusal) -> Finding:
    """Finding on the kernel's events of threads, which ``watch`` has for lines that compute, and for lost CPUs."""
    subject, why = "perf events", refusal()
    if not why:
        return Finding(Level.OK, subject, "allowed: watch says where compiled programs compute, and who lost a CPU")
    return Finding(
        Level.WARN,
        subject,
        f"refused ({why}): watch does not say where compiled programs compute",
        "sysctl kernel.perf_event_paranoid=2, and let a container's seccomp profile allow perf_event_open",
    )


def _host() -> Iterator[Finding]:
    machine = platform.machine()
    if platform.system() != "Linux" or machine not in ("x86_64", "aarch64"):
        yield Finding(
            Level.PROBLEM,
            "platform",
            f"{platform.system()} on {machine}",
            "use Linux on x86-64 or AArch64; other calling conventions are not supported",
        )
    cpus = len(os.sched_getaffinity(0))
    if cpus < 4:
        text = f"{cpus} usable: probes wait for each other, and that looks like a stall"
        yield Finding(Level.WARN, "CPUs", text, "use 4 or more CPUs; check the host control's latencies")
    else:
        yield Finding(Level.OK, "CPUs", f"{cpus} usable ({fingerprint.cpu_model() or 'model unknown'})")
    governor = fingerprint.scaling_governors()
    if governor is None:
        yield Finding(Level.OK, "CPU governor", "n/a (usual in virtual machines and containers)")
    elif governor != "performance":
        yield Finding(
            Level.WARN,
            "CPU governor",
            f"{governor}: calls are slower after idle times",
            "cpupower frequency-set -g performance (needs root), or compare only with results under the same governor",
        )
    else:
        yield Finding(Level.OK, "CPU governor", governor)
    source = fingerprint.clock_source()
    if source is not None and machine == "x86_64" and source not in ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page"):
        text = f"{source}: reading the clock is a system call, which adds about 1 µs to every latency"
        yield Finding(Level.WARN, "clock", text, "boot with clocksource=tsc if the CPU has an invariant TSC")
    else:
        yield Finding(Level.OK, "clock", source or "n/a")
    yield _events()
