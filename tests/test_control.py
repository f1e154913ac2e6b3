"""A fleet that is told to pause, to go on, or to stop, obeys."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from scrapy_fleet.model import Plan, Worker
from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.store.memory import MemoryStore
from scrapy_fleet.store.sqlite import SqliteStore
from tests.command_line import Run
from tests.commands import FLEET, data, run
from tests.desk import Desk, busy, in_loop, names, some
from tests.servers import required, shared_server, valkey_binary

# One worker's frontier


@in_loop
async def test_a_paused_worker_hands_back_what_it_has_not_started() -> None:
    store = MemoryStore("c")
    desk = await busy(store)
    [running] = await desk.take(1)
    assert store.snapshot().counts.leased > 1
    store.control("pause")
    await desk.until(lambda: desk.frontier.held_back)
    assert desk.frontier.next() is None
    await desk.until(lambda: store.snapshot().counts.leased == 1)
    assert not desk.frontier.ended
    desk.settle(running)
    await desk.until(lambda: desk.frontier.counts.done == 1)
    assert not desk.frontier.ended
    assert desk.frontier.next() is None
    await desk.close()


@in_loop
async def test_a_worker_that_is_resumed_goes_on() -> None:
    store = MemoryStore("c")
    desk = await busy(store, capacity=2, lookahead=2)
    await desk.take(1)
    store.control("pause")
    await desk.until(lambda: desk.frontier.held_back)
    assert desk.frontier.next() is None
    before = desk.times_ready
    store.control("run")
    await desk.until(lambda: not desk.frontier.held_back)
    assert desk.times_ready > before
    assert len(await desk.take(1)) == 1
    await desk.close()


@in_loop
async def test_a_hungry_worker_that_was_paused_finds_what_came_meanwhile() -> None:
    store = MemoryStore("c")
    desk = await Desk(store).open()
    assert desk.frontier.next() is None
    store.control("pause")
    await desk.until(lambda: desk.frontier.held_back)
    desk.add(*some(3))
    await desk.until(lambda: store.snapshot().counts.waiting == 3)
    store.control("run")
    assert names(await desk.take(3)) == ["p2", "p1", "p0"]
    await desk.close()


@in_loop
async def test_each_way_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    store = MemoryStore("c")
    desk = await busy(store)
    store.control("pause")
    await desk.until(lambda: desk.frontier.held_back)
    desk.add("more")
    await desk.commit()
    store.control("run")
    await desk.until(lambda: not desk.frontier.held_back)
    assert caplog.text.count("The crawl is paused") == caplog.text.count("The crawl was resumed") == 1
    await desk.close()


@in_loop
async def test_a_worker_that_is_told_to_stop_does_not_go_on() -> None:
    store = MemoryStore("c")
    desk = await busy(store)
    [running] = await desk.take(1)
    store.control("stop")
    await desk.until(lambda: desk.frontier.mode == "stop")
    store.control("run")
    desk.settle(running)
    await desk.until(lambda: store.snapshot().counts.done == 1)
    assert desk.frontier.next() is None
    await desk.close()
    assert store.snapshot().counts.waiting == 99


# Real crawls, told from outside

SLOW = {"DOWNLOAD_DELAY": 0.05, "DOWNLOAD_DELAY_JITTER": 0, "RANDOMIZE_DOWNLOAD_DELAY": 0}


@pytest.fixture(params=["sqlite", "valkey"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for crawls that nobody else uses."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'crawls'}"
    return shared_server(required(valkey_binary())).url


def settle_down(*words: str, folder: Path) -> int:
    """Requests done, once the crawl has nothing in hand any more."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        [found] = data("status", *words, cwd=folder)["crawls"]
        if found["counts"]["leased"] == 0:
            return int(found["counts"]["done"])
    raise AssertionError("requests are still in hand")


def test_a_crawl_is_paused_resumed_and_stopped(tmp_path: Path, url: str) -> None:
    name = f"{tmp_path.name}-{time.monotonic_ns()}"
    words = (name, "--url", url)
    settings = {"FLEET_URL": url, "FLEET_CRAWL": name, **SLOW}
    with running(Shape(pages=200, links=5)) as site:
        with Run(site, tmp_path, settings) as one:
            one.logged("Starting crawl")
            site.wait(arrivals=5)
            assert data("pause", *words, cwd=tmp_path)["mode"] == "pause"
            one.logged("The crawl is paused")
            done = settle_down(*words, folder=tmp_path)
            [found] = data("status", *words, cwd=tmp_path)["crawls"]
            assert (found["status"], found["mode"]) == ("paused", "pause")
            assert "paused" in run(FLEET, "status", *words, cwd=tmp_path).stdout
            assert found["counts"]["done"] == done
            [worker] = data("workers", *words, cwd=tmp_path)["workers"]
            assert worker["leased"] == 0
            assert worker["id"] in run(FLEET, "workers", *words, cwd=tmp_path).stdout
            arrivals = site.stats()["arrivals"]
            assert "is told to go on" in run(FLEET, "resume", *words, cwd=tmp_path).stdout
            one.logged("The crawl was resumed")
            site.wait(arrivals=arrivals + 5)
            refused = run(FLEET, "clear", *words, "--yes", cwd=tmp_path)
            assert refused.returncode == 2
            assert "Stop them first" in refused.stderr
            assert data("stop", *words, cwd=tmp_path)["mode"] == "stop"
            log = one.ended()
            assert "'finish_reason': 'fleet_stop'" in log
            assert not one.errors
        [found] = data("status", *words, cwd=tmp_path)["crawls"]
        assert found["status"] == "stopped"
        assert found["counts"]["leased"] == 0
        assert found["counts"]["waiting"] > 0
        # Started again, it runs to its end.
        with Run(site, tmp_path, {**settings, "DOWNLOAD_DELAY": 0}) as again:
            log = again.ended()
            assert "Resuming crawl" in log
            assert "'finish_reason': 'finished'" in log
        [found] = data("status", *words, cwd=tmp_path)["crawls"]
        assert (found["status"], found["items"]) == ("finished", 200)
        assert "Cleared" in run(FLEET, "clear", *words, "--yes", cwd=tmp_path).stdout
        [found] = data("status", *words, cwd=tmp_path)["crawls"]
        assert (found["status"], found["run"], found["items"]) == ("new", 2, 0)


def test_a_crawl_whose_workers_were_killed_starts_again_after_a_stop(tmp_path: Path) -> None:
    settings = {"FLEET_URL": f"sqlite:{tmp_path / 'crawls'}"}
    words = ("--url", str(tmp_path / "crawls"))
    with running(Shape(pages=100, links=5)) as site:
        with Run(site, tmp_path, {**settings, **SLOW}):
            site.wait(arrivals=5)
        assert "is told to stop" in run(FLEET, "stop", *words, cwd=tmp_path).stdout
        with Run(site, tmp_path, settings) as again:
            assert "'finish_reason': 'finished'" in again.ended()


def test_a_worker_that_joins_a_fleet_that_stops_leaves(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "site.db", "site")
    store.join(Worker("another"), Plan(), 60)
    store.control("stop")
    with running(Shape(pages=10, links=5)) as site:
        with Run(site, tmp_path, {"FLEET_URL": f"sqlite:{tmp_path / 'site.db'}"}) as late:
            log = late.ended()
            assert "'finish_reason': 'fleet_stop'" in log
            assert not late.errors
        assert site.stats()["arrivals"] == 0
    store.close()


def test_a_worker_that_joins_a_paused_crawl_waits(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "site.db", "site")
    store.control("pause")
    with (
        running(Shape(pages=10, links=5)) as site,
        Run(site, tmp_path, {"FLEET_URL": f"sqlite:{tmp_path / 'site.db'}"}) as one,
    ):
        one.logged("The crawl is paused")
        deadline = time.monotonic() + 30
        while store.snapshot().counts.waiting == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert site.stats()["arrivals"] == 0
        store.control("run")
        assert "'finish_reason': 'finished'" in one.ended()
    assert store.snapshot().items == 10
    store.close()
