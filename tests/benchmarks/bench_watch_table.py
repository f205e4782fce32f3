"""What watching costs six programs of PyTorch, beside its profiler: a table in Markdown.

Each program is a process that is attached by ``stallscope watch --pid`` in each way in turn while it makes its steps,
and another one that records itself by torch.profiler with a schedule (one step of ten), between times in which nothing
watches it. Each time is compared with those on both sides of it: processes differ by a fifth, and what an attachment
leaves is in both.
Printed are the medians in percent of the time, their 95 % intervals, and the rate after the last detach; then, of each
program and way, what ``watch`` stated, how often from compared windows, and how often what was measured lies in that.
One measurement of a few seconds is itself several points off.

python tests/benchmarks/bench_watch_table.py [--rounds N] [--seconds S] [PROGRAM ...]
"""

from __future__ import annotations

import argparse
import json
import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "probes"), str(ROOT / "tests")]

from factories.median_interval import MedianInterval  # noqa: E402

WAYS = {
    "watch": (),
    "watch --cost 100": ("--cost", "100"),
    "watch --calls-only": ("--calls-only",),
}
PROFILER = "torch.profiler"
# Time (s) at both ends of a time in which a program is watched that is left out of the times beside it.
APART_S = 0.1
IDLE, PROFILED, END = 0, 1, 2


def training(torch: Any) -> Callable[[], None]:
    """A convolutional network is trained with AdamW."""
    layers: list[Any] = [torch.nn.Conv2d(3, 32, 3)]
    for _ in range(12):
        layers += [torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10))
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    images, labels = torch.randn(32, 3, 64, 64, device="cuda"), torch.randint(10, (32,), device="cuda")

    def step() -> None:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def decoding(torch: Any) -> Callable[[], None]:
    """A small decoder makes 16 tokens, one after the other."""
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model, head = torch.nn.TransformerEncoder(layer, 6).cuda().eval(), torch.nn.Linear(256, 1000).cuda()
    words = torch.nn.Embedding(1000, 256).cuda()

    def step() -> None:
        tokens = torch.zeros(1, 1, dtype=torch.long, device="cuda")
        with torch.no_grad():
            for _ in range(16):
                token = head(model(words(tokens))[:, -1:]).argmax(-1)
                tokens = torch.cat((tokens, token), 1)
                token.item()

    return step


def lstm(torch: Any) -> Callable[[], None]:
    """An LSTM cell, fifty times."""
    cell, values = torch.nn.LSTMCell(128, 128).cuda(), torch.randn(8, 128, device="cuda")

    def step() -> None:
        hidden = state = torch.zeros(8, 128, device="cuda")
        with torch.no_grad():
            for _ in range(50):
                hidden, state = cell(values, (hidden, state))
        torch.cuda.synchronize()

    return step


def masked(torch: Any) -> Callable[[], None]:
    """``x[x > 0]``, which waits for the number of values, twenty times."""
    values = torch.randn(1 << 14, device="cuda")

    def step() -> None:
        for _ in range(20):
            (values[values > 0] * 2).sum()
        torch.cuda.synchronize()

    return step


def launches(torch: Any) -> Callable[[], None]:
    """Five hundred small kernels and a wait."""
    values = torch.zeros(1024, device="cuda")

    def step() -> None:
        for _ in range(500):
            values.add_(1)
        torch.cuda.synchronize()

    return step


def graph(torch: Any) -> Callable[[], None]:
    """A CUDA graph of a hundred small kernels, launched ten times."""
    values, stream, captured = torch.zeros(4096, device="cuda"), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        values.add_(1)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(captured):
        for _ in range(100):
            values.add_(1)

    def step() -> None:
        for _ in range(10):
            captured.replay()
        torch.cuda.synchronize()

    return step


PROGRAMS = {made.__name__: made for made in (training, decoding, lstm, masked, launches, graph)}


def run_program(name: str, state: Path, times: Path) -> None:
    """Make steps until the state is END; write the begin and end (ns) of each."""
    import torch

    step = PROGRAMS[name](torch)
    for _ in range(20):
        step()
    rows: list[tuple[int, int]] = []
    profiler = None
    with state.open("r+b") as file, mmap.mmap(file.fileno(), 1) as shared:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        begin = time.monotonic_ns()
        while shared[0] != END:
            if (shared[0] == PROFILED) is (profiler is None):
                profiler = _other_profiler(torch, profiler)
            step()
            if profiler is not None:
                profiler.step()
            end = time.monotonic_ns()
            rows.append((begin, end))
            begin = end
    times.write_text(json.dumps(rows))


def _other_profiler(torch: Any, profiler: Any) -> Any:
    """None in place of a profiler, and a new one in place of None."""
    if profiler is not None:
        profiler.stop()
        return None
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    profiler = torch.profiler.profile(
        activities=kinds, schedule=torch.profiler.schedule(wait=8, warmup=1, active=1), on_trace_ready=lambda _: None
    )
    profiler.start()
    return profiler


@dataclass(frozen=True)
class Round:
    """By what share of its time a program was slower in one round, and what ``watch`` stated of it."""

    slower: float
    low: float = 0.0
    high: float = 0.0
    compared: int = 0


def measure(
    name: str, ways: Mapping[str, tuple[str, ...] | None], rounds: int, seconds: float
) -> tuple[dict[str, list[Round]], float]:
    """The rounds of a program in each way (None: by its profiler); and its rate after all, by that before."""
    with tempfile.TemporaryDirectory() as folder:
        state, times = Path(folder, "state"), Path(folder, "times")
        state.write_bytes(bytes([IDLE]))
        line = [sys.executable, __file__, "--child", name, str(state), str(times)]
        spans: list[tuple[str, int, int, Mapping[str, Any]]] = []
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as program:
            try:
                assert program.stdout is not None
                if program.stdout.readline() != "ready\n":
                    sys.exit(f"{name} did not begin")
                time.sleep(seconds)
                for way, options in rounds * [*ways.items()]:
                    begin = time.monotonic_ns()
                    cost: Mapping[str, Any] = {}
                    if options is None:
                        _tell(state, PROFILED)
                        time.sleep(seconds)
                        _tell(state, IDLE)
                    else:
                        begin, cost = _attach(program.pid, seconds, options)
                    spans.append((way, begin, time.monotonic_ns(), cost))
                    time.sleep(seconds)
                _tell(state, END)
                if program.wait():
                    sys.exit(f"{name} ended with {program.returncode}")
            finally:
                program.kill()
        rows = json.loads(times.read_text())
    rate = _rates(rows)
    apart, beside = round(APART_S * 1e9), round(seconds * 0.8e9)
    made: dict[str, list[Round]] = {}
    for way, begin, end, cost in spans:
        before, after = rate(begin - beside, begin - apart), rate(end + apart, end + beside)
        stated = {each: cost[each] for each in ("low", "high", "compared") if cost}
        made.setdefault(way, []).append(Round(1 - 2 * rate(begin, end) / (before + after), **stated))
    first, last = spans[0][1], spans[-1][2]
    return made, rate(last + apart, last + beside) / rate(first - beside, first - apart)


def _tell(state: Path, number: int) -> None:
    """Write the state in place: the program has the file mapped."""
    with state.open("r+b") as file:
        file.write(bytes([number]))


def _attach(pid: int, seconds: float, options: tuple[str, ...]) -> tuple[int, Mapping[str, Any]]:
    """Attach for some seconds; when the recording began (ns), and the cost that the report states."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        line = [sys.executable, "-m", "stallscope", "watch", "--pid", str(pid), "--seconds", f"{seconds:g}"]
        subprocess.run([*line, "--headless", "--json", str(report), *options], check=True, capture_output=True)
        process = json.loads(report.read_text())["processes"][0]
        return process["began_ns"], process["cost"]


def _rates(rows: list[tuple[int, int]]) -> Callable[[int, int], float]:
    def rate(begin: int, end: int) -> float:
        inside = [row for row in rows if row[0] >= begin and row[1] <= end]
        return len(inside) / max(sum(row[1] - row[0] for row in inside), 1)

    return rate


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--child", nargs=3)
    arguments = parser.parse_args()
    if arguments.child:
        name, state, times = arguments.child
        run_program(name, Path(state), Path(times))
        return
    ways = [*WAYS, PROFILER]
    sys.stdout.write(f"| program | {' | '.join(ways)} | rate after all |\n|{'---|' * (len(ways) + 2)}\n")
    stated = []
    for name in arguments.programs or PROGRAMS:
        made, left = measure(name, WAYS, arguments.rounds, arguments.seconds)
        made |= measure(name, {PROFILER: None}, arguments.rounds, arguments.seconds)[0]
        cells = []
        for way in ways:
            found = MedianInterval.of([each.slower for each in made[way]])
            cells.append(f"{100 * found.median:.1f} ({100 * found.low:.1f} to {100 * found.high:.1f})")
        sys.stdout.write(f"| {name} | {' | '.join(cells)} | {left:.2f} |\n")
        sys.stdout.flush()
        stated += [_stated(name, way, made[way]) for way in WAYS]
    sys.stdout.write(
        "\n".join(
            ["", "| program | way | measured | stated | compared | holds |", "|---|---|---|---|---|---|", *stated, ""]
        )
    )


def _stated(name: str, way: str, rounds: list[Round]) -> str:
    measured = ", ".join(f"{100 * each.slower:.1f}" for each in rounds)
    ranges = ", ".join(f"{100 * each.low:.1f} to {100 * each.high:.1f}" for each in rounds)
    compared, holds = (
        sum(map(bool, values))
        for values in ([each.compared for each in rounds], [each.low <= each.slower <= each.high for each in rounds])
    )
    return f"| {name} | {way} | {measured} | {ranges} | {compared} | {holds} of {len(rounds)} |"


if __name__ == "__main__":
    main()
