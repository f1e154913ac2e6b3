"""Items that a crash neither loses nor repeats."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.exceptions import NotConfigured

from scrapy_fleet.crawl.plain import pack
from scrapy_fleet.crawl.seam import scheduler_of
from scrapy_fleet.errors import Unstorable

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class FleetPipeline:
    """Writes each item to the crawl's store, in the commit that settles the request it came from.

    ``ITEM_PIPELINES = {"scrapy_fleet.FleetPipeline": 900}``. An item is written as it is after all
    pipelines, wherever among them this one stands: only then does Scrapy tell which response it is from.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        crawler.signals.connect(self._item_scraped, signals.item_scraped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FleetPipeline:
        if not str(crawler.settings["SCHEDULER"]).startswith("scrapy_fleet."):
            raise NotConfigured("FleetPipeline needs the add-on: ADDONS = {'scrapy_fleet.Addon': 500}")
        if str(crawler.settings["SCHEDULER"]).endswith(".QueueScheduler"):
            raise NotConfigured(
                "FleetPipeline needs the fleet's store: SCHEDULER_DISK_QUEUE names another place"
            )
        return cls(crawler)

    def process_item(self, item: Any, spider: Any = None) -> Any:
        return item

    def _item_scraped(self, item: Any, response: Any, spider: Any) -> None:
        scheduler = scheduler_of(self.crawler)
        assert scheduler is not None
        try:
            packed = pack(ItemAdapter(item).asdict(), "item")
        except Unstorable as error:
            assert self.crawler.stats is not None
            self.crawler.stats.inc_value("fleet/items_unstorable")
            logger.error("An item of %s is not kept: %s", response, error)
            return
        scheduler.keep_item(packed, getattr(response, "request", None))
