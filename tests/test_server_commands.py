"""The commands and the doctor on a server, run as users run them."""

from __future__ import annotations

import logging
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from scrapy_fleet.model import Plan, Rule, Worker
from scrapy_fleet.ops.doctor import Check
from scrapy_fleet.ops.doctor_redis import examine_server
from scrapy_fleet.ops.place import Place
from scrapy_fleet.settings import open_store
from scrapy_fleet.store.redis import RedisStore
from tests.commands import FLEET, Crawl, data, entry, project, run
from tests.contract import kinds
from tests.servers import RedisServer, free_port, required, valkey_binary


@pytest.fixture
def server() -> Iterator[RedisServer]:
    binary = required(valkey_binary())
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:  # a short path, as sockets need it
        server = RedisServer(binary, Path(folder), "--appendonly", "yes", port=free_port()).start()
        yield server
        server.kill()


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with redis.Redis(port=server.port, decode_responses=True) as client:
        yield client


class OnServer(Crawl):
    """A crawl in the middle: 2 waiting, 1 leased, 1 done, 1 dead."""

    def __init__(self, url: str, name: str) -> None:
        self.store = open_store(url, name)  # type: ignore[assignment]
        self.worker = Worker("w-1", "here", 1)
        self.store.join(self.worker, Plan(rule=Rule(concurrency=1000)), 60)
        self._seq = 0
        self.add(*(entry(f"http://a.example/{n}", callback="parse_item") for n in range(5)))
        first, second, _ = self.lease(3)
        self.settle((first,))
        self.settle((second,), dead="its worker died 5 times")


@pytest.fixture
def news(server: RedisServer) -> Iterator[OnServer]:
    made = OnServer(server.url, "news")
    yield made
    made.store.close()


def test_the_only_crawl_need_not_be_named(news: OnServer, server: RedisServer, tmp_path: Path) -> None:
    where = ("--url", server.url)
    [found] = data("status", *where, cwd=tmp_path)["crawls"]
    assert (found["crawl"], found["status"], found["url"]) == ("news", "running", server.url)
    assert found["counts"] == {"accepted": 5, "waiting": 2, "leased": 1, "done": 1, "dead": 1, "feeding": 0}
    assert data("hosts", *where, cwd=tmp_path)["hosts"][0]["name"] == "a.example"
    assert [e["url"] for e in data("peek", *where, cwd=tmp_path)["entries"]] == [
        *("http://a.example/1", "http://a.example/0")
    ]
    assert data("dead", *where, cwd=tmp_path)["dead"] == 1
    assert data("dead", "requeue", "--all", *where, cwd=tmp_path)["count"] == 1
    found = data("workers", *where, cwd=tmp_path)
    assert [(w["id"], w["leased"]) for w in found["workers"]] == [("w-1", 1)]


def test_several_crawls(news: OnServer, server: RedisServer, tmp_path: Path) -> None:
    odd = OnServer(server.url, "odd {name} %")
    lines = run(FLEET, "status", "--url", server.url, cwd=tmp_path).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == ["news", "odd {name} %"]
    failed = run(FLEET, "pause", "--url", server.url, cwd=tmp_path)
    assert failed.returncode == 2
    assert failed.stderr == (
        f"scrapy-fleet: There are several crawls at {server.url}; name one of them: news, odd {{name}} %.\n"
    )
    assert data("pause", "odd {name} %", "--url", server.url, cwd=tmp_path)["mode"] == "pause"
    assert odd.commit(want=1).mode == "pause"
    assert news.commit(want=1).mode == "run"
    odd.store.close()


def test_no_crawl_yet(server: RedisServer, tmp_path: Path) -> None:
    failed = run(FLEET, "status", "--url", server.url, cwd=tmp_path)
    assert failed.returncode == 2
    assert f"There is no crawl at {server.url}." in failed.stderr
    failed = run(FLEET, "stop", "news", "--url", server.url, cwd=tmp_path)
    assert failed.returncode == 2
    assert "There is no crawl 'news'" in failed.stderr


def test_a_projects_settings_lead_to_the_server(news: OnServer, server: RedisServer, tmp_path: Path) -> None:
    here = project(tmp_path / "shop", f"FLEET_URL = {server.url!r}")
    assert data("status", cwd=here)["crawls"][0]["crawl"] == "news"
    assert data("stop", "news", cwd=here) == {"crawl": "news", "mode": "stop", "workers": 1}
    assert data("status", "news", cwd=here)["crawls"][0]["status"] == "stopping"


def test_a_pause_outlasts_the_server(news: OnServer, server: RedisServer, tmp_path: Path) -> None:
    assert data("pause", "news", "--url", server.url, cwd=tmp_path)["mode"] == "pause"
    server.kill()
    server.start()
    assert data("status", "news", "--url", server.url, cwd=tmp_path)["crawls"][0]["status"] == "paused"
    assert news.commit(want=1).leases == ()


def test_clear_asks_first(news: OnServer, server: RedisServer, tmp_path: Path) -> None:
    news.leave()

    def clear(answer: str, *words: str) -> subprocess.CompletedProcess[str]:
        return run(FLEET, "clear", "news", "--url", server.url, *words, cwd=tmp_path, given=answer)

    for answer in ("", "\n", "no\n"):
        asked = clear(answer)
        assert asked.returncode == 2
        assert "3 waiting, 0 leased, 1 done, 1 dead requests, 5 seen URLs" in asked.stdout
        assert "Nothing was changed." in asked.stdout
    refused = clear("", "--json")
    assert refused.returncode == 2
    assert "add --yes" in refused.stderr
    assert news.store.snapshot().counts.accepted == 5
    assert clear("y\n").returncode == 0
    assert news.store.snapshot().status == "new"
    assert data("clear", "news", "--yes", "--url", server.url, cwd=tmp_path)["cleared"]


def test_a_cleared_crawl_leaves_nothing(news: OnServer, client: Any) -> None:
    news.leave()
    news.store.clear()
    assert client.keys() == ["fleet:{news}:meta"]


def test_a_clear_that_was_interrupted_is_gone_on_with(news: OnServer, server: RedisServer) -> None:
    news.add(*(entry(f"http://{n}.example/", f"{n}.example") for n in range(500)))
    news.leave()
    assert isinstance(news.store, RedisStore)
    assert news.store._run("clear", "begin") == [1]
    joined = open_store(server.url, "news").join(Worker("next"), Plan(), 60)
    assert (joined.run, joined.resumed, joined.counts.accepted) == (2, False, 0)
    assert news.store.snapshot().slot_count == 0


# The doctor


def checks(server: RedisServer, crawl: str | None = None, user: str = "") -> dict[str, Check]:
    found = list(examine_server(Place(server.url.replace("//", f"//{user}"), fixed=True), crawl))
    assert all(check.remedy for check in found if check.level != "ok")
    return {check.name: check for check in found}


def levels(found: dict[str, Check]) -> dict[str, str]:
    return {name: check.level for name, check in found.items() if check.level != "ok"}


def test_a_server_that_is_well(news: OnServer, server: RedisServer, tmp_path: Path) -> None:
    news.store.drop()
    found = data("doctor", "news", "--url", server.url, cwd=tmp_path)
    assert found["ok"]
    said = {check["name"]: check for check in found["checks"]}
    names = (
        "server",
        "scripts",
        "persistence",
        "eviction",
        "memory",
        "round trip",
        "clock",
        "crawl",
        "workers",
    )
    assert {name: said[name]["level"] for name in names} == dict.fromkeys(names, "ok")
    assert "Valkey" in said["server"]["message"]
    assert "1 worker connected" in said["workers"]["message"]
    assert "5 accepted = 2 waiting + 1 leased + 2 done + 0 dead" in said["crawl"]["message"]


@pytest.mark.parametrize("kind", ["valkey", "redis", "old_redis", "cluster", "sentinel", "tls"])
def test_every_kind_of_server_can_be_looked_at(kind: str) -> None:
    url: str = getattr(kinds, kind)()
    name = uuid.uuid4().hex
    store = open_store(url, name)
    store.join(Worker("w"), Plan(), 60)
    place = Place(url, fixed=True)
    assert name in place.crawls()
    found = {check.name: check for check in examine_server(place, name)}
    assert not [check for check in found.values() if check.level == "fail"]
    assert all(found[check].level == "ok" for check in ("server", "scripts", "eviction", "memory", "workers"))
    store.close()


def test_a_server_without_crawls(server: RedisServer) -> None:
    found = checks(server)
    assert levels(found) == {}
    assert found["crawls"].message == "there is none yet"


def test_a_server_that_evicts_fails(server: RedisServer, client: Any, tmp_path: Path) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    done = run(FLEET, "doctor", "--url", server.url, cwd=tmp_path)
    assert done.returncode == 1
    assert "fail  eviction: maxmemory-policy is allkeys-lru" in done.stdout
    assert "mend it: CONFIG SET maxmemory-policy noeviction" in done.stdout


def test_how_a_server_writes_to_disk(server: RedisServer, client: Any) -> None:
    client.config_set("appendonly", "no")
    assert "a restart loses every crawl" in checks(server)["persistence"].message
    client.config_set("save", "3600 1")
    found = checks(server)["persistence"]
    assert (found.level, "save 3600 1" in found.message) == ("warn", True)


def test_a_server_with_little_memory(server: RedisServer, client: Any) -> None:
    used = client.info("memory")["used_memory"]
    client.config_set("maxmemory", int(used * 1.15))
    assert checks(server)["memory"].level == "warn"
    client.config_set("maxmemory", used // 2)
    assert "The server is full" in checks(server)["memory"].message


def test_a_user_that_may_not_ask(news: OnServer, server: RedisServer, client: Any) -> None:
    client.acl_setuser(
        "shy", enabled=True, passwords=["+x"], keys=["fleet:*"], categories=["+@all", "-@dangerous"]
    )
    found = checks(server, "news", "shy:x@")
    assert levels(found) == {
        **dict.fromkeys(("server", "persistence", "eviction", "memory"), "warn"),
        "dead": "warn",
    }
    client.acl_setuser("mute", enabled=True, passwords=["+x"], keys=["fleet:*"], commands=["+time", "+ping"])
    assert checks(server, "news", "mute:x@")["scripts"].level == "fail"


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    done = run(FLEET, "doctor", "--url", f"redis://127.0.0.1:{free_port()}", cwd=tmp_path)
    assert done.returncode == 1
    assert "fail  server:" in done.stdout
    assert "Traceback" not in done.stderr


# A word at start


def test_a_worker_warns_once_of_a_server_that_may_lose_the_crawl(
    server: RedisServer, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    store = open_store(server.url, "c")
    store.join(Worker("w"), Plan(), 60)
    assert caplog.text == ""
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("appendonly", "no")
    store.close()
    store = open_store(server.url, "c")
    for _ in range(2):
        store.join(Worker("w"), Plan(), 60)
    assert caplog.text.count("throws away keys") == caplog.text.count("writes nothing to disk") == 1
    assert "noeviction" in caplog.text
    assert "appendonly yes" in caplog.text
    store.close()
