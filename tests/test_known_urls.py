"""The early memory of known links: it saves work and changes nothing else.

Each spider is run with stock Scrapy and with the add-on; what the site saw must be the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import scrapy
from scrapy import Request

from scrapy_fleet.crawl.known import KnownUrls
from tests.both_ways import Crawls, Seen
from tests.commands import a_crawler
from tests.special_site import GRAPH_SIZE, Site
from tests.spiders import known


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def crawls(site: Site, tmp_path: Path) -> Crawls:
    return Crawls(site, tmp_path)


def links_of_the_graph() -> list[list[int]]:
    pages = range(GRAPH_SIZE)
    return [
        [t for t in (2 * n + 1, 2 * n + 2, n // 2, n, 0, (7 * n + 3) % GRAPH_SIZE) if t in pages]
        for n in pages
    ]


def test_known_links_do_not_reach_scrapy(crawls: Crawls) -> None:
    stock, fleet = crawls.both(known.Graph)
    links = links_of_the_graph()
    assert stock.count("scheduled") == 1 + sum(map(len, links))
    # A link that is on a page twice may pass twice: the first is not queued yet.
    twice = sum(len(targets) - len(set(targets)) for targets in links)
    assert GRAPH_SIZE <= fleet.count("scheduled") <= GRAPH_SIZE + twice
    assert set(fleet.visits.values()) == {1}
    assert len(fleet.visits) == GRAPH_SIZE


def test_pages_do_not_wait_for_the_garbage_collector(crawls: Crawls) -> None:
    stock, fleet = crawls.both(known.Uncollected)
    assert fleet.count("pages_in_memory") <= 3
    assert stock.count("pages_in_memory") == GRAPH_SIZE  # what this is for; if it has changed, it may go


def test_it_can_be_switched_off(crawls: Crawls) -> None:
    stock, fleet = crawls.both(known.Graph, FLEET_KNOWN_URLS=0)
    assert fleet.count("scheduled") == stock.count("scheduled")


def test_a_small_memory_forgets_but_nothing_is_fetched_twice(crawls: Crawls) -> None:
    stock, fleet = crawls.both(known.Graph, FLEET_KNOWN_URLS=8)
    assert set(fleet.visits.values()) == {1}
    assert GRAPH_SIZE < fleet.count("scheduled") < stock.count("scheduled")


def test_who_listens_to_dropped_requests_hears_of_all(crawls: Crawls) -> None:
    stock, fleet = crawls.both(known.Listening)
    assert fleet.count("scheduled") == stock.count("scheduled")
    assert stock.count("dropped") == stock.filtered > 0
    assert fleet.count("dropped") == stock.count("dropped")


def test_the_first_repeat_is_logged_as_stock_scrapy_does_it(crawls: Crawls) -> None:
    def words(seen: Seen) -> list[str]:
        return [re.sub(r"http://\S+", "URL", line) for line in seen.repeats]

    stock, fleet = crawls.both(known.Graph, LOG_LEVEL="DEBUG")
    assert words(fleet) == words(stock)
    assert len(words(stock)) == 1
    assert "no more duplicates will be shown" in words(stock)[0]


@pytest.mark.parametrize("spider", [known.Graph, known.Unwritable])
def test_every_repeat_is_logged_where_that_is_wanted(crawls: Crawls, spider: type[known.Counting]) -> None:
    stock, fleet = crawls.both(spider, LOG_LEVEL="DEBUG", DUPEFILTER_DEBUG=True)
    assert fleet.repeated == stock.repeated
    assert len(stock.repeats) == stock.filtered > 3
    assert all("(referer: http://" in line for line in fleet.repeats)


def test_a_page_met_too_deep_is_fetched_when_it_is_met_again(crawls: Crawls) -> None:
    _, fleet = crawls.both(known.TooDeep)
    assert fleet.visits["GET /leaf/target"] == 1


def test_a_page_that_was_offsite_is_fetched_when_it_is_allowed(crawls: Crawls) -> None:
    _, fleet = crawls.both(known.Offsite)
    assert fleet.visits["GET other /leaf/there"] == 1


def test_what_is_not_to_be_filtered_is_not(crawls: Crawls) -> None:
    _, fleet = crawls.both(known.Unfiltered)
    # Unfiltered requests make a page known to nobody: those of c, which are filtered, come through too.
    assert fleet.visits["GET /leaf/a"] == 2
    assert fleet.visits["GET /leaf/again"] == 2 + 1 + 1
    assert fleet.visits["GET /leaf/x"] == 2 + 2 + 1


def test_other_requests_for_a_known_url_are_not_confused(crawls: Crawls) -> None:
    _, fleet = crawls.both(known.OneUrl)
    asked = Counter(visit.split()[0] for visit in fleet.visits.elements() if "/echo/" in visit)
    has_verbatim = scrapy.version_info >= (2, 19)
    assert asked == {"GET": 3 if has_verbatim else 2, "POST": 4, "PUT": 1}


def test_a_fingerprinter_that_sees_less_is_heeded(crawls: Crawls) -> None:
    _, fleet = crawls.both(known.Sessions)
    assert sum(visit.startswith("GET /leaf/x") for visit in fleet.visits.elements()) == 2


def test_a_fingerprinter_that_sees_more_is_heeded(crawls: Crawls) -> None:
    _, fleet = crawls.both(known.Languages)
    assert fleet.visits["GET /echo/it"] == 2


def test_its_size_is_bounded() -> None:
    urls = KnownUrls(a_crawler())
    urls.limit(100)
    requests = [Request(f"http://a.example/{n}") for n in range(1000)]
    for request in requests:
        urls.add(request)
        assert request in urls
    remembered = [request for request in requests if request in urls]
    assert 50 <= len(remembered) <= 100
    assert remembered == requests[-len(remembered) :]
