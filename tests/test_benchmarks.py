"""The benchmarks run: small sizes, no conclusions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import crawl, queue, report
from benchmarks.measure import ROOT, Spread, machine, table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("bench") / "crawl.json"
    crawl.main(["--quick", "--sites", "links", "--json", str(file)])
    results: dict[str, Any] = json.loads(file.read_text())
    return results


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("bench") / "queue.json"
    queue.main(["--quick", "--json", str(file)])
    results: dict[str, Any] = json.loads(file.read_text())
    return results


def test_every_kind_of_crawl_is_measured(crawled: dict[str, Any]) -> None:
    assert crawled["runs"]["links"].keys() == crawl.VARIANTS.keys()
    for [run] in crawled["runs"]["links"].values():
        assert run["pages_per_second"] > 0
        assert run["cpu_ms_per_page"] > 0
        assert run["memory_mb"] > 10


def test_the_other_site_is_measured_too() -> None:
    assert crawl.one("flat", "fleet", pages=30)["pages_per_second"] > 0


def test_the_store_is_measured(queued: dict[str, Any]) -> None:
    assert queued["speed"].keys() == queue.TITLES.keys()
    growth = queued["growth"]
    assert growth["us_a_request"]["lifo"].keys() == growth["worker_mb"].keys() == {"500", "1000"}


def test_the_page_gets_the_tables(crawled: dict[str, Any], queued: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(report.PAGE.read_text())
    results = {"date": "2020-01-02", "machine": machine(), "crawl": crawled, "queue": queued}
    for _ in range(2):  # the second time over the tables of the first
        file = report.keep(results, folder=tmp_path, page=page)
    text = page.read_text()
    assert text.count("| scrapy-fleet, SQLite ") == 1
    assert text.count("| Scrapy's SQLite queue: push ") == 1
    assert text.count("Measured on 2020-01-02") == 1
    assert json.loads(file.read_text())["date"] == "2020-01-02"


def test_a_crawl_is_profiled() -> None:
    command = [sys.executable, "-m", "benchmarks.profile", "--pages", "30", "--variant", "fleet-memory"]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "| scrapy_fleet " in printed


def test_numbers_that_spread_are_noisy() -> None:
    assert Spread.of([100, 101, 120]).noisy
    assert not Spread.of([100, 101, 110]).noisy
    assert Spread.of([3, 1, 2]).show(1) == "2.0 (1.0 to 3.0)"


def test_a_table_is_aligned() -> None:
    assert table(["", "n"], [["a", "10"], ["bc", "1"]]).splitlines() == [
        "|    |  n |",
        "| -- | -: |",
        "| a  | 10 |",
        "| bc |  1 |",
    ]
