"""Seeds run once per crawl, not once per worker, and not again when it is resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

from scrapy import Request
from scrapy.utils.defer import maybe_deferred_to_future
from twisted.internet.defer import Deferred

from scrapy_fleet.crawl.seam import scheduler_of
from scrapy_fleet.model import Seeding

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_fleet.crawl.scheduler import Scheduler


class SeedCounts:
    """Tells equal seeds apart: ``start()`` may well give one twice, and means it.

    Only among the last many, so that its memory is bounded.
    """

    HALF = 50_000

    def __init__(self) -> None:
        self._recent: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}

    def next(self, fingerprint: bytes) -> int:
        """How often this one has come, with this time."""
        count = 1 + (self._recent.get(fingerprint) or self._older.get(fingerprint, 0))
        self._recent[fingerprint] = count
        if len(self._recent) >= self.HALF:
            self._recent, self._older = {}, self._recent
        return count


class SeedsMiddleware:
    """Spider middleware, next to the engine: lets ``start()`` run on the worker that holds the seeding.

    The others wait: until the seeds are in, or until that worker has died and the seeding is theirs.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> SeedsMiddleware:
        return cls(crawler)

    async def process_start(self, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        scheduler = scheduler_of(self.crawler)
        if scheduler is None:
            async for each in start:
                yield each
            return
        if scheduler.frontier is None or scheduler.failure is not None:
            return
        while scheduler.frontier.seeding is Seeding.OTHER and not scheduler.frontier.emptied_once:
            changed: Deferred[None] = Deferred()
            scheduler.frontier.on_seeding.append(partial(changed.callback, None))
            await maybe_deferred_to_future(changed)
        if scheduler.frontier.seeding is Seeding.MINE and not scheduler.frontier.emptied_once:
            async for each in self._seeds(scheduler, start):
                yield each

    async def _seeds(self, scheduler: Scheduler, start: AsyncIterator[Any]) -> AsyncIterator[Any]:
        assert scheduler.frontier is not None
        try:
            async for each in start:
                if isinstance(each, Request):
                    scheduler.seeds.add(each)
                yield each
                while scheduler.frontier.congested:
                    await maybe_deferred_to_future(scheduler.loop.pause(0.05))
        except Exception:
            scheduler.seeds_failed()
            raise
        scheduler.seeds_done()
