"""Crawls with each filter, from the settings to the site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scrapy import Request

from scrapy_fleet.crawl.known import KnownUrls
from tests.both_ways import Crawls
from tests.commands import a_crawler
from tests.crash.fleet import Fleet
from tests.special_site import Site
from tests.spiders.seen import Returning, Twice


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def crawls(site: Site, tmp_path: Path) -> Crawls:
    return Crawls(site, tmp_path)


def test_each_filter_at_work(crawls: Crawls) -> None:
    kinds = ("exact", "bloom", "rolling", "off")
    runs = crawls.run(Twice, *({"FLEET_SEEN": kind} for kind in kinds))
    fetched = {kind: run.visits["GET /leaf/again"] for kind, run in zip(kinds, runs, strict=True)}
    assert fetched == {"exact": 1, "bloom": 1, "rolling": 1, "off": 4}
    assert [run.filtered for run in runs] == [3, 3, 3, 0]
    # Start requests are not filtered, by any of them.
    assert all(run.visits["GET /leaf/a"] == 1 for run in runs)


def test_rolling_fetches_again_what_it_has_forgotten(crawls: Crawls) -> None:
    """Though it is met all the time: an early memory that kept it for good would never let it through."""
    # Every look counts, so it is forgotten only when nobody looks: the window is shorter than two looks.
    (run,) = crawls.run(Returning, {"FLEET_SEEN": "rolling", "FLEET_SEEN_WINDOW": 0.001})
    assert run.visits["GET /leaf/news"] == 3


def test_the_early_memory_is_for_a_while() -> None:
    request = Request("http://a.example/")
    for max_age, stays in ((3600.0, True), (0.0, False)):
        urls = KnownUrls(a_crawler())
        urls.limit(100, max_age)
        urls.add(request)
        assert urls.usable
        assert (request in urls) is stays


@pytest.mark.parametrize(("seen", "words"), [("exact", "9 bytes on Redis"), ("bloom", "a layer is added")])
def test_what_goes_beyond_the_capacity_is_told_once(
    site: Site, tmp_path: Path, seen: str, words: str
) -> None:
    settings = {"FLEET_SEEN": seen, "FLEET_SEEN_CAPACITY": 1}
    base = site.base(f"capacity-{seen}")
    with Fleet(tmp_path, Twice, base=base, settings=settings) as fleet:
        worker = fleet.start()
        worker.ended()
        told = [line for line in worker.text().splitlines() if "FLEET_SEEN_CAPACITY = 1." in line]
        assert len(told) == 1
        assert words in told[0]


def test_another_filter_is_refused_with_the_remedy(site: Site, tmp_path: Path) -> None:
    base = site.base("refused")
    kept = {"FLEET_ON_FINISH": "keep"}
    with Fleet(tmp_path, Twice, base=base, settings=kept) as fleet:
        fleet.start().ended()
    with Fleet(tmp_path, Twice, base=base, settings={**kept, "FLEET_SEEN": "bloom"}) as fleet:
        worker = fleet.begin()
        assert worker.ended()["finish_reason"] == "fleet_error"
        assert "scrapy fleet seen twice convert bloom" in worker.text()
