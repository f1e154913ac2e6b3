"""What scrapy-redis' settings mean for the fleet, and the add-on that applies it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from scrapy.settings import default_settings
from scrapy.utils.misc import load_object

from scrapy_fleet import addon as fleet_addon
from scrapy_fleet.errors import FleetError, SettingError
from scrapy_fleet.scrapy_redis import defaults, queue
from scrapy_fleet.scrapy_redis.connection import fleet_url
from scrapy_fleet.scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_fleet.settings import remember

if TYPE_CHECKING:
    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import BaseSettings

PATH = "scrapy_fleet.scrapy_redis.wiring.Addon"
STOCK = "scrapy.core.scheduler.Scheduler"
UNUSED = ("SCHEDULER_DISK_QUEUE", "SCHEDULER_MEMORY_QUEUE", "SCHEDULER_PRIORITY_QUEUE")
"""Settings of Scrapy's own scheduler, which scrapy-redis does not ask either."""


_FILTERS: WeakKeyDictionary[Crawler, Any] = WeakKeyDictionary()


def filter_of(crawler: Crawler) -> type[RFPDupeFilter] | None:
    """The project's duplicate filter, if it is one of scrapy-redis: it says which requests are the same,
    as it did before, so that a duplicate set of before can be taken over."""
    chosen = _FILTERS.get(crawler)
    return chosen if isinstance(chosen, type) and issubclass(chosen, RFPDupeFilter) else None


class Addon(fleet_addon.Addon):
    """Applied by itself where the settings name :class:`scrapy_fleet.scrapy_redis.scheduler.Scheduler`."""

    def update_settings(self, settings: BaseSettings) -> None:
        if fleet_addon.is_tool():
            settings.set("SCHEDULER", STOCK, "cmdline")
            return
        scheduler = settings["SCHEDULER"]
        _FILTERS[self.crawler] = load_object(settings["DUPEFILTER_CLASS"])
        try:
            translate(settings, self.crawler.spidercls)
        except FleetError as error:
            remember(self.crawler, error)
        else:
            super().update_settings(settings)
        settings.set("SCHEDULER", scheduler, "cmdline")


def translate(settings: BaseSettings, spidercls: type[Spider]) -> None:
    """Set what the fleet goes by, where the project has not set it."""
    if settings.get("FLEET_URL") is None:
        settings.set("FLEET_URL", fleet_url(settings), "cmdline")
    if settings.get("FLEET_CRAWL") is None:
        settings.set("FLEET_CRAWL", crawl_name(settings, spidercls), "cmdline")
    if settings.get("FLEET_ORDER") is None:
        lifo = issubclass(queue_class(settings), queue.LifoQueue)
        settings.set("FLEET_ORDER", "lifo" if lifo else "fifo", "cmdline")
    for name in UNUSED:
        settings.set(name, getattr(default_settings, name, None), "cmdline")
    chosen = load_object(settings["DUPEFILTER_CLASS"])
    if isinstance(chosen, type) and issubclass(chosen, RFPDupeFilter):
        if chosen.request_seen is not RFPDupeFilter.request_seen:
            raise SettingError(
                f"DUPEFILTER_CLASS = {settings['DUPEFILTER_CLASS']!r} has its own request_seen(), which is "
                "not asked: what has been seen is kept in the crawl. To say which requests are the same, "
                "override request_fingerprint()."
            )
        settings.set("DUPEFILTER_CLASS", "scrapy.dupefilters.RFPDupeFilter", "cmdline")
    if settings.getfloat("SCHEDULER_IDLE_BEFORE_CLOSE") < 0:
        raise SettingError("SCHEDULER_IDLE_BEFORE_CLOSE cannot be negative.")


def crawl_name(settings: BaseSettings, spidercls: type[Spider]) -> str:
    """Spiders that share a queue share a crawl; by default each has its own, under its name."""
    key = str(settings.get("SCHEDULER_QUEUE_KEY") or defaults.SCHEDULER_QUEUE_KEY)
    return (key % {"spider": spidercls.name}).removesuffix(":requests")


def queue_class(settings: BaseSettings) -> type[queue.Base]:
    setting = settings.get("SCHEDULER_QUEUE_CLASS") or defaults.SCHEDULER_QUEUE_CLASS
    chosen: Any = load_object(setting)
    if isinstance(chosen, type) and issubclass(
        chosen, queue.FifoQueue | queue.LifoQueue | queue.PriorityQueue
    ):
        return chosen
    raise SettingError(
        f"SCHEDULER_QUEUE_CLASS = {setting!r} cannot be used: requests wait in the crawl's store. It can be "
        "PriorityQueue, FifoQueue or LifoQueue of scrapy_fleet.scrapy_redis.queue, or a subclass."
    )


def add_addon(settings: BaseSettings) -> None:
    """Have the add-on loaded, if the project names the scheduler alone."""
    addons = settings["ADDONS"]
    if any("scrapy_fleet" in str(each) for each in addons):
        return
    try:
        from scrapy_fleet.scrapy_redis.scheduler import Scheduler

        chosen: Any = load_object(settings["SCHEDULER"])
    except Exception:  # Scrapy tells what is wrong with it
        return
    # Scrapy's base class takes any class with the right methods for its subclass.
    if isinstance(chosen, type) and Scheduler in chosen.__mro__:
        settings.set("ADDONS", {**addons, PATH: 500}, max(settings.getpriority("ADDONS") or 0, 30))
