"""The add-on: one line in ``ADDONS`` wires everything."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from scrapy_fleet import order, politeness
from scrapy_fleet import settings as fleet_settings
from scrapy_fleet.errors import FleetError
from scrapy_fleet.model import Plan, Rule
from scrapy_fleet.pacing import UNDER
from scrapy_fleet.politeness import Manners
from scrapy_fleet.settings import Options

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

QUICK_STATS = "scrapy_fleet.crawl.stats.QuickStatsCollector"
TOOLS = {"shell", "fetch", "view", "parse", "check", "bench"}
"""Commands that look at single pages: they must not take part in the spider's crawl."""


class Addon:
    """``ADDONS = {"scrapy_fleet.Addon": 500}``"""

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Addon:
        return cls(crawler)

    def update_settings(self, settings: BaseSettings) -> None:
        if is_tool():
            return
        if type(self) is Addon and str(settings["SCHEDULER"]).startswith("scrapy_fleet.scrapy_redis."):
            # The project comes from scrapy-redis: its other settings count, too.
            load_object("scrapy_fleet.scrapy_redis.wiring.Addon")(self.crawler).update_settings(settings)
            return
        settings.set("SCHEDULER", "scrapy_fleet.crawl.scheduler.Scheduler", "cmdline")
        try:
            if order.external(settings) is not None:
                self._use_queue(settings)
                return
        except FleetError as error:
            fleet_settings.remember(self.crawler, error)
            return
        middlewares = settings["SPIDER_MIDDLEWARES"]
        middlewares.set("scrapy_fleet.crawl.parents.ParentsMiddleware", -1001, "addon")
        middlewares.set("scrapy_fleet.crawl.seeds.SeedsMiddleware", -1000, "addon")
        middlewares.set("scrapy_fleet.crawl.known.KnownUrlsMiddleware", 100_000, "addon")
        _share_robots(settings)
        downloader = settings["DOWNLOADER_MIDDLEWARES"]
        downloader.set("scrapy_fleet.crawl.throttle.ThrottleMiddleware", 100_000, "addon")
        settings.set("STATS_CLASS", QUICK_STATS, "default")
        # spider.state is kept with the commits, not pickled when the spider closes.
        settings["EXTENSIONS"].set("scrapy.extensions.spiderstate.SpiderState", None, "addon")
        try:
            options = fleet_settings.read(settings, self.crawler.spidercls)
        except FleetError as error:
            fleet_settings.remember(self.crawler, error)
            return
        fleet_settings.remember(self.crawler, options)
        for remark in options.remarks:
            logger.info("%s", remark)
        _pace_in_store(settings, options)

    def _use_queue(self, settings: BaseSettings) -> None:
        """Requests are kept in a queue class of the user's own, by Scrapy's rules; nothing is shared."""
        fleet_settings.check_names(settings)
        settings.set("SCHEDULER", "scrapy_fleet.crawl.queue_scheduler.QueueScheduler", "cmdline")
        if not settings.get("JOBDIR"):
            crawl = fleet_settings.get(settings, "FLEET_CRAWL") or self.crawler.spidercls.name
            folder = fleet_settings.store_path(None, crawl).with_suffix(".queue")
            settings.set("JOBDIR", str(folder), "addon")


def _share_robots(settings: BaseSettings) -> None:
    """robots.txt is fetched once for all workers, by a middleware that stands where Scrapy's own would.
    Where that is switched off, or another one has its place, nothing changes."""
    theirs = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
    middlewares, base = settings["DOWNLOADER_MIDDLEWARES"], settings["DOWNLOADER_MIDDLEWARES_BASE"]
    paths = {
        key if isinstance(key, str) else f"{key.__module__}.{key.__qualname__}": key for key in middlewares
    }
    key = paths.get(theirs, theirs)
    order = middlewares[key] if key in middlewares else base.get(theirs)
    if order is not None:
        middlewares.set(key, None, "cmdline")
        middlewares.set("scrapy_fleet.crawl.robots.FleetRobotsTxtMiddleware", order, "addon")


def is_tool() -> bool:
    """A command is running that looks at single pages."""
    return _scrapy_command() in TOOLS


def _scrapy_command() -> str | None:
    """The ``scrapy`` command that is running; Scrapy takes it out of ``sys.argv``."""
    words = iter(sys.orig_argv)
    for word in words:
        if Path(word).name in ("scrapy", "scrapy.exe", "scrapy-script.py", "cmdline.py"):
            return next((word for word in words if not word.startswith("-")), None)
    return None


def _pace_in_store(settings: BaseSettings, options: Options) -> None:
    """The store paces, for all workers. What does not come from it (robots.txt, media, inline
    downloads) still waits in the downloader, whose delay is kept a little under the store's
    shortest, so that leased requests never wait twice. This is where it begins; the middleware
    keeps it in step."""
    plan = options.plan
    settings.set("AUTOTHROTTLE_ENABLED", False, "cmdline")
    settings.set("DOWNLOAD_DELAY", _local(plan, plan.rule), "cmdline")
    if "DOWNLOAD_DELAY_JITTER" in settings:
        settings.set("DOWNLOAD_DELAY_JITTER", 0, "cmdline")
    else:
        settings.set("RANDOMIZE_DOWNLOAD_DELAY", False, "cmdline")
    slots = {}
    for name, own in settings.getdict("DOWNLOAD_SLOTS").items():
        slots[name] = {k: v for k, v in own.items() if k not in ("jitter", "randomize_delay")}
        slots[name]["delay"] = _local(plan, plan.slots[name])
    settings.set("DOWNLOAD_SLOTS", slots, "cmdline")


def _local(plan: Plan, rule: Rule) -> float:
    return UNDER * politeness.pace_of(Manners(), plan, rule, None)
