"""Runs spiders in a process of their own: ``python -m tests.run_spider job.json``.

What came of each run is appended to the job's result file as one line of JSON as soon as it is known,
so that a crawl that hangs or takes the process with it does not hide the others.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Literal, TypedDict

import scrapy.crawler
from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.log import configure_logging
from scrapy.utils.reactor import install_reactor
from twisted.internet.defer import Deferred, inlineCallbacks

from tests.spiders.base import SiteSpider

LIMIT = 20.0
"""Seconds after which a crawl is taken to hang."""

ASYNCIO = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
SELECT = "twisted.internet.selectreactor.SelectReactor"

Mode = Literal["one_by_one", "reactorless", "select", "process", "async_process"]


class Run(TypedDict):
    spider: str
    """``module:Class``."""
    arguments: dict[str, str]


class Job(TypedDict):
    mode: Mode
    settings: dict[str, Any]
    runs: list[Run]
    result: str


class Result(TypedDict, total=False):
    run: int
    items: list[Any]
    stats: dict[str, Any]
    outputs: dict[str, list[str]]
    error: str


def load(path: str) -> type[SiteSpider]:
    module, _, name = path.partition(":")
    spider: type[SiteSpider] = getattr(importlib.import_module(module), name)
    return spider


class Watched:
    """A crawler, and what it brings to light."""

    def __init__(self, job: Job, number: int) -> None:
        self.job = job
        self.number = number
        self.arguments = job["runs"][number]["arguments"]
        self.items: list[Any] = []
        spider = load(job["runs"][number]["spider"])
        settings = dict(job["settings"])
        if spider.own_place:
            settings.pop("FLEET_URL", None)
        self.settings = settings
        self.spider = spider

    def watch(self, crawler: Crawler) -> Crawler:
        self.crawler = crawler
        crawler.signals.connect(self._item, signals.item_scraped)
        return crawler

    def _item(self, item: Any) -> None:
        self.items.append(ItemAdapter(item).asdict())

    def report(self, error: str = "") -> None:
        result: Result = {"run": self.number, "items": self.items, "error": error}
        stats = getattr(self.crawler, "stats", None)
        result["stats"] = stats.get_stats() if stats is not None else {}
        result["outputs"] = {name: lines_of(Path(name)) for name in self.spider.outputs}
        with Path(self.job["result"]).open("a") as file:
            file.write(json.dumps(result, default=str) + "\n")


def lines_of(file: Path) -> list[str]:
    return sorted(file.read_text().splitlines()) if file.exists() else ["(no such file)"]


def all_watched(job: Job) -> Iterator[Watched]:
    for number in range(len(job["runs"])):
        yield Watched(job, number)


async def one_by_one(job: Job) -> None:
    for watched in all_watched(job):
        runner = a_runner(watched.settings)
        crawler = watched.watch(runner.create_crawler(watched.spider))
        task = asyncio.ensure_future(as_future(runner.crawl(crawler, **watched.arguments)))
        done, _ = await asyncio.wait([task], timeout=LIMIT)
        if not done:
            watched.report(f"hangs: {LIMIT} s without an end")
            await asyncio.wait([asyncio.ensure_future(as_future(runner.stop()))], timeout=LIMIT)
        else:
            watched.report(repr(task.exception()) if task.exception() else "")


def a_runner(settings: dict[str, Any]) -> Any:
    try:
        from scrapy.crawler import AsyncCrawlerRunner
    except ImportError:  # before 2.14
        from scrapy.crawler import CrawlerRunner

        return CrawlerRunner(settings)
    return AsyncCrawlerRunner(settings)


def as_future(crawl: Any) -> Any:
    return maybe_deferred_to_future(crawl) if isinstance(crawl, Deferred) else crawl


def in_asyncio_reactor(main: Callable[[], Awaitable[None]]) -> None:
    install_reactor(ASYNCIO)
    from twisted.internet import reactor
    from twisted.internet.task import react

    react(lambda _: deferred_from_coro(main()), [], reactor)


def in_select_reactor(job: Job) -> None:
    """One by one too, with the Deferred-based runner and without asyncio."""
    install_reactor(SELECT)
    from scrapy.crawler import CrawlerRunner
    from twisted.internet import reactor, task

    @inlineCallbacks
    def main(_: Any) -> Generator[Any, Any, None]:
        for watched in all_watched(job):
            runner = CrawlerRunner(watched.settings)
            crawler = watched.watch(runner.create_crawler(watched.spider))
            yield runner.crawl(crawler, **watched.arguments)
            watched.report()

    task.react(main, [], reactor)


def together(job: Job) -> None:
    """All crawls at the same time, as a script with CrawlerProcess does it."""
    name = "CrawlerProcess" if job["mode"] == "process" else "AsyncCrawlerProcess"
    process = getattr(scrapy.crawler, name)(job["settings"])
    crawls = list(all_watched(job))
    for watched in crawls:
        process.crawl(watched.watch(process.create_crawler(watched.spider)), **watched.arguments)
    process.start()
    for watched in crawls:
        watched.report()


def main(file: str) -> None:
    job: Job = json.loads(Path(file).read_text())
    mode = job["mode"]
    if mode in ("process", "async_process"):
        together(job)
        return
    configure_logging(job["settings"])
    if mode == "reactorless":
        job["settings"]["TWISTED_REACTOR_ENABLED"] = False
        asyncio.run(one_by_one(job))
    elif mode == "select":
        job["settings"]["TWISTED_REACTOR"] = SELECT
        in_select_reactor(job)
    else:
        in_asyncio_reactor(lambda: one_by_one(job))


if __name__ == "__main__":
    main(sys.argv[1])
