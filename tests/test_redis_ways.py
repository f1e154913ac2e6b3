"""The ways to a server: clusters, sentinels, TLS, users with few rights. And what is said when they fail."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scrapy_fleet.errors import FleetError, StoreAway, StoreError
from scrapy_fleet.model import Batch, Entry, Outcome, Plan, Rule, Worker
from scrapy_fleet.settings import open_store
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.redis.server import RIGHTS
from tests.certificates import Authority
from tests.server_sets import Cluster, TlsServer, Watched
from tests.servers import RedisServer, free_port, redis_binary, required, shared

PLAN = Plan(rule=Rule(concurrency=1000))


def entered(url: str, crawl: str = "c") -> Store:
    store = open_store(url, crawl)
    store.join(Worker("w"), PLAN, 60)
    return store


def works(url: str, crawl: str = "c") -> None:
    """Every verb, once: for what a user must be allowed."""
    store = entered(url, crawl)
    adds = (Entry("a", b"1", key=1), Entry("a", b"2", key=2, priority=1), Entry("b", b"3"), Entry("b", b"4"))
    batch = Batch(worker="w", seq=1, adds=adds, want=9, items=(b"i",), stats={"n": 1.0}, state={"s": b"x"})
    leases = store.commit(batch).leases
    assert len(leases) == 4
    outcomes = (Outcome(leases[0].token), Outcome(leases[1].token, "bad"), Outcome(leases[2].token, "bad"))
    store.commit(Batch(worker="w", seq=2, outcomes=outcomes, releases=(leases[3].token,), seeded=True))
    store.beat("w")
    (dead, _) = store.scan("dead")
    assert store.requeue((dead.id,)) == store.drop() == 1
    slots = store.scan("waiting", slot="a") + store.scan("waiting", slot="b")
    assert len(store.scan("waiting")) == len(slots) == 2
    assert store.items() == [(1, b"i")]
    leases = store.commit(Batch(worker="w", seq=3, want=9)).leases
    settle = tuple(Outcome(lease.token) for lease in leases)
    store.commit(Batch(worker="w", seq=4, outcomes=settle, leave=True, finish=True))
    assert store.snapshot().status == "finished"
    assert store.join(Worker("w2"), PLAN, 60).run == 2
    assert store.give_up(("w2",)) == 0
    store.close()
    open_store(url, crawl, create=False).close()


def refused(url: str, says: str, kind: type[FleetError] = StoreError) -> str:
    with pytest.raises(kind, match=says) as told:
        entered(url)
    for secret in ("s3cret", "secret", "mistaken"):
        assert secret not in str(told.value)
    return str(told.value)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        yield Path(name)


@pytest.fixture
def server(folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(required(redis_binary()), folder, port=free_port())
    yield server.start()
    server.stop()


@pytest.fixture
def cluster() -> Cluster:
    binary = required(redis_binary())
    return shared("cluster", lambda folder: Cluster(binary, folder).start())


@pytest.fixture
def watched() -> Watched:
    binary = required(redis_binary())
    return shared("sentinel", lambda folder: Watched(binary, folder).start())


@pytest.fixture
def tls() -> TlsServer:
    binary = required(redis_binary())
    return shared("tls", lambda folder: TlsServer(binary, folder, RIGHTS).start())


def allow(server: RedisServer, user: str, rights: str) -> None:
    client: Any = server.client()
    client.execute_command("ACL", "SETUSER", user, "on", ">secret", *rights.split())


# Forms


@pytest.mark.parametrize(
    "form",
    [
        "redis://127.0.0.1:{port}",
        "redis://127.0.0.1:{port}/3",
        "redis://127.0.0.1:{port}?db=3&client_name=me",
        "redis://user:secret@127.0.0.1:{port}/0",
        "valkey://user:secret@127.0.0.1:{port}/0",
        "unix://{socket}",
        "unix://{socket}?db=3",
        "unix://user:secret@{socket}",
    ],
)
def test_every_form_of_address_leads_there(server: RedisServer, form: str) -> None:
    allow(server, "user", RIGHTS)
    works(form.format(port=server.port, socket=server.socket))


def test_scripts_are_sent_to_whoever_lacks_them(cluster: Cluster, watched: Watched) -> None:
    for url, servers in ((cluster.url, cluster.nodes), (watched.url, [watched.master()])):
        store = entered(url, "flushed")
        for seq in range(1, 4):
            for each in servers:
                each.client().script_flush()
            assert store.commit(Batch(worker="w", seq=seq, adds=(Entry("a", b"x"),))).counts.accepted == seq


def test_a_crawl_is_moved_to_another_node_while_nobody_works_on_it(cluster: Cluster) -> None:
    store = entered(cluster.url, "moved")
    store.commit(Batch(worker="w", seq=1, adds=(Entry("a", b"1"), Entry("b", b"2")), want=1))
    before = store.snapshot().counts
    old = cluster.node_of("fleet:{moved}:meta")
    (new, *_) = (node for node in cluster.nodes if node is not old)
    source: Any = old.client()
    target: Any = new.client()
    slot = source.execute_command("CLUSTER", "KEYSLOT", "fleet:{moved}:meta")
    ids = [client.execute_command("CLUSTER", "MYID").decode() for client in (source, target)]
    target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
    source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
    # Keys are moved in any order; who works meanwhile is told what is going on.
    meta = b"fleet:{moved}:meta"
    keys = [key for key in source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000) if key != meta]
    source.execute_command("MIGRATE", "127.0.0.1", new.port, "", 0, 5000, "KEYS", *keys)
    with pytest.raises(StoreError, match="stop the fleet while that is done"):
        store.beat("w")
    source.execute_command("MIGRATE", "127.0.0.1", new.port, "", 0, 5000, "KEYS", meta)
    for node in cluster.nodes:
        client: Any = node.client()
        client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])
    assert store.beat("w").counts == before
    assert len(store.commit(Batch(worker="w", seq=2, want=1)).leases) == 1


# Rights


@pytest.mark.parametrize(
    "rights",
    [
        "~fleet:* +ping",
        "~fleet:* +@all -@scripting",
        "~fleet:* +@all -@hash",
        "~other:* +@all",
        "+@all",
    ],
)
def test_a_user_who_lacks_rights_has_them_after_what_the_error_says(server: RedisServer, rights: str) -> None:
    allow(server, "some", rights)
    url = f"redis://some:secret@127.0.0.1:{server.port}/0"
    told = refused(url, "the user lacks rights")
    line = told.partition("ACL SETUSER <user> ")[2].partition(" (")[0]
    assert line == RIGHTS
    allow(server, "some", line)
    works(url)


def test_rights_in_a_cluster(folder: Path) -> None:
    cluster = Cluster(required(redis_binary()), folder).start()
    try:
        for node in cluster.nodes:
            allow(node, "some", "~fleet:* +ping")
            allow(node, "worker", RIGHTS)
            allow(node, "default", "off")
        refused(f"redis+cluster://some:secret@{cluster.places}", "the user lacks rights")
        refused(f"redis+cluster://worker:mistaken@{cluster.places}", "user or password is wrong")
        refused(f"redis+cluster://{cluster.places}", "user or password is wrong")
        for crawl in ("a", "b", "c", "d"):
            works(f"redis+cluster://worker:secret@{cluster.places}", crawl)
    finally:
        cluster.stop()


def test_a_user_sees_nothing_but_crawls(tls: TlsServer) -> None:
    store: Any = entered(tls.url)
    with pytest.raises(StoreError, match="lacks rights"):
        store._server.command("GET", "other")
    with pytest.raises(StoreError, match="lacks rights"):
        store._server.command("FLUSHALL")


# TLS


def test_tls_with_an_authority_of_its_own(tls: TlsServer) -> None:
    works(tls.url, "over tls")
    works(tls.url.replace("rediss://", "valkeys://"), "over tls with another name")
    trusting = tls.url.replace("127.0.0.1", "localhost")
    works(f"{trusting}&ssl_check_hostname=false", "over tls by another name")
    works(trusting.partition("?")[0] + "?ssl_cert_reqs=none", "over tls without a check")


def test_a_certificate_that_is_not_trusted(tls: TlsServer, folder: Path) -> None:
    stranger = Authority(folder, "stranger").file
    for trusted in (stranger, None):
        refused(tls.url_of(tls.USER, "s3cret", trusted), r"not trusted.*\?ssl_ca_certs=")
    refused(tls.url.replace("127.0.0.1", "localhost"), "for another name")
    refused(tls.url_of(tls.USER, "s3cret", folder / "missing.pem"), "there is no such file")
    (folder / "junk.pem").write_text("junk")
    refused(tls.url_of(tls.USER, "s3cret", folder / "junk.pem"), "is no certificate")


def test_a_wrong_name_or_password_over_tls(tls: TlsServer) -> None:
    ca = tls.authority.file
    refused(tls.url_of(tls.USER, "mistaken", ca), "user or password is wrong")
    refused(tls.url_of("nobody", "s3cret", ca), "user or password is wrong")
    refused(tls.url_of("", "s3cret", ca), "user or password is wrong")
    refused(f"rediss://127.0.0.1:{tls.tls_port}/0?ssl_ca_certs={ca}", "user or password is wrong")


# The wrong door


def test_a_server_of_another_kind(server: RedisServer, cluster: Cluster, watched: Watched) -> None:
    refused(f"redis+cluster://127.0.0.1:{server.port}", "it is no cluster: use redis://")
    refused(f"redis+sentinel://127.0.0.1:{server.port}/fleet", "it is no sentinel: use redis://")
    refused(f"redis://127.0.0.1:{watched.sentinels[0].port}", r"use redis\+sentinel://")
    (other, *_) = (node for node in cluster.nodes if node is not cluster.node_of("fleet:{c}:meta"))
    refused(other.url, r"is part of a cluster: use redis\+cluster://")
    refused(other.url.replace("/0", "/1"), r"is part of a cluster: use redis\+cluster://")
    (replica,) = (each for each in watched.servers if each is not watched.master())
    refused(replica.url, r"it is a replica.*redis\+sentinel://", StoreAway)


def test_nobody_there(watched: Watched) -> None:
    nobody = free_port()
    refused(f"redis+cluster://127.0.0.1:{nobody}", "cannot be reached", StoreAway)
    told = refused(f"redis+sentinel://127.0.0.1:{nobody}/fleet", "no sentinel knows a master", StoreAway)
    assert "object at" not in told
    refused(f"redis+sentinel://{watched.places}/other", "the name of the service", StoreAway)
    refused("unix:///nowhere/s", "cannot be reached", StoreAway)


def test_one_of_several_hosts_is_enough(cluster: Cluster, watched: Watched) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    works(f"redis+cluster://{nobody},127.0.0.1:{cluster.nodes[0].port}", "by one node")
    works(f"redis+sentinel://{nobody},127.0.0.1:{watched.sentinels[0].port}/fleet", "by one sentinel")
