"""Job directories as Scrapy's own classes write them, without a crawl."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scrapy import Request, Spider, squeues
from scrapy.crawler import Crawler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.pqueues import DownloaderAwarePriorityQueue, ScrapyPriorityQueue
from scrapy.utils.misc import load_object

from scrapy_fleet.ops.jobdir.requests import slot_of

ALL_KINDS = [
    "PickleLifoDiskQueue",
    "PickleFifoDiskQueue",
    "MarshalLifoDiskQueue",
    "MarshalFifoDiskQueue",
    "PickleLifoSQLiteQueue",
    "PickleFifoSQLiteQueue",
]
KINDS = [kind for kind in ALL_KINDS if hasattr(squeues, kind)]
"""Those that this Scrapy has."""


class Books(Spider):
    name = "books"

    def parse_book(self, response: Any) -> None: ...

    def failed(self, failure: Any) -> None: ...


SPIDER = Books()


class StockJob:
    """The queues, the filter and the state of stock Scrapy, in a folder."""

    def __init__(self, folder: Path, kind: str = KINDS[0], *, by_slot: bool = True) -> None:
        self.folder = folder
        self.crawler: Crawler = Crawler(Books, {"SCHEDULER_DISK_QUEUE": f"scrapy.squeues.{kind}"})
        self.crawler.spider = SPIDER
        self.crawler.engine = SimpleNamespace(  # type: ignore[assignment]
            downloader=SimpleNamespace(get_slot_key=slot_of, slots={})
        )
        self._class = DownloaderAwarePriorityQueue if by_slot else ScrapyPriorityQueue
        self._queue_class = load_object(f"scrapy.squeues.{kind}")
        self._start_class = load_object(f"scrapy.squeues.{kind.replace('Lifo', 'Fifo')}")
        folder.mkdir(parents=True, exist_ok=True)
        self.queue = self._open()
        self.filter = RFPDupeFilter(str(folder))

    def _open(self) -> Any:
        key = self.folder / "requests.queue"
        key.mkdir(exist_ok=True)
        active = key / "active.json"
        state = json.loads(active.read_text()) if active.exists() else None
        return self._class.from_crawler(
            self.crawler, self._queue_class, str(key), state, start_queue_cls=self._start_class
        )

    def push(self, requests: Iterable[Request]) -> None:
        for request in requests:
            if request.dont_filter or not self.filter.request_seen(request):
                self.queue.push(request)

    def pop(self) -> Request | None:
        found: Request | None = self.queue.pop()
        return found

    def pop_all(self) -> list[str]:
        """What it gives, in order, until it is empty."""
        found = []
        while (request := self.pop()) is not None:
            found.append(request.url)
        return found

    def close(self, state: Any = None) -> None:
        """As a clean stop leaves it."""
        active = self.queue.close()
        (self.folder / "requests.queue" / "active.json").write_text(json.dumps(active))
        self.filter.close("finished")
        (self.folder / "spider.state").write_bytes(pickle.dumps(state or {}, protocol=4))

    def crash(self) -> None:
        """As a kill leaves it, with all on the disk that had been handed to the system."""
        queues = self.queue.pqueues.values() if hasattr(self.queue, "pqueues") else [self.queue]
        for each in queues:
            for queue in (*each.queues.values(), *each._start_queues.values()):
                for name in ("f", "headf"):
                    if hasattr(queue, name):
                        getattr(queue, name).flush()
        if self.filter.file is not None:
            self.filter.file.flush()


def requests(count: int = 12, *, hosts: int = 2) -> list[Request]:
    """Of several hosts and priorities, with all that plain data can be."""
    return [
        Request(
            f"https://host{number % hosts}.example/page/{number}",
            callback=SPIDER.parse_book if number % 3 else None,
            errback=SPIDER.failed if number % 4 == 0 else None,
            priority=number % 3 - 1,
            dont_filter=number % 5 == 0,
            headers={"X-Number": str(number)},
            cookies={"a": "b"} if number % 2 else None,
            meta={"depth": number, "list": [1, 2.5, None, True], "text": "\N{SNOWMAN}"},
            cb_kwargs={"n": number},
        )
        for number in range(count)
    ]
