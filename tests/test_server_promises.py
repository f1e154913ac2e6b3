"""What a server is promised, and promises: no search through its keys, and a word to the fleet that lasts."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scrapy_fleet.model import Batch, Entry, Mode, Outcome, Plan, Rule, Worker
from scrapy_fleet.ops.doctor_redis import examine_server
from scrapy_fleet.ops.place import Place
from scrapy_fleet.settings import open_store
from scrapy_fleet.store.redis.server import RIGHTS
from tests.servers import RedisServer, free_port, required, valkey_binary

PLAN = Plan(rule=Rule(concurrency=1000))
HOW_TO = (Path(__file__).parents[1] / "docs" / "how-to.md").read_text()
SEARCHES = {"keys", "scan", "sscan", "hscan", "zscan", "sort", "randomkey", "dbsize"}


@pytest.fixture
def server() -> Iterator[RedisServer]:
    binary = required(valkey_binary())
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:  # a short path, as sockets need it
        options = ("--appendonly", "yes", "--appendfsync", "always")
        server = RedisServer(binary, Path(folder), *options, port=free_port()).start()
        yield server
        server.kill()


@pytest.mark.parametrize("mode", ["pause", "stop"])
def test_what_the_fleet_is_told_outlasts_the_server(mode: Mode, server: RedisServer) -> None:
    store = open_store(server.url, "c")
    store.join(Worker("w"), PLAN, 60)
    store.commit(Batch(worker="w", seq=1, adds=(Entry("a", b"x"),), seeded=True))
    store.control(mode)
    server.kill()
    server.start()
    receipt = store.commit(Batch(worker="w", seq=2, want=1))
    assert (receipt.mode, receipt.leases) == (mode, ())
    assert store.beat("w").mode == store.join(Worker("late"), PLAN, 60).mode == mode
    store.close()


def test_no_verb_of_a_worker_searches_through_the_keys(server: RedisServer) -> None:
    """However many there are, of this crawl and of others."""
    client: Any = server.client()
    store = open_store(server.url, "c")
    client.config_resetstat()
    for run in (1, 2):
        assert store.join(Worker(f"w{run}"), PLAN, 60).run == run
        for seq in range(1, 20):
            adds = tuple(Entry(f"s{n}", b"x", n % 3, key=100 * seq + n) for n in range(50))
            leases = store.commit(Batch(worker=f"w{run}", seq=2 * seq, adds=adds, want=50)).leases
            done = tuple(Outcome(lease.token, items=(b"item",)) for lease in leases)
            store.commit(Batch(worker=f"w{run}", seq=2 * seq + 1, outcomes=done, seeded=True))
            store.beat(f"w{run}")
        store.join(Worker("doomed"), PLAN, 60)
        store.commit(Batch(worker="doomed", seq=1, adds=(Entry("a", b"x"),), want=1))
        assert store.give_up(("doomed",)) == 1
        (lease,) = store.commit(Batch(worker=f"w{run}", seq=100, want=1)).leases
        store.commit(Batch(worker=f"w{run}", seq=101, outcomes=(Outcome(lease.token),)))
        assert store.snapshot().counts.open == 0
        store.commit(Batch(worker=f"w{run}", seq=102, leave=True, finish=True))
    used = {name.removeprefix("cmdstat_").partition("|")[0] for name in client.info("commandstats")}
    assert "evalsha" in used
    assert not used & SEARCHES
    store.close()


def test_a_server_that_is_set_up_as_the_docs_say_is_well() -> None:
    """Its user, too, who asks."""
    [lines] = re.findall(r"^```conf\n(.*?)^```$", HOW_TO, re.MULTILINE | re.DOTALL)
    [rights] = re.findall(r"^ACL SETUSER (.*)$", HOW_TO, re.MULTILINE)
    assert rights == f"fleet on >secret {RIGHTS}"
    options = [word for line in lines.splitlines() for word in ("--" + line).split()]
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        server = RedisServer(required(valkey_binary()), Path(folder), *options, port=free_port()).start()
        client: Any = server.client()
        client.execute_command("ACL", "SETUSER", *rights.split())
        url = server.url.replace("//", "//fleet:secret@")
        store = open_store(url, "c")
        store.join(Worker("w"), PLAN, 60)
        checks = list(examine_server(Place(url, fixed=True), "c"))
        store.close()
        server.kill()
    # What is said of this machine, and not of the server, may be anything.
    assert [check for check in checks if check.level == "fail"] == []
    assert {"persistence": "ok", "eviction": "ok", "scripts": "ok", "memory": "ok"}.items() <= {
        check.name: check.level for check in checks
    }.items()
