"""The same command resumes, begins anew, or fetches what is new; crawls do not mix."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from scrapy_fleet.ops.site import Shape, running
from tests.crash.fleet import Fleet
from tests.crash.rounds import a_shape, arrivals_of_a_clean_crawl
from tests.crash.spiders import SiteSpider, StateSpider, UnfilteredStartSpider

pytestmark = pytest.mark.crash

SHAPE = a_shape("tree", seed=6, pages=80)


def test_a_finished_crawl_begins_anew(tmp_path: Path) -> None:
    with running(SHAPE) as site, Fleet(tmp_path, SiteSpider, start_url=site.start_url) as fleet:
        fleet.start()
        fleet.finish()
        first = site.arrivals()
        assert first == arrivals_of_a_clean_crawl(site.site)
        fleet.start()
        fleet.finish()
        # What failed once is well now.
        healed = Counter({f"/p/{n}": SHAPE.fails for n in site.site.failing})
        assert site.arrivals() - first == first - healed
        assert fleet.snapshot().run == 2


@pytest.mark.parametrize("settings", [{"FLEET_ON_FINISH": "keep"}, {"SCHEDULER_PERSIST": True}])
def test_a_finished_crawl_that_keeps_what_it_saw_fetches_what_is_new(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    before, after = Shape("flat", pages=5, links=10), Shape("flat", pages=9, links=10)
    with running(before) as site:
        with Fleet(tmp_path, UnfilteredStartSpider, start_url=site.start_url, settings=settings) as fleet:
            fleet.start()
            fleet.finish()
        assert site.arrivals() == arrivals_of_a_clean_crawl(site.site)
    with running(after, port=site.port) as site:
        with Fleet(tmp_path, UnfilteredStartSpider, start_url=site.start_url, settings=settings) as fleet:
            fleet.start()
            fleet.finish()
        assert site.arrivals() == {"/p/0": 1, "/p/5": 1, "/p/6": 1, "/p/7": 1, "/p/8": 1}


def test_two_crawls_in_one_folder_do_not_mix(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/crawls"
    with (
        running(SHAPE) as site,
        Fleet(tmp_path, SiteSpider, url=url, start_url=site.start_url, settings={"FLEET_CRAWL": "a"}) as a,
        Fleet(tmp_path, SiteSpider, url=url, start_url=site.start_url, settings={"FLEET_CRAWL": "b"}) as b,
    ):
        a.start()
        doomed = b.start()
        site.wait(pages=20)
        doomed.kill()
        held = b.held_by(doomed)
        b.start()
        a.finish()
        b.finish()
        assert {path.name for path in Path(tmp_path, "crawls").glob("*.db")} == {"a.db", "b.db"}
        visits = site.visits()
        assert all(visits[path] >= 2 for path in site.site.pages())
        assert sum(count - 2 for count in visits.values()) <= held.total()
        assert a.items() == b.items() == list(range(SHAPE.pages))


def test_jobdir_is_the_place_of_the_file(tmp_path: Path) -> None:
    job = tmp_path / "job"
    settings = {"FLEET_URL": None, "JOBDIR": str(job)}
    with (
        running(SHAPE) as site,
        Fleet(
            tmp_path, SiteSpider, url=f"sqlite://{job}/fleet.db", start_url=site.start_url, settings=settings
        ) as fleet,
    ):
        doomed = fleet.start()
        site.wait(pages=20)
        doomed.kill()
        held = fleet.held_by(doomed)
        fleet.start()
        fleet.finish()
        expected = arrivals_of_a_clean_crawl(site.site)
        assert not expected - site.arrivals()
        assert not site.arrivals() - expected - held


def test_spider_state_survives_a_kill(tmp_path: Path) -> None:
    with running(SHAPE) as site, Fleet(tmp_path, StateSpider, start_url=site.start_url) as fleet:
        first = fleet.start()
        fleet.wait(lambda look: look.counts.done >= 20, "some pages are done")
        first.kill()
        held = fleet.held_by(first)
        last = fleet.start()
        state = last.ended()["state"]
        assert state["began"] == {"pid": first.pid, "at": (1, b"two")}
        # A page is counted again if its end was not committed, but never forgotten.
        assert SHAPE.pages <= state["pages"] <= SHAPE.pages + held.total()
