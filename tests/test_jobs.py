"""What a crawl carries from one run of its command to the next, and what it cannot carry."""

from __future__ import annotations

import pickle
import signal
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request

from scrapy_fleet.model import Entry
from scrapy_fleet.ops.site import Shape, running
from tests.commands import CODEC, Crawl
from tests.crash.fleet import Fleet
from tests.crash.rounds import arrivals_of_a_clean_crawl
from tests.crash.spiders import SiteSpider
from tests.spiders.jobs import Remembering, Unstorable

SLOW = Shape("tree", pages=120, links=6, seed=6, slow=1.0, delay=(0.05, 0.1))
"""Slow enough that a crawl can be stopped in the middle."""


def test_the_same_command_resumes(tmp_path: Path) -> None:
    with running(SLOW) as site, Fleet(tmp_path, Remembering, start_url=site.start_url) as fleet:
        first = fleet.start()
        site.wait(pages=20)
        first.signal(signal.SIGINT)
        stopped = first.ended()
        assert stopped["finish_reason"] == "shutdown"
        assert "requests are left. The same command resumes it." in first.text()
        left = fleet.snapshot()
        assert left.status == "stopped"
        assert left.counts.leased == 0

        second = fleet.start()
        assert f"Resuming crawl 'site': {left.counts.waiting} requests waiting" in second.text()
        ended = second.ended()
        fleet.finish()
        assert site.arrivals() == arrivals_of_a_clean_crawl(site.site)
        # Seeds are not run again.
        assert (stopped["starts"], ended.get("starts")) == (1, None)


def test_spider_state_comes_back(tmp_path: Path) -> None:
    with running(SLOW) as site, Fleet(tmp_path, Remembering, start_url=site.start_url) as fleet:
        first = fleet.start()
        site.wait(pages=10)
        first.signal(signal.SIGINT)
        stopped = first.ended()
        ended = fleet.start().ended()
    assert stopped["state when opened"] == {}
    assert stopped["state when closed"]["began"] == (date(2024, 2, 29), {"set", b"bytes"}, 1 << 80)
    # What was removed stays away, and what cannot be stored too.
    assert ended["state when opened"] == stopped["state when closed"]
    assert ended["state when closed"] == {**stopped["state when closed"], "pages": SLOW.pages}
    # It is told once, by its name.
    assert first.text().count("spider.state cannot be saved whole: state['driver'] is a Crawler") == 1


def test_a_finished_crawl_begins_with_an_empty_state(tmp_path: Path) -> None:
    with (
        running(Shape("flat", pages=3)) as site,
        Fleet(tmp_path, Remembering, start_url=site.start_url) as fleet,
    ):
        for _ in range(2):
            stats = fleet.start().ended()
            assert stats["state when opened"] == {}
            assert stats["state when closed"]["pages"] == 3


@pytest.mark.parametrize("then", ["they end", "the worker dies"])
def test_what_cannot_be_stored_keeps_its_parent_leased(then: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with (
        running(Shape("flat", pages=3, links=2)) as site,
        Fleet(tmp_path, Unstorable, start_url=site.start_url, gate=str(gate)) as fleet,
    ):
        worker = fleet.start()
        site.wait(visits=3)
        fleet.beats_of(worker, 2)
        counts = fleet.snapshot().counts
        assert (counts.accepted, counts.leased, counts.done) == (1, 1, 0)
        assert fleet.held_by(worker) == {"/p/0": 1}
        assert fleet.items() == []
        if then == "the worker dies":
            worker.kill()
            worker = fleet.start()
            site.wait(visits=6)
        gate.touch()
        stats = worker.ended()
        fleet.finish()
        # The second is only counted.
        assert worker.text().count("It runs from this worker's memory") == 1
        assert stats["scheduler/unserializable"] == 2
        assert fleet.items() == [0, 1, 2]
        counts = fleet.snapshot().counts
        assert (counts.accepted, counts.done, counts.dead) == (3, 3, 0)
        runs = 2 if then == "the worker dies" else 1
        assert site.visits() == {"/p/0": runs, "/p/1": runs, "/p/2": runs}
        assert site.arrivals()["/gone/1"] == site.arrivals()["/gone/2"] == 1


class Dangerous:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


def test_what_cannot_be_read_is_dead_and_the_crawl_finishes(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with running(Shape("flat", pages=5, links=2)) as site:
        good = CODEC.encode(Request(site.start_url))
        other = CODEC.encode(Request(site.start_url, callback=CODEC._spider.parse_item))  # type: ignore[attr-defined]
        planted = {
            b"garbage": "format 103",
            good[:-3]: "damaged",
            other: "'parse_item' is not a callback of SiteSpider",
            pickle.dumps(Dangerous(trace)): "",
        }
        made = Crawl(tmp_path / "crawl.db", "site")
        made.add(*(Entry("127.0.0.1", payload) for payload in (*planted, good)))
        made.leave()
        made.store.close()
        with Fleet(tmp_path, SiteSpider, start_url=site.start_url) as fleet:
            worker = fleet.start()
            fleet.finish()
            dead = {row.payload: row.reason for row in fleet.scan("dead")}
            assert dead.keys() == planted.keys()
            for payload, reason in dead.items():
                assert reason
                assert planted[payload] in reason
                assert reason in worker.text()
            assert (
                "4 requests of crawl 'site' are dead; see why with: scrapy fleet dead site" in worker.text()
            )
            assert "Traceback" not in worker.text()
            assert fleet.items() == [0, 1, 2, 3, 4]
    assert not trace.exists()
