"""What only a store on a server can meet: addresses, errors, an emptied server, its memory."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from scrapy_fleet.errors import GivenUp, StoreAway, StoreEmptied, StoreError
from scrapy_fleet.model import Batch, Entry, Outcome, Plan, Rule, Worker
from scrapy_fleet.politeness import leeway_of
from scrapy_fleet.settings import open_store, shown
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.redis import SCHEMES, RedisStore
from scrapy_fleet.store.redis.server import script
from tests.servers import RedisServer, free_port, valkey_binary

PLAN = Plan(rule=Rule(concurrency=1000))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        yield Path(name)


@pytest.fixture
def server(folder: Path) -> Iterator[RedisServer]:
    binary = valkey_binary()
    if binary is None:
        pytest.skip("no server is installed")
    server = RedisServer(binary, folder, port=free_port())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port) as client:
        yield client


def entered(url: str, crawl: str = "c") -> Store:
    store = open_store(url, crawl)
    store.join(Worker("w"), PLAN, 60)
    return store


def add(store: Store, seq: int, *entries: Entry, want: int = 0) -> int:
    return len(store.commit(Batch(worker="w", seq=seq, adds=entries, want=want)).leases)


def keys(count: int, seed: int = 1) -> list[int]:
    chance = random.Random(seed)
    return [chance.getrandbits(64) - 2**63 for _ in range(count)]


# Addresses


@pytest.mark.parametrize(
    "form", ["redis://127.0.0.1:{port}/0", "valkey://127.0.0.1:{port}", "unix://{socket}"]
)
def test_an_address_leads_to_the_server(server: RedisServer, form: str) -> None:
    store = open_store(form.format(port=server.port, socket=server.socket), "c")
    store.join(Worker("w"), PLAN, 60)
    assert add(store, 1, Entry("a", b"x"), want=1) == 1
    store.close()


def test_databases_are_apart(server: RedisServer) -> None:
    one = entered(f"redis://127.0.0.1:{server.port}/1")
    add(one, 1, Entry("a", b"x"))
    two = entered(f"redis://127.0.0.1:{server.port}/2")
    assert two.snapshot().counts.accepted == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://host:port/0", "the port is no number"),
        ("redis://host/zero", "the database is no number"),
        ("redis://user:pa/ss@host/0", "%2F"),
        ("redis://host?nonsense=1", "there is no option 'nonsense'"),
        ("redis://host?ssl_ca_certs=x", "need rediss://"),
        ("rediss://host?ssl_cert_reqs=maybe", "required, optional or none"),
        ("redis://one,two", "several hosts"),
        ("redis+sentinel://host:26379", "which service"),
        ("redis+cluster://host/3", "no numbered databases"),
        ("unix://", "no path"),
        ("redis+nonsense://host", "there is no store for"),
    ],
)
def test_an_address_that_makes_no_sense_is_explained(url: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as told:
        entered(url)
    assert "pa/ss" not in str(told.value)
    assert "FLEET_URL" in str(told.value)


def test_passwords_are_never_shown() -> None:
    for scheme in SCHEMES:
        url = f"{scheme}://user:secret@host:1/0?sentinel_password=secret&ssl_password=secret&db=1"
        assert "secret" not in shown(url)
        assert shown(url).endswith("&db=1")


# Errors


def test_nobody_listens() -> None:
    with pytest.raises(StoreAway, match="cannot be reached"):
        entered(f"redis://127.0.0.1:{free_port()}/0")


def test_an_observer_of_a_crawl_that_is_not_there(server: RedisServer) -> None:
    with pytest.raises(StoreError, match="There is no crawl 'c'"):
        open_store(server.url, "c", create=False)
    entered(server.url)
    assert open_store(server.url, "c", create=False).snapshot().status == "seeding"


def test_a_database_that_is_not_there(server: RedisServer) -> None:
    with pytest.raises(StoreError, match="no such database"):
        entered(f"redis://127.0.0.1:{server.port}/999")


def test_a_wrong_password_and_missing_rights(server: RedisServer, client: redis.Redis) -> None:
    for rights in ("user some on >secret ~fleet:* +@all", "user none on >secret ~fleet:* +ping"):
        client.execute_command("ACL", "SETUSER", *rights.split()[1:])
    host = f"127.0.0.1:{server.port}"
    entered(f"redis://some:secret@{host}")
    with pytest.raises(StoreError, match="user or password is wrong") as told:
        entered(f"redis://some:mistaken@{host}")
    assert "mistaken" not in str(told.value)
    with pytest.raises(StoreError, match="lacks rights"):
        entered(f"redis://none:secret@{host}")
    client.execute_command("ACL", "SETUSER", "default", "resetpass", ">other")
    with pytest.raises(StoreError, match="user or password is wrong"):
        entered(server.url)


def test_a_full_server_refuses_all_of_a_batch(server: RedisServer, client: redis.Redis) -> None:
    store = entered(server.url)
    add(store, 1, Entry("a", b"1", key=1), Entry("a", b"2", key=2), want=1)
    before = store.snapshot()
    client.config_set("maxmemory", 1)
    with pytest.raises(StoreAway, match=r"full \(maxmemory\)"):
        add(store, 2, Entry("b", b"3", key=3))
    with pytest.raises(StoreAway, match=r"full \(maxmemory\)"):
        store.beat("w")
    assert store.snapshot().counts == before.counts
    client.config_set("maxmemory", 0)
    add(store, 2, Entry("b", b"3", key=3))
    assert (store.snapshot().counts.accepted, store.snapshot().seen) == (3, 3)


def test_a_server_that_hangs(server: RedisServer) -> None:
    store = entered(f"{server.url}?socket_timeout=0.2")
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreAway, match="does not answer in time"):
            add(store, 1, Entry("a", b"1", key=1))
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    # The batch may have arrived: it is sent again under its number.
    add(store, 1, Entry("a", b"1", key=1))
    assert store.snapshot().counts.accepted == 1


def test_scripts_that_the_server_forgot_are_sent_again(server: RedisServer, client: redis.Redis) -> None:
    store = entered(server.url)
    client.script_flush()
    assert add(store, 1, Entry("a", b"1"), want=1) == 1
    client.script_flush()
    assert store.snapshot().counts.leased == 1


def test_connections_that_the_server_closed_are_opened_again(
    server: RedisServer, client: redis.Redis
) -> None:
    store = entered(server.url)
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert add(store, 1, Entry("a", b"1"), want=1) == 1


def test_a_call_does_not_look_at_its_connection_first(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that looks lets go of the interpreter, and a busy loop keeps it: the call goes out late."""
    store = entered(server.url)
    looks: list[object] = []
    monkeypatch.setattr(redis.Connection, "can_read", lambda *args, **kwargs: bool(looks.append(args)))
    add(store, 1, Entry("a", b"1"), want=1)
    store.beat("w")
    assert not looks


def test_a_crawl_of_a_newer_format_is_left_alone(server: RedisServer, client: redis.Redis) -> None:
    store = entered(server.url)
    client.hset("fleet:{c}:meta", "format", "99")
    for call in (lambda: entered(server.url), store.snapshot, store.clear, lambda: store.control("pause")):
        with pytest.raises(StoreError, match="newer scrapy-fleet"):
            call()
    client.hset("fleet:{c}:meta", "format", "1")
    with pytest.raises(StoreError, match="older scrapy-fleet"):
        entered(server.url)


def test_missing_keys_are_noticed(server: RedisServer, client: redis.Redis) -> None:
    store = entered(server.url)
    add(store, 1, Entry("a", b"1"))
    client.delete("fleet:{c}:waiting:0:a")
    with pytest.raises(StoreError, match="noeviction"):
        add(store, 2, want=1)


# An emptied server


def test_an_emptied_server_is_noticed_by_every_verb(server: RedisServer, client: redis.Redis) -> None:
    store, other = entered(server.url), entered(server.url)
    add(store, 1, Entry("a", b"1"))
    client.flushall()
    for call in (
        lambda: store.commit(Batch(worker="w", seq=2)),
        lambda: store.beat("w"),
        lambda: store.snapshot(),
        lambda: store.give_up(("x",)),
        lambda: store.scan("dead"),
        lambda: other.join(Worker("w"), PLAN, 60, run=1),
    ):
        with pytest.raises(StoreEmptied, match="appendonly yes"):
            call()
    # Whoever knows of it may begin again, and then others are told, too.
    assert store.join(Worker("w2"), PLAN, 60, run=1).counts.accepted == 0
    with pytest.raises(StoreEmptied):
        other.beat("w")
    with pytest.raises(GivenUp):
        store.beat("w")


def test_a_server_that_kept_its_data_is_the_same_crawl(server: RedisServer) -> None:
    server.options = ("--appendonly", "yes", "--appendfsync", "always")
    server.kill()
    server.start()
    store = entered(server.url)
    add(store, 1, Entry("a", b"1"), Entry("a", b"2"), want=1)
    server.kill()
    with pytest.raises(StoreAway):
        store.beat("w")
    server.start()
    assert store.beat("w").counts.leased == 1
    assert store.commit(Batch(worker="w", seq=2, want=1)).counts.leased == 2


# Time


def test_a_clock_that_is_set_back_changes_nothing(server: RedisServer) -> None:
    now = 1000.0
    store = RedisStore(server.url, "c", clock=lambda: now)
    store.join(Worker("w"), Plan(rule=Rule(delay=4.0)), 60)
    assert add(store, 1, Entry("a", b"1"), Entry("a", b"2"), want=2) == 1
    now = 10.0
    assert store.commit(Batch(worker="w", seq=2, want=1)).retry_in == pytest.approx(4 + leeway_of(4))
    now = 13.5
    assert store.commit(Batch(worker="w", seq=3, want=1)).retry_in == pytest.approx(0.5 + leeway_of(4))


def test_a_question_and_a_beat_are_signs_of_life(server: RedisServer) -> None:
    """Also those that find nothing to do, which are answered in a shorter way."""
    now = 1000.0
    store = RedisStore(server.url, "c", clock=lambda: now)
    for name in ("asks", "beats", "watches"):
        store.join(Worker(name), PLAN, 60)
    store.commit(Batch(worker="asks", seq=0, seeded=True))
    now += 59
    assert store.commit(Batch(worker="asks", seq=1, want=5)).counts.accepted == 0
    store.beat("beats")
    store.beat("watches")
    now += 59
    store.beat("watches")
    now += 0.5
    assert [worker.id for worker in store.snapshot().workers] == ["asks", "beats", "watches"]
    now += 1
    store.beat("watches")
    assert [worker.id for worker in store.snapshot().workers] == ["watches"]


def test_a_beat_remembers_the_time(server: RedisServer) -> None:
    now = 1000.0
    store = RedisStore(server.url, "c", clock=lambda: now)
    store.join(Worker("w"), PLAN, 60)
    store.commit(Batch(worker="w", seq=0, seeded=True))
    now = 1050.0
    store.beat("w")
    now = 1001.0  # another server, after a failover, whose clock is behind
    assert store.snapshot().workers[0].deadline_in == pytest.approx(60)


def test_the_time_is_the_servers(server: RedisServer) -> None:
    store = entered(server.url)
    store.join(Worker("w"), Plan(rule=Rule(delay=100.0)), 60)
    add(store, 1, Entry("a", b"1"), Entry("a", b"2"), want=1)
    assert 95 < store.snapshot().slots[0].next_in <= 100 + leeway_of(100)
    assert store.snapshot().workers[0].deadline_in > 55


# Keys and memory


def test_all_keys_of_a_crawl_share_one_hash_tag(server: RedisServer, client: redis.Redis) -> None:
    store = entered(server.url, "a}b{c")
    add(store, 1, *(Entry(f"s{n}", b"x", n, key=n) for n in range(20)), want=5)
    store.give_up(("w",))
    tags = {key.split(b"}:")[0] for key in client.scan_iter()}
    assert tags == {b"fleet:{a%7Db%7Bc"}


def test_what_was_seen_takes_little_and_is_found_again(server: RedisServer, client: redis.Redis) -> None:
    """Also after buckets were split, more than once: one more for 210 keys."""
    store = entered(server.url)
    many = keys(80_000)
    for seq in range(40):
        store.commit(Batch(worker="w", seq=seq, marks=tuple(many[2000 * seq : 2000 * seq + 2000])))
    assert store.snapshot().seen == 80_000
    buckets = client.keys("fleet:{c}:seen:*")
    assert 370 < len(buckets) < 390
    assert sum(client.scard(name) for name in buckets) == 80_000
    assert {client.object("encoding", name) for name in buckets} == {b"intset"}
    known = store.commit(
        Batch(worker="w", seq=100, adds=tuple(Entry("a", b"", key=key) for key in many))
    ).known
    assert len(known) == 80_000
    new = store.commit(
        Batch(worker="w", seq=101, adds=tuple(Entry("a", b"", key=key) for key in keys(9_999, 2)))
    )
    assert new.known == ()


def test_what_an_earlier_run_saw_is_deleted_bit_by_bit(server: RedisServer, client: redis.Redis) -> None:
    store = entered(server.url)
    store.commit(Batch(worker="w", seq=1, marks=tuple(keys(5000)), seeded=True))
    store.commit(Batch(worker="w", seq=2, leave=True, finish=True))
    before = client.keys("fleet:{c}:seen:1:*")
    assert store.join(Worker("w"), PLAN, 60).run == 2
    assert client.keys("fleet:{c}:seen:1:*") == before
    store.beat("w")
    assert client.keys("fleet:{c}:seen:1:*") == []
    assert store.commit(Batch(worker="w", seq=1, adds=(Entry("a", b"", key=keys(1)[0]),))).known == ()


def test_a_crawl_that_is_done_leaves_little(server: RedisServer, client: redis.Redis) -> None:
    """No key grows, or stays, with what was done."""
    store = entered(server.url)
    store.commit(
        Batch(worker="w", seq=1, adds=tuple(Entry("a", b"x", n % 3) for n in range(250)), seeded=True)
    )
    leases = store.commit(Batch(worker="w", seq=2, want=250)).leases
    store.commit(Batch(worker="w", seq=3, releases=tuple(lease.token for lease in leases)))
    leases = store.commit(Batch(worker="w", seq=4, want=250)).leases
    store.commit(Batch(worker="w", seq=5, outcomes=tuple(Outcome(lease.token) for lease in leases)))
    assert {key.decode().partition("}:")[2] for key in client.scan_iter()} == {
        "meta",
        "slots",
        "sizes",
        "workers",
        "worker:w",
    }


@pytest.mark.parametrize("way", ["leave", "give up", "clear"])
def test_a_worker_that_has_gone_leaves_nothing(server: RedisServer, client: redis.Redis, way: str) -> None:
    now = 1000.0
    store = RedisStore(server.url, "c", clock=lambda: now)
    store.join(Worker("w"), PLAN, 60)
    assert add(store, 1, Entry("a", b"1"), Entry("a", b"2"), want=2) == 2
    if way == "leave":
        store.commit(Batch(worker="w", seq=2, leave=True))
    elif way == "give up":
        store.give_up(("w",))
    else:
        now += 100.0
        store.clear()
    store.close()
    assert [key for key in client.scan_iter() if key.endswith(b":w")] == []


def test_scripts_name_every_key_they_use() -> None:
    """Each script is headed by what its keys are."""
    for verb in ("join", "commit", "beat", "give_up", "mend", "snapshot", "scan"):
        whole, name = script(verb)
        assert len(name) == 40
        assert whole.startswith(b"-- The crawl itself.")
