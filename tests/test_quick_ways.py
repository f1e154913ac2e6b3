"""What is done in a quicker way than Scrapy's, or the Redis client's, comes to the same."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from redis.connection import PythonRespSerializer
from scrapy import Request, Spider
from scrapy.core.downloader import Downloader
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.test import get_crawler

from scrapy_fleet.crawl.seam import Seam
from scrapy_fleet.crawl.stats import QuickStatsCollector
from scrapy_fleet.store.redis.address import Whole


class Named(Spider):
    name = "named"


class OneSlot(Downloader):
    """Throttles everything together."""

    def get_slot_key(self, request: Request) -> str:
        return "all"


def seam_of(downloader: type[Downloader] = Downloader, **own: Any) -> tuple[Seam, Downloader]:
    crawler = get_crawler(Named, own)
    made = downloader(crawler)
    crawler.engine = SimpleNamespace(downloader=made)  # type: ignore[assignment]
    return Seam(crawler, check=False), made


@cache
def usual_seam() -> tuple[Seam, Downloader]:
    return seam_of()


hosts = st.sampled_from(
    [
        "a.example",
        "A.Example",
        "a.example:80",
        "u:p@a.example",
        "[::1]",
        "[::1]:8",
        "xn--4ca.example",
        "a_b.c",
    ]
)
urls = st.builds(
    "{}://{}{}".format,
    st.sampled_from(["http", "https", "HTTP", "ftp", "s3"]),
    hosts,
    st.sampled_from(["", "/", "/b", "?c=/d/", "#e/f", "//g/", "/h?i=http://j/k", "/%20", "/ä"]),
)
metas = st.sampled_from(
    [{}, {"download_slot": "own"}, {"download_slot": "a.example"}, {"verbatim_url": True}]
)


@settings(deadline=None)
@given(st.lists(st.tuples(urls, metas), min_size=1, max_size=8))
@example([("http://a?b/c", {}), ("http://a/b", {})])
@example([("http://a\\l/m", {}), ("http://a/b", {})])
@example([("data:,//a/b", {}), ("about:blank", {})])
def test_slots_are_those_of_scrapy(requests: list[tuple[str, dict[str, Any]]]) -> None:
    seam, downloader = usual_seam()
    for url, meta in requests:
        assert seam.slot_key(Request(url, meta=meta)) == downloader.get_slot_key(Request(url, meta=meta))


def test_a_downloader_with_slots_of_its_own_is_asked() -> None:
    seam, _ = seam_of(OneSlot)
    assert [seam.slot_key(Request(f"http://all/{n}")) for n in range(2)] == ["all", "all"]
    assert [seam.slot_key(Request(f"http://a/{n}")) for n in range(2)] == ["all", "all"]


@pytest.mark.filterwarnings("ignore:.*CONCURRENT_REQUESTS_PER_IP")
def test_slots_by_address_are_looked_up_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seam, _ = seam_of(CONCURRENT_REQUESTS_PER_IP=1)
    assert seam.slot_key(Request("http://a/1")) == "a"
    from scrapy.resolver import dnscache

    monkeypatch.setitem(dnscache, "a", "10.0.0.1")  # type: ignore[arg-type]
    assert seam.slot_key(Request("http://a/2")) == "10.0.0.1"


def test_only_scrapys_default_makes_way_for_the_quick_stats() -> None:
    addon = {"ADDONS": {"scrapy_fleet.Addon": 500}}
    given = "scrapy.statscollectors.MemoryStatsCollector"
    assert type(get_crawler(Named, addon).stats) is QuickStatsCollector
    assert type(get_crawler(Named, {**addon, "STATS_CLASS": given}).stats) is MemoryStatsCollector


def test_stats_are_those_of_scrapy() -> None:
    quick, scrapys = QuickStatsCollector(get_crawler(Named)), MemoryStatsCollector(get_crawler(Named))
    for stats in (quick, scrapys):
        stats.inc_value("a")
        stats.inc_value("a", 2, start=5)
        stats.inc_value("b", start=5)
        stats.max_value("c", 1)
        stats.max_value("c", 3)
        stats.min_value("d", 3)
        stats.min_value("d", 1)
        stats.set_value("e", "f")
    assert quick.get_stats() == scrapys.get_stats()
    assert quick.get_value("a") == 3
    assert quick.get_value("g", 7) == 7
    quick.clear_stats()
    assert quick.get_stats() == {}


@given(
    st.sampled_from(["EVALSHA", "CONFIG GET"]),
    st.lists(st.binary() | st.text(st.characters(exclude_categories=["Cs"])) | st.integers(), max_size=5),
)
def test_commands_are_packed_as_the_client_does(name: str, args: list[bytes | str | int]) -> None:
    def encode(value: Any) -> bytes:
        return value if isinstance(value, bytes) else str(value).encode()

    theirs = PythonRespSerializer(6000, encode).pack(name, *args)
    assert Whole().pack(name, *args) == [b"".join(theirs)]
