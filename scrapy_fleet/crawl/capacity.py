"""What it costs that a crawl has met more URLs than were expected: it is told once."""

from __future__ import annotations

import logging

from scrapy_fleet.settings import Options

logger = logging.getLogger(__name__)

_BLOOM = (
    "a layer is added, for twice as many URLs as the one before, at 2.4 bytes each, and every link is looked "
    "for in one more place; the error stays below FLEET_SEEN_ERROR"
)
_EXACT = (
    "each further URL takes as much as those before, 9 bytes on Redis, or 16 in a file; a Bloom filter "
    "takes 2 (scrapy fleet seen {crawl} convert bloom)"
)


class Capacity:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._told = False

    def look(self, accepted: int) -> None:
        if self._told or accepted <= self._options.urls_expected:
            return
        self._told = True
        crawl, plan = self._options.crawl, self._options.plan.seen
        cost = (_BLOOM if plan.kind == "bloom" else _EXACT).format(crawl=crawl)
        logger.warning(
            "Crawl %r has met more URLs than FLEET_SEEN_CAPACITY = %s. It goes on: %s.",
            *(crawl, f"{plan.capacity:,}", cost),
        )
