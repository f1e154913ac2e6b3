"""Crawls whose requests wait in queues of the user's own, and the order that results from queue settings."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import scrapy

from scrapy_fleet.store.sqlite.notes import Notes
from tests.forked import Forked
from tests.proxy import Proxy
from tests.run_spider import Job, Result
from tests.servers import RedisServer, free_port, required, shared, valkey_binary
from tests.special_site import OTHER_HOST, Site
from tests.spiders import queues
from tests.spiders.base import SiteSpider

ROOT = Path(__file__).parent.parent
VERSION = scrapy.version_info[:2]
FLEET = {"ADDONS": {"scrapy_fleet.Addon": 500}}
TREE = 40


class Runs:
    """Spiders that are run one after the other in a process of their own."""

    def __init__(
        self, site: Site, folder: Path, spiders: Sequence[type[SiteSpider]], **settings: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.site = site
        self.spiders = spiders
        # A spider that goes on with what another has left uses the same pages.
        self.names = [
            f"{folder.name}-{[*spiders[:n]].count(spider)}-{spider.name}".removesuffix("_mended")
            for n, spider in enumerate(spiders)
        ]
        job: Job = {
            "mode": "one_by_one",
            "settings": {"TELNETCONSOLE_ENABLED": False, "LOG_LEVEL": "INFO", "LOG_FILE": "log", **settings},
            "runs": [
                {
                    "spider": f"{spider.__module__}:{spider.__name__}",
                    "arguments": {"base": site.base(name), "other": site.base(name, OTHER_HOST)},
                }
                for spider, name in zip(spiders, self.names, strict=True)
            ],
            "result": str(folder / "result.jsonl"),
        }
        (folder / "job.json").write_text(json.dumps(job))
        with (folder / "printed").open("a") as printed:
            files = {"stdout": printed.fileno(), "stderr": printed.fileno()}
            env = {**os.environ, "PYTHONPATH": str(ROOT)}
            self.process = Forked("tests.run_spider", "job.json", cwd=folder, env=env, **files)

    @cached_property
    def results(self) -> list[Result]:
        assert self.process.wait(200) == 0
        lines = (self.folder / "result.jsonl").read_text().splitlines()
        results = [json.loads(line) for line in lines]
        assert len(results) == len(self.spiders), self.logs[-3000:]
        assert not any(result["error"] for result in results), self.logs[-3000:]
        return results

    @property
    def logs(self) -> str:
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""

    def wait_for(self, reached: Callable[[], bool]) -> None:
        while not reached():
            assert self.process.poll() is None, self.logs[-3000:]
            time.sleep(0.005)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stats(self, number: int) -> dict[str, Any]:
        return self.results[number]["stats"]

    def visits(self, number: int = 0) -> list[str]:
        return [visit.path for visit in self.site.visits(self.names[number])]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


# Queues of the user's own


@pytest.fixture(scope="module")
def crawls(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(site, tmp_path_factory.mktemp("queues") / "crawls", queues.CRAWLS, **FLEET)


def number_of(spider: type[SiteSpider]) -> int:
    return queues.CRAWLS.index(spider)


def check_complete(crawls: Runs, number: int) -> dict[str, Any]:
    stats = crawls.stats(number)
    assert stats["finish_reason"] == "finished"
    assert sorted(Counter(crawls.visits(number)).values()) == [1] * TREE
    assert stats["scheduler/enqueued"] == stats["scheduler/dequeued"] == TREE
    return stats


@pytest.mark.parametrize("spider", queues.PLAIN, ids=lambda spider: spider.name)
def test_all_requests_go_through_the_queue(crawls: Runs, spider: type[SiteSpider]) -> None:
    stats = check_complete(crawls, number_of(spider))
    assert stats["scheduler/enqueued/disk"] == TREE
    keys = [key.removeprefix("key ") for key in stats if key.startswith("key ")]
    host = r"127\.0\.0\.1-\w{32}/" if "Aware" in spider.name else ""
    pattern = rf"\.scrapy/fleet/{spider.name}\.queue/requests\.queue/{host}(0|0s|-1)"
    used = [key for key in keys if "/host-" not in key]
    assert len(used) == 3
    assert all(re.fullmatch(pattern, key) for key in used), keys


@pytest.mark.parametrize("spider", queues.TROUBLED, ids=lambda spider: spider.name)
def test_a_queue_that_is_often_away(crawls: Runs, spider: type[SiteSpider]) -> None:
    stats = check_complete(crawls, number_of(spider))
    assert stats["scheduler/enqueued/memory"] == stats["fleet/queue_away"] == TREE / 2


def test_requests_that_the_queue_cannot_take(crawls: Runs) -> None:
    stats = check_complete(crawls, number_of(queues.PARTICULAR))
    assert stats["scheduler/enqueued/memory"] == stats["scheduler/unserializable"] == 26


@pytest.mark.parametrize("spider", queues.BROKEN, ids=lambda spider: spider.name)
def test_what_else_a_queue_raises_stops_the_crawl(crawls: Runs, spider: type[SiteSpider]) -> None:
    """And loses nothing: with a queue that works, the next run does the rest."""
    number = number_of(spider)
    assert crawls.stats(number)["finish_reason"] == "fleet_error"
    assert len(crawls.results[number]["items"]) < TREE
    assert crawls.stats(number + 1)["finish_reason"] == "finished"
    seen = Counter(crawls.visits(number))
    assert len(seen) == TREE
    # start() runs again; all else once.
    assert seen.pop("/tree/r") == 2
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("spider", [queues.WITHOUT_KEYS, queues.NO_QUEUE, queues.NOWHERE])
def test_a_queue_that_cannot_be_made(crawls: Runs, spider: type[SiteSpider]) -> None:
    number = number_of(spider)
    assert crawls.stats(number)["finish_reason"] == "fleet_error"
    assert not crawls.visits(number)


def test_the_reasons_are_told(crawls: Runs) -> None:
    assert crawls.results
    for reason in (
        "The queue failed, so the crawl stops: The sixth is too much.",
        "The queue failed, so the crawl stops: Who can count so far?",
        "The crawl is not started. The queue tests.spiders.queues.WithoutKeys cannot be made for '",
        "/0 is no key of mine.",
        "is no queue: it has no push, close",
        "SCHEDULER_DISK_QUEUE = 'tests.spiders.queues.Nowhere' cannot be imported",
        "the queue cannot take it now: It is away.",
        "it cannot be stored: It has a 1 in it.",
        "Requests are kept in tests.spiders.queues.Mine, not in the fleet's store",
    ):
        assert reason in crawls.logs, reason


def test_a_finished_crawl_begins_anew(crawls: Runs) -> None:
    first = number_of(queues.AGAIN)
    for number in (first, first + 1):
        check_complete(crawls, number)


# A process that is killed, a server that is away


def slow_tree(queue: str, **settings: Any) -> dict[str, Any]:
    paths = {"SCHEDULER_DISK_QUEUE": f"scrapy_fleet.queues.{queue}"}
    starts = {"SCHEDULER_START_DISK_QUEUE": f"scrapy_fleet.queues.{queue}"}
    return {**paths, **starts, "JOBDIR": "job", "DOWNLOAD_DELAY": 0.03, "CONCURRENT_REQUESTS": 4, **settings}


@pytest.mark.crash
def test_a_killed_crawl_goes_on(site: Site, tmp_path: Path) -> None:
    settings = {**slow_tree("SqliteLifoQueue"), **FLEET}
    runs = Runs(site, tmp_path / "killed", [queues.Tree], **settings)
    runs.wait_for(lambda: len(runs.visits()) >= 20)
    runs.kill()
    before = runs.visits()
    runs = Runs(site, tmp_path / "killed", [queues.Tree], **settings)
    assert runs.stats(0)["finish_reason"] == "finished"
    assert len(set(runs.visits())) == TREE
    # What was in hand or had just ended, and the start request, which always comes again.
    assert len(runs.visits()) < TREE + len(before)
    assert "that an earlier process had in hand" in runs.logs
    assert not (tmp_path / "killed" / "job" / "requests.queue" / "in-hand.db").exists()


def test_two_processes_on_one_job(site: Site, tmp_path: Path) -> None:
    """The second does not start: it would take the first one's requests in hand for those of a dead one."""
    folder = tmp_path / "second" / "job" / "requests.queue"
    folder.mkdir(parents=True)
    first = Notes(folder / "in-hand.db")
    second = Runs(site, tmp_path / "second", [queues.Tree], **slow_tree("SqliteFifoQueue"), **FLEET)
    assert second.stats(0)["finish_reason"] == "fleet_error"
    assert "perhaps because another process crawls with it" in second.logs
    assert not second.visits()
    first.close()


@pytest.mark.parametrize("addon", [{}, FLEET], ids=["stock", "fleet"])
def test_a_server_that_is_away_for_a_while(addon: dict[str, Any], site: Site, tmp_path: Path) -> None:
    """Under Scrapy's own scheduler and under ours: every page, each once."""
    binary = required(valkey_binary())
    server = shared(
        f"{binary} for crawls", lambda folder: RedisServer(binary, folder, port=free_port()).start()
    )
    name = "stock" if not addon else "fleet"
    with Proxy(server.port) as proxy:
        url = f"{proxy.url}?socket_timeout=1"
        settings = slow_tree("RedisFifoQueue", FLEET_URL=url, FLEET_CRAWL=str(tmp_path), **addon)
        runs = Runs(site, tmp_path / name, [queues.Tree], **settings)
        runs.wait_for(lambda: len(runs.visits()) >= 10)
        proxy.stall()
        runs.wait_for(lambda: "Requests wait in memory until it is back." in runs.logs)
        proxy.resume()
        assert runs.stats(0)["finish_reason"] == "finished"
    assert sorted(Counter(runs.visits()).values()) == [1] * TREE
    assert "is back." in runs.logs


def test_what_does_not_pass_stops_scrapys_own_crawl_too(site: Site, tmp_path: Path) -> None:
    """Which would hang, or lose requests, by what a queue raises."""
    binary = required(valkey_binary())
    server = shared(
        f"{binary} for crawls", lambda folder: RedisServer(binary, folder, port=free_port()).start()
    )
    settings = slow_tree("RedisFifoQueue", FLEET_URL=server.url, FLEET_CRAWL=str(tmp_path))
    runs = Runs(site, tmp_path / "broken", [queues.Tree], **settings)
    runs.wait_for(lambda: len(runs.visits()) >= 5)
    with server.client() as client:
        for key in client.keys("fleet:queue:*"):
            client.pipeline().delete(key).hset(key, "another", "type").execute()
        assert runs.stats(0)["finish_reason"] == "fleet_error"
        assert "A queue cannot go on, so the crawl stops." in runs.logs
        client.flushall()


# Order


@pytest.fixture(scope="module")
def probed(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(site, tmp_path_factory.mktemp("order") / "fleet", queues.PROBES, **FLEET)


@pytest.fixture(scope="module")
def stock(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(site, tmp_path_factory.mktemp("order") / "stock", queues.PROBES)


def order_of(runs: Runs, number: int) -> list[str]:
    assert runs.stats(number)["finish_reason"] == "finished"
    return [path.removeprefix("/leaf/") for path in runs.visits(number)[2:]]


ROWS = pytest.mark.parametrize(
    "row", queues.ROWS, ids=lambda row: "-".join(row).replace("SCHEDULER_", "") or "default"
)


@ROWS
def test_order(probed: Runs, row: tuple[str, ...]) -> None:
    assert order_of(probed, [*queues.ROWS].index(row)) == queues.ROWS[row].replace(",", "").split()


@pytest.mark.skipif(VERSION < (2, 14), reason="links reach the scheduler later")
@ROWS
def test_order_is_that_of_stock_scrapy(stock: Runs, row: tuple[str, ...]) -> None:
    if any("fleet" in line.lower() for line in row):
        pytest.skip("Scrapy does not know it")
    assert order_of(stock, [*queues.ROWS].index(row)) == queues.ROWS[row].replace(",", "").split()


def test_the_documentation_says_the_same() -> None:
    text = (ROOT / "docs" / "queues.md").read_text()
    rows = re.findall(r"^\| (.+) \| `([ \w,]+)` \| .+ \|$", text, re.MULTILINE)
    told = {tuple(re.findall(r"`([^`]+)`", settings)): order for settings, order in rows}
    assert told == queues.ROWS


def test_settings_without_effect_are_told(probed: Runs) -> None:
    assert probed.results
    assert "SCHEDULER_DISK_QUEUE = 'scrapy.squeues.PickleFifoDiskQueue' is not used" in probed.logs
    assert "SCHEDULER_MEMORY_QUEUE = 'scrapy.squeues.FifoMemoryQueue' is not used" in probed.logs
    assert "hosts whose next requests have the same priority take turns" in probed.logs
