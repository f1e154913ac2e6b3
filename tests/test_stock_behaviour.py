"""Spiders behave with the add-on as they do with stock Scrapy.

Each spider is run both ways against the same site. Compared are the items, what the site was asked for
(as it saw it, with multiplicity), the finish reason and the stats. With ``STOCK_TWICE=1`` in the
environment both sides are stock Scrapy, which shows that the comparison itself is sound.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import scrapy

from tests.forked import Forked
from tests.run_spider import Job, Mode, Result, Run
from tests.special_site import OTHER_HOST, Site
from tests.spiders import callbacks, closing, order, parts, requests, starting
from tests.spiders.base import SiteSpider

ROOT = Path(__file__).parent.parent
STOCK_TWICE = bool(os.environ.get("STOCK_TWICE"))
VERSION = scrapy.version_info[:2]

SETTINGS = {
    "LOG_LEVEL": "WARNING",
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
    "DOWNLOAD_TIMEOUT": 10,
    # Stock Scrapy neither leaves a host alone that refuses nor spares one that does not answer.
    "FLEET_BACKOFF": 0.01,
    "FLEET_BREAKER": 0,
}

LIMIT = 120.0
"""Seconds after which a process is taken to hang."""

REACTORLESS: list[type[SiteSpider]] = [
    starting.Plain,
    starting.AsyncStart,
    starting.SlowStart,
    starting.Rules,
    callbacks.Coroutines,
    callbacks.InlineDownloads,
    callbacks.Unwritable,
    callbacks.Errbacks,
    requests.Cookies,
    requests.Redirects,
    requests.Retries,
    order.Lifo,
    closing.ItemCount,
    closing.Idle,
    parts.Files,
    parts.Feeds,
    parts.Delayed,
    parts.Slow,
]

WITHOUT_ASYNCIO: list[type[SiteSpider]] = [
    starting.Plain,
    starting.RepeatedStartUrls,
    starting.Rules,
    starting.Sitemap,
    callbacks.Arguments,
    callbacks.Raising,
    requests.Cookies,
    requests.Redirects,
    requests.Retries,
    requests.DepthLimit,
    closing.ItemCount,
    closing.Idle,
    parts.Feeds,
    parts.Delayed,
]

TIMING = ("time", "_per_minute", "memusage", "_bytes")
"""Parts of the names of stats that tell of time and size."""


@dataclass(frozen=True)
class Group:
    """Spiders that share a process; each is a test of its own."""

    name: str
    spiders: Sequence[type[SiteSpider]]
    mode: Mode = "one_by_one"
    since: tuple[int, int] = (2, 13)

    @property
    def members(self) -> list[type[SiteSpider]]:
        """Those that this Scrapy can run, each as often as it wants to be run."""
        able = [spider for spider in self.spiders if spider.since <= VERSION < spider.until]
        return [spider for spider in able for _ in range(spider.runs)]


GROUPS = [
    Group("starting", starting.SPIDERS),
    Group("callbacks", callbacks.SPIDERS),
    Group("requests", requests.SPIDERS),
    Group("order", order.SPIDERS),
    Group("closing", closing.SPIDERS),
    Group("parts", parts.SPIDERS),
    Group("reactorless", REACTORLESS, "reactorless", since=(2, 15)),
    Group("without_asyncio", WITHOUT_ASYNCIO, "select"),
]

PROCESSES: list[Mode] = ["process", "async_process"] if VERSION >= (2, 14) else ["process"]

CASES = [
    pytest.param(group, spider, id=f"{group.name}-{spider.name}")
    for group in GROUPS
    for spider in group.spiders
]


@dataclass
class Seen:
    """What one run of a spider came to."""

    items: list[str]
    visits: list[str]
    reason: str
    stats: dict[str, Any]
    outputs: dict[str, list[str]] = field(default_factory=dict)
    error: str = ""


class Side:
    """One process that runs a group's spiders, with the add-on or without."""

    numbers = itertools.count(100)  # names of equal length, lest the sizes of pages differ

    def __init__(
        self,
        site: Site,
        spiders: Sequence[type[SiteSpider]],
        mode: Mode,
        folder: Path,
        *,
        addon: bool,
        same_pages: bool,
    ):
        self.site = site
        self.spiders = spiders
        folder.mkdir()
        self.names = [f"run-{next(self.numbers)}" for _ in spiders]
        if same_pages:
            self.names = self.names[:1] * len(spiders)
        self.result = folder / "result.jsonl"
        settings: dict[str, Any] = dict(SETTINGS)
        if addon and not STOCK_TWICE:
            (folder / "fleet").mkdir()
            settings |= {"ADDONS": {"scrapy_fleet.Addon": 500}, "FLEET_URL": f"sqlite:///{folder}/fleet"}
        runs: list[Run] = [
            {
                "spider": f"{spider.__module__}:{spider.__name__}",
                "arguments": {"base": site.base(name), "other": site.base(name, OTHER_HOST)},
            }
            for spider, name in zip(spiders, self.names, strict=True)
        ]
        job: Job = {"mode": mode, "settings": settings, "runs": runs, "result": str(self.result)}
        file = folder / "job.json"
        file.write_text(json.dumps(job))
        self._log = folder / "log.txt"
        with self._log.open("w") as log:
            self.process = Forked(
                *("tests.run_spider", str(file)),
                cwd=folder,  # what spiders write under relative names lands there
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=log.fileno(),
                stderr=log.fileno(),
            )

    @cached_property
    def results(self) -> dict[int, Result]:
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
        lines = self.result.read_text().splitlines() if self.result.exists() else []
        return {result["run"]: result for result in map(json.loads, lines)}

    @property
    def log(self) -> str:
        return self._log.read_text()

    def seen(self, number: int) -> Seen:
        name = self.names[number]
        result = self.results.get(number)
        visits = [str(visit) for visit in self.site.visits(name)]
        if result is None:
            return Seen([], visits, "", {}, error=f"the process ended before: {self.log[-3000:]}")

        def plain(text: str) -> str:
            for host, short in (("127.0.0.1", "@"), (OTHER_HOST, "@other")):
                text = text.replace(self.site.base(name, host), short)
            return text.replace(name, "RUN").replace(str(self.site.port), "PORT")

        stats = result["stats"]
        return Seen(
            items=sorted(plain(json.dumps(item, sort_keys=True)) for item in result["items"]),
            visits=[plain(visit) for visit in visits],
            reason=str(stats.get("finish_reason")),
            stats={key: value for key, value in stats.items() if comparable(key)},
            outputs={file: [plain(line) for line in lines] for file, lines in result["outputs"].items()},
            error=result["error"],
        )


def comparable(stat: str) -> bool:
    if stat.startswith("log_count/"):
        return stat in ("log_count/ERROR", "log_count/CRITICAL")
    if stat.startswith("scheduler/"):
        return stat in ("scheduler/enqueued", "scheduler/dequeued")
    return not stat.startswith("fleet/") and not any(part in stat for part in TIMING)


@dataclass
class Pair:
    """The same spiders run with stock Scrapy and with the add-on."""

    stock: Side
    fleet: Side

    def check(self, spider: type[SiteSpider]) -> None:
        numbers = [number for number, each in enumerate(self.stock.spiders) if each is spider]
        assert numbers
        differences = [
            line
            for number in numbers
            for line in differences_of(self.stock.seen(number), self.fleet.seen(number), spider)
        ]
        assert not differences, "\n".join(["stock (-) and add-on (+) differ:", *differences])


def differences_of(stock: Seen, fleet: Seen, spider: type[SiteSpider]) -> Iterator[str]:
    assert not stock.error, stock.error
    if fleet.error:
        yield f"add-on: {fleet.error}"
    if stock.reason != fleet.reason:
        yield f"finish reason: -{stock.reason} +{fleet.reason}"
    if "items" in spider.compare:
        yield from lines_that_differ("item", stock.items, fleet.items)
    if "visits" in spider.compare:
        yield from lines_that_differ("visit", stock.visits, fleet.visits)
        if spider.ordered and stock.visits != fleet.visits:
            yield f"order:\n  -{stock.visits}\n  +{fleet.visits}"
    if "stats" in spider.compare:
        for name in sorted({*stock.stats, *fleet.stats}):
            one, other = stock.stats.get(name), fleet.stats.get(name)
            if one != other and name not in spider.vague:
                yield f"stat {name}: -{one} +{other}"
    for name in stock.outputs:
        yield from lines_that_differ(name, stock.outputs[name], fleet.outputs.get(name, []))


def lines_that_differ(what: str, stock: list[str], fleet: list[str]) -> Iterator[str]:
    one, other = Counter(stock), Counter(fleet)
    for sign, surplus in (("-", one - other), ("+", other - one)):
        for line, count in surplus.items():
            yield f"{what} {sign}{count} {line}"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


class Pairs:
    """Runs each group once, when the first of its tests asks for it."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.folder = folder
        self.made: dict[str, Pair] = {}

    def run(
        self, name: str, spiders: Sequence[type[SiteSpider]], mode: Mode, *, same_pages: bool = False
    ) -> Pair:
        if name not in self.made:
            stock, fleet = (
                Side(
                    self.site,
                    spiders,
                    mode,
                    self.folder / f"{name}-{'fleet' if addon else 'stock'}",
                    addon=addon,
                    same_pages=same_pages,
                )
                for addon in (False, True)
            )
            self.made[name] = Pair(stock, fleet)
        return self.made[name]


@pytest.fixture(scope="module")
def pairs(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    pairs = Pairs(site, tmp_path_factory.mktemp("pairs"))
    yield pairs
    for pair in pairs.made.values():
        for side in (pair.stock, pair.fleet):
            side.process.kill()
            side.process.wait()


@pytest.mark.parametrize(("group", "spider"), CASES)
def test_same_as_stock(pairs: Pairs, group: Group, spider: type[SiteSpider]) -> None:
    if group.since > VERSION or not spider.since <= VERSION < spider.until:
        pytest.skip(f"not with Scrapy {scrapy.__version__}")
    pairs.run(group.name, group.members, group.mode).check(spider)


prompt_callbacks = pytest.mark.skipif(
    VERSION < (2, 14), reason="links of a page reach the scheduler only after the next requests have gone out"
)


@pytest.fixture
def order_kept(pairs: Pairs) -> Callable[[type[SiteSpider]], list[list[str]]]:
    """The order in which the site saw a spider's requests, with stock Scrapy and with the add-on."""
    group = next(group for group in GROUPS if group.name == "order")
    pair = pairs.run(group.name, group.members, group.mode)

    def orders(spider: type[SiteSpider]) -> list[list[str]]:
        number = group.members.index(spider)
        return [side.seen(number).visits for side in (pair.stock, pair.fleet)]

    return orders


@prompt_callbacks
def test_depth_first_keeps_few_requests_waiting(order_kept: Any) -> None:
    for visits in order_kept(order.DepthFirst):
        waiting, most = 1, 0
        for visit in visits:
            waiting += (3 if visit.count(".") < 3 else 0) - 1
            most = max(most, waiting)
        assert most <= 12, visits  # breadth first has 27


@prompt_callbacks
def test_links_come_before_later_seeds(order_kept: Any) -> None:
    for visits in order_kept(order.SeedsAfterOthers):
        last_seed = visits.index("GET /tree/e.1.1")
        assert all(
            visits.index(f"GET /tree/{seed}.1.1.{n}") < last_seed for seed in "ab" for n in (1, 2, 3)
        ), visits


@prompt_callbacks
def test_redirects_come_soon_and_retries_late(order_kept: Any) -> None:
    for visits in order_kept(order.RedirectsAndRetries):
        for number in range(4):
            source = visits.index(f"GET /redirect/302?to=/leaf/{number}")
            assert visits.index(f"GET /leaf/{number}") - source <= 2, visits
        assert all(visit.startswith("GET /heal/") for visit in visits[-4:]), visits


@pytest.mark.skipif(STOCK_TWICE, reason="Scrapy's downloader may start more when several wait for a host")
def test_concurrency_limits_hold(pairs: Pairs, site: Site) -> None:
    group = next(group for group in GROUPS if group.name == "parts")
    side = pairs.run(group.name, group.members, group.mode).fleet
    number = group.members.index(parts.Concurrent)
    assert side.seen(number).reason == "finished"
    most = site.most_together(side.names[number])
    assert most[""] <= 6
    assert max(most["127.0.0.1"], most[OTHER_HOST]) <= 4


@pytest.mark.parametrize("mode", PROCESSES)
def test_crawls_in_one_process(pairs: Pairs, mode: Mode) -> None:
    """Different spiders at the same time: each has a crawl of its own."""
    together = [starting.Plain, parts.Feeds, requests.DepthLimit, callbacks.Unwritable]
    pair = pairs.run(mode, together, mode)
    for spider in together:
        pair.check(spider)


@pytest.mark.parametrize("mode", PROCESSES)
def test_same_spider_twice_in_one_process(pairs: Pairs, mode: Mode) -> None:
    """At the same time, the same spider twice is two workers that share one crawl."""
    pair = pairs.run(f"twice-{mode}", [starting.Plain, starting.Plain], mode, same_pages=True)
    stock, fleet = ([side.seen(number) for number in range(2)] for side in (pair.stock, pair.fleet))
    assert [seen.reason for seen in stock + fleet] == ["finished"] * 4
    times = 2 if STOCK_TWICE else 1
    assert sorted(fleet[0].items + fleet[1].items) == sorted(stock[0].items * times)
    assert sorted(fleet[0].visits * 2) == sorted(stock[0].visits * times)


PROJECT = """
BOT_NAME = "shop"
SPIDER_MODULES = ["shop.spiders"]
LOG_LEVEL = "WARNING"
ROBOTSTXT_OBEY = False
"""

PROJECT_SPIDER = """
import scrapy

class Books(scrapy.Spider):
    name = "books"

    async def start(self):
        yield scrapy.Request(self.base + "/graph/0")

    def parse(self, response):
        yield {"title": response.css("title::text").get()}
        yield from response.follow_all(css="a")
"""


def test_project_on_the_command_line(site: Site, tmp_path: Path) -> None:
    """``scrapy crawl`` in a project, with the one line in its settings."""
    results = []
    for name, line in (
        ("stock", ""),
        ("fleet", "" if STOCK_TWICE else 'ADDONS = {"scrapy_fleet.Addon": 500}\n'),
    ):
        spiders = tmp_path / name / "shop" / "spiders"
        spiders.mkdir(parents=True)
        (tmp_path / name / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
        for package in (spiders, spiders.parent):
            (package / "__init__.py").touch()
        (spiders.parent / "settings.py").write_text(PROJECT + line)
        (spiders / "books.py").write_text(PROJECT_SPIDER)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "scrapy",
                "crawl",
                "books",
                "-a",
                f"base={site.base('cli-' + name)}",
                "-O",
                "out.jsonl",
            ],
            cwd=tmp_path / name,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        visits = sorted(str(visit) for visit in site.visits("cli-" + name))
        results.append(
            (sorted((tmp_path / name / "out.jsonl").read_text().splitlines()), visits, done.stderr)
        )
    assert results[0] == results[1]
