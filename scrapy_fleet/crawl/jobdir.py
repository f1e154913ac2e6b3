"""For going on with stock Scrapy: reads what ``scrapy fleet export jobdir`` wrote of what was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scrapy.dupefilters import RFPDupeFilter

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.utils.request import RequestFingerprinterProtocol

from scrapy_fleet.keys import key_of


class _Short:
    """The eight bytes of a fingerprint by which a crawl knows a request."""

    def __init__(self, fingerprinter: RequestFingerprinterProtocol) -> None:
        self._fingerprinter = fingerprinter

    def fingerprint(self, request: Request) -> bytes:
        return short(key_of(self._fingerprinter.fingerprint(request)))


def short(key: int) -> bytes:
    return key.to_bytes(8, "big", signed=True)


class JobdirDupeFilter(RFPDupeFilter):
    """Scrapy's own filter, with fingerprints of eight bytes: no others are known of an exported crawl."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> JobdirDupeFilter:
        made = super().from_crawler(crawler)
        made.fingerprinter = _Short(made.fingerprinter)
        return made
