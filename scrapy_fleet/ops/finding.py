"""Finds a URL among the entries of a crawl, by the fingerprint that the crawl itself uses."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from msgspec import Struct
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http.request import NO_CALLBACK
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.request import RequestFingerprinter

from scrapy_fleet.crawl.codec import Codec, describe
from scrapy_fleet.errors import FleetError
from scrapy_fleet.keys import key_of, seed_key_of
from scrapy_fleet.model import Kind, Row
from scrapy_fleet.ops.place import is_drop_in

if TYPE_CHECKING:
    from scrapy_fleet.store.base import Store

PAGE = 5000
OVERLAP = 1000
MANY_LEASES = 1_000_000
MANY_SLOTS = 1000


class Found(Struct, frozen=True):
    state: Kind
    row: Row
    dont_filter: bool
    behind: int | None = None
    """How many of its slot come before it, if it waits."""


# What the crawl calls the same request


def crawler_of(settings: BaseSettings | None, crawl: str) -> Crawler:
    """A crawler with the settings of the project, and of the spider with the crawl's name if there is one."""
    own = Settings() if settings is None else settings.copy()
    try:
        crawler = Crawler(_spider(own, crawl), Settings(own))
        crawler.addons.load_settings(crawler.settings)  # an add-on may bring its own
    except Exception as error:  # whatever a project's classes may raise
        raise FleetError(f"The settings of the project cannot be read: {error!r}.") from error
    return crawler


def fingerprinter_of(settings: BaseSettings | None, crawl: str) -> Any:
    """The fingerprinter of the project, or of the spider with the crawl's name if it sets one."""
    crawler = crawler_of(settings, crawl)
    try:
        if is_drop_in(crawler.settings):
            from scrapy_fleet.scrapy_redis.scheduler import filter_fingerprinter

            if (own := filter_fingerprinter(crawler)) is not None:
                return own
        return build_from_crawler(load_object(crawler.settings["REQUEST_FINGERPRINTER_CLASS"]), crawler)
    except Exception as error:
        raise FleetError(f"The project's fingerprinter of requests cannot be made: {error!r}.") from error


def _spider(settings: BaseSettings, name: str) -> type[Spider]:
    if settings.getlist("SPIDER_MODULES"):
        loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())
        if name in loader.list():
            found: type[Spider] = loader.load(name)
            return found
    return type("AnySpider", (Spider,), {"name": name})


def keys_of(fingerprint: bytes, run: int) -> tuple[int, int]:
    """Under which keys the scheduler marks it as seen: as a link, and as a start request of this run."""
    return key_of(fingerprint), seed_key_of(fingerprint, run, 1)


class Walk:
    """Goes through the entries of a crawl, no more than ``limit`` waiting and as many dead ones, and picks
    those that match."""

    def __init__(self, store: Store, limit: int) -> None:
        self.looked = 0
        """At how many waiting entries."""
        self.complete = True
        self._store = store
        self._limit = limit

    def _match(self, row: Row) -> bool | None:
        """Whether it is unfiltered, if it is meant; else None."""
        raise NotImplementedError

    def everywhere(self, slots: list[str], tell: Callable[[str, int], None]) -> Iterator[Found]:
        """Entries that match, in the order of their life: what moves on meanwhile is met later."""
        self.looked, self.complete = 0, True
        for slot in slots:
            yield from self._waiting(slot, tell)
        yield from self._of_kind("leased", self._store.scan("leased", limit=MANY_LEASES))
        after, left = 0, self._limit
        while rows := self._store.scan("dead", after=after, limit=min(PAGE, left)):
            yield from self._of_kind("dead", rows)
            after, left = rows[-1].id, left - len(rows)
            if not left:
                if self._store.scan("dead", after=after, limit=1):
                    self.complete = False
                return

    def _of_kind(self, kind: Kind, rows: list[Row]) -> Iterator[Found]:
        for row in rows:
            if (dont_filter := self._match(row)) is not None:
                yield Found(kind, row, dont_filter)

    def _waiting(self, slot: str, tell: Callable[[str, int], None]) -> Iterator[Found]:
        known: set[int] = set()
        at = 0
        while True:
            if self.looked >= self._limit:
                if self._store.scan("waiting", slot=slot, after=at, limit=1):
                    self.complete = False
                return
            start = max(0, at - OVERLAP)
            most = min(PAGE, self._limit - self.looked + at - start)
            rows = self._store.scan("waiting", slot=slot, after=start, limit=most)
            if start and known.isdisjoint(row.id for row in rows):
                # So much was handed out meanwhile that entries slipped by: they are further ahead now.
                at = start
                self.looked += OVERLAP
                continue
            for position, row in enumerate(rows, start):
                if row.id not in known and (dont_filter := self._match(row)) is not None:
                    yield Found("waiting", row, dont_filter, behind=position)
            self.looked += max(1, len(rows) - (at - start))
            tell(slot, self.looked)
            if len(rows) < most:
                return
            known = {row.id for row in rows}
            at = start + len(rows)


class Search(Walk):
    """Looks for one URL."""

    def __init__(self, store: Store, url: str, fingerprinter: Any, limit: int) -> None:
        super().__init__(store, limit)
        self._fingerprint: Callable[[Request], bytes] = fingerprinter.fingerprint
        # Scrapy's own goes by the URL: what has another path need not be fingerprinted.
        self._by_path = type(fingerprinter) is RequestFingerprinter
        request = Request(url)
        self.url = request.url
        self.fingerprint = self._fingerprint(request)
        self._rough = _rough(self.url)
        self._codec = AnySpiders()

    def _match(self, row: Row) -> bool | None:
        """Whether it is unfiltered, if it is a request for this URL; else None."""
        same = False
        try:
            url = describe(row.payload)["url"] or ""
            same = url == self.url
            if not same and self._by_path and _rough(url) != self._rough:
                return None
            request = self._codec.decode(row.payload)
            same = same or self._fingerprint(request) == self.fingerprint
            return bool(request.dont_filter) if same else None
        except Exception:  # damaged, of a class that is not loaded, or the fingerprinter cannot take it
            return False if same else None


class AnySpiders(Codec):
    """Reads the requests of a spider that need not be there: nobody will call them back."""

    def __init__(self) -> None:
        super().__init__(Spider(name="none"))

    def _method(self, name: Any, where: str) -> Any:
        return NO_CALLBACK


def _rough(url: str) -> str:
    """The URL up to its path, such that URLs which Scrapy takes for the same are the same here."""
    path = unquote(url.partition("#")[0].partition("?")[0]).lower()
    return path.rstrip("/")


def slots_for(store: Store, host: str) -> list[str]:
    """Where a request to this host may wait: in the host's own slot, or in one that spiders named."""
    named = (slot.name for slot in store.snapshot(MANY_SLOTS).slots if slot.waiting)
    return [host, *(name for name in named if name != host and not _is_host(name))]


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." in name or name == "localhost"
    return False  # Scrapy may throttle by address
