"""Every cell of the table of what survives what, with real servers, files, and power cuts."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from scrapy_fleet.errors import GivenUp, StoreEmptied
from scrapy_fleet.ops.site import RunningSite, Shape, running
from tests.crash.disks import Disk, a_disk
from tests.crash.fleet import Fleet, Worker, adds_up
from tests.crash.outages import PAUSED, exact, fleet_of_three, through_an_outage
from tests.crash.rounds import arrivals_of_a_clean_crawl
from tests.crash.servers import a_server, needed_binary
from tests.crash.spiders import SiteSpider
from tests.crash.survival import (
    DURABILITY,
    FULL,
    MEMORY,
    NORMAL,
    OPTIONS,
    SNAPSHOTS,
    SURVIVAL,
    Event,
    Left,
    Mode,
)
from tests.servers import RedisServer, free_port

pytestmark = pytest.mark.crash

SHAPE = Shape("tree", pages=200, links=5, seed=6, redirects=0.1, failing=0.1, slow=0.2, delay=(0.02, 0.2))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with a_disk(tmp_path) as disk:
        yield disk


def cells(event: Event, *modes: Mode) -> pytest.MarkDecorator:
    """The cells of a row, in these columns."""
    return pytest.mark.parametrize(("mode", "left"), [(mode, SURVIVAL[event][mode]) for mode in modes])


# Servers


def work_on(fleet: Fleet, server: RedisServer, workers: list[Worker]) -> None:
    """The server takes a snapshot; then more is done that is not in it."""
    fleet.wait(lambda look: look.status == "running", "the seeds are in")
    for worker in workers:
        fleet.suspend(worker)
    server.client().save()
    done = fleet.snapshot().counts.done
    for worker in workers:
        worker.signal(signal.SIGCONT)
    fleet.wait(lambda look: look.counts.done > done + 20, "more is done")


def hurt(server: RedisServer, event: Event, disk: Disk | None) -> None:
    assert server.process is not None
    if event == "the server is emptied":
        server.client().flushall()
    elif event == "the server is stopped and started":
        server.signal(signal.SIGTERM)
        server.process.wait(60)
        server.start()
    elif event == "the server is killed":
        server.kill()
        server.start()
    else:
        assert disk is not None
        server.signal(signal.SIGSTOP)
        disk.cut_power(server.kill)
        server.start()


def through(
    event: Event, mode: Mode, left: Left, server: RedisServer, folder: Path, disk: Disk | None
) -> None:
    """Three workers crawl; in the middle of it something happens to their server."""
    with (
        running(SHAPE) as site,
        Fleet(folder, SiteSpider, url=server.url, start_url=site.start_url) as fleet,
    ):
        # Whoever holds the crawl open may be lost with what the server loses; the crawl is open then anyway.
        with suppress(StoreEmptied, GivenUp), fleet_of_three(fleet) as workers:
            site.wait(pages=20)
            if mode == SNAPSHOTS:
                work_on(fleet, server, workers)
            site.wait(pages=100)
            for worker in workers:
                fleet.suspend(worker)
            before = fleet.snapshot().counts
            hurt(server, event, disk)
            if left == "all":
                assert fleet.snapshot().counts == before
        for worker in workers:
            worker.signal(signal.SIGCONT)
        judge(fleet, site, workers, mode, left)


def judge(fleet: Fleet, site: RunningSite, workers: list[Worker], mode: Mode, left: Left) -> None:
    if left == "all":
        fleet.finish()
        assert not exact(fleet, site)
        return
    reasons = [worker.ended()["finish_reason"] for worker in workers]
    if left == "nothing":
        assert reasons == ["fleet_store_emptied"] * 3
        assert fleet.snapshot().status != "finished"
    elif mode == SNAPSHOTS:
        assert "fleet_store_emptied" in reasons
    # A worker that has lost nothing goes on; what a server flushes every second may be all there was.
    assert set(reasons) <= {"fleet_store_emptied", "finished"}
    assert adds_up(fleet.snapshot().counts)
    if fleet.snapshot().status != "finished":
        fleet.start()
    fleet.finish()
    assert not site.lost()


SERVERS = tuple(OPTIONS)


@cells("the server is stopped and started", *SERVERS)
def test_a_server_that_is_stopped_and_started(mode: Mode, left: Left, tmp_path: Path) -> None:
    with a_server(needed_binary(), *OPTIONS[mode]) as server:
        through("the server is stopped and started", mode, left, server, tmp_path, None)


@cells("the server is killed", *SERVERS)
def test_a_server_that_is_killed(mode: Mode, left: Left, tmp_path: Path) -> None:
    with a_server(needed_binary(), *OPTIONS[mode]) as server:
        through("the server is killed", mode, left, server, tmp_path, None)


@cells("the server is emptied", *SERVERS)
def test_a_server_that_is_emptied(mode: Mode, left: Left, tmp_path: Path) -> None:
    with a_server(needed_binary(), *OPTIONS[mode]) as server:
        through("the server is emptied", mode, left, server, tmp_path, None)


@cells("the power fails", *SERVERS)
def test_a_power_cut_of_the_server(mode: Mode, left: Left, disk: Disk, tmp_path: Path) -> None:
    server = RedisServer(needed_binary(), disk.folder / "server", *OPTIONS[mode], port=free_port()).start()
    try:
        through("the power fails", mode, left, server, tmp_path, disk)
    finally:
        server.stop()


@cells("the store is away, or locked", *SERVERS)
def test_a_server_that_hangs_for_a_while(mode: Mode, left: Left, tmp_path: Path) -> None:
    assert left == "all"
    with a_server(needed_binary(), *OPTIONS[mode]) as server:
        assert not through_an_outage(tmp_path, server, "suspended server", seconds=2)


# Files


@cells("the power fails", FULL, NORMAL)
def test_power_cuts_of_a_file(mode: Mode, left: Left, disk: Disk, tmp_path: Path) -> None:
    """Three of them. What was flushed is not undone; what is undone, is undone as a whole."""
    undone = 0
    held: Counter[str] = Counter()
    with (
        running(SHAPE) as site,
        Fleet(
            tmp_path,
            SiteSpider,
            url=f"sqlite://{disk.folder}/crawl.db",
            start_url=site.start_url,
            settings={"FLEET_DURABILITY": DURABILITY[mode]},
        ) as fleet,
    ):
        for pages in (40, 80, 120):
            workers = [fleet.start(), fleet.start()]
            site.wait(pages=pages - 20)
            flushed = fleet.snapshot().counts
            disk.sync()
            site.wait(pages=pages)
            for worker in workers:
                fleet.suspend(worker)
            before = fleet.snapshot().counts
            held += fleet.held_by(*workers)
            disk.cut_power(lambda these=workers: [worker.kill() for worker in these])
            after = fleet.snapshot().counts
            assert adds_up(after)
            if left == "all":
                assert after == before
            assert flushed.done <= after.done <= before.done
            assert flushed.accepted <= after.accepted <= before.accepted
            undone += before.done - after.done
        fleet.start()
        fleet.finish()
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not site.lost()
        assert not expected - site.arrivals()
        assert fleet.items() == list(range(SHAPE.pages))
        assert fleet.snapshot().counts.dead == 0
        # That it is a power cut shows where commits are not flushed.
        assert (undone > 0) == (left != "all")
        if left == "all":
            assert not site.arrivals() - expected - held


@cells("the store is away, or locked", FULL, NORMAL)
def test_a_file_that_another_program_locks(mode: Mode, left: Left, tmp_path: Path) -> None:
    assert left == "all"
    settings = {"FLEET_DURABILITY": DURABILITY[mode], "FLEET_WORKER_TIMEOUT": 60}
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, SiteSpider, start_url=site.start_url, settings=settings) as fleet,
    ):
        workers = [fleet.start(), fleet.start()]
        site.wait(pages=40)
        with another_program_locks(tmp_path / "crawl.db"):
            for worker in workers:
                worker.logged("is locked by another process")
                worker.logged(PAUSED)
        fleet.finish()
        for worker in workers:
            worker.logged("The store is back")
        assert not exact(fleet, site)


@contextmanager
def another_program_locks(path: Path) -> Iterator[None]:
    program = (
        "import sqlite3, sys\n"
        "file = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\n"
        "file.execute('BEGIN IMMEDIATE')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        yield
        other.communicate()


# Workers


@cells("a worker is killed", NORMAL, *SERVERS)
def test_a_worker_that_is_killed(mode: Mode, left: Left, tmp_path: Path) -> None:
    """On SQLite as it is by default: ``test_kill.py``."""
    assert left == "all"
    with ExitStack() as stack:
        settings: dict[str, Any] = {"FLEET_WORKER_TIMEOUT": 2}
        url = None
        if mode in OPTIONS:
            url = stack.enter_context(a_server(needed_binary(), *OPTIONS[mode])).url
        else:
            settings["FLEET_DURABILITY"] = DURABILITY[mode]
        site = stack.enter_context(running(SHAPE))
        fleet = stack.enter_context(
            Fleet(tmp_path, SiteSpider, url=url, start_url=site.start_url, settings=settings)
        )
        doomed = fleet.start()
        with fleet.held_open():
            fleet.start()
            site.wait(pages=60)
            doomed.kill()
            held = fleet.held_by(doomed)
        fleet.finish()
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not expected - site.arrivals()
        assert not site.arrivals() - expected - held
        assert fleet.items() == list(range(SHAPE.pages))


@cells("a worker is killed", MEMORY)
def test_a_crawl_in_memory_is_gone_with_its_worker(mode: Mode, left: Left, tmp_path: Path) -> None:
    """As it is with the machine; the next start begins anew."""
    assert left == SURVIVAL["the power fails"][mode] == "nothing"
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, SiteSpider, url="memory:", start_url=site.start_url) as fleet,
    ):
        doomed = fleet.start()
        site.wait(pages=60)
        doomed.kill()
        again = fleet.start()
        assert again.ended()["finish_reason"] == "finished"
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not expected - site.arrivals()
        assert site.arrivals()["/p/0"] == 2
        assert "Starting crawl" in again.text()
