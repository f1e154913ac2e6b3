"""``start_requests()``, which newer Scrapys do not call any more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy import Spider


def bridge_start(spider: Spider) -> None:
    """Have ``start()`` give what the spider's ``start_requests()`` gives, if that is what it has."""
    if hasattr(Spider, "start_requests"):  # this Scrapy does so itself
        return
    requests = getattr(spider, "start_requests", None)
    if requests is None or not _is_scrapys(spider):
        return

    async def start() -> AsyncIterator[Any]:
        for each in requests():
            yield each

    spider.start = start  # type: ignore[method-assign]


def _is_scrapys(spider: Spider) -> bool:
    """Whether the project has not written a ``start()``."""
    cls = next(cls for cls in type(spider).__mro__ if "start" in vars(cls))
    return cls.__module__.partition(".")[0] == "scrapy"
