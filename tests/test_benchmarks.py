"""The benchmarks run: small sizes, no conclusions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from benchmarks import crawl, dupefilters, feeding, fleet, fleet_report, manners, profile, queue, report, seen
from benchmarks.host import Host, serving
from benchmarks.measure import ROOT, Spread, machine, table
from benchmarks.proxy import far, ping

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("bench") / "crawl.json"
    crawl.main(["--quick", "--json", str(file)])
    results: dict[str, Any] = json.loads(file.read_text())
    return results


@pytest.fixture(scope="module")
def queued(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("bench") / "queue.json"
    queue.main(["--quick", "--json", str(file)])
    results: dict[str, Any] = json.loads(file.read_text())
    return results


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with serving() as host:
        yield host


@pytest.fixture(scope="module")
def fleeted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Without scrapy-redis, which would have to be installed."""
    file = tmp_path_factory.mktemp("bench") / "fleet.json"
    fleet.main(["--quick", "--alone", "--json", str(file)])
    results: dict[str, Any] = json.loads(file.read_text())
    return results


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("bench") / "seen.json"
    seen.main(["--quick", "--json", str(file)])
    results: dict[str, Any] = json.loads(file.read_text())
    return results


@pytest.fixture(scope="module")
def mannered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("bench") / "manners.json"
    manners.main(["--quick", "--json", str(file)])
    results: dict[str, Any] = json.loads(file.read_text())
    return results


def test_politeness_is_measured(mannered: dict[str, Any]) -> None:
    # The fleet keeps the limit, whatever CONCURRENT_REQUESTS allows.
    fleet = {title: runs for title, runs in mannered["limited"].items() if "fleet" in title}
    assert len(fleet) == 2
    assert all(peak <= manners.LIMIT for runs in fleet.values() for _, peak in runs)
    assert all(min(row["rates"]) > 0 for row in mannered["broad"])
    assert all(cost > 0 for costs in mannered["waiting"].values() for cost in costs.values())


def test_filters_are_measured(filtered: dict[str, Any]) -> None:
    assert filtered["scrapy_redis"] > 50
    for store in seen.STORES:
        for name, sizes in filtered[store].items():
            assert all(row["us"] > 0 and row.get("error", 0.0) < 0.01 for row in sizes.values()), name
        assert filtered[store]["exact"]["30000"]["bytes"] > 7
    assert len(seen.goals(filtered)) > 10


def test_crawls_are_measured(crawled: dict[str, Any]) -> None:
    assert list(crawled["runs"]["links"]) == crawl.QUICK["only"]
    for [run] in crawled["runs"]["links"].values():
        assert run["pages_per_second"] > 0
        assert run["cpu_ms_per_page"] > 0
        assert run["memory_mb"] > 10


def test_the_other_site_is_measured_too() -> None:
    assert crawl.one("flat", "fleet-memory", pages=30)["pages_per_second"] > 0


def test_the_store_is_measured(queued: dict[str, Any]) -> None:
    assert queued["speed"].keys() == queue.TITLES.keys()


def test_a_fleet_is_measured(fleeted: dict[str, Any]) -> None:
    assert fleeted["runs"].keys() == {"0", "5"}
    for sides in fleeted["runs"].values():
        [run] = sides["fleet"]
        assert run["pages_per_second"] > 0
        assert run["server_us_per_page"] > 0
        assert run["trips_per_page"] > 0
        assert run["bytes_per_page"] > 0
    for pair in fleeted["pairs"].values():
        assert pair.keys() == {"1", "2"}
    for sides in fleeted["memory"].values():
        assert sides["fleet"].keys() == fleet_report.RECORDS.keys()
    assert fleeted["idle"]["workers"] == fleet.QUICK["idlers"]
    assert fleeted["takeover"]["seconds"] >= fleeted["takeover"]["timeout"]


def test_a_fleet_is_compared(fleeted: dict[str, Any]) -> None:
    """The tables and goals have a place for scrapy-redis, whatever is measured of it."""
    runs = {
        delay: dict.fromkeys(fleet_report.SIDES, sides["fleet"]) for delay, sides in fleeted["runs"].items()
    }
    [ours, *_] = fleeted["memory"].values()
    memory = {"Redis 1": dict.fromkeys(("fleet", "peer"), ours["fleet"])}
    compared = {**fleeted, "peer": "0.9", "memory": memory, "runs": runs}
    assert fleet_report.tables(compared).count("| scrapy-redis, shared stats |") == 2
    lines = [goal.show() for goal in fleet_report.goals(compared)]
    assert sum("1.0x (goal" in line for line in lines) == 4
    seen = "1/1.0 of scrapy-redis's (goal 1/10.0 of scrapy-redis's: missed by 90%)"
    assert f"memory of a seen URL, Redis 1: {seen}" in lines


def test_feeding_is_measured(host: Host, tmp_path: Path) -> None:
    """A push to a SQLite file; the speed and the idle workers are as in other parts."""
    [row] = feeding.latency(host, str(tmp_path), pushes=1, crowds=(), python=None)
    assert (row["store"], row["workers"], len(row["ms"])) == ("SQLite", 1, 1)
    results = {"rounds": 1, "slow": 10.0, "peer": None, "no_peer": "it was left out", "server": host.name}
    results |= {"latency": [row], "rates": {"ours": {"fast": [100.0], "slow": [95.0]}}}
    results["idle"] = feeding.idle(host, 4, 0.2)
    assert "is missing: it was left out" in feeding.tables(results)
    assert [goal.what.split(",")[0] for goal in feeding.goals(results)] == [
        "push to request",
        "speed kept beside a page of 10 s",
        "4 idle workers of a RedisSpider",
    ]


def test_a_far_server_is_far_and_its_traffic_is_counted(host: Host) -> None:
    near = ping(host.port)
    with far(host.port, near + 0.02) as proxy:
        before = proxy.traffic()
        assert ping(proxy.port, times=5) > near + 0.01
        assert proxy.traffic().since(before) == (5, 5 * len("PING\r\n"), 5 * len("+PONG\r\n"))


def test_a_message_of_many_packets_is_one_round_trip(host: Host) -> None:
    with far(host.port, 0.001) as proxy, redis.Redis(port=proxy.port) as client:
        client.ping()
        before = proxy.traffic()
        client.set("large", b"x" * 5_000_000)
        assert proxy.traffic().since(before).trips == 1


def test_the_page_gets_the_tables(
    crawled: dict[str, Any],
    queued: dict[str, Any],
    fleeted: dict[str, Any],
    mannered: dict[str, Any],
    filtered: dict[str, Any],
    tmp_path: Path,
) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(report.PAGE.read_text())
    figures = {"crawl": crawled, "queue": queued, "fleet": fleeted, "manners": mannered, "seen": filtered}
    parts = {name: {"when": "2020-01-02", "size": "quick", "figures": each} for name, each in figures.items()}
    report.renew({"date": "2020-01-02", "machine": machine(), "parts": parts}, page)
    text = page.read_text()

    def table_of(name: str) -> str:
        return text.partition(f"<!-- {name} table -->")[2].partition(f"<!-- end of {name} table -->")[0]

    assert len(re.findall(r"\| scrapy-fleet, SQLite +\|", table_of("crawl"))) == 1
    assert table_of("queue").count("| Scrapy's SQLite queue: push ") == 1
    assert table_of("fleet").count("| a worker is killed") == 1
    assert table_of("manners").count("| One host, 8 at a time") == 1
    assert table_of("seen").count("| exact, SQLite") == 2
    pictures = {path.name for path in (tmp_path / "images" / "bench").iterdir()}
    assert {"crawl-links.svg", "queue.svg", "fleet.svg", "manners.svg", "seen.svg"} <= pictures


def test_a_crawl_is_profiled() -> None:
    command = [sys.executable, "-m", "benchmarks.profile", "--functions", "--pages", "30"]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "| scrapy_fleet " in printed


def test_where_the_time_goes_is_measured(tmp_path: Path) -> None:
    profile.main(["--quick", "--svg", str(tmp_path / "p.svg"), "--json", str(tmp_path / "p.json")])
    results = json.loads((tmp_path / "p.json").read_text())
    [stock], [fleet] = results["runs"]["memory"], results["runs"]["fleet"]
    assert stock["us"]["Scrapy"] > 0
    assert stock["us"]["scrapy-fleet"] == 0
    assert profile.total(fleet) > 0
    assert "| Scrapy, in memory " in profile.tables(results)
    assert "Where a page" in (tmp_path / "p.svg").read_text()


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


def test_filters(tmp_path: Path) -> None:
    for name, cls in dupefilters.CLASSES.items():
        folder = tmp_path / name
        folder.mkdir()
        found = dupefilters.measure_one(cls, str(folder), 200)
        assert found["file"] > 0, name
