"""Spiders whose requests wait in queues of the user's own, and such queues."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.http import Response

from scrapy_fleet import SerializationError, TransientError
from tests.spiders.base import SiteSpider, show

PRIORITY_QUEUES = ("ScrapyPriorityQueue", "DownloaderAwarePriorityQueue")


class Mine:
    """Somewhere else: it outlives the crawl, and forgets nothing."""

    places: ClassVar[dict[str, deque[Request]]] = {}
    calls: ClassVar[Counter[str]] = Counter()

    @classmethod
    def from_crawler(cls, crawler: Crawler, key: str) -> Mine:
        crawler.stats.inc_value(f"key {key}")  # type: ignore[union-attr]
        return cls(key)

    def __init__(self, key: str) -> None:
        self.key = key
        self.place = self.places.setdefault(key, deque())

    def count(self, call: str) -> int:
        """How often this has been done in this crawl."""
        name = f"{self.key.partition('/requests.queue')[0]} {type(self).__name__} {call}"
        self.calls[name] += 1
        return self.calls[name]

    def push(self, request: Request) -> None:
        self.place.append(request.replace(callback=None))

    def pop(self) -> Request | None:
        return self.place.popleft() if self.place else None

    def close(self) -> None:
        pass

    def __len__(self) -> int:
        return len(self.place)


class OftenAway(Mine):
    """Takes every other request, gives nothing at first, and now and then."""

    def push(self, request: Request) -> None:
        if self.count("push") % 2 == 0:
            raise TransientError("It is away.")
        super().push(request)

    def pop(self) -> Request | None:
        number = self.count("pop")
        return super().pop() if number > 2 and number % 5 else None


class Particular(Mine):
    """Some requests are too much for it."""

    def push(self, request: Request) -> None:
        if "r.1" in request.url:
            raise SerializationError("It has a 1 in it.")
        if "r.2" in request.url:
            raise ValueError("As Scrapy's own queues say it.")
        super().push(request)


class BreaksAtPush(Mine):
    def push(self, request: Request) -> None:
        if self.count("push") == 6:
            raise RuntimeError("The sixth is too much.")
        super().push(request)


class BreaksAtPop(Mine):
    def pop(self) -> Request | None:
        if self.count("pop") == 6:
            raise RuntimeError("The sixth is too much.")
        return super().pop()


class BreaksAtLength(Mine):
    def __len__(self) -> int:
        if self.count("len") > 20:
            raise RuntimeError("Who can count so far?")
        return super().__len__()


class WithoutKeys(Mine):
    def __init__(self, key: str) -> None:
        raise ValueError(f"{key} is no key of mine.")


class WithoutPriorities(Mine):
    def __init__(self, key: str) -> None:
        if key.endswith("/-1"):
            raise ValueError(f"{key} is no key of mine.")
        super().__init__(key)


class Tree(SiteSpider):
    """Forty pages, each with one link to it."""

    name = "tree"
    start_paths = ["/tree/r"]

    def parse(self, response: Response) -> Iterator[Any]:
        yield show(response)
        yield from self.follow(response, priority=1 if response.url.endswith("r.3.3") else 0)


def named(name: str, queue: Any, **settings: Any) -> type[Tree]:
    queue = queue if isinstance(queue, str) else f"{__name__}.{queue.__name__}"
    custom = {"SCHEDULER_DISK_QUEUE": queue, "CONCURRENT_REQUESTS": 4, **settings}
    return type(name, (Tree,), {"name": name, "custom_settings": custom, "__module__": __name__})


PLAIN = [
    named(f"mine_{kind}", Mine, SCHEDULER_PRIORITY_QUEUE=f"scrapy.pqueues.{kind}") for kind in PRIORITY_QUEUES
]
TROUBLED = [
    named(f"often_away_{kind}", OftenAway, SCHEDULER_PRIORITY_QUEUE=f"scrapy.pqueues.{kind}")
    for kind in PRIORITY_QUEUES
]
PARTICULAR = named("particular", Particular)
BROKEN = [
    named(f"crawl_{queue.__name__}", queue, JOBDIR=f"job-{queue.__name__}")
    for queue in (BreaksAtPush, BreaksAtPop, BreaksAtLength, WithoutPriorities)
]
MENDED = [
    named(f"{spider.name}_mended", Mine, JOBDIR=str((spider.custom_settings or {})["JOBDIR"]))
    for spider in BROKEN
]
WITHOUT_KEYS = named("without_keys", WithoutKeys)
NO_QUEUE = named("no_queue", "collections.Counter")
NOWHERE = named("nowhere", "tests.spiders.queues.Nowhere")
AGAIN = named("again", Mine)

CRAWLS = [
    *(*PLAIN, *TROUBLED, PARTICULAR, WITHOUT_KEYS, NO_QUEUE, NOWHERE, AGAIN, AGAIN),
    *(spider for pair in zip(BROKEN, MENDED, strict=True) for spider in pair),
]
globals().update({spider.__name__: spider for spider in CRAWLS})

# The order that results from settings

HOLD_UP = "/slow/300"
"""While it is fetched, everything else arrives."""


class Probe(SiteSpider):
    """Links and start requests that all wait at the same time."""

    start_paths = []

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Probe:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.links_are_there = asyncio.Event()
        crawler.signals.connect(spider.scheduled, signals.request_scheduled)
        return spider

    def scheduled(self, request: Request) -> None:
        if request.url.endswith("/leaf/c"):
            self.links_are_there.set()

    async def start(self) -> AsyncIterator[Any]:
        yield self.get("/leaf/first", self.links)
        await self.links_are_there.wait()
        for name in ("s1", "s2", "s3"):
            yield self.get(f"/leaf/{name}", self.parse, dont_filter=True)

    def links(self, response: Response) -> Iterator[Any]:
        yield self.get(HOLD_UP, priority=1000)
        for name, priority in (("a", 0), ("b", 0), ("high", 5), ("c", 0)):
            yield self.get(f"/leaf/{name}", priority=priority)

    def parse(self, response: Response) -> Any:
        return show(response)


LIFO, FIFO, MIXED = "high c b a, s1 s2 s3", "high a b c, s1 s2 s3", "high s3 s2 s1 c b a"
ROWS: dict[tuple[str, ...], str] = {
    (): LIFO,
    ('SCHEDULER_MEMORY_QUEUE = "scrapy.squeues.FifoMemoryQueue"',): FIFO,
    ('SCHEDULER_DISK_QUEUE = "scrapy.squeues.PickleFifoDiskQueue"',): LIFO,
    ('JOBDIR = "job"', 'SCHEDULER_DISK_QUEUE = "scrapy.squeues.PickleFifoDiskQueue"'): FIFO,
    ('JOBDIR = "job"', 'SCHEDULER_MEMORY_QUEUE = "scrapy.squeues.FifoMemoryQueue"'): LIFO,
    ('FLEET_ORDER = "fifo"',): FIFO,
    ("SCHEDULER_START_MEMORY_QUEUE = None",): MIXED,
    ('JOBDIR = "job"', "SCHEDULER_START_DISK_QUEUE = None"): MIXED,
    ('SCHEDULER_PRIORITY_QUEUE = "scrapy.pqueues.ScrapyPriorityQueue"',): LIFO,
    ('SCHEDULER_DISK_QUEUE = "scrapy_fleet.queues.SqliteFifoQueue"',): FIFO,
    (
        'SCHEDULER_DISK_QUEUE = "scrapy_fleet.queues.SqliteLifoQueue"',
        'SCHEDULER_START_DISK_QUEUE = "scrapy_fleet.queues.SqliteFifoQueue"',
    ): LIFO,
}
"""Settings, and the order in which links (a, b, c, high) and start requests (s1 to s3) go out."""


def settings_of(row: tuple[str, ...]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    exec("\n".join(row), {}, settings)
    return settings


PROBES = [
    type(
        f"Probe{number}",
        (Probe,),
        {
            "name": f"probe_{number}",
            "__module__": __name__,
            "own_place": True,
            "custom_settings": {
                "CONCURRENT_REQUESTS": 1,
                **settings_of(row),
                **({"JOBDIR": f"job-{number}"} if any("JOBDIR" in line for line in row) else {}),
            },
        },
    )
    for number, row in enumerate(ROWS)
]
globals().update({spider.__name__: spider for spider in PROBES})
