"""``python -m scrapy_fleet.ops.tryout``: crawl one page without any network, and say how it ended.

That it ends at all shows that Scrapy still tells, inside, when a request is finished.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from scrapy import Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response


class TryoutSpider(Spider):
    name = "tryout"
    start_urls = ["data:text/plain,page"]

    def parse(self, response: Response) -> Any:
        if "child" not in response.meta:
            yield response.follow("data:text/plain,child", meta={"child": True})
        yield {"url": response.url}


class Errors(logging.Handler):
    """Keeps the messages that are logged as errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main() -> None:
    settings = {
        "ADDONS": {"scrapy_fleet.Addon": 500},
        "FLEET_URL": "memory:",
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "CLOSESPIDER_TIMEOUT": 20,
    }
    errors = Errors()
    process = CrawlerProcess(settings)
    logging.getLogger().addHandler(errors)
    crawler = process.create_crawler(TryoutSpider)
    process.crawl(crawler)
    process.start()
    assert crawler.stats is not None
    stats = crawler.stats.get_stats()
    result = {"reason": stats.get("finish_reason"), "items": stats.get("item_scraped_count", 0)}
    print(json.dumps({**result, "errors": errors.messages}))


if __name__ == "__main__":
    main()
