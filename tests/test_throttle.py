"""Sites that refuse, or do not answer, are left alone, and what waits for them is neither lost nor burnt.

Real crawls of a real site, which is the judge.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import scrapy
from scrapy.http import Response

from scrapy_fleet.crawl.retry_after import LONGEST, retry_after
from scrapy_fleet.model import Override
from scrapy_fleet.store.sqlite import SqliteStore
from tests.commands import environment
from tests.forked import Forked
from tests.run_spider import Job, Mode, Run
from tests.special_site import Site, Visit
from tests.spiders import throttle
from tests.spiders.base import SiteSpider

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
"""Seconds after which something is taken to hang."""
HOST = "127.0.0.1"

SETTINGS: dict[str, Any] = {
    "ADDONS": {"scrapy_fleet.Addon": 500},
    "LOG_LEVEL": "INFO",
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
    "RETRY_TIMES": 2,
    "FLEET_WORKER_TIMEOUT": 10,
    "FLEET_BACKOFF": 0.01,
    "FLEET_BACKOFF_MAX": 0.02,
}


@dataclass
class Came:
    """What came of a crawl."""

    items: list[dict[str, Any]]
    stats: dict[str, Any]
    visits: list[Visit]
    log: str

    @property
    def paths(self) -> list[str]:
        return [visit.path.partition("?")[0] for visit in self.visits]

    @property
    def gaps(self) -> list[float]:
        """Seconds between a request and the next, as the site saw them."""
        return [later.at - earlier.at for earlier, later in itertools.pairwise(self.visits)]


class Crawl:
    """A crawl in a process of its own, under way."""

    numbers = itertools.count(100)

    def __init__(
        self,
        folder: Path,
        base: str,
        *paths: str,
        spider: type[SiteSpider] = throttle.Asks,
        mode: Mode = "one_by_one",
        meta: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.run = base.rpartition("/")[2]
        self.spider = spider
        self.file = folder / "fleet.db"
        number = next(self.numbers)
        self._result = folder / f"result-{number}.jsonl"
        arguments = {"base": base, "other": "", "paths": " ".join(paths), "meta": json.dumps(meta or {})}
        run: Run = {"spider": f"{spider.__module__}:{spider.__name__}", "arguments": arguments}
        values = {**SETTINGS, "FLEET_URL": f"sqlite://{self.file}", **settings}
        job: Job = {"mode": mode, "settings": values, "runs": [run], "result": str(self._result)}
        file = folder / f"job-{number}.json"
        file.write_text(json.dumps(job))
        self._log = folder / f"log-{number}.txt"
        with self._log.open("w") as log:
            place = {"stdout": log.fileno(), "stderr": log.fileno()}
            self._process = Forked("tests.run_spider", str(file), cwd=folder, env=environment(), **place)

    def came(self, site: Site | None = None, *, reason: str = "finished") -> Came:
        """Wait for its end."""
        self._process.wait(PATIENCE)
        log = self._log.read_text()
        assert self._result.exists(), log
        result = json.loads(self._result.read_text())
        assert not result["error"], result["error"] + log
        assert result["stats"]["finish_reason"] == reason, log
        assert "Traceback" not in log, log
        visits = site.visits(self.run) if site is not None else []
        return Came(result["items"], result["stats"], visits, log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def base(site: Site, request: pytest.FixtureRequest) -> str:
    return site.base(re.sub(r"\W", "-", request.node.name))


# Retry-After


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (429, "7", 7.0),
        (503, " 7 ", 7.0),
        (429, "0", 0.0),
        (429, "1.5", 1.5),
        (429, "9" * 400, LONGEST),
        (200, "7", None),
        (301, "7", None),
        (429, None, None),
        (429, "", None),
        (429, "-7", None),
        (429, "soon", None),
        (429, "1e3", None),
        (429, "\u0663".encode().decode("latin-1"), None),
        (429, "7, 8", None),
        (429, "Fri, 99 Foo 2026 99:99:99 GMT", None),
        (429, "Fri, 31 Dec 99999 23:59:59 GMT", None),
        (429, "Fri, 31 Dec 1999 23:59:59 GMT", 0.0),
    ],
)
def test_what_a_site_asks_for(status: int, header: str | None, seconds: float | None) -> None:
    headers = {} if header is None else {"Retry-After": header.encode("latin-1")}
    assert retry_after(Response("http://a", status, headers=headers)) == seconds  # type: ignore[arg-type]


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 86400.0])
def test_a_date_is_read_by_the_sites_clock(ahead: float) -> None:
    now = time.time() + ahead
    headers = {"Date": formatdate(now, usegmt=True), "Retry-After": formatdate(now + 120, usegmt=True)}
    assert retry_after(Response("http://a", 429, headers=headers)) == 120.0  # type: ignore[arg-type]


@pytest.mark.parametrize("date", [None, "today"])
def test_a_date_is_read_by_our_clock_if_the_site_does_not_tell(date: str | None) -> None:
    headers = {"Retry-After": formatdate(time.time() + 3600, usegmt=True)}
    if date:
        headers["Date"] = date
    found = retry_after(Response("http://a", 503, headers=headers))  # type: ignore[arg-type]
    assert found is not None
    assert 3500 < found <= 3600


@pytest.mark.parametrize(
    ("status", "query", "least"),
    [(429, "after=1", 1.0), (503, "after=1", 1.0), (429, "after=2&date=3600", 1.9)],
    ids=["429", "503", "date"],
)
def test_a_refused_request_waits_with_its_host(
    site: Site, base: str, tmp_path: Path, status: int, query: str, least: float
) -> None:
    came = Crawl(
        tmp_path, base, f"/refuse/{status}/1/x?{query}", "/leaf/1", "/leaf/2", CONCURRENT_REQUESTS=1
    ).came(site)
    assert came.paths[0] == f"/refuse/{status}/1/x"
    assert sorted(came.paths[1:]) == ["/leaf/1", "/leaf/2", f"/refuse/{status}/1/x"]
    assert came.gaps[0] >= 0.99 * least
    assert all(item["status"] == 200 and item["times"] is None for item in came.items), came.items
    assert len(came.items) == 3
    assert came.stats["fleet/refused"] == 1
    assert "retry/count" not in came.stats
    assert not any(item["marks"] for item in came.items)


@pytest.mark.parametrize("mode", ["one_by_one", "select", "reactorless"])
def test_a_host_that_refuses_without_a_time_is_left_alone_for_longer_and_longer(
    site: Site, base: str, tmp_path: Path, mode: Mode
) -> None:
    if mode == "reactorless" and scrapy.version_info < (2, 15):
        pytest.skip(f"not with Scrapy {scrapy.__version__}")
    came = Crawl(tmp_path, base, "/refuse/429/3/x", mode=mode, FLEET_BACKOFF=0.2, FLEET_BACKOFF_MAX=0.6).came(
        site
    )
    assert len(came.visits) == 4
    for gap, least in zip(came.gaps, (0.2, 0.4, 0.6), strict=True):
        assert gap >= 0.99 * least
    assert [item["times"] for item in came.items] == [None]
    assert came.stats["fleet/refused"] == 3


def test_503_without_a_time_is_a_retry_but_the_host_is_left_alone(
    site: Site, base: str, tmp_path: Path
) -> None:
    came = Crawl(tmp_path, base, "/refuse/503/1/x", FLEET_BACKOFF=0.3, FLEET_BACKOFF_MAX=1).came(site)
    assert len(came.visits) == 2
    assert came.gaps[0] >= 0.29
    assert [item["times"] for item in came.items] == [1]
    assert came.stats["retry/count"] == 1
    assert "fleet/refused" not in came.stats


def test_who_refuses_for_ever_is_given_up_like_others(site: Site, base: str, tmp_path: Path) -> None:
    came = Crawl(tmp_path, base, "/refuse/429/99/x").came(site)
    assert len(came.visits) == 1 + 10 + SETTINGS["RETRY_TIMES"]
    assert came.items == [{"failed": "HttpError"}]
    assert came.stats["retry/max_reached"] == 1


@pytest.mark.parametrize(
    ("more", "visits", "item"),
    [
        ({"meta": {"dont_retry": True}}, 1, {"failed": "HttpError"}),
        ({"meta": {"max_retry_times": 0}}, 1, {"failed": "HttpError"}),
        ({"RETRY_ENABLED": False}, 1, {"failed": "HttpError"}),
        ({"RETRY_HTTP_CODES": [500]}, 1, {"failed": "HttpError"}),
        ({"meta": {"handle_httpstatus_list": [429]}}, 3, {"status": 429}),
        ({"meta": {"handle_httpstatus_all": True}}, 3, {"status": 429}),
        ({"spider": throttle.Sees429}, 3, {"status": 429}),
        ({"HTTPERROR_ALLOWED_CODES": [429]}, 3, {"status": 429}),
        (
            {"meta": {"dont_retry": True, "handle_httpstatus_list": [404]}, "spider": throttle.Sees429},
            1,
            {"failed": "HttpError"},
        ),
    ],
    ids=lambda value: "-".join(str(each) for each in value) if isinstance(value, dict) else "",
)
def test_who_wants_to_see_refusals_sees_them(
    site: Site, base: str, tmp_path: Path, more: dict[str, Any], visits: int, item: dict[str, Any]
) -> None:
    came = Crawl(tmp_path, base, "/refuse/429/9/x", **more).came(site)
    assert len(came.visits) == visits
    assert "fleet/refused" not in came.stats
    [found] = came.items
    assert item.items() <= found.items()


def test_a_refusal_from_the_cache_says_nothing_about_now(site: Site, base: str, tmp_path: Path) -> None:
    cached = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    path = "/refuse/429/9/x?after=9"
    first = Crawl(tmp_path, base, path, RETRY_ENABLED=False, **cached).came(site)
    assert len(first.visits) == 1
    second = Crawl(tmp_path, base, path, **cached).came(site)
    assert len(second.visits) == 1
    assert second.stats["httpcache/hit"] == 3
    assert "fleet/refused" not in second.stats


@pytest.mark.parametrize(
    ("spider", "path", "least"),
    [
        (throttle.RefusedInline, "/refuse/429/1/x?after=1", 1.0),
        (throttle.RefusedFile, "/refuse/503/1/x", 0.5),
    ],
)
def test_a_refusal_of_what_has_no_lease_holds_the_host(
    site: Site, base: str, tmp_path: Path, spider: type[SiteSpider], path: str, least: float
) -> None:
    pauses = {"FLEET_BACKOFF": 0.5, "FLEET_BACKOFF_MAX": 0.5}
    came = Crawl(tmp_path, base, "/leaf/first", path, spider=spider, **pauses).came(site)
    assert came.paths[:2] == ["/leaf/first", path.partition("?")[0]]
    assert sorted(came.paths[2:]) == ["/leaf/0", "/leaf/1", "/leaf/2"]
    assert came.gaps[1] >= 0.99 * least


# A site that does not answer


@pytest.fixture
def closed_port() -> Iterator[socket.socket]:
    """A port that is taken, and refuses."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, 0))
        yield listener


def test_a_host_that_comes_back_gets_all_its_requests(closed_port: socket.socket, tmp_path: Path) -> None:
    base = f"http://{HOST}:{closed_port.getsockname()[1]}/run"
    paths = [f"/leaf/{number}" for number in range(12)]
    # One at a time: none can fail twice before the breaker knows of the first failures.
    more: dict[str, Any] = {"RETRY_TIMES": 1, "CONCURRENT_REQUESTS_PER_DOMAIN": 1}
    crawl = Crawl(tmp_path, base, *paths, FLEET_BREAKER=4, FLEET_BACKOFF=0.1, FLEET_BACKOFF_MAX=0.2, **more)
    try:
        reason = probed_in_vain(crawl, times=5)
        assert reason.startswith("no answer: ")
        assert "refused" in reason.lower()
        with Site(closed_port) as site:
            came = crawl.came(site)
            assert sorted(came.paths) == sorted(paths)
    finally:
        crawl.kill()
    assert [item.get("status") for item in came.items] == [200] * len(paths)
    assert came.stats["fleet/probes_failed"] >= 5
    # What failed before it was known that the host does not answer was a retry.
    assert came.stats["retry/count"] <= len(paths)


def test_what_fails_while_the_host_falls_silent_is_not_burnt(
    closed_port: socket.socket, tmp_path: Path
) -> None:
    """All fail together, and before the tenth failure is known the first has no retry left."""
    base = f"http://{HOST}:{closed_port.getsockname()[1]}/run"
    paths = [f"/leaf/{number}" for number in range(9)]
    told(tmp_path / "fleet.db", throttle.Asks, Override(blocked=True))
    limits: dict[str, Any] = {"CONCURRENT_REQUESTS_PER_DOMAIN": 16, "RETRY_TIMES": 1, "FLEET_BREAKER": 10}
    crawl = Crawl(tmp_path, base, *paths, FLEET_BACKOFF=0.1, FLEET_BACKOFF_MAX=0.2, **limits)
    try:
        store = SqliteStore(crawl.file, crawl.spider.name)
        end = time.monotonic() + PATIENCE
        while store.snapshot().counts.waiting < len(paths):
            assert time.monotonic() < end
            time.sleep(0.01)
        store.override(HOST, None)
        store.close()
        probed_in_vain(crawl, times=2)
        with Site(closed_port) as site:
            came = crawl.came(site)
    finally:
        crawl.kill()
    assert [item.get("status") for item in came.items] == [200] * len(paths)
    assert came.stats["fleet/silent"] >= 1
    assert not any(item["marks"] for item in came.items)


def test_few_requests_that_get_no_answer_run_out_of_retries(
    closed_port: socket.socket, tmp_path: Path
) -> None:
    """They fail less often than it takes to know that it is the host's fault."""
    base = f"http://{HOST}:{closed_port.getsockname()[1]}/run"
    came = Crawl(tmp_path, base, *(f"/leaf/{number}" for number in range(3)), FLEET_BREAKER=10).came()
    assert len(came.items) == came.stats["retry/max_reached"] == 3
    assert "fleet/silent" not in came.stats


def probed_in_vain(crawl: Crawl, times: int) -> str:
    """Wait until the host has been probed so often; why it is left alone."""
    end = time.monotonic() + PATIENCE
    while not crawl.file.exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    store = SqliteStore(crawl.file, crawl.spider.name)
    try:
        while True:
            assert time.monotonic() < end, "it was not probed"
            if store.snapshot().stats.get("fleet/probes_failed", 0) >= times:
                view = store.slot(HOST)
                assert view is not None
                if view.reason.startswith("no answer"):
                    return view.reason
            time.sleep(0.01)
    finally:
        store.close()


def test_a_host_that_never_answers_is_given_up(closed_port: socket.socket, tmp_path: Path) -> None:
    base = f"http://{HOST}:{closed_port.getsockname()[1]}/run"
    paths = [f"/leaf/{number}" for number in range(12)]
    crawl = Crawl(
        tmp_path, base, *paths, FLEET_BREAKER=4, FLEET_BACKOFF_MAX=0.1, FLEET_HOST_PATIENCE=0.5, RETRY_TIMES=3
    )
    came = crawl.came()
    assert came.stats["fleet/given_up"] == len(paths)
    assert came.items == []  # no errback either: nobody knows what is there
    assert came.log.count("127.0.0.1 is given up; what waits for it is kept as dead: no answer: ") == 1
    store = SqliteStore(crawl.file, crawl.spider.name)
    assert store.snapshot().counts.dead == len(paths)
    reasons = {row.reason for row in store.scan("dead")}
    assert len(reasons) == 1
    assert str(reasons.pop()).endswith("; given up after 0.5 s")
    store.close()


def test_without_the_breaker_failures_are_retries(closed_port: socket.socket, tmp_path: Path) -> None:
    base = f"http://{HOST}:{closed_port.getsockname()[1]}/run"
    came = Crawl(tmp_path, base, *(f"/leaf/{number}" for number in range(12)), FLEET_BREAKER=0).came()
    assert len(came.items) == 12
    assert came.stats["retry/count"] == 12 * SETTINGS["RETRY_TIMES"]
    assert "fleet/probes_failed" not in came.stats


# The pace


def test_a_request_that_was_held_up_does_not_come_at_the_time_of_another(
    site: Site, base: str, tmp_path: Path
) -> None:
    paths = ["/leaf/1", "/leaf/late", "/leaf/2", "/leaf/3", "/leaf/4"]
    came = Crawl(
        tmp_path,
        base,
        *paths,
        spider=throttle.Dawdles,
        DOWNLOAD_DELAY=0.4,
        RANDOMIZE_DOWNLOAD_DELAY=False,
    ).came(site)
    assert sorted(came.paths) == sorted(paths)
    assert came.stats["fleet/late"] >= 1
    assert min(came.gaps) >= 0.5 * 0.4, came.gaps
    assert not any(item["marks"] for item in came.items)
    # It went back as what it was.
    assert came.stats["scheduler/enqueued"] == len(paths)
    assert came.stats["scheduler/dequeued"] > len(paths)


def test_downloads_inside_callbacks_keep_the_pace(site: Site, base: str, tmp_path: Path) -> None:
    paths = [f"/leaf/{number}" for number in range(5)]
    came = Crawl(
        tmp_path,
        base,
        *paths,
        spider=throttle.Inline,
        DOWNLOAD_DELAY=0.3,
        RANDOMIZE_DOWNLOAD_DELAY=False,
    ).came(site)
    assert len(came.visits) == 10
    assert min(came.gaps) >= 0.6 * 0.3, came.gaps
    assert came.stats["fleet/late"] >= 1  # what would have had to wait for them had to choose another time


def test_downloads_inside_callbacks_keep_the_pace_that_people_set(
    site: Site, base: str, tmp_path: Path
) -> None:
    told(tmp_path / "fleet.db", throttle.Inline, Override(delay=0.3))
    paths = [f"/leaf/{number}" for number in range(5)]
    came = Crawl(tmp_path, base, *paths, spider=throttle.Inline, RANDOMIZE_DOWNLOAD_DELAY=False).came(site)
    assert len(came.visits) == 10
    assert min(came.gaps) >= 0.6 * 0.3, came.gaps


def test_people_may_allow_more_requests_at_a_time(site: Site, base: str, tmp_path: Path) -> None:
    told(tmp_path / "fleet.db", throttle.Staggers, Override(concurrency=6))
    paths = [f"/slow/1000?{number}" for number in range(9)]
    limit = {"CONCURRENT_REQUESTS_PER_DOMAIN": 2}
    came = Crawl(tmp_path, base, *paths, spider=throttle.Staggers, **limit).came(site)
    assert len(came.visits) == 9
    assert site.most_together(came.visits[0].run)[HOST] <= 6
    # More than two came before the first was answered.
    assert came.visits[2].at - came.visits[0].at < 1.0


def told(file: Path, spider: type[SiteSpider], override: Override) -> None:
    store = SqliteStore(file, spider.name)
    store.override(HOST, override)
    store.close()


# AutoThrottle

LINE = re.compile(
    r"\[scrapy\.extensions\.throttle\] INFO: slot: 127\.0\.0\.1 \| conc: ?\d+ \| "
    r"delay: *(\d+) ms \(([+-]\d+)\) \| latency: *(\d+) ms \| size: *(\d+) bytes"
)


def test_a_line_a_response(site: Site, base: str, tmp_path: Path) -> None:
    throttled = {
        "AUTOTHROTTLE_ENABLED": True,
        "AUTOTHROTTLE_DEBUG": True,
        "AUTOTHROTTLE_START_DELAY": 0.1,
        "AUTOTHROTTLE_MAX_DELAY": 1,
    }
    paths = ["/slow/1", "/slow/50", "/status/404", "/leaf/1", "/slow/100"]
    came = Crawl(tmp_path, base, *paths, **throttled).came(site)
    lines = [tuple(map(int, found.groups())) for found in LINE.finditer(came.log)]
    assert len(lines) == came.log.count("conc:") == len(paths)
    before = 100
    for delay, change, latency, _size in lines:
        assert abs(before + change - delay) <= 2  # whole milliseconds
        assert delay >= min(1000, latency) - 1
        before = delay
    store = SqliteStore(tmp_path / "fleet.db", "asks")
    view = store.slot(HOST)
    store.close()
    assert view is not None
    # One worker knows what the store knows.
    assert abs(1000 * view.delay - lines[-1][0]) <= 1


def test_lines_are_only_for_what_changes_the_delay(site: Site, base: str, tmp_path: Path) -> None:
    throttled = {"AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_DEBUG": True, "AUTOTHROTTLE_START_DELAY": 0}
    came = Crawl(tmp_path, base, "/leaf/1", meta={"autothrottle_dont_adjust_delay": True}, **throttled).came(
        site
    )
    assert "conc:" not in came.log
    assert "conc:" not in Crawl(tmp_path, base, "/leaf/1", AUTOTHROTTLE_DEBUG=True).came(site).log


def test_the_lines_are_those_of_scrapy(site: Site, base: str, tmp_path: Path) -> None:
    paths = [
        "/slow/1",
        "/slow/150",
        "/status/404",
        "/leaf/1",
        "/slow/300",
        "/leaf/2",
        "/status/500",
        "/leaf/3",
    ]
    came = Crawl(
        tmp_path,
        base,
        *paths,
        spider=throttle.StockThrottled,
        ADDONS={},
        DOWNLOAD_DELAY=0.02,
        AUTOTHROTTLE_ENABLED=True,
        AUTOTHROTTLE_DEBUG=True,
        AUTOTHROTTLE_START_DELAY=0.1,
        AUTOTHROTTLE_MAX_DELAY=0.2,
        AUTOTHROTTLE_TARGET_CONCURRENCY=1.5,
        RETRY_ENABLED=False,
    ).came(site)
    lines = came.stats["throttle_lines"]
    assert len(lines) == 2 * len(paths)
    assert all(ours == theirs for theirs, ours in zip(lines[::2], lines[1::2], strict=True))
    assert len(set(lines)) > 4


# Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DOWNLOAD_DELAY", -1),
        ("AUTOTHROTTLE_TARGET_CONCURRENCY", 0),
        ("DOWNLOAD_SLOTS", {"a": {"dealy": 1}}),
        ("FLEET_BACKOFF", "long"),
    ],
)
def test_a_crawl_with_a_wrong_value_does_not_start(
    site: Site, base: str, tmp_path: Path, name: str, value: Any
) -> None:
    settings = {"AUTOTHROTTLE_ENABLED": True, name: value}
    came = Crawl(tmp_path, base, "/leaf/1", **settings).came(site, reason="fleet_error")
    assert came.visits == []
    assert re.search(rf"ERROR: {name}\b", came.log)
