"""The filters as Scrapy's ``DUPEFILTER_CLASS``, with its own scheduler and without the add-on."""

from __future__ import annotations

import re
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.dupefilters import RFPDupeFilter
from scrapy.utils.request import fingerprint

from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.dupefilters import CRAWL, BloomDupeFilter, ExactDupeFilter, RollingDupeFilter
from scrapy_fleet.errors import SeenDiffers, SettingError
from scrapy_fleet.keys import key_of
from scrapy_fleet.ops.cli import main
from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.store.memory import MemoryStore
from tests.both_ways import STOCK, Crawls
from tests.commands import a_crawler, data
from tests.crash.fleet import Fleet
from tests.crash.spiders import UnfilteredStartSpider
from tests.special_site import GRAPH_SIZE, Site
from tests.spiders import known

FILTERS = [ExactDupeFilter, BloomDupeFilter, RollingDupeFilter]
each_filter = pytest.mark.parametrize("cls", FILTERS)

Opened = Callable[..., Any]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Makes filters as Scrapy's scheduler does, and closes them in the end."""
    made = []

    def open_one(cls: Any, **settings: Any) -> Any:
        crawler = a_crawler(**settings)
        crawler._apply_settings()
        one = cls.from_crawler(crawler)
        made.append(one)
        one.open()
        return one

    yield open_one
    for each in made:
        each.close("finished")


def requests(number: int, start: int = 0) -> list[Request]:
    return [Request(f"http://a.example/{n}") for n in range(start, start + number)]


@each_filter
@pytest.mark.parametrize("jobdir", [False, True], ids=["memory", "jobdir"])
def test_each_request_is_new_once(opened: Opened, cls: Any, jobdir: bool, tmp_path: Path) -> None:
    one = opened(cls, JOBDIR=str(tmp_path / "job") if jobdir else None)
    for request in requests(1000):
        assert not one.request_seen(request)
        assert one.request_seen(request)
    assert all(map(one.request_seen, requests(1000)))
    assert one.request_seen(Request("http://a.example/7#part"))
    assert not one.request_seen(Request("http://a.example/7", method="POST"))
    one.clear()
    assert not any(map(one.request_seen, requests(1000)))


@each_filter
def test_it_goes_on_from_its_jobdir(opened: Opened, cls: Any, tmp_path: Path) -> None:
    first = opened(cls, JOBDIR=str(tmp_path))
    assert not any(map(first.request_seen, requests(100)))
    first.close("shutdown")
    second = opened(cls, JOBDIR=str(tmp_path))
    assert all(map(second.request_seen, requests(100)))
    assert not second.request_seen(Request("http://a.example/new"))


@each_filter
def test_its_file_is_looked_at_by_the_commands(opened: Opened, cls: Any, tmp_path: Path) -> None:
    one = opened(cls, JOBDIR=str(tmp_path))
    assert not any(map(one.request_seen, requests(10)))
    one.close("shutdown")
    found = data("seen", "--url", str(tmp_path / "seen.db"), cwd=tmp_path)
    assert (found["kind"], found["count"]) == (cls.fleet_seen, 10)


def test_it_goes_by_the_fingerprinter(opened: Opened) -> None:
    one = opened(ExactDupeFilter, REQUEST_FINGERPRINTER_CLASS=known.SessionBlind)
    assert not one.request_seen(Request("http://a.example/?session=1"))
    assert one.request_seen(Request("http://a.example/?session=2"))


def test_a_subclass_may_say_what_is_the_same(opened: Opened) -> None:
    class ByPath(ExactDupeFilter):
        def request_fingerprint(self, request: Request) -> str:
            return fingerprint(Request(request.url.partition("?")[0])).hex()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Scrapys would rather have a fingerprinter
        one = opened(ByPath)
    assert not one.request_seen(Request("http://a.example/?a"))
    assert one.request_seen(Request("http://a.example/?b"))


def test_the_settings_are_those_of_the_fleet(opened: Opened) -> None:
    many = 10_000
    strict = opened(BloomDupeFilter, FLEET_SEEN_CAPACITY=many, FLEET_SEEN_ERROR=1e-9)
    assert not any(map(strict.request_seen, requests(many)))
    lax = opened(BloomDupeFilter, FLEET_SEEN_CAPACITY=many, FLEET_SEEN_ERROR=0.1)
    wrong = sum(map(lax.request_seen, requests(many)))
    assert 0 < wrong < 0.1 * many
    with pytest.raises(SettingError, match="FLEET_SEEN_ERROR"):
        opened(BloomDupeFilter, FLEET_SEEN_ERROR="much")


def test_another_filter_is_refused(opened: Opened, tmp_path: Path) -> None:
    one = opened(ExactDupeFilter, JOBDIR=str(tmp_path))
    assert not any(map(one.request_seen, requests(10)))
    one.close("shutdown")
    with pytest.raises(SeenDiffers, match="an exact filter, but a bloom filter") as refused:
        opened(BloomDupeFilter, JOBDIR=str(tmp_path))
    [way] = re.findall(r"scrapy fleet (seen convert bloom .* --url \S+),", str(refused.value))
    assert main([*way.split(), "--yes"]) == 0
    assert all(map(opened(BloomDupeFilter, JOBDIR=str(tmp_path)).request_seen, requests(10)))


def test_rolling_forgets_while_nobody_looks(opened: Opened, tmp_path: Path) -> None:
    settings = {"JOBDIR": str(tmp_path), "FLEET_SEEN_WINDOW": 0.2}
    first = opened(RollingDupeFilter, **settings)
    assert not any(map(first.request_seen, requests(100)))
    first.close("shutdown")
    over = time.monotonic() + 0.25
    while time.monotonic() < over:
        time.sleep(0.05)
    second = opened(RollingDupeFilter, **settings)
    assert not any(map(second.request_seen, requests(100)))


def test_rolling_keeps_what_is_met_again(opened: Opened, tmp_path: Path) -> None:
    one = opened(RollingDupeFilter, FLEET_SEEN_WINDOW="6h", JOBDIR=str(tmp_path))
    now = 0.0
    one._store.close()
    one._store = MemoryStore(CRAWL, clock=lambda: now)
    one._store.use_seen(one._plan)
    often, once = requests(2)
    assert not one.request_seen(once)
    assert not one.request_seen(often)
    for _ in range(8):
        one._keep()
        now += 3600
        assert one.request_seen(often)
    one._keep()
    assert one.request_seen(often)
    assert not one.request_seen(once)


def test_a_full_disk_ends_nothing(opened: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = opened(ExactDupeFilter, JOBDIR=str(tmp_path))
    execute = one._store._db.connection.execute
    [(pages,)] = execute("PRAGMA page_count")
    execute(f"PRAGMA max_page_count = {pages}")
    one._keep_at = time.monotonic() + 1000
    assert not any(map(one.request_seen, requests(3_000)))
    one._keep_at = 0.0
    assert not one.request_seen(Request("http://a.example/new"))
    assert all(map(one.request_seen, requests(3_000)))
    [line] = [each.message for each in caplog.records if "disk" in each.message]
    assert "is full" in line
    assert "only kept in memory" in line
    execute("PRAGMA max_page_count = 1000000")
    one.close("shutdown")
    assert all(map(opened(ExactDupeFilter, JOBDIR=str(tmp_path)).request_seen, requests(3_000)))


# With the add-on: what DUPEFILTER_CLASS means, or why it is refused


class MoreThanExact(ExactDupeFilter):
    """Nobody would call what it adds."""


class OwnFilter(RFPDupeFilter):
    """As people have written them."""


def kind_of(**settings: Any) -> str:
    crawler = a_crawler(ADDONS={"scrapy_fleet.Addon": 500}, **settings)
    return fleet_settings.of(crawler).plan.seen.kind


@pytest.mark.parametrize(
    ("cls", "kind"),
    [
        *((f"scrapy_fleet.dupefilters.{cls.__name__}", cls.fleet_seen) for cls in FILTERS),
        (RollingDupeFilter, "rolling"),
        ("scrapy.dupefilters.BaseDupeFilter", "off"),
    ],
)
def test_a_class_stands_for_a_filter_of_the_fleet(cls: Any, kind: str) -> None:
    assert kind_of(DUPEFILTER_CLASS=cls) == kind
    assert kind_of(DUPEFILTER_CLASS=cls, FLEET_SEEN=kind) == kind
    other = "bloom" if kind != "bloom" else "exact"
    with pytest.raises(SettingError, match=f"FLEET_SEEN = '{other}' and DUPEFILTER_CLASS = .* '{kind}'"):
        kind_of(DUPEFILTER_CLASS=cls, FLEET_SEEN=other)


def test_scrapys_own_class_is_what_the_setting_says() -> None:
    for kind in ("exact", "bloom", "rolling", "off"):
        assert kind_of(FLEET_SEEN=kind, DUPEFILTER_CLASS="scrapy.dupefilters.RFPDupeFilter") == kind
    assert kind_of() == "exact"


@pytest.mark.parametrize("cls", [MoreThanExact, OwnFilter, "tests.test_dupefilters.OwnFilter"])
def test_any_other_class_is_refused(cls: Any) -> None:
    with pytest.raises(SettingError, match=r"cannot be used: .* set FLEET_SEEN"):
        kind_of(DUPEFILTER_CLASS=cls)


# Real crawls


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


def test_crawls_are_as_with_scrapys_own(site: Site, tmp_path: Path) -> None:
    """What the site saw, what was counted, and what was logged of repeats."""
    own = {**STOCK, "LOG_LEVEL": "DEBUG", "DUPEFILTER_DEBUG": True}
    names = [f"{cls.__module__}.{cls.__name__}" for cls in FILTERS]
    stock, *ours = Crawls(site, tmp_path).run(
        known.Graph, own, *({**own, "DUPEFILTER_CLASS": name} for name in names)
    )
    assert len(stock.visits) == GRAPH_SIZE
    for one in ours:
        assert one.visits == stock.visits
        assert one.filtered == stock.filtered > 0
        assert one.repeated == stock.repeated


@pytest.mark.crash
@each_filter
def test_a_killed_crawl_leaves_its_file_whole(cls: Any, opened: Opened, tmp_path: Path) -> None:
    job = tmp_path / "job"
    settings = {**STOCK, "JOBDIR": str(job), "DUPEFILTER_CLASS": f"{cls.__module__}.{cls.__name__}"}
    settings |= {"DOWNLOAD_DELAY": 0.05, "RANDOMIZE_DOWNLOAD_DELAY": False}
    with running(Shape(pages=1000)) as site:
        with Fleet(tmp_path, UnfilteredStartSpider, start_url=site.start_url, settings=settings) as fleet:
            doomed = fleet.start()
            site.wait(pages=10)
            before = set(site.arrivals()) - {"/p/0"}  # which is not filtered
            looking = opened(cls, JOBDIR=str(job))
            keys = tuple(key_of(fingerprint(Request(site.url(path)))) for path in before)
            deadline = time.monotonic() + 60
            while not all(looking._store.seen(keys)):
                assert time.monotonic() < deadline, "they are not kept"
                time.sleep(0.02)
            doomed.kill()
            looking.close("shutdown")
            # What Scrapy's own queue has kept is another matter.
            shutil.rmtree(job / "requests.queue")
            arrivals = site.arrivals()
            assert fleet.start().ended()["finish_reason"] == "finished"
        again = site.arrivals() - arrivals
    assert again["/p/0"] == 1
    assert not before & again.keys()
