"""Draw screenshots from recordings: python screenshots/make.py RECORDING… [--out DIR] [--size 160x48] [--theme NAME]

For each recording: NAME.svg in the middle of the stall, NAME-explain.svg with the explanation over it, and with
--sequence the frames NAME-000.svg and so on of the stall appearing, one every half a second.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "app"), str(ROOT / "probes")]

from stallprobes.model import Role  # noqa: E402
from stallprobes.recording import Recording  # noqa: E402
from stallscope.app import StallscopeApp  # noqa: E402
from stallscope.replay import Replay  # noqa: E402
from stallscope.screens.monitor import Monitor  # noqa: E402
from stallscope.settings import Settings  # noqa: E402

AFTER_ON_S = 6.0
STEP_S = 0.5


def disturbed_s(recording: Recording) -> tuple[float, float]:
    """Seconds from the beginning to the first and to the last frame in which an aggressor is on."""
    found = []
    for number, frame in enumerate(recording.play()):
        aggressors = [probe.name for probe in frame.bench.probes if probe.role is Role.AGGRESSOR]
        if frame.snapshot is not None and any(frame.snapshot.probes[name].on for name in aggressors):
            found.append(recording.at_s(number))
    # A control without aggressors is drawn at its end.
    return (found[0], found[-1]) if found else (recording.seconds, recording.seconds)


async def draw(file: Path, out: Path, size: tuple[int, int], theme: str, sequence: bool) -> list[Path]:
    """All pictures of one recording; returns their paths."""
    recording, now, made = Recording(file), [0.0], []
    app = StallscopeApp(lambda: Replay(recording, clock=lambda: now[0]), Settings(theme=theme))

    def save(name: str) -> None:
        made.append(out / f"{file.stem}{name}.svg")
        made[-1].write_text(app.export_screenshot(title="stallscope"), encoding="utf-8")

    on_s, off_s = disturbed_s(recording)
    async with app.run_test(size=size) as pilot:
        monitor: Monitor | None = None
        while monitor is None or monitor.picture is None:
            await pilot.pause(0.02)
            monitor = app.screen if isinstance(app.screen, Monitor) else None
        monitor.rearrange()

        async def go_to(seconds: float) -> None:
            now[0] = seconds
            monitor.tick()
            await pilot.pause(0.05)

        if sequence:
            steps = round((AFTER_ON_S + 1.0) / STEP_S)
            for number in range(steps):
                await go_to(max(0.0, on_s - 1.0) + number * STEP_S)
                save(f"-{number:03}")
        await go_to(min(on_s + AFTER_ON_S, off_s))
        save("")
        await pilot.press("e")
        await pilot.pause(0.2)
        save("-explain")
    return made


def main() -> None:
    """Draw them all and print their names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--size", default="160x48")
    parser.add_argument("--theme", default="textual-dark")
    parser.add_argument("--sequence", action="store_true")
    asked = parser.parse_args()
    columns, rows = (int(part) for part in asked.size.split("x"))
    for file in asked.recordings:
        for made in asyncio.run(draw(file, asked.out, (columns, rows), asked.theme, asked.sequence)):
            print(made)


if __name__ == "__main__":
    main()
