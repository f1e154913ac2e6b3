"""Lists and hashes for other programs: written with the crawl's commits where they are on its server, else
by a thread that waits for their server."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from redis import exceptions

from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.crawl.seam import scheduler_of
from scrapy_fleet.errors import FleetError
from scrapy_fleet.model import Beside
from scrapy_fleet.scrapy_redis.connection import fleet_url
from scrapy_fleet.store.redis.address import SCHEMES, connect

if TYPE_CHECKING:
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

    from scrapy_fleet.crawl.scheduler import Scheduler

logger = logging.getLogger(__name__)

AT_ONCE = 500
LONGEST_PAUSE = 2.0
TELL_EVERY = 60.0
_PASSES = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    OSError,
)
"""Errors after which it is worth trying again."""

Told = Callable[[Exception | None], None]


def with_commits(crawler: Crawler) -> Scheduler | None:
    """The scheduler whose commits can write to the server that the settings name: it is the crawl's own.

    In a cluster each key may be on another node, and a commit reaches only that of the crawl.
    """
    scheduler = scheduler_of(crawler)
    if scheduler is None or scheduler.frontier is None:
        return None
    try:
        same = is_same_server(fleet_settings.of(crawler).url or "", crawler.settings)
    except FleetError:
        return None
    return scheduler if same else None


def is_same_server(url: str, settings: BaseSettings) -> bool:
    """Whether a commit to this ``FLEET_URL`` reaches the keys of the server that ``REDIS_URL`` names."""
    theirs = fleet_url(settings)
    if "+cluster" in url or "+cluster" in theirs:
        return False
    return url == theirs or (_place(url) is not None and _place(url) == _place(theirs))


def _place(url: str) -> tuple[object, ...] | None:
    scheme = url.partition(":")[0]
    if scheme not in SCHEMES or "+" in scheme:
        return None
    known = connect(url, url).connection_pool.connection_kwargs
    host = known.get("host")
    return (
        known.get("path"),
        "127.0.0.1" if host == "localhost" else host,
        known.get("port"),
        known.get("db") or 0,
    )


class Courier:
    """Writes from a thread of its own, many things at a time; while the server is away, it tries again."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._queue: queue.SimpleQueue[tuple[Beside, Told] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._told_at = -TELL_EVERY

    def send(self, beside: Beside, told: Told) -> None:
        """``told`` is called in that thread: with None when it is written, or with why it cannot be."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="scrapy-fleet-beside", daemon=True)
            self._thread.start()
        self._queue.put((beside, told))

    def close(self, wait: float = 0.0) -> None:
        """No more will come; wait so many seconds for what was sent."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(wait)
            self._thread = None

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            jobs = [job]
            while len(jobs) < AT_ONCE and not self._queue.empty():
                if (more := self._queue.get()) is None:
                    self._queue.put(None)
                    break
                jobs.append(more)
            self._deliver(jobs)

    def _deliver(self, jobs: list[tuple[Beside, Told]]) -> None:
        pause = 0.05
        while jobs:
            results = attempt(self._server, [beside for beside, _ in jobs])
            left: list[tuple[Beside, Told]] = []
            for job, error in zip(jobs, results, strict=True):
                if isinstance(error, _PASSES):
                    left.append(job)
                else:
                    job[1](error)
            jobs = left
            if jobs:
                self._say(next(error for error in results if isinstance(error, _PASSES)), len(jobs))
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _say(self, error: Exception, number: int) -> None:
        if time.monotonic() - self._told_at >= TELL_EVERY:
            self._told_at = time.monotonic()
            logger.warning(
                "The server of REDIS_URL cannot be used now (%s). %d writings wait for it; nothing is lost.",
                *(error, number),
            )


def attempt(server: Any, besides: Iterable[Beside]) -> list[Exception | None]:
    """Write what can be written; of each, None or why it could not be."""
    besides = list(besides)
    try:
        with server.pipeline(transaction=False) as pipe:
            for beside in besides:
                _order(pipe, server, beside)
            answers = pipe.execute(raise_on_error=False)
    except (exceptions.RedisError, OSError) as error:
        return [error] * len(besides)
    return [answer if isinstance(answer, Exception) else None for answer in answers]


def _order(pipe: Any, server: Any, beside: Beside) -> None:
    key, field, value = beside.key, beside.field, beside.value
    if beside.do == "push":
        pipe.rpush(key, value)
    elif beside.do == "add":
        pipe.hincrbyfloat(key, field, float(value))
    else:
        if beside.do != "put":
            there = _number(server.hget(key, field))
            chosen = max if beside.do == "most" else min
            if there is not None and chosen(there, float(value)) == there:
                pipe.hlen(key)  # it stays as it is
                return
        pipe.hset(key, field, value)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
