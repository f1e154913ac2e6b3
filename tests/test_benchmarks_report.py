"""What becomes of measurements: they are kept, compared with the bars, and shown on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bars, check, fleet_report, kept, queue, report, run, speed
from benchmarks.measure import Goal, machine
from benchmarks.parts import NAMES, PARTS, SIZES, options_of


def crawled(times: float) -> dict[str, Any]:
    """As the part "crawl" has it: so many times the speed of stock Scrapy."""

    def one(pages_per_second: float) -> dict[str, float]:
        return {
            "pages_per_second": pages_per_second,
            "cpu_ms_per_page": 1000 / pages_per_second,
            "cpu_share": 1.0,
            "memory_mb": 100.0,
        }

    return {"pages": 10, "rounds": 1, "runs": {"links": {"memory": [one(100)], "fleet": [one(100 * times)]}}}


def measured(times: float, when: str, size: str = "full", gauge: float = 1.0) -> kept.Run:
    entry = {
        "when": when,
        "size": size,
        "speed": [{"processor": 5.0, "disk": 100.0}, {"processor": 5.0 * gauge, "disk": 100.0}],
        "figures": crawled(times),
    }
    return {"date": when[:10], "machine": machine(), "parts": {"crawl": entry}}


@pytest.mark.parametrize("name", NAMES)
def test_every_part_has_its_sizes_and_its_place_on_the_page(name: str) -> None:
    assert all(options_of(name, size) for size in SIZES)
    report.fill_in(report.PAGE.read_text(encoding="utf-8"), {f"{name} table": ""})


def test_a_short_run_does_not_take_the_place_of_a_full_one(tmp_path: Path) -> None:
    full = kept.write(measured(2.5, "2020-01-02T10:00:00Z"), tmp_path)
    short = kept.write(measured(1.0, "2020-01-02T11:00:00Z", "short"), tmp_path)
    assert (full.name, short.name) == ("2020-01-02.json", "2020-01-02-short.json")
    assert kept.newest(tmp_path)["parts"]["crawl"]["when"] == "2020-01-02T10:00:00Z"
    assert kept.newest(tmp_path, short=True)["parts"]["crawl"]["when"] == "2020-01-02T11:00:00Z"


def test_parts_of_an_earlier_run_stay(tmp_path: Path) -> None:
    earlier, later = measured(2.5, "2020-01-02T10:00:00Z"), measured(2.0, "2020-01-02T11:00:00Z")
    earlier["parts"]["queue"] = later["parts"].pop("crawl")
    kept.write(earlier, tmp_path)
    kept.write(later, tmp_path)
    kept.write(measured(3.0, "2020-01-03T09:00:00Z"), tmp_path)
    found = kept.newest(tmp_path)
    assert found["date"] == "2020-01-03"
    assert {name: entry["when"][:10] for name, entry in found["parts"].items()} == {
        "crawl": "2020-01-03",
        "queue": "2020-01-02",
    }


def test_what_a_run_lacks_is_taken_from_full_ones(tmp_path: Path) -> None:
    other = measured(2.5, "2020-01-02T10:00:00Z")
    other["machine"]["cpu"] = "Another 1"
    other["parts"]["queue"] = {**other["parts"]["crawl"], "figures": {"rounds": 1, "speed": {}}}
    kept.write(other, tmp_path)
    kept.write(measured(1.0, "2020-01-03T10:00:00Z", "short"), tmp_path)
    found = kept.completed(measured(3.0, "2020-01-04T10:00:00Z", "short"), tmp_path)
    assert {name: entry["when"][:10] for name, entry in found["parts"].items()} == {
        "crawl": "2020-01-04",
        "queue": "2020-01-02",
    }
    assert report.heading(found, "crawl").startswith("`python -m benchmarks.run --short --parts crawl`")
    assert "elsewhere: cpu Another 1" in report.heading(found, "queue")


def test_parts_of_another_machine_on_the_same_day_are_said_to_be(tmp_path: Path) -> None:
    other, here = measured(2.5, "2020-01-02T10:00:00Z"), measured(2.0, "2020-01-02T11:00:00Z")
    other["machine"]["cpu"] = "Another 1"
    other["parts"]["queue"] = {**other["parts"]["crawl"], "figures": {"rounds": 1, "speed": {}}}
    for each in (other, here, here):
        kept.write(each, tmp_path)
    found = kept.newest(tmp_path)
    assert "elsewhere" not in report.heading(found, "crawl")
    assert "elsewhere: cpu Another 1" in report.heading(found, "queue")


@pytest.mark.parametrize("text", ["", "[]", '{"date": "2020-01-02"}'])
def test_a_file_without_results_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "2020-01-02.json"
    file.write_text(text)
    with pytest.raises(SystemExit, match=file.name):
        check.main([str(file)])
    with pytest.raises(SystemExit, match="missing"):
        check.main([str(tmp_path / "missing.json")])


def test_what_is_missed_is_said_with_how_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = kept.write(measured(1.5, "2020-01-02T10:00:00Z"), tmp_path)
    assert check.main([str(file)]) == 0
    printed = capsys.readouterr().out
    [line] = [line for line in printed.splitlines() if "in memory, site 'links'" in line]
    assert [cell.strip() for cell in line.split("|")[2:6]] == [
        "1.50x",
        "2.00x",
        "missed by 25%",
        "`python -m benchmarks.crawl`",
    ]
    # All other bars are named, too.
    assert f"0 reached, 1 missed, {len(bars.BARS) - 1} not measured." in printed
    assert check.main([str(file), "--strict"]) == 1
    capsys.readouterr()
    assert check.main([str(file), "--json"]) == 0
    first, second, *_ = json.loads(capsys.readouterr().out)
    assert (first["measured"], first["asked"], first["short_by"], first["reached"]) == (1.5, 2.0, 0.25, False)
    assert second["measured"] is None
    reached = kept.write(measured(2.5, "2020-01-03T10:00:00Z"), tmp_path)
    assert check.main([str(reached), "--strict"]) == 0


def test_no_bar_is_overlooked() -> None:
    """Of a part that was measured, every bar is found under the name that the part gives it."""
    run = kept.newest()
    assert not [row.what for row in check.rows(run) if row.goal is None and row.part in run["parts"]]
    assert {bar.part for bar in bars.BARS} <= PARTS.keys()


def test_goals_that_allow_none() -> None:
    assert Goal("lost", 0, 0, at_most=True, form="{:.0f}").show() == "lost: 0 (goal 0 at most: reached)"
    assert Goal("lost", 3, 0, at_most=True, form="{:.0f}").show() == "lost: 3 (goal 0 at most: missed)"
    assert Goal("late", 3, 2, at_most=True, form="{:g} s").verdict == "missed by 50%"


def test_the_page_says_what_is_missed_and_shows_pictures(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(report.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    found = measured(1.5, "2020-01-02T10:00:00Z", gauge=0.7)
    for _ in range(2):  # the second time over the tables of the first
        report.renew(found, page)
    text = page.read_text(encoding="utf-8")
    assert text.count("Measured on 2020-01-02") == 1
    assert text.count("the processor ran at 70% to 100% of its best") == 1
    missed = "scrapy-fleet, SQLite against Scrapy, in memory, site 'links': 1.50x (goal 2.00x: missed by 25%)"
    assert text.count(f"- {missed}") == 1
    assert text.count("`python -m benchmarks.run --parts crawl`, 2020-01-02 10:00:00 UTC") == 1
    [picture] = [line for line in text.splitlines() if line.endswith("(images/bench/crawl-links.svg)")]
    assert picture.startswith("![20 links a page")
    assert "</svg>" in (tmp_path / "images" / "bench" / "crawl-links.svg").read_text(encoding="utf-8")


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(SystemExit, match="no place for the goals"):
        report.fill_in("# Benchmarks\n", {"goals": ""})


def test_the_speed_of_the_machine() -> None:
    watch = speed.Watch()
    found = speed.gauge()
    assert found.keys() == set(speed.KINDS)
    assert all(value > 0 for value in found.values())
    assert (watch.others() or 0.0) >= 0.0
    assert speed.told([found, found]) == []
    slower = {**found, "disk": found["disk"] / 2}
    assert speed.told([found, slower]) == ["the disk ran at 50% to 100% of its best"]
    assert speed.told([]) == []


def test_a_part_that_fails_does_not_end_the_others_and_a_quick_run_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(**options: Any) -> dict[str, Any]:
        raise SystemExit("3 pages lost")

    before = {file: file.read_bytes() for file in [report.PAGE, *kept.RESULTS.iterdir()]}
    monkeypatch.setattr(PARTS["crawl"], "measure", lost)
    assert run.main(["--quick", "--parts", "crawl", "queue"]) == 1
    printed = capsys.readouterr().out
    assert "Not measured: crawl: SystemExit: 3 pages lost" in printed
    assert queue.TITLES["lease_settle"] in printed
    assert {file: file.read_bytes() for file in [report.PAGE, *kept.RESULTS.iterdir()]} == before


def test_the_servers_share_is_told_beside_its_microseconds() -> None:
    figures = kept.newest()["parts"]["fleet"]["figures"]
    goals = {goal.what: goal for goal in fleet_report.goals(figures)}
    assert goals["server CPU a page, at the worst distance"].bar == 40
    share = goals["server CPU a page, as a share of scrapy-redis's, 0 ms away"]
    assert share.bar == 40 / 370
    assert 0 < share.value < 1
