"""``import scrapy-redis``: all is taken, nothing twice; nothing is changed there, and nothing is run."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from scrapy import Request
from scrapy.settings import Settings

from scrapy_fleet.crawl.codec import Codec
from scrapy_fleet.model import TASKS
from scrapy_fleet.ops.cli import add_commands, finish_options, run
from scrapy_fleet.ops.finding import fingerprinter_of, keys_of
from scrapy_fleet.ops.import_redis_source import Source
from scrapy_fleet.scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_fleet.settings import open_store
from scrapy_fleet.store.base import Store
from tests.servers import required, shared_server, valkey_binary
from tests.spiders.imported import Fed, requests

fingerprint = RFPDupeFilter(None, "").request_fingerprint


class Planted:
    """Makes a file when it is unpickled by one who trusts it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


class Old:
    """A crawl of scrapy-redis on a server, and where it is to go."""

    def __init__(self, folder: Path) -> None:
        server = shared_server(required(valkey_binary()))
        self.client: Any = server.client()
        self.name = f"old-{uuid4().hex}"
        self.url = server.url
        self.folder = folder
        self.keys = [f"{self.name}:{kind}" for kind in ("requests", "dupefilter", "start_urls")]
        self.queue, self.seen, self.start = self.keys
        self.settings: dict[str, Any] = {
            "SPIDER_MODULES": ["tests.spiders.imported"],
            "SCHEDULER": "scrapy_fleet.scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_fleet.scrapy_redis.dupefilter.RFPDupeFilter",
            "REDIS_URL": self.url,
            "FLEET_URL": f"sqlite:{folder / 'crawls'}",
            "FLEET_CRAWL": "taken",
        }

    def add(self, *members: bytes, kind: str = "zset", priority: int = 0) -> None:
        if kind == "zset":
            self.client.zadd(self.queue, dict.fromkeys(members, -priority))
        else:
            self.client.lpush(self.queue, *members)

    def fill(self, kind: str = "zset", write: Any = None) -> list[Request]:
        """As scrapy-redis does."""
        spider = Fed()
        made = requests(spider)
        for request in made:
            data = request.to_dict(spider=spider)
            member = write(data) if write else pickle.dumps(data, protocol=-1)
            self.add(member, kind=kind, priority=request.priority)
            if not request.dont_filter:
                self.client.sadd(self.seen, fingerprint(request))
        self.client.sadd(self.seen, fingerprint(Request("http://a.example/done")))
        return made

    def dump(self) -> dict[str, Any]:
        return {key: self.client.dump(key) for key in self.keys}

    def run(self, *words: str, spider: str = "fed", **settings: Any) -> tuple[int, str, str]:
        parser = argparse.ArgumentParser()
        add_commands(parser, "scrapy fleet")
        given = ["--queue", self.queue, "--dupefilter", self.seen, "--start", self.start]
        opts, rest = parser.parse_known_args(["import", "scrapy-redis", "--spider", spider, *given, *words])
        finish_options(parser, opts, rest)
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run(opts, Settings({**self.settings, **settings}))
        return code, out.getvalue(), err.getvalue()

    def taken(self, *words: str, code: int = 0, **settings: Any) -> Any:
        """What it answers when it has been done."""
        ended, out, err = self.run("--yes", "--trust-pickle", "--json", *words, **settings)
        assert ended == code, out + err
        return json.loads(out)

    def store(self) -> Store:
        return open_store(self.settings["FLEET_URL"], "taken")

    def waiting(self) -> list[Any]:
        store = self.store()
        rows = store.scan("waiting", limit=1000)
        store.close()
        return rows

    def requests(self) -> list[Request]:
        codec = Codec(Fed())
        return [codec.decode(row.payload) for row in self.waiting() if row.slot != TASKS]


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    made = Old(tmp_path)
    yield made
    made.client.delete(*made.keys)
    made.client.close()


def described(request: Request) -> dict[str, Any]:
    described = request.to_dict(spider=request.callback.__self__ if request.callback else Fed())  # type: ignore[attr-defined]
    for name in ("callback", "errback"):
        described[name] = getattr(getattr(request, name), "__name__", None)
    return described


def test_everything_is_taken_and_nothing_twice(old: Old) -> None:
    made = old.fill()
    before = old.dump()
    answer = old.taken()
    assert (answer["requests_taken"], answer["seen_taken"], answer["done"]) == (len(made), 6, True)
    found = old.requests()
    key = lambda request: (request.url, request.priority)  # noqa: E731
    assert [described(each) for each in sorted(found, key=key)] == [
        described(each) for each in sorted(made, key=key)
    ]
    assert {row.slot for row in old.waiting()} == {"a.example", "b.example", "own"}
    assert {row.priority for row in old.waiting()} == {-1, 0, 1, 5}
    for _ in range(2):
        answer = old.taken()
        assert (answer["requests_taken"], answer["requests_known"]) == (0, len(made))
    assert len(old.requests()) == len(made)
    assert old.dump() == before


def test_what_was_seen_is_not_queued_again(old: Old) -> None:
    old.fill()
    old.taken()
    store = old.store()
    code, out, _ = old.run("--json", "--trust-pickle")
    assert code == 0
    assert json.loads(out)["dupefilter"]["fingerprints_match"] is True
    # As 'why' looks for a URL.
    fingerprint = fingerprinter_of(Settings(old.settings), "fed").fingerprint
    keys = [
        keys_of(fingerprint(Request(url)), 1)[0]
        for url in ("http://a.example/1", "http://a.example/done", "http://a.example/new")
    ]
    assert store.seen(tuple(keys)) == (True, True, False)
    store.close()


@pytest.mark.parametrize("kind", ["FifoQueue", "LifoQueue"])
def test_lists_keep_their_order(kind: str, old: Old) -> None:
    members = [json.dumps({"url": f"http://a.example/{n}", "priority": n % 3}).encode() for n in range(1200)]
    old.add(*members, kind="list")
    setting = {"SCHEDULER_QUEUE_CLASS": f"scrapy_fleet.scrapy_redis.queue.{kind}"}
    assert old.taken("--dupefilter", "none", **setting)["requests_taken"] == 1200
    store = old.store()
    rows = store.scan("waiting", slot="a.example", limit=2000)
    urls = [Codec(Fed()).decode(row.payload).url for row in rows]
    numbers = [int(url.rpartition("/")[2]) for url in urls]
    assert sorted(numbers) == list(range(1200))
    assert numbers == (list(range(1200)) if kind == "FifoQueue" else list(range(1199, -1, -1)))
    store.close()


def test_equal_requests_that_are_not_filtered_are_kept_apart(old: Old) -> None:
    member = json.dumps({"url": "http://a.example/1", "dont_filter": True}).encode()
    old.add(member, member, member, kind="list")
    assert old.taken()["requests_taken"] == 3
    assert old.taken()["requests_known"] == 3
    assert len(old.requests()) == 3


def test_a_queue_that_changed_meanwhile_is_told(old: Old) -> None:
    old.add(json.dumps({"url": "http://a.example/1"}).encode())
    look = Source.look

    def meanwhile(source: Source) -> Any:
        found = look(source)
        old.add(json.dumps({"url": "http://a.example/2"}).encode())
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "look", meanwhile)
        code, _, err = old.run("--yes")
    assert code == 1
    assert f"{old.queue} has changed meanwhile" in err
    assert old.taken()["changed"] == []


def test_it_says_first_what_it_will_do(old: Old) -> None:
    old.fill()
    old.client.rpush(old.start, "http://c.example/", "http://d.example/")
    code, out, err = old.run("--trust-pickle")
    assert (code, err) == (0, "")
    assert "7 requests that wait" in out
    assert "6 fingerprints of what was seen" in out
    assert "2 start URLs" in out
    assert "the spider reads them there itself" in out
    assert "Nothing was changed" in out
    assert not (old.folder / "crawls").exists()


def test_start_urls_are_taken_as_tasks_where_the_spider_does_not_read_them(old: Old) -> None:
    old.client.rpush(old.start, "http://c.example/", b'{"url": "http://d.example/"}', "http://c.example/")
    assert old.taken()["start_urls_taken"] == 0
    elsewhere = {"REDIS_URL": "redis://far.example:6379/0"}
    for answer in (old.taken("--url", old.url, **elsewhere), old.taken("--url", old.url, **elsewhere)):
        assert answer["start_urls_taken"] + answer["start_urls_known"] == 3
    tasks = [row.payload[1:] for row in old.waiting() if row.slot == TASKS]
    assert tasks == [b"http://c.example/", b'{"url": "http://d.example/"}', b"http://c.example/"]


def test_pickles_are_read_only_when_they_are_trusted(old: Old) -> None:
    old.fill()
    code, _, err = old.run("--yes")
    assert code == 2
    assert "holds pickles (7 of the first 7 requests)" in err
    assert "--trust-pickle" in err
    assert not (old.folder / "crawls").exists()


def test_json_needs_no_trust(old: Old) -> None:
    def write(data: dict[str, Any]) -> bytes:
        kept = ("url", "method", "callback", "errback", "priority", "dont_filter", "meta")
        return json.dumps({name: data[name] for name in kept} | {"body": data["body"].decode()}).encode()

    made = old.fill(write=write)
    code, out, err = old.run("--yes")
    assert code == 0, out + err
    assert Counter(request.url for request in old.requests()) == Counter(request.url for request in made)


def test_what_is_planted_runs_nothing_and_is_told(old: Old, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    url = "http://a.example/"
    sys.modules.pop("this", None)
    planted: list[Any] = [
        pickle.dumps(Planted(mark)),
        pickle.dumps({"url": url, "meta": {"x": Planted(mark)}}),
        b"cos\nsystem\n(S'touch %s'\ntR." % str(mark).encode(),
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
        b"\x80\x04garbage",
        b"\xff\xfe",
        b"",
        b"[" * 100_000,
        json.dumps({"url": url, "_class": "this.Request"}).encode(),
        json.dumps({"url": url, "_class": "os.system"}).encode(),
        json.dumps({"url": url, "callback": "update_settings"}).encode(),
        json.dumps({"url": url, "callback": "__init__"}).encode(),
        json.dumps({"url": url, "errback": "os.system"}).encode(),
        json.dumps({"url": 5}).encode(),
        json.dumps({"url": "no url"}).encode(),
        json.dumps([url]).encode(),
        pickle.dumps({"url": url, "meta": {"a": {1: {2}}}, "priority": "high"}),
    ]
    old.add(*planted, json.dumps({"url": url + "good"}).encode())
    old.client.sadd(old.seen, fingerprint(Request(url + "good")), b"\xff", b"")
    code, out, err = old.run("--yes", "--trust-pickle")
    assert code == 1
    assert "Traceback" not in out + err
    assert not mark.exists()
    assert "this" not in sys.modules
    assert [request.url for request in old.requests()] == [url + "good"]
    assert f"{len(planted)} members could not be read" in out
    refused = {each["reason"]: each["count"] for each in old.taken(code=1)["refused"]}
    assert sum(refused.values()) == len(planted)
    assert any("holds posix.system, which is not plain data" in reason for reason in refused)
    assert any("'update_settings' is not a callback of Fed" in reason for reason in refused)
    assert any("'this:Request' is not a Request subclass in a loaded module" in reason for reason in refused)


def test_fingerprints_of_another_kind_are_noticed(old: Old) -> None:
    old.fill()
    setting = {
        "SCHEDULER": "scrapy.core.scheduler.Scheduler",
        "ADDONS": {"scrapy_fleet.Addon": 500},
        "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter",
    }
    code, _, err = old.run("--yes", "--trust-pickle", **setting)
    assert code == 2
    assert "are made in another way than this crawl makes them" in err
    assert not (old.folder / "crawls").exists()
    assert old.taken("--dupefilter", "none", **setting)["requests_taken"] == 7


@pytest.mark.parametrize(
    ("words", "settings", "message"),
    [
        (("--spider", "nobody"), {}, "no spider 'nobody'; it has: fed, plain"),
        (("--url", "http://a.example"), {}, "is no address of a Redis server"),
        (("--url", "redis://127.0.0.1:1/0"), {}, "cannot be reached"),
        ((), {"SCHEDULER": "scrapy_redis.scheduler.Scheduler"}, "cannot be loaded"),
        ((), {"SCHEDULER": "scrapy.core.scheduler.Scheduler", "DUPEFILTER_CLASS": None}, "add-on"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    words: tuple[str, ...], settings: dict[str, Any], message: str, old: Old
) -> None:
    if "DUPEFILTER_CLASS" in settings:
        settings = {**settings, "DUPEFILTER_CLASS": "scrapy.dupefilters.RFPDupeFilter"}
        code, out, err = old.run(*words, spider="plain", **settings)
    else:
        code, out, err = old.run(*words, **settings)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1
    assert "Traceback" not in out + err


def test_a_key_of_another_type_is_told(old: Old) -> None:
    old.client.set(old.queue, "text")
    code, _, err = old.run("--yes")
    assert code == 2
    assert "is a string; scrapy-redis has a zset or list there" in err


def test_a_spider_is_not_made(old: Old) -> None:
    old.add(json.dumps({"url": "http://a.example/"}).encode())
    code, out, err = old.run("--yes", spider="plain")
    assert code == 0, out + err
