"""Fingerprints are Scrapy's own, to the bit, however they come about."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.utils.request import RequestFingerprinter

from scrapy_fleet.crawl.fingerprints import Fingerprint, fingerprint_of, is_plain

LETTERS = string.ascii_letters + string.digits + "._-"
ODD = string.ascii_lowercase + "A1.-_~/:@?&=;+%#[]é "


class Plain(Spider):
    name = "plain"


class ByHost(RequestFingerprinter):
    """A project's own."""

    def fingerprint(self, request: Request) -> bytes:
        return request.url.split("/")[2].encode()


def with_fingerprinter(fingerprinter: RequestFingerprinter) -> Fingerprint:
    crawler = Crawler(Plain)
    crawler.request_fingerprinter = fingerprinter
    return fingerprint_of(crawler)


SCRAPYS = RequestFingerprinter().fingerprint
OURS = with_fingerprinter(RequestFingerprinter())


def test_the_short_way_is_used_with_this_scrapy() -> None:
    assert OURS.__module__ == "scrapy_fleet.crawl.fingerprints"
    assert is_plain("https://www.example.com/catalogue/category-3/product_17.html")


@given(
    st.lists(st.text(string.ascii_lowercase + string.digits + "-", min_size=1), min_size=1, max_size=3),
    st.lists(st.text(LETTERS), max_size=4),
)
@settings(max_examples=150, deadline=None)
def test_usual_urls(labels: list[str], segments: list[str]) -> None:
    request = Request(f"https://{'.'.join(labels)}/{'/'.join(segments)}")
    assert OURS(request) == SCRAPYS(request)


@given(st.text(ODD), st.sampled_from(["GET", "POST", "HEAD"]), st.binary(max_size=2))
@example("a.example", "GET", b"")
@example("a.example/b/../c", "GET", b"")
@example("A.example/b", "GET", b"")
@example("a.example:80/b", "GET", b"")
@example("xn--a.example/", "GET", b"")
@example("127.1/b", "GET", b"")
@example("a.example/b\n", "GET", b"")
@settings(max_examples=150, deadline=None)
def test_odd_urls_methods_and_bodies(rest: str, method: str, body: bytes) -> None:
    try:
        request = Request(f"http://{rest}", method=method, body=body)
        theirs = SCRAPYS(request)
    except ValueError:
        return  # no URL for Scrapy
    assert OURS(request) == theirs


@pytest.mark.parametrize("meta", [{}, {"verbatim_url": True}])
def test_meta_makes_no_difference_where_it_makes_none_for_scrapy(meta: dict[str, bool]) -> None:
    request = Request("http://a.example/b", meta=meta)
    assert OURS(request) == SCRAPYS(request)


def test_a_projects_own_fingerprinter_is_asked() -> None:
    fingerprint = with_fingerprinter(ByHost())
    assert (
        fingerprint(Request("http://a.example/b"))
        == fingerprint(Request("http://a.example/c"))
        == b"a.example"
    )
