"""``why``: where a URL is, on every kind of store and in real crawls."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scrapy import Request
from scrapy.utils.request import RequestFingerprinter

from scrapy_fleet.model import Entry, Kind, Lease, Plan, Row, Rule, Worker
from scrapy_fleet.ops import finding
from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.store.memory import MemoryStore
from tests.anywhere import KINDS, Anywhere, a_crawl, page, pages, url_of
from tests.commands import FLEET, Crawl, data, entry, project, run


@pytest.fixture(params=KINDS)
def news(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Anywhere]:
    with a_crawl(request.param, tmp_path) as made:
        yield made


def test_why_names_every_state(news: Anywhere) -> None:
    news.add(*pages(6))
    first, second = news.lease(2)
    news.settle((first,))
    news.settle((second,), dead="it did not end")
    [third, *_] = news.lease(1)
    states = {n: news.answer("why", f"http://a.example/{n}") for n in range(7)}
    assert [states[n]["state"] for n in range(7)] == [
        *("waiting", "waiting", "waiting", "leased", "dead", "done", "unknown")
    ]
    assert [states[n]["seen"] for n in range(7)] == [True] * 6 + [False]
    assert [states[n]["entries"][0]["behind"] for n in range(3)] == [2, 1, 0]
    assert states[3]["entries"][0]["worker"] == "w-1"
    assert states[4]["entries"][0]["reason"] == "it did not end"
    assert states[5]["entries"] == states[6]["entries"] == []
    assert url_of(third) == "http://a.example/3"


def test_why_in_words(news: Anywhere) -> None:
    news.add(*pages(6))
    first, second = news.lease(2)
    news.settle((first,))
    news.settle((second,), dead="it did not end")
    news.lease(1)

    def lines(n: int) -> list[str]:
        return news.said("why", f"http://a.example/{n}").splitlines()

    assert lines(6)[0] == "http://a.example/6  unknown"
    assert lines(5) == ["http://a.example/5  done", "  It has been handled."]
    assert lines(4)[1] == "  dead: it did not end"
    assert f"scrapy fleet dead {news.name} requeue " in lines(4)[2]
    assert lines(3)[1].startswith("  leased by w-1 (process 1 on here; given up in ")
    news.answer("throttle", "a.example", "--concurrency", "1")
    assert lines(0) == [
        "http://a.example/0  waiting",
        "  waiting in a.example, behind 2 others, priority 0",
        "  a.example: full; it takes 1 at a time, and so many are under way",
    ]
    news.answer("block", "a.example")
    assert lines(2)[1] == "  waiting in a.example, the next, priority 0"
    assert lines(2)[2].startswith("  a.example: blocked;")
    news.answer("pause")
    assert lines(2)[3] == "  The crawl is paused."


def test_why_goes_by_the_fingerprint(news: Anywhere) -> None:
    news.add(
        page("http://a.example/q?b=2&a=1", callback="parse_item"),
        page("http://a.example/é"),
        page("http://a.example"),
    )
    for asked in ("http://a.example/q?a=1&b=2#top", "http://a.example/%c3%a9", "http://A.example/"):
        assert news.answer("why", asked)["state"] == "waiting", asked
    assert news.answer("why", "http://a.example/q?a=1")["state"] == "unknown"
    text = news.said("why", "http://a.example/q?a=1&b=2")
    assert "it is stored as http://a.example/q?b=2&a=1" in text


def test_a_url_that_is_stored_several_times(news: Anywhere) -> None:
    twice = page("http://a.example/x", dont_filter=True)
    news.add(twice, twice, page("http://a.example/x", method="POST", body=b"1"))
    found = news.answer("why", "http://a.example/x")
    assert (found["state"], found["seen"], found["count"]) == ("waiting", False, 3)
    assert [e["method"] for e in found["entries"]] == ["POST", "GET", "GET"]
    assert [e["dont_filter"] for e in found["entries"]] == [False, True, True]
    text = news.said("why", "http://a.example/x")
    assert "It is stored 3 times" in text
    assert "POST: waiting in a.example, the next" in text
    post, _ = news.lease(2)
    news.settle((post,), dead="it did not end")
    found = news.answer("why", "http://a.example/x")
    assert [e["state"] for e in found["entries"]] == ["leased", "waiting", "dead"]
    assert found["state"] == "leased"


def test_a_url_that_is_done_and_comes_again(news: Anywhere) -> None:
    news.add(page("http://a.example/x"))
    news.settle(news.lease(1))
    news.add(page("http://a.example/x", dont_filter=True))
    text = news.said("why", "http://a.example/x")
    assert text.startswith("http://a.example/x  waiting\n")
    assert "It was met as a link, too, and has been handled" in text


def test_why_finds_what_waits_in_a_slot_of_another_name(news: Anywhere) -> None:
    news.add(page("http://a.example/1", "slow lane"), page("http://a.example/2", "lane.example"))
    assert news.answer("why", "http://a.example/1")["entries"][0]["host"] == "slow lane"
    found = news.answer("why", "http://a.example/2", "--slot", "lane.example")
    assert found["entries"][0]["host"] == "lane.example"


def test_why_says_when_it_stopped_looking(news: Anywhere) -> None:
    news.add(*pages(10), page("http://a.example/0", dont_filter=True, priority=-1))

    def ask(n: int, limit: int) -> tuple[str, bool, int]:
        found = news.answer("why", f"http://a.example/{n}", "--limit", str(limit))
        return found["state"], found["complete"], found["looked_at"]

    assert ask(8, 5) == ("waiting", False, 5)
    assert ask(1, 5) == ("done or waiting", False, 5)
    assert ask(99, 5) == ("unknown", False, 5)
    assert ask(1, 11) == ("waiting", True, 11)
    text = news.said("why", "http://a.example/1", "--limit", "5")
    assert "Stopped looking after 5 waiting requests: it is done, or waits further back." in text


@pytest.mark.parametrize("wrong", ["a.example/1", "http://"])
def test_why_needs_a_url(wrong: str, tmp_path: Path) -> None:
    Anywhere(f"sqlite:{tmp_path / '.scrapy' / 'fleet'}", "news", Plan()).store.close()
    done = run(FLEET, "why", wrong, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("scrapy-fleet: ")
    assert done.stderr.count("\n") == 1


# The fingerprint of the crawl


def test_a_projects_own_fingerprinter(tmp_path: Path) -> None:
    own = (
        "class ByPath:\n    def fingerprint(self, request):\n"
        "        return request.url.rpartition('/')[2].encode().rjust(9, b'*')\n"
    )
    spider = (
        "import scrapy\nclass Odd(scrapy.Spider):\n    name = 'odd'\n"
        "    custom_settings = {'REQUEST_FINGERPRINTER_CLASS': 'shop.prints.ByPath'}\n"
    )
    where = tmp_path / "crawls"
    key = int.from_bytes(b"*****abc".rjust(8), "big", signed=True)
    for name in ("news", "odd"):
        made = Anywhere(f"sqlite:{where}", name, Plan())
        stored = entry("http://a.example/1/abcd")
        made.add(Entry("a.example", stored.payload, key=key))
        made.store.close()
    everywhere = "REQUEST_FINGERPRINTER_CLASS = 'shop.prints.ByPath'"
    for settings, knowing in ((everywhere, "news"), ("", "odd")):
        here = project(tmp_path / f"p-{knowing}", settings, spider)
        (here / "shop" / "prints.py").write_text(own)
        found = data("why", knowing, "http://a.example/2/abcd", "--url", str(where), cwd=here)
        assert (found["state"], found["seen"]) == ("waiting", True)
    assert data("why", "news", "http://a.example/2/abcd", "--url", str(where), cwd=here)["state"] == "unknown"


def test_a_fingerprinter_that_cannot_be_made(tmp_path: Path) -> None:
    here = project(tmp_path, "REQUEST_FINGERPRINTER_CLASS = 'shop.nowhere.Missing'")
    Anywhere(f"sqlite:{here / 'news.db'}", "news", Plan()).store.close()
    done = run(FLEET, "why", "http://a.example/", "--url", "news.db", cwd=here)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("scrapy-fleet: The project's fingerprinter of requests cannot be made: ")
    assert done.stderr.count("\n") == 1


SPIDER = """
import scrapy

class Site(scrapy.Spider):
    name = "site"
    custom_settings = {"ADDONS": {"scrapy_fleet.Addon": 500}, "TELNETCONSOLE_ENABLED": False}

    def parse(self, response):
        yield from response.follow_all(css="a")

    def __init__(self, url):
        self.start_urls = [url, url + "?again"]
"""


def test_start_requests_and_links_of_a_real_crawl(tmp_path: Path) -> None:
    (tmp_path / "spider.py").write_text(SPIDER)
    with running(Shape("tree", pages=10, links=3)) as site:
        for _ in range(2):  # start requests are known by the run they belong to
            done = run(
                [sys.executable, "-m", "scrapy", "runspider", "spider.py"],
                *("-a", f"url={site.start_url}", "-s", "JOBDIR=job", "-s", "REMOTE_CONTROL_ENABLED=0"),
                cwd=tmp_path,
            )
            assert done.returncode == 0, done.stderr
            states = {
                url: data("why", url, "--jobdir", "job", cwd=tmp_path)["state"]
                for url in (site.start_url, f"{site.start_url}?again", f"{site.start_url}?never")
            }
            assert list(states.values()) == ["done", "done", "unknown"]
    linked = f"{site.start_url.rpartition('/')[0]}/1"
    assert data("why", linked, "--jobdir", "job", cwd=tmp_path)["state"] == "done"


# Large slots


class Counting(MemoryStore):
    scans = 0

    def scan(self, kind: Kind, *, slot: str | None = None, after: int = 0, limit: int = 100) -> list[Row]:
        self.scans += 1
        return super().scan(kind, slot=slot, after=after, limit=limit)


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Crawl:
    """A crawl whose entries are looked through in small pages."""
    monkeypatch.setattr(finding, "PAGE", 20)
    monkeypatch.setattr(finding, "OVERLAP", 5)
    made = Crawl.__new__(Crawl)
    made.store, made.worker, made._seq = Counting("news"), Worker("w-1"), 0  # type: ignore[assignment]
    made.store.join(made.worker, Plan(rule=Rule(concurrency=100_000)), 60)
    return made


@pytest.mark.parametrize(("at_a_time", "wanted"), [(3, 0), (30, 40)])
def test_what_is_handed_out_meanwhile_hides_nothing(large: Crawl, at_a_time: int, wanted: int) -> None:
    """Those that wait move up while they are looked through, page by page."""
    large.add(*pages(200))
    search = finding.Search(large.store, f"http://a.example/{wanted}", RequestFingerprinter(), 1000)
    handed: list[Lease] = []

    def hand_out(slot: str, looked: int) -> None:
        if large.store.snapshot().counts.waiting > 60:
            handed.extend(large.lease(at_a_time))

    found = list(search.everywhere(["a.example"], hand_out))
    assert handed
    assert [one.state for one in found] == ["waiting"]
    assert search.complete


def test_the_search_is_bounded_on_a_slot_that_keeps_moving(large: Crawl) -> None:
    large.add(*pages(100))
    search = finding.Search(large.store, "http://b.example/", RequestFingerprinter(), 300)

    def move(slot: str, looked: int) -> None:
        # All of it goes, and as much comes: nothing that was met is met again.
        large.settle(large.lease(100))
        large.add(*(page(f"http://a.example/{looked}/{n}") for n in range(100)))

    assert list(search.everywhere(["a.example"], move)) == []
    assert not search.complete
    assert isinstance(large.store, Counting)
    assert large.store.scans < 60


def test_urls_that_scrapy_takes_for_the_same_are_roughly_the_same() -> None:
    scrapys = RequestFingerprinter()
    same = [
        ("http://a.example", "http://a.example/"),
        ("http://a.example/%7Ea?x=1&y=2#z", "http://a.example/~a?y=2&x=1"),
        ("http://A.example/%c3%a9", "http://a.example/%C3%A9"),
        ("http://a.example/a b", "http://a.example/a%20b"),
        ("http://a.example/?a=b c", "http://a.example/?a=b+c"),
    ]
    assert finding._rough("HTTP://A.example/x") == finding._rough("http://a.example/x")
    for pair in same:
        one, other = (Request(url) for url in pair)
        assert scrapys.fingerprint(one) == scrapys.fingerprint(other), pair
        assert finding._rough(one.url) == finding._rough(other.url), pair
