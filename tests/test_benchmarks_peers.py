"""What is measured beside us, and the scheduler alone: small sizes, no conclusions, nothing is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import crawlee, environments, queue, scheduler
from benchmarks.environments import CRAWLEE, NoPeer, Peer
from benchmarks.measure import run_worker

pytestmark = pytest.mark.slow

SIZE = {"fill": 300, "new": 100, "pages": 5, "repeats": 1}
KINDS = {"new", "known", "next"}


def alone(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    job = {**SIZE, "settings": settings}
    return run_worker(job, str(folder), sys.executable, "benchmarks.scheduler_worker")


def test_a_stock_scheduler_is_measured_alone(tmp_path: Path) -> None:
    found = alone(scheduler.settings_of("memory", str(tmp_path), None), tmp_path)
    assert found.pop("reason") == "finished"
    assert found.keys() == KINDS
    assert all(each["us"] > 0 and each["cpu_us"] > 0 for each in found["new"] + found["next"])


def test_our_scheduler_is_measured_alone_and_loses_nothing(tmp_path: Path) -> None:
    """It only finishes when all that it was given has come back and was settled."""
    found = alone(scheduler.settings_of("fleet", str(tmp_path), None), tmp_path)
    assert found.pop("reason") == "finished"
    assert found.keys() == KINDS | {"known_in_store", "around"}
    assert all(each["us"] > 0 and each["cpu_us"] > 0 for each in found["new"] + found["around"])


def test_schedulers_are_compared() -> None:
    def run(us: float) -> list[dict[str, Any]]:
        return [{kind: [{"us": us, "cpu_us": us / 2}] for kind in KINDS}]

    runs = {side: run(100.0) for side in scheduler.SIDES}
    runs["peer-0"], runs["peer-1"] = run(1500.0), run(5000.0)
    results = {"rounds": 1, "peer": "0.9", "server": "Valkey 1", "runs": runs}
    near, far = scheduler.goals(results)
    assert (near.value, near.reached) == (15.0, True)
    assert (far.value, far.reached) == (50.0, False)
    assert scheduler.tables(results).count("| scrapy-redis, 1 ms away ") == 2
    assert scheduler.noise(results) == []
    alone = {**results, "peer": None, "no_peer": "it was left out"}
    assert scheduler.goals(alone) == []
    assert "no scrapy-redis: it was left out" in scheduler.tables(alone)


def test_a_peer_that_cannot_be_installed_is_reported_as_such(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "taken").touch()  # no environment can be made where a file is
    nobody = Peer("nobody", str(tmp_path / "taken" / "environment"), "nobody", ("nobody",))
    with pytest.raises(NoPeer, match="no environment can be made"):
        environments.python_of(nobody)
    monkeypatch.setattr(crawlee, "CRAWLEE", nobody)
    found = crawlee.find()
    assert found.pop("python") is None
    speed = {name: [1.0] for name in queue.TITLES}
    shown = queue.tables({"rounds": 1, "speed": speed, "crawlee": found})
    assert "Crawlee is not in the table: it cannot be installed: no environment can be made" in shown


def test_crawlee_is_compared() -> None:
    speed = {name: [10.0] for name in queue.ALL} | {"lease_settle": [2000.0]}
    takeover = {"given": False, "held": 5, "left": 298.2, "seconds": 300.0}
    results = {"rounds": 1, "speed": speed, "crawlee": {"version": "1.0", "takeover": takeover}}
    shown = queue.tables(results)
    [row] = [line for line in shown.splitlines() if "Crawlee's SQLite queue: fetch and handle" in line]
    assert row.split("|")[3].strip() == "200x"
    assert "stay blocked for 300 s" in shown


@pytest.mark.skipif(not CRAWLEE.is_there(), reason="Crawlee is not installed")
def test_crawlees_queue_is_measured(tmp_path: Path) -> None:
    added, handled = crawlee.speed(str(CRAWLEE.python), str(tmp_path), 10)
    assert added > 0
    assert handled > 0
