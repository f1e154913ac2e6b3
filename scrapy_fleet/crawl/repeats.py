"""Repeated requests that were filtered: counted, logged and told of as stock Scrapy does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy import Request, Spider, signals
from scrapy.dupefilters import RFPDupeFilter

if TYPE_CHECKING:
    from scrapy_fleet.crawl.codec import Codec
    from scrapy_fleet.crawl.known import KnownUrls
    from scrapy_fleet.model import Entry


class Repeats:
    """Every one is a line with ``DUPEFILTER_DEBUG``, else the first; all are in ``dupefilter/filtered``."""

    def __init__(self, spider: Spider, codec: Codec, known_urls: KnownUrls) -> None:
        self._spider = spider
        self._codec = codec
        self._known_urls = known_urls
        # Its words are Scrapy's own; nothing else is asked of it.
        self._scrapy = RFPDupeFilter(debug=spider.crawler.settings.getbool("DUPEFILTER_DEBUG"))

    @property
    def all_shown(self) -> bool:
        return self._scrapy.debug

    def here(self, request: Request) -> None:
        """The scheduler recognised it; the engine tells whoever listens."""
        self._scrapy.log(request, self._spider)

    def early(self, request: Request, number: int) -> None:
        """So many links of a page were dropped next to the spider; this is one of them."""
        self._scrapy.log(request, self._spider)
        self._count(number - 1)

    def in_store(self, entries: list[Entry]) -> None:
        """The store knew them."""
        listened = self._known_urls.somebody_listens
        for number, entry in enumerate(entries):
            if not (listened or self.all_shown or self._scrapy.logdupes):
                self._count(len(entries) - number)
                return
            request = self._codec.decode(entry.payload)
            self._scrapy.log(request, self._spider)
            if listened:
                self._spider.crawler.signals.send_catch_log(
                    signals.request_dropped, request=request, spider=self._spider
                )

    def _count(self, number: int) -> None:
        if number:
            assert self._spider.crawler.stats is not None
            self._spider.crawler.stats.inc_value("dupefilter/filtered", number)
