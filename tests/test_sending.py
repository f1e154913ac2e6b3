"""The pace holds for requests that have to connect first: it is counted from when they leave.

Real crawls of a real site that is far away: whoever wants to talk to it has to agree on keys first, which
takes as long as a request and its answer.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
import scrapy

from benchmarks.proxy import delayed
from tests.certificates import Authority
from tests.run_spider import Mode
from tests.special_site import Site
from tests.spiders import throttle
from tests.test_throttle import Crawl

AWAY = 0.3
"""Seconds to the site and back."""
DELAY = 0.6
PACE = {"DOWNLOAD_DELAY": DELAY, "RANDOMIZE_DOWNLOAD_DELAY": False}
CLOSE = 0.9 * DELAY
IDLE = 1.5 * DELAY
"""A start that is never told costs its host a second and a half more."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    certificate, key = Authority(tmp_path_factory.mktemp("keys")).certificate("127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    with Site(tls=tls) as site:
        yield site


@pytest.fixture(scope="module")
def base(site: Site) -> Iterator[str]:
    with delayed(site.port, AWAY) as proxy:
        yield f"https://127.0.0.1:{proxy.port}"


@pytest.mark.parametrize("mode", ["one_by_one", "select"])
def test_who_connects_first_is_followed_at_a_distance(
    site: Site, base: str, mode: Mode, tmp_path: Path
) -> None:
    paths = [f"/leaf/{number}" for number in range(4)]
    came = Crawl(tmp_path, f"{base}/first-{mode}", *paths, mode=mode, **PACE).came(site)
    assert len(came.gaps) == 3
    assert min(came.gaps) >= CLOSE, came.gaps
    assert max(came.gaps) <= IDLE, came.gaps


def test_who_has_to_connect_again_is_followed_at_a_distance(site: Site, base: str, tmp_path: Path) -> None:
    # The site closes the connection after the second; the last ones find one that is open.
    paths = ["/leaf/1", "/last/2", "/leaf/3", "/leaf/4", "/leaf/5"]
    order = {"SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue"}
    came = Crawl(tmp_path, f"{base}/again", *paths, **PACE, **order).came(site)
    assert came.paths == paths
    assert min(came.gaps) >= CLOSE, came.gaps


@pytest.mark.skipif(scrapy.version_info < (2, 14), reason="Scrapy cannot do without a reactor")
def test_with_another_client_the_answer_tells(site: Site, base: str, tmp_path: Path) -> None:
    paths = [f"/leaf/{number}" for number in range(4)]
    mode: Mode = "reactorless"
    came = Crawl(tmp_path, f"{base}/other", *paths, mode=mode, **PACE).came(site)
    assert min(came.gaps) >= CLOSE, came.gaps


def test_a_name_that_takes_long_to_find(tmp_path: Path) -> None:
    paths = [f"/leaf/{number}" for number in range(4)]
    with Site() as site:
        base = site.base("name", "localhost")
        # Only a process that is all Scrapy's looks up names as it is told.
        resolver = {"DNS_RESOLVER": "tests.spiders.throttle.SlowResolver"}
        came = Crawl(tmp_path, base, *paths, mode="process", **PACE, **resolver).came(site)
    assert len(came.gaps) == 3
    assert min(came.gaps) >= CLOSE, came.gaps
    assert max(came.gaps) <= IDLE, came.gaps


@pytest.mark.parametrize(
    "mode",
    [
        "one_by_one",
        "select",
        pytest.param(
            "reactorless",
            marks=pytest.mark.skipif(scrapy.version_info < (2, 14), reason="Scrapy cannot do without"),
        ),
    ],
)
def test_a_long_way_through_scrapy_costs_the_host_no_time(mode: Mode, tmp_path: Path) -> None:
    # The fifth of each is through at once, when it is known that others take long.
    slots = [f"slot-{number}" for number in range(12)]
    pages = ["1", "2", "3", "4", "5-quick", "6"]
    order = {"SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue"}
    paths = [f"/leaf/{slot}/{page}" for page in pages for slot in slots]
    with Site() as site:
        base = site.base("far")
        came = Crawl(tmp_path, base, *paths, spider=throttle.Meanders, mode=mode, **PACE, **order).came(site)
    gaps = []
    for slot in slots:
        times = [visit.at for visit in came.visits if f"/{slot}/" in visit.path]
        gaps.append([later - earlier for earlier, later in pairwise(times)])
        assert len(gaps[-1]) == len(pages) - 1
    assert min(map(min, gaps)) >= CLOSE, gaps
    assert median(last for *_, last in gaps) <= 1.15 * DELAY, gaps


def test_a_loop_that_comes_round_slowly(tmp_path: Path) -> None:
    paths = ["/leaf/busy", "/leaf/1", "/leaf/2/busy", "/leaf/3"]
    with Site() as site:
        came = Crawl(tmp_path, site.base("slow"), *paths, spider=throttle.Toils, **PACE).came(site)
    assert len(came.gaps) == 3
    assert min(came.gaps) >= CLOSE, came.gaps
