"""Tasks: data from outside that a spider turns into requests.

A task is an entry of the crawl like any other: it is leased, comes back when its worker dies, and ends
as *done* or *dead*. It is not handed to the engine. The spider makes requests of it, and these are stored
in the commit that settles it, or an earlier one: a task is gone only when its requests are there.
"""

from __future__ import annotations

import json
import logging
import math
import random
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator
from inspect import isawaitable
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from scrapy import Request
from scrapy.utils.defer import deferred_from_coro

from scrapy_fleet.errors import FleetError, Unreadable
from scrapy_fleet.model import TASKS, Lease, Outcome
from scrapy_fleet.pushing import TASK

if TYPE_CHECKING:
    from scrapy_fleet.crawl.scheduler import Scheduler
    from scrapy_fleet.store.base import Store

logger = logging.getLogger(__name__)

AT_ONCE = 100
"""So many requests of a task are made before Scrapy's loop has its turn again."""
WATCH = 0.02
"""Seconds between two looks for new tasks by all idle workers of a crawl together."""
BEATS = 1.0
"""Where a worker's turn to look would come less often than this, the beats of so many tell as much."""


class Task(Struct, frozen=True):
    """What a spider gets to make requests of."""

    data: bytes
    """As it was pushed."""
    priority: int = 0
    attempts: int = 0
    """How many workers died with it."""

    @property
    def text(self) -> str:
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise Unreadable(f"the task is not UTF-8: {error}") from None

    def json(self) -> Any:
        try:
            return json.loads(self.text)
        except ValueError as error:
            if isinstance(error, Unreadable):
                raise
            raise Unreadable(f"the task is no JSON: {error}") from None


def is_task(lease: Lease) -> bool:
    return lease.payload[:1] == TASK


class Tasks:
    """The tasks in this worker's hands."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.making: dict[Request, int] = {}
        """Requests that stand for the tasks whose requests are being made, and their leases. They never reach
        the engine; they are the parents of what is made."""
        self.look: Callable[[Store], int] = lambda store: store.waiting(TASKS)
        """Asked now and then, on the store's thread: how many tasks are there to be had."""
        self.wanted: Callable[[], bool] = self._is_idle
        """Whether to ask it."""
        self.longest = math.inf
        """The longest time between two looks of this worker."""

    # Making requests

    def begin(self, lease: Lease) -> None:
        """Have the spider make requests of a task."""
        scheduler = self._scheduler
        place = Request("data:,task")
        self.making[place] = lease.token
        scheduler.running.start(place, lease.token)
        task = Task(lease.payload[1:], lease.priority, lease.attempts)
        try:
            make = getattr(scheduler.spider, "make_requests", None)
            if make is None:
                raise Unreadable(
                    f"{type(scheduler.spider).__name__} takes no tasks: it has no make_requests(task). "
                    "Make it a scrapy_fleet.FleetSpider"
                )
            made = make(task)
            if isinstance(made, AsyncIterable) or isawaitable(made):
                deferred_from_coro(self._draw_async(place, task, made))
                return
            requests = _each(made)
        except Exception as error:
            self._fail(place, task, error)
        else:
            self._draw(place, task, requests)

    def _draw(self, place: Request, task: Task, requests: Iterator[Any]) -> None:
        scheduler = self._scheduler
        if not self._is_ours(place) or scheduler.frontier is None:
            return
        if scheduler.frontier.congested:
            scheduler.loop.later(0.05, lambda: self._draw(place, task, requests))
            return
        try:
            some = list(islice(requests, AT_ONCE))
            self._store(place, some)
        except Exception as error:
            self._fail(place, task, error)
            return
        if len(some) < AT_ONCE:
            self._end(place)
        else:
            scheduler.loop.later(0, lambda: self._draw(place, task, requests))

    async def _draw_async(
        self, place: Request, task: Task, made: AsyncIterable[Any] | Awaitable[Any]
    ) -> None:
        some: list[Any] = []
        try:
            if isinstance(made, AsyncIterable):
                async for each in made:
                    some.append(each)
                    if len(some) >= AT_ONCE and self._is_ours(place):
                        self._store(place, some)
                        some = []
            else:
                some = list(_each(await made))
            if self._is_ours(place):
                self._store(place, some)
                self._end(place)
        except Exception as error:
            if self._is_ours(place):
                self._fail(place, task, error)

    def _store(self, place: Request, some: list[Any]) -> None:
        for each in some:
            if not isinstance(each, Request):
                raise TypeError(f"a task gives requests, not {type(each).__name__}")
        engine = self._scheduler.crawler.engine
        assert engine is not None
        for request in some:
            self._scheduler.parents.note(request, place)
            engine.crawl(request)

    def _is_ours(self, place: Request) -> bool:
        """Whether the lease is still held; if not, another worker makes the same requests."""
        if self._scheduler.is_over:
            return False  # it stays among those that are being made, and goes back when the worker leaves
        frontier = self._scheduler.frontier
        token = self.making.get(place)
        if token is not None and frontier is not None and frontier.lease(token) is not None:
            return True
        self.making.pop(place, None)
        return False

    def _end(self, place: Request) -> None:
        assert self._scheduler.frontier is not None
        del self.making[place]
        self._count("fleet/tasks/done")
        for outcome in self._scheduler.running.end(place):
            self._scheduler.frontier.settle(outcome)

    def _fail(self, place: Request, task: Task, error: Exception) -> None:
        """Only this task is lost, and it is kept: ``scrapy fleet dead``."""
        assert self._scheduler.frontier is not None
        reason = str(error) if isinstance(error, FleetError) else f"{type(error).__name__}: {error}"
        reason = reason[:1000]
        logger.error(
            "No requests can be made of a task; it is kept as dead. %s. The task: %s",
            *(reason, shown(task.data)),
            exc_info=None if isinstance(error, FleetError | UnicodeError) else error,
        )
        self._count("fleet/tasks/dead")
        token = self.making.pop(place)
        self._scheduler.running.forget(place)
        self._scheduler.frontier.settle(Outcome(token, dead=reason))

    def _count(self, name: str) -> None:
        assert self._scheduler.crawler.stats is not None
        self._scheduler.crawler.stats.inc_value(name)

    # Looking for tasks

    def watch(self) -> None:
        """Look for tasks again and again, if the spider takes any."""
        if hasattr(self._scheduler.spider, "make_requests"):
            self._scheduler.loop.later(random.random() * WATCH, self._look)

    @property
    def beats_tell(self) -> bool:
        frontier = self._scheduler.frontier
        return frontier is not None and WATCH * frontier.workers >= BEATS

    def _is_idle(self) -> bool:
        frontier = self._scheduler.frontier
        idle = frontier is not None and frontier.timing.hungry and not frontier.held_back
        return idle and not self.beats_tell

    def _look(self) -> None:
        scheduler = self._scheduler
        if scheduler.is_over or scheduler.frontier is None:
            return
        if self.wanted():
            scheduler.frontier.ask(self.look, self._found)
        else:
            self._look_later()

    def _found(self, number: int | None) -> None:
        frontier = self._scheduler.frontier
        if number and frontier is not None:
            frontier.timing.look()
        self._look_later(soon=bool(number))

    def _look_later(self, *, soon: bool = False) -> None:
        frontier = self._scheduler.frontier
        if frontier is not None:
            wait = WATCH if soon else min(self.longest, WATCH * max(1, frontier.workers))
            self._scheduler.loop.later(wait, self._look)


def _each(made: Any) -> Iterator[Any]:
    """Requests, one request, or nothing."""
    if made is None:
        return iter(())
    return iter(made) if isinstance(made, Iterable) else iter([made])


def shown(data: bytes) -> str:
    """A task for people."""
    text = data.decode("utf-8", "backslashreplace")
    return text if len(text) <= 200 else f"{text[:200]}..."
