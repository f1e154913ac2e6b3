"""Scrapy's requests as its disk queues keep them (dicts), as entries of a crawl, and back."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from types import MethodType
from typing import Any

from scrapy import Request
from scrapy.utils.httpobj import urlparse_cached

from scrapy_fleet.crawl.codec import find_class
from scrapy_fleet.crawl.scheduler import MAX_PRIORITY
from scrapy_fleet.errors import Unreadable
from scrapy_fleet.keys import key_of, seed_key_of
from scrapy_fleet.model import Entry
from scrapy_fleet.ops.home import Home
from scrapy_fleet.ops.jobdir.marshalled import unmarshal
from scrapy_fleet.ops.jobdir.reading import Queue, Record
from scrapy_fleet.ops.jobdir.unpickling import unpickle


def is_pickle(data: bytes) -> bool:
    return data[:1] == b"\x80"


def fields_of(data: bytes) -> dict[str, Any]:
    """What a queue wrote down of a request."""
    value = unpickle(data) if is_pickle(data) else unmarshal(data)
    if type(value) is not dict or type(value.get("url")) is not str:
        raise Unreadable("it is no request")
    return value


class Entries:
    """Makes entries of a crawl from the records of queues."""

    def __init__(self, home: Home, run: int) -> None:
        self._home = home
        self._run = run
        self._filtered = home.options.filtered
        self._seeds: Counter[bytes] = Counter()

    def request(self, record: Record) -> Request:
        """Raises Unreadable where it cannot be one."""
        return self._request(fields_of(record.data))

    def key(self, request: Request) -> int:
        """By which a request is known that is filtered."""
        return key_of(self._home.fingerprint(request))

    def entry(self, queue: Queue, record: Record, request: Request) -> Entry:
        """Raises Unstorable where it cannot be one."""
        return Entry(
            slot=slot_of(request),
            payload=self._home.codec.encode(request),
            priority=max(-MAX_PRIORITY, min(MAX_PRIORITY, queue.priority)),
            key=self._key(request, queue, record),
            seed=queue.seeds,
        )

    def _request(self, fields: dict[str, Any]) -> Request:
        try:
            name = fields.pop("_class", None)
            cls = Request if name is None else find_class(_path(name))
            values = {key: value for key, value in fields.items() if key in cls.attributes}
            for role in ("callback", "errback"):
                if values.get(role) is not None:
                    values[role] = self._method(values[role], role)
            return cls(**values)
        except Unreadable:
            raise
        except Exception as error:  # whatever Scrapy, or the class, says to damaged fields
            raise Unreadable(f"it cannot be made a request: {error!r}"[:200]) from None

    def _method(self, name: object, role: str) -> MethodType:
        function = self._home.codec.methods.get(name) if isinstance(name, str) else None
        if function is None:
            raise Unreadable(
                f"{role} {name!r:.80} is not a callback of {type(self._home.spider).__name__}; "
                "if the method was renamed, keep one with the old name"
            )
        return MethodType(function, self._home.spider)

    def _key(self, request: Request, queue: Queue, record: Record) -> int:
        """Requests that are not filtered get a key too, so that none is brought in twice: start requests
        the one by which the crawl itself knows them, others one of the record's own."""
        fingerprint: bytes = self._home.fingerprint(request)
        if self._filtered and not request.dont_filter:
            return key_of(fingerprint)
        if request.meta.get("is_start_request"):
            self._seeds[fingerprint] += 1
            return seed_key_of(fingerprint, self._run, self._seeds[fingerprint])
        told = b"%s\0%d\0" % (queue.name.encode("utf-8", "surrogateescape"), record.position)
        return key_of(blake2b(told + record.data, digest_size=8).digest())


def _path(name: object) -> str:
    module, _, cls = str(name).rpartition(".")
    return f"{module}:{cls}"


def slot_of(request: Request) -> str:
    """As Scrapy's downloader has it."""
    slot = request.meta.get("download_slot")
    return str(slot) if slot is not None else urlparse_cached(request).hostname or ""
