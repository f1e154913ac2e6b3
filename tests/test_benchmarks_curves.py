"""The benchmarks of growing crawls and of shapes run: small sizes, no conclusions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import curves, shapes
from scrapy_fleet.ops.site import LogLine, Shape, Site

pytestmark = pytest.mark.slow


def row(size: int, *costs: float) -> dict[str, Any]:
    return {"waiting": size, "hosts": size, "bytes": 70.0, "us": list(costs), "cpu_us": list(costs)}


def test_growth_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "curves.json"
    curves.main(["--quick", "--json", str(file)])
    results = json.loads(file.read_text())
    assert len(results["waiting"]) == 3
    assert len(results["hosts"]) == 2
    for what, sizes in (("waiting", [500, 1000]), ("hosts", [1, 20])):
        for rows in results[what].values():
            assert [each[what] for each in rows] == sizes
            assert all(each["us"][0] > 0 and each["cpu_us"][0] > 0 and each["bytes"] > 20 for each in rows)
    assert results["worker_mb"]["1000"] > 10
    assert curves.tables(results).count("| 1,000 ") == 1
    assert curves.plots(results).keys() == {"curves-waiting.svg", "curves-hosts.svg"}


def test_growth_is_that_of_the_rounds_and_of_a_hundred_times_at_most() -> None:
    # The machine was three times as slow in the second round: that is no growth.
    rows = [row(1, 10, 30), row(100, 12, 36), row(1000, 50, 150)]
    assert curves.growth(rows, "waiting", 100) == pytest.approx(1.2)
    assert curves.growth(rows, "waiting") == pytest.approx(5)
    many = [row(1, 1, 1), row(100, 10, 10), row(10_000, 11, 11), row(100_000, 20, 20)]
    results = {"waiting": {"SQLite": rows}, "hosts": {"SQLite": many}}
    assert [(goal.what, round(goal.value, 3)) for goal in curves.goals(results)] == [
        ("cost a request, SQLite, 1 to 100 waiting", 1.2),
        ("cost a request, SQLite, 100 to 10,000 hosts", 1.1),
    ]


def test_shapes_are_measured(tmp_path: Path) -> None:
    file = tmp_path / "shapes.json"
    shapes.main(["--quick", "--json", str(file)])
    results = json.loads(file.read_text())
    assert all(run["ms"] > 0 for runs in results["steps"].values() for run in runs)
    [crawl] = results["crawls"]
    assert crawl["rate"] > 0
    # Details first: never more than a listing's own, and the next one.
    assert 0 < crawl["most_waiting"] <= shapes.LISTED + 1
    assert shapes.tables(results).count("listings, details first") == 1
    assert "shapes-waiting-listings.svg" in shapes.plots(results)


def test_the_frontier_is_read_from_the_log() -> None:
    """Listings of two details each: 0 lists 1 and 2, and leads to 3, which lists 4 and 5."""
    site = Site(Shape("listing", pages=6, links=2))
    events = [("arrive", 0), ("done", 0), ("arrive", 3), ("done", 3), *(("arrive", n) for n in (5, 4, 2, 1))]
    log = [LogLine(float(at), event, "", f"/p/{n}", 200) for at, (event, n) in enumerate(events)]
    most, curve = shapes.frontier(site, log)
    assert most == 4
    assert curve == [[1, 0, 0, 0], [2, 2, 1, 2], [3, 3, 2, 4], [4, 2, 2, 5], [5, 1, 1, 6], [6, 0, 1, 7]]
