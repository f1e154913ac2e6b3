"""Brings tasks from a producers' key into the crawl, whenever there is room.

Where the key is on the crawl's own server, one script moves them: they are in one place or the other,
whatever happens. Else they are read, pushed, and removed, by one worker at a time: a worker that dies
between the last two brings some of them twice.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.crawl.seam import scheduler_of
from scrapy_fleet.crawl.tasks import WATCH
from scrapy_fleet.errors import FleetError, StoreAway
from scrapy_fleet.model import TASKS
from scrapy_fleet.pushing import TASK, task_entry
from scrapy_fleet.scrapy_redis.connection import fleet_url

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

    from scrapy_fleet.crawl.scheduler import Scheduler
    from scrapy_fleet.scrapy_redis.spiders import RedisMixin
    from scrapy_fleet.store.base import Store

logger = logging.getLogger(__name__)

STOCK, FULL = 4, 64
"""How many batches may wait in the crawl, for each of its workers: while there is enough to do, and while the
hosts of what waits cannot be asked now."""
LONGEST = 2.0
"""Seconds between two looks of one worker, at most: in a large fleet others may be too busy to look."""
OWN_WAY = 1.0
"""Seconds between two calls of a project's own ``fetch_data`` or ``next_requests`` that gave nothing."""
TELL_EVERY = 60.0
ALONE = 10_000
"""Milliseconds for which one worker reads a key on another server alone."""


class Feeder:
    def __init__(self, spider: RedisMixin, crawler: Crawler) -> None:
        self._spider = spider
        self._crawler = crawler
        self._scheduler: Scheduler | None = None
        self._moves = False
        self._told_at = 0.0

    def open(self) -> None:
        """The spider is open, and has joined its crawl."""
        scheduler = scheduler_of(self._crawler)
        if scheduler is None or scheduler.is_over or scheduler.frontier is None:
            return
        self._scheduler = scheduler
        url = fleet_settings.of(self._crawler).url or ""
        self._moves = "+cluster" not in url and url == fleet_url(self._crawler.settings)
        if self._takes_its_own_way():
            self._pull()
        else:
            tasks = scheduler.tasks
            tasks.wanted, tasks.look, tasks.longest = self._is_room, self._look, LONGEST

    def _is_room(self) -> bool:
        assert self._scheduler is not None
        frontier = self._scheduler.frontier
        if frontier is None or frontier.held_back:
            return False
        batches = FULL if frontier.timing.hungry else STOCK
        most: int = batches * self._spider.redis_batch_size * max(1, frontier.workers)
        return frontier.counts.waiting < most

    # On the store's thread

    def _look(self, store: Store) -> int:
        """Move some; how many tasks there are now."""
        try:
            moved = self._move(store)
        except StoreAway:
            raise  # it is tried again
        except (FleetError, RedisError, OSError) as error:
            if time.monotonic() - self._told_at > TELL_EVERY:
                self._told_at = time.monotonic()
                logger.error("No tasks can be read from %r: %s", self._spider.redis_key, error)
            moved = 0
        assert self._scheduler is not None
        return moved or (0 if self._scheduler.tasks.beats_tell else store.waiting(TASKS))

    def _move(self, store: Store) -> int:
        key, room = self._spider.redis_key, self._spider.redis_batch_size
        if self._moves:
            draw: Any = getattr(store, "draw", None)
            if draw is not None:
                return int(draw(key, room, TASK))
        server = self._spider.server
        kind = server.type(key)
        if kind in (b"none", "none"):
            return 0
        room -= store.waiting(TASKS)
        lock = f"{key}:fleet-reader"
        if room < 1 or not server.set(lock, "1", nx=True, px=ALONE):
            return 0
        try:
            found, remove = _peek(server, key, kind if isinstance(kind, str) else kind.decode(), room)
            tasks = [
                each.encode(self._spider.redis_encoding) if isinstance(each, str) else each for each in found
            ]
            store.push(tuple(map(task_entry, tasks)))
            remove()
            return len(tasks)
        finally:
            server.delete(lock)

    # Projects that read in their own way

    def _takes_its_own_way(self) -> bool:
        """Whether the project has its own ``fetch_data`` or ``next_requests``: then these are called."""
        spider, own = self._spider, _ours()
        fetch = spider.fetch_data
        pops = getattr(fetch, "__self__", None) is spider.server and getattr(fetch, "__name__", "") == "spop"
        names = ("next_requests", "pop_list_queue", "pop_priority_queue", "schedule_next_requests")
        known = pops or getattr(fetch, "__func__", None) in own
        return not known or any(getattr(getattr(spider, name), "__func__", None) not in own for name in names)

    def _pull(self) -> None:
        """What these give is in this worker's hands until the next commit: lost if it is killed before."""
        scheduler, spider = self._scheduler, self._spider
        assert scheduler is not None
        if scheduler.is_over or scheduler.frontier is None:
            return
        found = 0
        if self._is_room():
            try:
                before = scheduler.frontier.outbox.size
                if getattr(spider.schedule_next_requests, "__func__", None) not in _ours() or (
                    getattr(spider.next_requests, "__func__", None) not in _ours()
                ):
                    spider.schedule_next_requests()
                    found = scheduler.frontier.outbox.size - before
                else:
                    for data in spider.fetch_data(spider.redis_key, spider.redis_batch_size) or ():
                        task = data.encode(spider.redis_encoding) if isinstance(data, str) else data
                        scheduler.frontier.add(task_entry(task))
                        found += 1
            except Exception:
                logger.exception("Reading tasks from %r failed.", spider.redis_key)
        scheduler.loop.later(WATCH if found > 0 else OWN_WAY, self._pull)


def _peek(server: Any, key: str, kind: str, room: int) -> tuple[list[Any], Any]:
    """Up to so many tasks, and how to remove them."""
    if kind == "list":
        found = server.lrange(key, 0, room - 1)
        return found, lambda: _remove(server, key, found)
    if kind == "set":
        found = server.srandmember(key, room)
        return found, lambda: server.srem(key, *found)
    if kind == "zset":
        found = server.zrevrange(key, 0, room - 1)
        return found, lambda: server.zrem(key, *found)
    raise FleetError(f"it is a {kind}; tasks are read from a list, set or sorted set")


def _remove(server: Any, key: str, found: list[Any]) -> None:
    """By value, not by number: should another have read them meanwhile, no others are removed."""
    with server.pipeline(transaction=False) as pipe:
        for each in found:
            pipe.lrem(key, 1, each)
        pipe.execute()


def _ours() -> set[Any]:
    from scrapy_fleet.scrapy_redis.spiders import RedisMixin

    names = ("fetch_data", "next_requests", "pop_list_queue", "pop_priority_queue", "schedule_next_requests")
    return {vars(RedisMixin)[name] for name in names}
