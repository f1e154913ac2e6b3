"""The spider of the demo: an ordinary one. The add-on in its settings is all that is special."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response, TextResponse


class DemoSpider(Spider):
    name = "demo"
    custom_settings = {
        "ADDONS": {"scrapy_fleet.Addon": 500},
        "ITEM_PIPELINES": {"scrapy_fleet.FleetPipeline": 900},
        "CONCURRENT_REQUESTS": 16,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 64,
        "LOG_LEVEL": "INFO",
        "TELNETCONSOLE_ENABLED": False,
    }

    url: str

    async def start(self) -> AsyncIterator[Any]:
        # Not by start_urls: Scrapy does not remember those, and a link back would fetch the page again.
        yield Request(self.url)

    def parse(self, response: Response) -> Any:
        assert isinstance(response, TextResponse)
        yield {"page": int(response.css("#number::text").get(""))}
        yield from response.follow_all(css="a")
