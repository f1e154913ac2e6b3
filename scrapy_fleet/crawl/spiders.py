"""A spider that is fed with tasks."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterable, Awaitable, Iterable
from typing import TYPE_CHECKING, Any

from scrapy import Request, Spider, signals
from scrapy.exceptions import DontCloseSpider

from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.crawl.callbacks import callback_of
from scrapy_fleet.crawl.plain import a_kind
from scrapy_fleet.crawl.seam import scheduler_of
from scrapy_fleet.crawl.tasks import Task
from scrapy_fleet.errors import Unreadable

if TYPE_CHECKING:
    from typing import Self

    from scrapy.crawler import Crawler

Made = Request | Iterable[Request] | AsyncIterable[Request] | Awaitable[Any] | None
"""What may come of a task."""

FIELDS: dict[str, type | tuple[type, ...]] = {
    "url": str,
    "method": str,
    "headers": dict,
    "cookies": (dict, list),
    "body": str,
    "body_base64": str,
    "json": object,
    "meta": dict,
    "cb_kwargs": dict,
    "priority": int,
    "callback": str,
    "errback": str,
    "dont_filter": bool,
    "encoding": str,
}
"""What a task that is a whole request may say, and the type that it must have."""


class Idle:
    """For how long there has been nothing to do in the whole crawl."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._last: object = None
        self._since = 0.0

    def restart(self) -> None:
        """There is something to do after all."""
        self._since = 0.0

    def seconds(self) -> float:
        """To be asked when Scrapy is idle, now and then."""
        scheduler = scheduler_of(self._crawler)
        frontier = scheduler.frontier if scheduler is not None else None
        counts = frontier.counts if frontier is not None else None
        state = None if counts is None else (counts.accepted, counts.done, counts.dead)
        if state != self._last or not self._since:
            # Something happened since it was asked last.
            self._last, self._since = state, time.monotonic()
        return time.monotonic() - self._since


def request_of(task: Task, spider: Spider) -> Request:
    """The request that a task is: a URL, or a JSON object with the fields of a request."""
    text = task.text.strip()
    if not text.startswith(("{", "[", '"')):
        if "://" not in text:
            raise Unreadable(f"the task is neither a URL nor a JSON object: {text[:200]!r}")
        return Request(text, dont_filter=True, priority=task.priority)
    fields = task.json()
    if not isinstance(fields, dict):
        raise Unreadable(f"the task is {a_kind(type(fields))}; it must be a URL or a JSON object")
    for name, value in fields.items():
        if name not in FIELDS:
            raise Unreadable(f"the task has the unknown field {name!r}; there are {', '.join(FIELDS)}")
        if not isinstance(value, FIELDS[name]):
            raise Unreadable(f"{name} of the task is {a_kind(type(value))}")
    if not fields.get("url"):
        raise Unreadable("the task has no url")
    return _request(fields, task, spider)


def _request(fields: dict[str, Any], task: Task, spider: Spider) -> Request:
    values: dict[str, Any] = {"priority": task.priority, "dont_filter": True, **fields}
    for name in ("callback", "errback"):
        if name in values:
            values[name] = callback_of(spider, values[name])
    bodies = [name for name in ("body", "body_base64", "json") if name in values]
    if len(bodies) > 1:
        raise Unreadable(f"the task has {' and '.join(bodies)}: only one of them can be the body")
    if "body_base64" in values:
        try:
            values["body"] = base64.b64decode(values.pop("body_base64"), validate=True)
        except ValueError as error:
            raise Unreadable(f"body_base64 of the task cannot be decoded: {error}") from None
    if "json" in values:
        from scrapy.http import JsonRequest

        return JsonRequest(data=values.pop("json"), **values)
    return Request(**values)


class FleetSpider(Spider):
    """A spider whose work comes as tasks, from ``scrapy fleet push``, on any store.

    It stays when there is nothing to do, until nothing has come for ``max_idle_time`` seconds (0: for ever).
    ``start_urls`` and ``start()`` run once per crawl, as with every spider.
    """

    max_idle_time: float | None = None
    """Unset: as ``FLEET_MAX_IDLE_TIME`` says."""

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider._idle = Idle(crawler)
        crawler.signals.connect(spider.spider_idle, signals.spider_idle)
        return spider

    _idle: Idle

    def make_requests(self, task: Task) -> Made:
        """The requests that a task stands for: one, several (also from a generator, also an
        asynchronous one), or None. What it raises makes the task *dead*, with the reason.

        As it is here, a task is a URL or a JSON object with the fields of a request: ``url``,
        ``method``, ``headers``, ``cookies``, ``body`` (or ``body_base64``, or ``json``), ``meta``,
        ``cb_kwargs``, ``priority``, ``callback`` and ``errback`` (names of methods), ``dont_filter``
        (true if left out), ``encoding``.
        """
        return request_of(task, self)

    def spider_idle(self) -> None:
        """There is nothing to do in the whole crawl."""
        if scheduler_of(self.crawler) is None:
            told = 'No tasks are taken without the add-on: set ADDONS = {"scrapy_fleet.Addon": 500}.'
            self.logger.warning(told)
            return
        patience = self.max_idle_time
        if patience is None:
            patience = fleet_settings.of(self.crawler).max_idle_time
        if not float(patience) or self._idle.seconds() < float(patience):
            raise DontCloseSpider
