"""``throttle``, ``block``, ``boost`` and ``hosts``, and what ``status`` says of limits, as users run them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from scrapy import Request

from scrapy_fleet.errors import FleetError
from scrapy_fleet.model import Override, Plan, Sample
from scrapy_fleet.ops.cli import main
from scrapy_fleet.ops.overrides import host_in
from scrapy_fleet.ops.site import Shape, running
from scrapy_fleet.politeness import leeway_of
from tests.anywhere import KINDS, Anywhere, a_crawl, page, pages
from tests.command_line import Run
from tests.commands import FLEET, SCRAPY_FLEET, data, entry_points

HOUR = 3600.0


@pytest.fixture(params=KINDS)
def news(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Anywhere]:
    with a_crawl(request.param, tmp_path) as made:
        yield made


# Telling the fleet


def test_throttle_changes_what_it_names_and_nothing_else(news: Anywhere) -> None:
    news.add(*pages(5))
    name = news.name
    text = news.said("throttle", "a.example", "--delay", "2.5", "--concurrency", "1")
    assert text == f"a.example in crawl {name!r} now: delay 2.5 s (told), concurrency 1 (told).\n"
    assert news.override() == Override(delay=2.5, concurrency=1)
    view = news.store.slot("a.example")
    assert view is not None
    assert (view.delay, view.concurrency) == (2.5, 1)
    found = news.answer("throttle", "a.example", "--concurrency", "3")
    assert found["override"] == {"delay": 2.5, "concurrency": 3, "blocked": False, "boost": 0}
    assert (found["crawl"], found["host"], found["met"]) == (name, "a.example", True)
    assert (found["slot"]["delay"], found["slot"]["concurrency"]) == (2.5, 3)
    news.said("boost", "a.example")
    text = news.said("throttle", "a.example", "--delay", "0")
    assert text.endswith("now: delay none (told), concurrency 3 (told), boost +10 (told).\n")
    assert news.override() == Override(delay=0.0, concurrency=3, boost=10)
    text = news.said("throttle", "a.example", "--reset")
    assert text.endswith("delay none (by the settings), concurrency 2 (by the settings), boost +10 (told).\n")
    assert news.override() == Override(boost=10)
    assert news.answer("boost", "a.example", "0")["override"] is None
    assert news.override() is None


def test_the_fleet_obeys_throttle(news: Anywhere) -> None:
    news.add(*pages(5))
    news.answer("throttle", "a.example", "--concurrency", "1", "--delay", "60")
    assert len(news.lease(5)) == 1
    assert news.lease(5) == ()


def test_a_blocked_host_runs_nothing_until_it_is_unblocked(news: Anywhere) -> None:
    news.add(*pages(3))
    news.answer("throttle", "a.example", "--concurrency", "3")
    text = news.said("block", "a.example")
    assert "is blocked: none of its requests run." in text
    assert "(Also told: concurrency 3.)" in text
    assert "3 requests of it wait" in text
    assert news.lease(5) == ()
    [host] = news.answer("hosts")["hosts"]
    assert (host["reason"], host["override"]["blocked"]) == ("blocked", True)
    news.said("unblock", "a.example")
    assert news.override() == Override(concurrency=3)
    assert len(news.lease(5)) == 3


def test_a_boosted_host_comes_first(news: Anywhere) -> None:
    news.add(page("http://a.example/", priority=5), *pages(2, "b.example"), *pages(1, "c.example"))
    assert news.answer("boost", "b.example", "7")["override"]["boost"] == 7
    assert news.answer("boost", "a.example", "-9")["override"]["boost"] == -9
    order = [lease.slot for lease in news.lease(4)]
    assert order == ["b.example", "b.example", "c.example", "a.example"]


def test_a_host_that_has_not_come_yet(news: Anywhere) -> None:
    news.add(*pages(1, "www.b.example"))
    text = news.said("throttle", "http://B.example:8080/list?x=1", "--concurrency", "1")
    assert f"b.example in crawl {news.name!r}: concurrency 1.\n" in text
    assert "The crawl has not met this host yet: it will hold when it comes." in text
    assert "It has met: www.b.example" in text
    assert news.answer("boost", "b.example", "1")["met"] is False
    assert news.override("b.example") == Override(concurrency=1, boost=1)
    news.add(*pages(3, "b.example"))
    assert [lease.slot for lease in news.lease(5) if not lease.spare].count("b.example") == 1
    assert "not met" not in news.said("boost", "b.example", "0")


def test_a_download_slot_goes_by_its_own_name(news: Anywhere) -> None:
    news.add(page("http://a.example/", "Shop.Example/api"))
    assert news.answer("block", "Shop.Example/api")["host"] == "Shop.Example/api"
    assert news.lease(1) == ()


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("a.example", "a.example"),
        ("A.Example", "a.example"),
        ("http://A.example:80/x?y#z", "a.example"),
        ("https://me:secret@a.example", "a.example"),
        ("a.example:8080", "a.example"),
        ("a.example/path", "a.example"),
        ("localhost:80", "localhost"),
        ("http://[::1]:80/", "::1"),
        ("[::1]:80", "::1"),
        ("::1", "::1"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("Big Shop", "Big Shop"),
        ("proxy:7", "proxy:7"),
    ],
)
def test_what_people_type_for_a_host(text: str, host: str) -> None:
    assert host_in(text) == host
    if "://" in text and "secret" not in text:
        assert urlsplit(Request(text).url).hostname == host


@pytest.mark.parametrize("text", ["", "http:///x", "http://[::1/"])
def test_no_host(text: str) -> None:
    with pytest.raises(FleetError):
        host_in(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("throttle", "a.example"), "throttle needs --delay, --concurrency or --reset"),
        (("throttle", "--delay", "1"), "required: HOST"),
        (("throttle", "a.example", "--delay", "-1"), "--delay: it must be a number of seconds, 0 or more"),
        (("throttle", "a.example", "--delay", "nan"), "--delay: it must be a number of seconds"),
        (("throttle", "a.example", "--delay", "fast"), "--delay: invalid number value: 'fast'"),
        (("throttle", "a.example", "--concurrency", "0"), "to hold a host altogether: block HOST"),
        (("throttle", "a.example", "--concurrency", "1.5"), "--concurrency: invalid number value"),
        (("throttle", "a.example", "--concurrency", "9" * 30), "--concurrency: it must be 1 to 1,000,000"),
        (("throttle", "a.example", "--delay", "1", "--reset"), "--reset takes both back"),
        (("block",), "required: HOST"),
        (("unblock", "news", "a.example", "b.example"), "takes the name of a crawl and a HOST"),
        (("boost", "news", "a.example", "much"), "and a whole number; not news a.example much"),
        (("boost", "a.example", "9" * 30), "N must be"),
        (("why",), "required: URL"),
        (("why", "http://a.example/", "--limit", "0"), "--limit: it must be 1 or more"),
    ],
)
def test_bad_values(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    out, error = capsys.readouterr()
    assert (out, error[:19]) == ("", "usage: scrapy-fleet")
    assert message in " ".join(error.split())


def test_the_words_may_stand_anywhere(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    made = Anywhere(f"sqlite:{tmp_path / '.scrapy' / 'fleet'}", "news", Plan())
    made.add(*pages(1))
    installed = (entry_points(tmp_path_factory.mktemp("installed")),)
    for n, (command, words) in enumerate(
        [
            (FLEET, ("a.example", "--concurrency")),
            (FLEET, ("news", "a.example", "--concurrency")),
            (SCRAPY_FLEET, ("news", "--delay", "1", "http://a.example/", "--concurrency")),
        ],
        1,
    ):
        found = data("throttle", *words, str(n), cwd=tmp_path, command=command, paths=installed)
        assert (found["host"], found["override"]["concurrency"]) == ("a.example", n)
    assert data("boost", "a.example", "-5", cwd=tmp_path)["override"]["boost"] == -5
    assert data("boost", "news", "a.example", cwd=tmp_path)["override"]["boost"] == 10
    made.store.close()


# Hosts


def test_hosts_say_why_they_wait(news: Anywhere) -> None:
    news.add(*pages(5), *pages(5, "b.example"), *pages(5, "c.example"))
    news.answer("throttle", "b.example", "--delay", "3000")
    held = next(lease for lease in news.lease(5) if lease.slot == "c.example")
    news.commit(samples=(Sample(held.token, 0.1, 503, retry_after=HOUR),))
    found = {host["name"]: host for host in news.answer("hosts")["hosts"]}
    assert found["a.example"]["reason"] == "full"
    assert found["b.example"]["reason"] == "delay"
    assert 2900 < found["b.example"]["next_in"] <= 3000 + leeway_of(3000)
    assert found["b.example"]["override"] == {
        "delay": 3000,
        "concurrency": None,
        "blocked": False,
        "boost": 0,
    }
    assert found["c.example"]["reason"] == "503, Retry-After"
    assert HOUR - 100 < found["c.example"]["next_in"] <= HOUR
    head, *lines = news.said("hosts").splitlines()
    assert head.split()[-3:] == ["in", "why", "told"]
    [a, b, c] = sorted(lines)
    assert a.split()[-2:] == ["full", "-"]
    assert re.search(r" \d+ min  delay, until \d\d:\d\d +delay 50 min$", b)
    assert re.search(r" \d+ min  503, Retry-After, until \d\d:\d\d +-$", c)


# What holds the crawl back


def limit(news: Anywhere) -> Any:
    [found] = news.answer("status")["crawls"]
    return found["limit"]


def test_status_names_the_host_whose_concurrency_is_used_up(news: Anywhere) -> None:
    news.add(*pages(20), *pages(5, "b.example"))
    assert limit(news) is None
    news.lease(3)
    found = limit(news)
    assert (found["host"], found["reason"], found["concurrency"], found["hosts"]) == (
        "a.example",
        "full",
        2,
        1,
    )
    words = f"{news.name} a.example"
    assert (
        "\n  a.example holds the crawl back, not the number of workers: it takes 2 requests at a time, "
        "and so many are under way. If the site can take more: CONCURRENT_REQUESTS_PER_DOMAIN, or "
        f"scrapy fleet throttle {words} --concurrency 4\n"
    ) in news.said("status")
    news.answer("throttle", "a.example", "--concurrency", "40")
    assert limit(news) is None
    news.answer("throttle", "a.example", "--concurrency", "1")
    assert (
        f"as was told by throttle. Take it back: scrapy fleet throttle {words} --reset" in limit(news)["says"]
    )
    news.answer("pause")
    assert limit(news) is None


def test_status_names_the_host_that_waits_for_its_delay(news: Anywhere) -> None:
    news.add(*pages(20), *pages(25, "b.example"), *pages(5, "c.example"))
    for host in ("a.example", "b.example"):
        news.answer("throttle", host, "--delay", "3000")
    news.lease(3)
    found = limit(news)
    assert (found["host"], found["reason"], found["delay"], found["hosts"]) == ("b.example", "delay", 3000, 2)
    assert "(as does 1 other host): its requests keep a distance of 50 min" in found["says"]
    news.answer("block", "b.example")
    assert limit(news)["says"].endswith(
        f"it is blocked. Let it go on: scrapy fleet unblock {news.name} b.example"
    )


# A real crawl


def test_a_running_crawl_obeys(news: Anywhere, tmp_path: Path) -> None:
    news.leave()
    settings = {"FLEET_URL": news.url, "FLEET_CRAWL": news.name, "DOWNLOAD_DELAY": 0.05}
    with running(Shape(pages=100, links=5)) as site, Run(site, tmp_path, settings) as one:
        site.wait(arrivals=5)
        news.said("block", site.start_url)
        deadline = time.monotonic() + 30
        while (view := news.store.slot("127.0.0.1")) is None or view.leased:
            assert time.monotonic() < deadline, "requests are still in hand"
            time.sleep(0.02)
        arrivals = site.stats()["arrivals"]
        assert "it is blocked" in limit(news)["says"]
        assert news.answer("throttle", "127.0.0.1", "--delay", "0")["override"]["blocked"]
        assert site.stats()["arrivals"] == arrivals < 100
        news.said("unblock", "127.0.0.1")
        assert "'finish_reason': 'finished'" in one.ended()
        assert not one.errors
    assert news.store.snapshot().items == 100
