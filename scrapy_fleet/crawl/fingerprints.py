"""What tells a request from others, sooner.

Scrapy's fingerprinter takes a URL apart, quotes and sorts its parts and puts them together again before it
hashes them: half of what it costs to queue a request. Most URLs come out of that as they went in, and it can
be seen from their characters alone. Of those, the very bytes that Scrapy hashes are hashed at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha1
from typing import TYPE_CHECKING

from scrapy import Request
from scrapy.utils.request import RequestFingerprinter

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

Fingerprint = Callable[[Request], bytes]

_LABEL = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_SEGMENT = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
is_plain = re.compile(rf"https?://(?:{_LABEL}\.)*[a-z]+/(?:{_SEGMENT}/)*(?:{_SEGMENT})?").fullmatch
"""Whether a URL is sure to be its own canonical form: there is nothing in it to quote, sort or resolve."""

EXAMPLES = (
    "http://example/",
    "https://www.example-1.com/a_b/C-3.html",
    "http://a.example/-/2/",
    "http://a.b/~c?d",
)
"""What Scrapy says of these must be what is said here; if not, it has another way now."""


def fingerprint_of(crawler: Crawler) -> Fingerprint:
    """What the crawler's fingerprinter says of a request."""
    fingerprinter = crawler.request_fingerprinter
    assert fingerprinter is not None
    scrapys: Fingerprint = fingerprinter.fingerprint

    def fingerprint(request: Request) -> bytes:
        url = request.url
        if request.method == "GET" and not request.body and is_plain(url):
            data = f'{{"body": "", "headers": {{}}, "method": "GET", "url": "{url}"}}'
            return sha1(data.encode(), usedforsecurity=False).digest()
        return scrapys(request)

    if type(fingerprinter) is RequestFingerprinter and all(
        fingerprint(Request(url)) == scrapys(Request(url)) for url in EXAMPLES
    ):
        return fingerprint
    return scrapys
