"""The project whose crawl is taken over: its spider, and how its crawl of the fleet will call things."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.misc import build_from_crawler, load_object

from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.errors import FleetError, Unreadable
from scrapy_fleet.model import Batch
from scrapy_fleet.ops.finding import keys_of
from scrapy_fleet.ops.jobdir.unpickling import unpickle
from scrapy_fleet.ops.place import project_settings
from scrapy_fleet.process import this_worker
from scrapy_fleet.scrapy_redis import defaults
from scrapy_fleet.scrapy_redis.beside import is_same_server
from scrapy_fleet.scrapy_redis.connection import fleet_url
from scrapy_fleet.scrapy_redis.queue import PriorityQueue
from scrapy_fleet.scrapy_redis.requests import request_of
from scrapy_fleet.scrapy_redis.scheduler import Scheduler, filter_fingerprinter
from scrapy_fleet.scrapy_redis.spiders import RedisMixin
from scrapy_fleet.scrapy_redis.wiring import Addon, queue_class

if TYPE_CHECKING:
    from scrapy import Request, Spider

    from scrapy_fleet.store.base import Store


TTL = 60.0


def open_project(
    settings: BaseSettings | None, spider: str, own: list[str], *, to: str | None, crawl: str | None
) -> Project:
    settings = settings if settings is not None else project_settings()
    if settings is None or not settings.getlist("SPIDER_MODULES"):
        raise FleetError(
            "Requests name callbacks of a spider: run this in the project's folder, where scrapy.cfg is."
        )
    settings = settings.copy()
    given = {name: value for name, _, value in (text.partition("=") for text in own)}
    given |= {name: value for name, value in (("FLEET_URL", to), ("FLEET_CRAWL", crawl)) if value}
    for name, value in given.items():
        settings.set(name, value, "cmdline")
    try:
        loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())
        names = loader.list()
        spidercls = loader.load(spider) if spider in names else None
    except Exception as error:  # whatever a project may raise
        raise FleetError(f"The project's spiders cannot be loaded: {error!r}.") from error
    if spidercls is None:
        raise FleetError(f"The project has no spider {spider!r}; it has: {', '.join(names)}.")
    return Project(spidercls, settings)


class Project:
    def __init__(self, spidercls: type[Spider], settings: BaseSettings) -> None:
        try:
            self._crawler = Crawler(spidercls, Settings(settings))
            self.settings = self._crawler.settings
            drops_in = _drops_in(self.settings)
            self._crawler.addons.load_settings(self.settings)
            if drops_in and not fleet_settings.is_known(self._crawler):
                Addon(self._crawler).update_settings(self.settings)
            options = fleet_settings.of(self._crawler)
            fingerprinter = load_object(self.settings["REQUEST_FINGERPRINTER_CLASS"])
            self._fingerprint = build_from_crawler(fingerprinter, self._crawler).fingerprint
        except FleetError:
            raise
        except Exception as error:  # whatever a project may raise
            raise FleetError(f"The project cannot be loaded: {error!r}.") from error
        self._options = options
        self._spidercls = spidercls
        # What its constructor does is not wanted here: only its methods are named.
        self._spider: Spider = spidercls.__new__(spidercls)
        self.codec = Codec(self._spider)
        self.crawl = options.crawl
        self.filtered = options.filtered
        self.flat = drops_in and not issubclass(queue_class(self.settings), PriorityQueue)
        self._filter = filter_fingerprinter(self._crawler) if drops_in else None

    # Where

    @property
    def shown(self) -> str:
        url = self._options.url
        if url is None or url.startswith("sqlite:"):
            return str(fleet_settings.store_path(url, self.crawl, self._options.jobdir))
        return fleet_settings.shown(url)

    def open_store(self) -> Store:
        """The crawl, with the plan of the project's workers: it says in which order things wait."""
        options = self._options
        store = fleet_settings.open_store(
            options.url, options.crawl, jobdir=options.jobdir, durability=options.durability
        )
        worker = this_worker()
        store.join(worker, options.plan, TTL, run=store.snapshot(0).run)
        store.commit(Batch(worker=worker.id, seq=0, leave=True))
        return store

    def keys(self, queue: str | None, seen: str | None, start: str | None) -> tuple[str, str, str]:
        """The keys of scrapy-redis: as they are given, or as the settings say."""
        get, name = self.settings.get, self._spidercls.name
        names = {"spider": name, "name": name}
        queue = queue or get("SCHEDULER_QUEUE_KEY") or defaults.SCHEDULER_QUEUE_KEY
        seen = seen or get("SCHEDULER_DUPEFILTER_KEY") or defaults.SCHEDULER_DUPEFILTER_KEY
        own = getattr(self._spidercls, "redis_key", None)
        start = start or own or get("REDIS_START_URLS_KEY") or defaults.START_URLS_KEY
        return queue % names, seen % names, start % names

    def reads_start_urls(self, source: str) -> bool:
        """Whether the spider takes its start URLs from that server by itself."""
        if not issubclass(self._spidercls, RedisMixin):
            return False
        return source == fleet_url(self.settings) or is_same_server(source, self.settings)

    # What

    def request(self, member: bytes, *, trust: bool) -> Request:
        """A member of the queue; nothing that it says is run."""
        if is_pickle(member):
            if not trust:
                raise Unreadable("it is a pickle")
            data: object = unpickle(member)
        else:
            try:
                data = json.loads(member)
            except (ValueError, RecursionError):
                raise Unreadable("it is neither JSON nor a pickle") from None
        return request_of(data, self._spider)

    def fingerprint_text(self, request: Request) -> str:
        """As a duplicate set has it."""
        if self._filter is not None:
            return self._filter.text(request)
        found: bytes = self._fingerprint(request)
        return found.hex()

    def key(self, request: Request) -> int:
        return self.key_of_member(self.fingerprint_text(request).encode())

    def key_of_member(self, member: bytes) -> int:
        """What the crawl calls a member of the duplicate set."""
        if self._filter is not None:
            return _key(self._filter.of_text(member))
        try:
            fingerprint = bytes.fromhex(member.decode("ascii"))
        except ValueError:
            raise Unreadable("it is no fingerprint: not hexadecimal") from None
        if not fingerprint:
            raise Unreadable("it is no fingerprint: it is empty")
        return _key(fingerprint)


def is_pickle(member: bytes) -> bool:
    """As protocols from 2 on begin; JSON never does."""
    return member[:1] == b"\x80"


def _key(fingerprint: bytes) -> int:
    return keys_of(fingerprint, 1)[0]


def _drops_in(settings: BaseSettings) -> bool:
    try:
        chosen: Any = load_object(settings["SCHEDULER"])
    except Exception as error:
        raise FleetError(f"SCHEDULER = {settings['SCHEDULER']!r} cannot be loaded: {error!r}.") from error
    # Scrapy's base class takes any class with the right methods for its subclass.
    return isinstance(chosen, type) and Scheduler in chosen.__mro__
