"""Puts the add-on's parts in place when Scrapy has already built its own.

Only for a project that names the scheduler and not the add-on: then nothing of ours is asked before the
engine is there. Like :mod:`~scrapy_fleet.crawl.seam`, this file touches Scrapy's private names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scrapy import signals
from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.extensions.spiderstate import SpiderState
from scrapy.extensions.throttle import AutoThrottle

from scrapy_fleet.crawl.known import KnownUrlsMiddleware
from scrapy_fleet.crawl.parents import ParentsMiddleware
from scrapy_fleet.crawl.robots import FleetRobotsTxtMiddleware
from scrapy_fleet.crawl.seeds import SeedsMiddleware
from scrapy_fleet.crawl.throttle import ThrottleMiddleware
from scrapy_fleet.errors import IncompatibleScrapy

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


def wire_late(crawler: Crawler, addon: Any) -> None:
    """Let the add-on change the settings, and then what was made of them before."""
    settings = crawler.settings
    settings.frozen = False
    try:
        addon.update_settings(settings)
    finally:
        settings.freeze()
    assert crawler.engine is not None
    try:
        _add_spider_middlewares(crawler.engine.scraper.spidermw, crawler)
        _add_downloader_middlewares(crawler.engine.downloader.middleware, crawler)
        _pace(crawler.engine.downloader, settings)
    except AttributeError as error:
        raise IncompatibleScrapy(
            f"This Scrapy is not as scrapy-fleet knows it ({error}): its scheduler needs the add-on. "
            'Set ADDONS = {"scrapy_fleet.scrapy_redis.wiring.Addon": 500}.'
        ) from error
    _disconnect_extensions(crawler)


def _add_spider_middlewares(manager: Any, crawler: Crawler) -> None:
    manager._add_middleware(KnownUrlsMiddleware.from_crawler(crawler))
    for part in (SeedsMiddleware, ParentsMiddleware):
        manager._add_middleware(part.from_crawler(crawler))
        # It was added next to the spider; it belongs next to the engine.
        for name in ("process_start", "process_spider_output", "process_spider_exception"):
            methods = manager.methods[name]
            if name != "process_start" or getattr(methods[0], "__self__", None).__class__ is part:
                methods.append(methods.popleft())


def _add_downloader_middlewares(manager: Any, crawler: Crawler) -> None:
    theirs = next((mw for mw in manager.middlewares if type(mw) is RobotsTxtMiddleware), None)
    if theirs is not None:
        ours = FleetRobotsTxtMiddleware.from_crawler(crawler)
        methods = manager.methods["process_request"]
        methods[methods.index(theirs.process_request)] = ours.process_request
    manager._add_middleware(ThrottleMiddleware.from_crawler(crawler))


def _pace(downloader: Any, settings: Any) -> None:
    """What the downloader read of the settings when it was made."""
    downloader.per_slot_settings = settings.getdict("DOWNLOAD_SLOTS")
    read = {"_delay": settings.getfloat("DOWNLOAD_DELAY"), "_jitter": 0.0, "randomize_delay": False}
    for name, value in read.items():
        if name in vars(downloader):
            setattr(downloader, name, value)


def _disconnect_extensions(crawler: Crawler) -> None:
    """The store paces, and keeps ``spider.state``."""
    extensions = getattr(crawler.extensions, "middlewares", ())
    disconnect = crawler.signals.disconnect
    for each in extensions:
        if type(each) is AutoThrottle:
            disconnect(each._spider_opened, signals.spider_opened)
            disconnect(each._response_downloaded, signals.response_downloaded)
        elif type(each) is SpiderState:
            disconnect(each.spider_opened, signals.spider_opened)
            disconnect(each.spider_closed, signals.spider_closed)
