"""A crawl that a producer holds open does not end, however little is left of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.rounds import END
from tests.crash.spiders import SiteSpider

pytestmark = pytest.mark.crash

SHAPE = Shape("tree", pages=30)


def test_the_fleet_waits_for_its_producers(tmp_path: Path, url: str | None) -> None:
    with running(SHAPE) as site, Fleet(tmp_path, SiteSpider, url=url, start_url=site.start_url) as fleet:
        with fleet.store(create=True) as store:
            store.feed("a producer", 600)
        workers = [fleet.start(), fleet.start(), fleet.start()]
        site.wait(pages=SHAPE.pages)
        fleet.wait(lambda look: look.counts.open == 0, "all pages are done")
        for worker in workers:
            fleet.beats_of(worker, 2)
        with fleet.store() as store:
            store.feed("a producer", 0)
        done = time.monotonic()
        ends = fleet.finish()
        assert len(ends) == 3
        assert done < ends[0]
        assert ends[-1] < done + END
        assert not site.lost()


def test_a_producer_that_died_does_not_hold_it_open_for_ever(tmp_path: Path, url: str | None) -> None:
    with running(SHAPE) as site, Fleet(tmp_path, SiteSpider, url=url, start_url=site.start_url) as fleet:
        with fleet.store(create=True) as store:
            store.feed("a producer", 3)
        fed = time.monotonic()
        fleet.start()
        (end,) = fleet.finish()
        assert end > fed + 3
        assert not site.lost()
