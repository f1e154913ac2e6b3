"""Items that a crash neither loses nor repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from itemadapter import ItemAdapter
from scrapy.exceptions import NotConfigured

from scrapy_fleet.crawl.plain import pack
from scrapy_fleet.crawl.seam import scheduler_of

if TYPE_CHECKING:
    from scrapy.crawler import Crawler


class FleetPipeline:
    """Writes each item to the crawl's store, in the commit that settles the request it came from.

    Put it last: ``ITEM_PIPELINES = {"scrapy_fleet.FleetPipeline": 900}``.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> FleetPipeline:
        return cls(crawler)

    def open_spider(self, spider: Any = None) -> None:
        if scheduler_of(self.crawler) is None:
            raise NotConfigured("FleetPipeline needs the add-on: ADDONS = {'scrapy_fleet.Addon': 500}")

    def process_item(self, item: Any, spider: Any = None) -> Any:
        scheduler = scheduler_of(self.crawler)
        assert scheduler is not None
        scheduler.keep_item(pack(ItemAdapter(item).asdict(), "item"))
        return item
