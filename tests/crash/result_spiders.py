"""Spiders and pipelines whose results are read by other programs."""

from __future__ import annotations

from typing import Any

from scrapy.http import Response

from scrapy_fleet.scrapy_redis.pipelines import RedisPipeline
from tests.crash.spiders import SiteSpider


class OwnPipeline(RedisPipeline):
    """Chooses the list by the item."""

    def item_key(self, item: Any, spider: Any) -> str:
        return f"{spider.name}:{'even' if item['page'] % 2 == 0 else 'odd'}"


class OwnWriting(RedisPipeline):
    def _process_item(self, item: Any, spider: Any) -> Any:
        self.server.sadd("own", item["page"])
        return {**item, "written": True}


class SpiderWithStats(SiteSpider):
    async def parse(self, response: Response) -> Any:
        stats = self.crawler.stats
        assert stats is not None
        number = int(response.css("#number::text").get(""))
        stats.max_value("own/largest", number)
        stats.min_value("own/smallest", number)
        stats.inc_value("own/half", 0.5)  # type: ignore[arg-type]
        stats.set_value("own/text", "größe")
        async for each in super().parse(response):
            yield each
