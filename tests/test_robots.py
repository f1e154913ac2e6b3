"""robots.txt: fetched once for the whole fleet, and heeded as RFC 9309 wants it. The site is the judge."""

from __future__ import annotations

import itertools
import signal
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from scrapy import signals
from scrapy.robotstxt import ProtegoRobotParser, PythonRobotParser, RobotParser

from scrapy_fleet.crawl.robots_memory import LONGEST, Memory, Robots, distance_of
from scrapy_fleet.crawl.robots_paper import LARGEST, Ages, Fetched, Look, cut, look, pack, unpack
from scrapy_fleet.model import Batch, Notice, Plan, Rule, Snapshot, Worker
from scrapy_fleet.settings import open_store
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore
from tests.commands import a_crawler
from tests.crash.fleet import PATIENCE, Fleet
from tests.special_site import Answer, Site, Visit
from tests.spiders.robots import Links

THEIRS = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
OURS = "scrapy_fleet.crawl.robots.FleetRobotsTxtMiddleware"

BACKOFF = 0.2


def rules(*lines: str) -> Answer:
    return Answer("\n".join(("User-agent: *", *lines)).encode(), type="text/plain")


ALL = rules("Allow: /")
NOTHING_HIDDEN = rules("Disallow: /*/hidden/")
REFUSED = Answer(b"", 503)
BROKEN = Answer(b"", missing=100)
"""The connection is closed before the end."""


class Arrival(NamedTuple):
    time: float
    path: str
    agent: str


class RobotsSite(Site):
    """Answers for robots.txt with these, one after the other, and then always with the last."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self.answers = answers
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[Arrival] = []
        """When it was asked for robots.txt."""
        self.pages: list[Arrival] = []
        self._changed = threading.Condition()

    def __enter__(self) -> RobotsSite:
        super().__enter__()
        return self

    def _answer(self, visit: Visit) -> Answer:
        arrival = Arrival(time.monotonic(), visit.path, visit.headers.get("user-agent", ""))
        is_robots = visit.run == "robots.txt"
        with self._changed:
            (self.asked if is_robots else self.pages).append(arrival)
            self._changed.notify_all()
        if not is_robots:
            return super()._answer(visit)
        self.gate.wait(PATIENCE)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the site can tell."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE)

    def paths(self) -> Counter[str]:
        return Counter(arrival.path for arrival in self.pages)

    def agents(self) -> set[str]:
        return {arrival.agent for arrival in self.pages}


def crawl(folder: Path, site: RobotsSite, *paths: str, **settings: Any) -> Fleet:
    fixed: dict[str, Any] = {
        "ROBOTSTXT_OBEY": True,
        "FLEET_BACKOFF": BACKOFF,
        "FLEET_BACKOFF_MAX": 2 * BACKOFF,
    }
    urls = [site.base("run") + path for path in paths]
    return Fleet(folder, Links, settings={**fixed, **settings}, urls=urls, gate=str(folder / "gate"))


def begin(fleet: Fleet) -> None:
    Path(fleet.job.arguments["gate"]).touch()


def pair(fleet: Fleet) -> None:
    """Two workers that the site can tell apart; they begin together."""
    for name in ("worker-1", "worker-2"):
        fleet.start(USER_AGENT=name)
    begin(fleet)


def gaps(arrivals: list[Arrival]) -> list[float]:
    return [later.time - earlier.time for earlier, later in itertools.pairwise(arrivals)]


def many(kind: str, count: int = 10) -> list[str]:
    return [f"/{kind}/{number}" for number in range(count)]


# Sharing


def test_one_worker_fetches_it_and_all_share_it(tmp_path: Path) -> None:
    site = RobotsSite(ALL)
    site.gate.clear()
    with site, crawl(tmp_path, site, *many("endless", 60)) as fleet:
        fleet.start(USER_AGENT="worker-1")
        begin(fleet)
        site.until(lambda: len(site.asked) == 1)
        fleet.start(USER_AGENT="worker-2")
        fleet.wait(
            lambda look: len(look.workers) == 2 and all(w.leased for w in look.workers), "both have work"
        )
        assert not site.pages
        site.gate.set()
        site.until(lambda: site.agents() == {"worker-1", "worker-2"})
        assert len(site.asked) == 1


def test_it_is_fetched_again_when_it_is_old(tmp_path: Path) -> None:
    with RobotsSite(ALL) as site, crawl(tmp_path, site, "/endless/1", FLEET_ROBOTS_MAX_AGE=1) as fleet:
        pair(fleet)
        site.until(lambda: len(site.asked) >= 4 and len(site.agents()) == 2)
        assert min(gaps(site.asked)) >= 1


def test_a_new_run_goes_on_with_it(tmp_path: Path) -> None:
    with RobotsSite(NOTHING_HIDDEN) as site, crawl(tmp_path, site, *many("leaf"), *many("hidden")) as fleet:
        begin(fleet)
        for run in (1, 2):
            fleet.start()
            fleet.finish()
            assert site.paths() == Counter(many("leaf") * run)
        assert len(site.asked) == 1


def test_a_worker_that_dies_fetching_it_is_replaced(tmp_path: Path) -> None:
    site = RobotsSite(ALL)
    site.gate.clear()
    with site, crawl(tmp_path, site, *many("leaf", 60), FLEET_WORKER_TIMEOUT=2) as fleet:
        begin(fleet)
        first = fleet.start()
        site.until(lambda: len(site.asked) == 1)
        fleet.start()
        first.kill()
        site.gate.set()
        fleet.finish()
        assert site.paths() == Counter(many("leaf", 60))
        assert len(site.asked) == 2


def test_a_worker_that_waits_for_it_can_be_stopped(tmp_path: Path) -> None:
    site = RobotsSite(ALL)
    site.gate.clear()
    with site, crawl(tmp_path, site, *many("leaf", 60)) as fleet:
        begin(fleet)
        fleet.start()
        site.until(lambda: len(site.asked) == 1)
        second = fleet.start()
        fleet.wait(
            lambda look: len(look.workers) == 2 and all(w.leased for w in look.workers), "both have work"
        )
        second.signal(signal.SIGTERM)
        assert second.ended()["finish_reason"] == "shutdown"
        site.gate.set()
        fleet.finish()
        assert site.paths() == Counter(many("leaf", 60))


def test_a_paper_that_cannot_be_read_is_fetched_again(tmp_path: Path) -> None:
    with RobotsSite(NOTHING_HIDDEN) as site, crawl(tmp_path, site, *many("leaf"), *many("hidden")) as fleet:
        put_paper(fleet, site, b"garbage")
        pair(fleet)
        fleet.finish()
        assert site.paths() == Counter(many("leaf"))
        assert len(site.asked) == 1


def test_a_paper_that_is_there_is_heeded(tmp_path: Path) -> None:
    with RobotsSite(ALL) as site, crawl(tmp_path, site, *many("leaf"), *many("hidden")) as fleet:
        put_paper(fleet, site, pack(Fetched(NOTHING_HIDDEN.body)))
        pair(fleet)
        fleet.finish()
        assert site.paths() == Counter(many("leaf"))
        assert not site.asked


def put_paper(fleet: Fleet, site: RobotsSite, data: bytes) -> None:
    store = open_store(fleet.url, fleet.crawl)
    store.write_paper(f"robots.txt 127.0.0.1:{site.port}", data)
    store.close()


# What the site says


def test_what_is_disallowed_is_not_fetched(tmp_path: Path) -> None:
    paths = [*many("leaf"), *many("hidden"), "/hidden/11#free"]
    with RobotsSite(NOTHING_HIDDEN) as site, crawl(tmp_path, site, *paths) as fleet:
        pair(fleet)
        fleet.finish()
        assert site.paths() == Counter([*many("leaf"), "/hidden/11"])
        look = fleet.snapshot()
        assert look.counts.done == 21
        stats = {name: value for name, value in look.stats.items() if name.startswith("robotstxt/")}
        assert stats == {
            "robotstxt/forbidden": 10,
            "robotstxt/request_count": 1,
            "robotstxt/response_count": 1,
            "robotstxt/response_status_count/200": 1,
        }


@pytest.mark.skipif(not hasattr(signals, "robots_parsed"), reason="this Scrapy does not send it")
def test_every_worker_sends_scrapys_signal(tmp_path: Path) -> None:
    with RobotsSite(ALL) as site, crawl(tmp_path, site, "/endless/1") as fleet:
        pair(fleet)
        fleet.wait(lambda look: look.stats.get("robots_heard_of") == 2, "both have heard of it")
        assert len(site.asked) == 1


@pytest.mark.parametrize("status", [404, 403])
def test_a_site_without_one_allows_everything(tmp_path: Path, status: int) -> None:
    answer = rules("Disallow: /")
    answer.status = status
    with RobotsSite(answer) as site, crawl(tmp_path, site, *many("leaf"), *many("hidden")) as fleet:
        pair(fleet)
        fleet.finish()
        assert site.paths() == Counter([*many("leaf"), *many("hidden")])
        assert len(site.asked) == 1


def test_one_that_has_moved_is_followed(tmp_path: Path) -> None:
    moved = Answer(status=301, headers=[("Location", "/robots.txt/here")])
    with RobotsSite(moved, NOTHING_HIDDEN) as site:
        with crawl(tmp_path, site, *many("leaf"), *many("hidden")) as fleet:
            pair(fleet)
            fleet.finish()
        assert site.paths() == Counter(many("leaf"))
        assert len(site.asked) == 2


@pytest.mark.parametrize("wish", ["Crawl-delay: 1", "Request-rate: 1/1"])
def test_the_distance_it_asks_for_is_kept(tmp_path: Path, wish: str) -> None:
    with RobotsSite(rules(wish)) as site, crawl(tmp_path, site, *many("leaf", 6)) as fleet:
        pair(fleet)
        fleet.finish()
        assert site.paths() == Counter(many("leaf", 6))
        # It is not shortened by the jitter of delays. What is missing to a second is a busy machine's.
        assert min(gaps(site.pages)) >= 0.8
        with fleet.store() as store:
            slot = store.slot("127.0.0.1")
        assert slot is not None
        assert slot.robots == 1


def test_a_distance_that_is_no_longer_asked_for_is_forgotten(tmp_path: Path) -> None:
    site = RobotsSite(rules("Crawl-delay: 0.2"))
    with site, crawl(tmp_path, site, "/endless/1", FLEET_ROBOTS_MAX_AGE=1) as fleet:
        pair(fleet)
        fleet.wait(has_distance(0.2), "the distance")
        site.answers = (ALL,)
        fleet.wait(has_distance(0), "none")


def has_distance(distance: float) -> Callable[[Snapshot], bool]:
    return lambda look: {slot.robots for slot in look.slots} == {distance}


def test_a_worker_that_was_given_up_tells_the_distance_again(tmp_path: Path) -> None:
    """What it told before may have been lost."""
    with RobotsSite(rules("Crawl-delay: 0.2")) as site, crawl(tmp_path, site, "/endless/1") as fleet:
        begin(fleet)
        worker = fleet.start()
        fleet.wait(has_distance(0.2), "the distance")
        with fleet.store() as store:
            commit_as_another(store, Notice("127.0.0.1", distance=0))
        fleet.wait(has_distance(0), "it is lost")
        fleet.give_up(worker)
        fleet.wait(has_distance(0.2), "the distance, again")
        assert len(site.asked) == 1


def commit_as_another(store: Store, notice: Notice) -> None:
    other = Worker("other")
    store.join(other, Plan(rule=Rule(concurrency=32)), ttl=3600)
    store.commit(Batch(worker=other.id, seq=1, notices=(notice,), leave=True))


# A site that cannot be asked


@pytest.mark.parametrize("refusal", [REFUSED, Answer(b"", 500), Answer(b"", 429), BROKEN])
def test_a_site_that_cannot_be_asked_is_left_alone_until_it_can(tmp_path: Path, refusal: Answer) -> None:
    paths = [*many("leaf"), *many("hidden")]
    with RobotsSite(refusal, refusal, NOTHING_HIDDEN) as site, crawl(tmp_path, site, *paths) as fleet:
        pair(fleet)
        fleet.finish()
        assert site.paths() == Counter(many("leaf"))
        assert len(site.asked) == 3
        assert site.pages[0].time > site.asked[2].time
        assert min(gaps(site.asked)) >= 0.9 * BACKOFF
        assert fleet.snapshot().counts.dead == 0


def test_a_site_that_cannot_be_asked_is_left_alone_for_as_long_as_it_says(tmp_path: Path) -> None:
    busy = Answer(b"", 429, headers=[("Retry-After", "1")])
    with RobotsSite(busy, NOTHING_HIDDEN) as site, crawl(tmp_path, site, *many("leaf")) as fleet:
        pair(fleet)
        fleet.finish()
        assert site.paths() == Counter(many("leaf"))
        assert min(gaps(site.asked)) >= 0.99
        # What was handed out meanwhile went back as it was.
        assert fleet.snapshot().counts.accepted == 10


def test_a_site_that_refuses_to_be_asked_again_is_left_alone(tmp_path: Path) -> None:
    """Though its old rules hold."""
    busy = Answer(b"", 503, headers=[("Retry-After", "2")])
    site = RobotsSite(NOTHING_HIDDEN, busy, NOTHING_HIDDEN)
    with site, crawl(tmp_path, site, "/endless/1", FLEET_ROBOTS_MAX_AGE=0.5) as fleet:
        begin(fleet)
        fleet.start()
        site.until(lambda: len(site.asked) >= 2 and site.pages[-1].time >= site.asked[1].time + 2)
        # It is not left alone at once: some requests are under way.
        later = [page for page in site.pages if page.time > site.asked[1].time]
        assert max(gaps([site.asked[1], *later])) >= 1


def test_a_site_that_can_never_be_asked_is_given_up(tmp_path: Path) -> None:
    with RobotsSite(REFUSED) as site:
        with crawl(tmp_path, site, *many("leaf"), FLEET_HOST_PATIENCE=0.5) as fleet:
            pair(fleet)
            fleet.finish()
            dead = fleet.scan("dead")
        assert not site.pages
        assert len(dead) == 10
        assert all("robots.txt answered 503" in str(row.reason) for row in dead)


def test_without_the_breaker_its_requests_are_refused(tmp_path: Path) -> None:
    with RobotsSite(REFUSED) as site, crawl(tmp_path, site, *many("leaf"), FLEET_BREAKER=0) as fleet:
        pair(fleet)
        fleet.finish()
        assert not site.pages
        assert len(site.asked) == 3  # Scrapy tries again at once
        look = fleet.snapshot()
        assert look.counts.done == look.stats["robotstxt/unreachable"] == 10


def test_the_old_rules_hold_while_a_site_cannot_be_asked_again(tmp_path: Path) -> None:
    paths = [*many("hidden"), "/endless/1"]
    with RobotsSite(NOTHING_HIDDEN, REFUSED) as site:
        with crawl(tmp_path, site, *paths, FLEET_ROBOTS_MAX_AGE=0.5) as fleet:
            pair(fleet)
            site.until(lambda: len(site.asked) >= 4)
            before = len(site.pages)
            site.until(lambda: len(site.pages) >= before + 20)
        assert not any(path.startswith("/hidden") for path in site.paths())


# The paper


@pytest.mark.parametrize(
    "fetched",
    [
        Fetched(),
        Fetched(b"User-agent: *\nDisallow: /"),
        Fetched(None, "503"),
        Fetched(b"x", "503"),
        Fetched(None, "503", 60.0),
    ],
)
def test_a_paper_is_read_as_it_was_written(fetched: Fetched) -> None:
    assert unpack(pack(fetched)) == fetched


def test_a_paper_is_small() -> None:
    assert len(pack(Fetched(b"Disallow: /some/where\n" * 20_000))) < 5000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        zlib.compress(b"garbage"),
        zlib.compress(msgspec.msgpack.encode([1, 2])),
        zlib.compress(msgspec.msgpack.encode({"body": b""})),
        pack(Fetched(b"x" * 1000))[:-5],
        pack(Fetched(b"x")) + b"more",
        pack(Fetched(b"x" * (LARGEST + 10_000))),
    ],
)
def test_garbage_is_no_paper(data: bytes) -> None:
    assert unpack(data) is None


def test_a_long_one_is_cut_after_a_whole_line() -> None:
    line = b"Disallow: /some/where\n"
    body = cut(line * LARGEST)
    assert LARGEST - len(line) < len(body) <= LARGEST
    assert body.endswith(line)
    assert len(body) % len(line) == 0
    assert cut(line) == line
    assert cut(b"x" * (LARGEST + 1)) == b""
    assert unpack(pack(Fetched(body))) == Fetched(body)


def test_looking_for_a_paper() -> None:
    now = 0.0
    store = MemoryStore("c", clock=lambda: now)
    ages = Ages(fetched=100, failed=10)

    def see(worker: str) -> Look:
        return look(store, "robots.txt a", worker, ages, 30)

    assert see("one") == Look(mine=True)
    assert see("two") == Look()
    now = 31
    assert see("two") == Look(mine=True)  # the first is taken to have died
    store.write_paper("robots.txt a", pack(Fetched(b"rules")))
    now = 91
    assert see("one") == Look(Fetched(b"rules"), good_for=40)
    now = 132
    assert see("one") == Look(mine=True, old=Fetched(b"rules"))
    assert see("two") == Look(old=Fetched(b"rules"))
    store.write_paper("robots.txt a", pack(Fetched(b"rules", "503")))
    now = 140
    assert see("two") == Look(Fetched(b"rules", "503"), good_for=2)
    now = 143
    assert see("two") == Look(mine=True, old=Fetched(b"rules", "503"))
    store.write_paper("robots.txt a", b"garbage")
    assert see("one") == Look(mine=True)
    assert see("two") == Look()
    store.write_paper("robots.txt a", pack(Fetched(None, "503", retry_after=50)))
    now += 44
    assert see("two").good_for == 1
    now += 2
    assert see("two").mine


# In a worker's memory


def known(body: bytes = b"", good_for: float = 60.0) -> Robots:
    return Robots(None, Fetched(body), good_for)


def test_sites_that_were_not_met_for_long_are_forgotten_first() -> None:
    memory = Memory(10 * 1024)
    for number in range(10):
        memory.put(f"site-{number}", known())
    assert memory.get("site-0") is not None
    memory.put("site-10", known())
    assert memory.get("site-1") is None
    assert memory.get("site-0") is not None
    memory.put("large", known(b"x" * 5000))
    assert [site for site in range(11) if memory.get(f"site-{site}")] == [0, 8, 9, 10]
    for _ in range(100):
        memory.put("large", known(b"x" * 100_000))
    assert memory.get("large") is not None
    assert len(list(memory)) == 1
    memory.put("small", known())
    memory.put("site-0", known())
    assert memory.get("large") is None
    assert len(list(memory)) == 2


def test_what_is_old_is_not_known() -> None:
    memory = Memory()
    memory.put("site", known(good_for=-1))
    assert memory.get("site") is None


@pytest.mark.parametrize("parser", [ProtegoRobotParser, PythonRobotParser])
@pytest.mark.parametrize(
    ("lines", "distance"),
    [
        ("Crawl-delay: 2", 2),
        ("Request-rate: 1/5", 5),
        ("Request-rate: 10/5\nCrawl-delay: 2", 2),
        ("Request-rate: 1/5\nCrawl-delay: 2", 5),
        ("Crawl-delay: -1", 0),
        ("Crawl-delay: soon", 0),
        ("Crawl-delay: 100000000", LONGEST),
        ("Crawl-delay: 0", 0),
        ("Disallow: /", 0),
    ],
)
def test_the_longest_wish(parser: Callable[..., RobotParser], lines: str, distance: float) -> None:
    text = f"User-agent: other\nCrawl-delay: 77\n\nUser-agent: *\n{lines}\n"
    assert distance_of(parser(text.encode(), None), "me") == distance


@pytest.mark.parametrize("lines", ["Crawl-delay: inf", "Crawl-delay: nan", "Request-rate: 0/5"])
def test_a_wish_that_makes_no_sense_is_bounded(lines: str) -> None:
    parser = ProtegoRobotParser(f"User-agent: *\n{lines}".encode(), None)
    assert 0 <= distance_of(parser, "me") <= LONGEST


def test_a_parser_that_knows_no_distances() -> None:
    class Plain(RobotParser):
        @classmethod
        def from_crawler(cls, crawler: Any, robotstxt_body: bytes) -> Plain:
            return cls()

        def allowed(self, url: str | bytes, user_agent: str | bytes) -> bool:
            return True

    assert distance_of(Plain(), "me") == 0


# Wiring


def orders(**settings: Any) -> dict[str, int]:
    crawler = a_crawler(ADDONS={"scrapy_fleet.Addon": 500}, FLEET_URL="memory:", **settings)
    found: dict[str, int] = {}
    key: Any
    order: Any
    for key, order in crawler.settings.getwithbase("DOWNLOADER_MIDDLEWARES").items():
        path = key if isinstance(key, str) else f"{key.__module__}.{key.__qualname__}"
        if order is not None and path in (THEIRS, OURS):
            found[path] = order
    return found


def test_it_takes_the_place_of_scrapys_own() -> None:
    from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware

    assert orders() == {OURS: 100}
    assert orders(DOWNLOADER_MIDDLEWARES={THEIRS: 120}) == {OURS: 120}
    assert orders(DOWNLOADER_MIDDLEWARES={THEIRS: None}) == {}
    assert OURS in orders(DOWNLOADER_MIDDLEWARES={RobotsTxtMiddleware: 120})
