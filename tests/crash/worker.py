"""What runs in a worker process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from scrapy import Spider, signals
from scrapy.crawler import CrawlerProcess
from scrapy.settings import default_settings
from scrapy.utils.misc import load_object

import scrapy_fleet.crawl.scheduler
import scrapy_fleet.store.redis
import scrapy_fleet.store.sqlite  # noqa: F401


def load_all_that_scrapy_loads() -> None:
    """So that a worker forked from this process is there in a moment."""
    for name in ("DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS", "DOWNLOAD_HANDLERS"):
        parts: dict[str, Any] = getattr(default_settings, f"{name}_BASE")
        for part in parts.values() if name == "DOWNLOAD_HANDLERS" else parts:
            if "ftp" in part:  # with older Scrapys it brings a reactor, which the worker is to choose
                continue
            with contextlib.suppress(Exception):  # some are optional
                load_object(part)


load_all_that_scrapy_loads()


@dataclass
class Job:
    """A spider, what it is given, and the settings it runs with."""

    spider: type[Spider]
    settings: dict[str, Any]
    arguments: dict[str, Any] = field(default_factory=dict)
    skew: float = 0.0
    """How many seconds the clock of its machine is ahead."""


def work(job: Job, told: Connection) -> None:
    """Run a crawl; tell when it has joined, and how it ended."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if job.skew:
        now, now_ns = time.time, time.time_ns
        time.time = lambda: now() + job.skew
        time.time_ns = lambda: now_ns() + int(job.skew * 1e9)
    process = CrawlerProcess(job.settings)
    crawler = process.create_crawler(job.spider)

    def opened() -> None:
        told.send(("opened", None))

    def closed() -> None:
        assert crawler.stats is not None
        crawler.stats.set_value("ended_at", time.monotonic())

    crawler.signals.connect(opened, signals.spider_opened)
    crawler.signals.connect(closed, signals.spider_closed)
    process.crawl(crawler, **job.arguments)
    process.start()
    assert crawler.stats is not None
    stats = {name: value for name, value in crawler.stats.get_stats().items() if not hasattr(value, "year")}
    told.send(("ended", stats))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
