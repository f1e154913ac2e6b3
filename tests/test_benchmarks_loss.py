"""The benchmarks of what is lost and of the pace run: small sizes, no conclusions about others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import loss, pace
from benchmarks.host import serving
from benchmarks.measure import Goal
from benchmarks.proxy import far, ping
from scrapy_fleet.ops.site import RunningSite, Shape, Site

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("bench") / "loss.json"
    loss.main(["--quick", "--json", str(file)])
    results: dict[str, Any] = json.loads(file.read_text())
    return results


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("bench") / "pace.json"
    pace.main(["--quick", "--json", str(file)])
    results: dict[str, Any] = json.loads(file.read_text())
    return results


def site_with(log: Path, shape: Shape, lines: list[tuple[float, str]]) -> RunningSite:
    """A site that was asked for these pages at these times."""
    site = Site(shape)
    text = [f"{time}\tarrive\t{site.host(int(path[3:]))}\t{path}\t-\n" for time, path in lines]
    log.write_text("".join(text))
    with subprocess.Popen(["true"], text=True) as process:
        return RunningSite(site, log, process)


def test_nothing_is_lost_after_a_kill(lossy: dict[str, Any]) -> None:
    [run] = lossy["kills"]["tree"]["fleet-redis"]
    assert run["at"] >= 20
    assert run["held"] > 0
    assert (run["lost"], run["not_held"], run["reason"]) == (0, 0, "finished")


def test_nothing_is_lost_while_the_server_is_away(lossy: dict[str, Any]) -> None:
    [run] = lossy["outages"]["refused"]["fleet-redis"]
    assert (run["lost"], run["repeated"], run["reason"]) == (0, 0, "finished")


def test_others_are_shown_beside_us(lossy: dict[str, Any]) -> None:
    """The tables and pictures have a place for all, whatever is measured of them."""
    [run] = lossy["kills"]["tree"]["fleet-redis"]
    others = {side: [{**run, "lost": 7, "reason": "exit code 1"}] for side in ("jobdir", "peer")}
    for other in others.values():
        del other[0]["held"]
    compared = {**lossy, "peer": "0.9", "kills": {"tree": lossy["kills"]["tree"] | others}}
    rows = [line for line in loss.tables(compared).splitlines() if "exit code 1" in line]
    assert [row.split("|")[1].strip() for row in rows] == ["Scrapy, JOBDIR", "scrapy-redis"]


@pytest.mark.parametrize("side", loss.SIDES)
def test_every_side_has_its_settings(side: str) -> None:
    settings = loss.settings_of(side, "/folder", 6000)
    where = "6000" if side in loss.ON_SERVER else "/folder"
    assert any(where in str(value) for value in settings.values())


def test_a_lost_page_misses_the_goal(lossy: dict[str, Any]) -> None:
    assert len(loss.goals(lossy)) == 4
    assert all(goal.reached for goal in loss.goals(lossy))
    lossy = json.loads(json.dumps(lossy))
    lossy["kills"]["tree"]["fleet-redis"][0] |= {"lost": 3, "not_held": 2}
    missed = [goal.show() for goal in loss.goals(lossy) if not goal.reached]
    title = "scrapy-fleet, Redis, a worker killed: pages"
    assert missed == [
        f"{title} lost: 3 (goal 0 at most: missed)",
        f"{title} repeated that it did not hold: 2 (goal 0 at most: missed)",
    ]


def test_what_a_crawl_without_troubles_asks_for_is_no_repeat(tmp_path: Path) -> None:
    asked = [(1.0, "/p/0"), (1.1, "/p/1"), (1.2, "/p/0"), (1.3, "/p/2"), (1.4, "/p/2")]
    found = {
        kind: loss.repeated(site_with(tmp_path / kind, Shape(kind, pages=3), asked))  # type: ignore[arg-type]
        for kind in ("tree", "links")
    }
    assert found == {"tree": {"/p/0": 1, "/p/2": 1}, "links": {"/p/2": 1}}


def test_a_server_can_be_away() -> None:
    with serving() as host, far(host.port, 0) as proxy:
        ping(proxy.port, times=1)
        proxy.away()
        with pytest.raises(ConnectionRefusedError):
            ping(proxy.port, times=1)
        proxy.back()
        ping(proxy.port, times=1)


def test_the_pace_is_measured(paced: dict[str, Any]) -> None:
    [run] = paced["runs"]["1"]["fleet"]
    assert run["rate"] > 0
    assert run["smallest_gap"] > 0
    assert pace.tables(paced).count("| scrapy-fleet, SQLite, 1 worker ") == 1
    assert len(pace.goals(paced)) == 2


def test_the_pace_is_what_the_site_saw(tmp_path: Path) -> None:
    """Two hosts, the first page asked for twice, and one request that came too early."""
    shape = Shape("flat", pages=8, links=8, hosts=2)
    times = {0: 0.0, 1: 0.1, 2: 0.5, 3: 0.6, 4: 1.0, 5: 1.1, 6: 1.3, 7: 1.6}
    asked = sorted([(0.05, "/p/0"), *((time, f"/p/{n}") for n, time in times.items())])
    found = pace.judged(site_with(tmp_path / "log", shape, asked))
    assert found["rate"] == pytest.approx(6 / 1.5)
    assert found["smallest_gap"] == pytest.approx(0.3)
    assert found["close"] == pytest.approx(1 / 6)


def test_a_machine_that_stands_still_is_said_to_be_noisy(paced: dict[str, Any]) -> None:
    [run] = paced["runs"]["1"]["fleet"]
    assert pace.noise({"runs": {"1": {"fleet": [{**run, "stalled": 0.001}]}}}) == []
    [line] = pace.noise({"runs": {"1": {"fleet": [{**run, "stalled": 0.08}]}}})
    assert "had to wait for 80 ms" in line


def test_pictures(lossy: dict[str, Any], paced: dict[str, Any]) -> None:
    pytest.importorskip("benchmarks.plot")
    drawn = loss.plots(lossy) | pace.plots(paced)
    assert drawn.keys() == {"loss.svg", "pace.svg", "pace-gaps.svg"}
    assert all("scrapy-fleet" in svg for svg in drawn.values())


def test_a_bar_of_nothing_is_reached_or_missed() -> None:
    assert Goal("lost", 0, 0, at_most=True).short_by == 0
    assert Goal("lost", 1, 0, at_most=True).short_by == float("inf")
