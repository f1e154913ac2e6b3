"""A server that dies, and what takes its place: a replica, or itself with the data it had.

Replication is asynchronous. What the replica had is never lost. Commits that it did not have are gone, though
they were answered; the worker whose commits they were learns it at its next call, and all it held then
waits again: so pages are done once more, but none is missed.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from scrapy_fleet.errors import GivenUp, StoreAway, StoreEmptied, StoreRolledBack
from scrapy_fleet.model import Batch, Entry, Lease, Outcome, Plan, Receipt, Rule, Worker
from scrapy_fleet.settings import open_store
from scrapy_fleet.store.base import Store
from tests.contract.driver import conserved
from tests.server_sets import Cluster, Watched, until
from tests.servers import RedisServer, free_port, redis_binary, required, valkey_binary

PATIENCE = 60.0
PLAN = Plan(rule=Rule(concurrency=1000))

T = TypeVar("T")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        yield Path(name)


@pytest.fixture
def watched(folder: Path) -> Iterator[Watched]:
    watched = Watched(required(redis_binary()), folder)
    try:
        yield watched.start()
    finally:
        watched.stop()


def insist(call: Callable[[], T]) -> tuple[T, int]:
    """As workers do while the store is away; the answer, and how often there was none."""
    deadline = time.monotonic() + PATIENCE
    away = 0
    while True:
        try:
            return call(), away
        except StoreAway:
            assert time.monotonic() < deadline, "the store did not come back"
            away += 1
            time.sleep(0.05)


class Tree:
    """A worker that crawls pages of which each has three links, and does again what the store has lost."""

    def __init__(self, store: Store, depth: int = 5) -> None:
        self.store = store
        self.depth = depth
        self.lives = 0
        self.away = 0
        self.rolled_back = 0
        self.runs = 0
        self.seq = 0
        self.join()
        self.leases: tuple[Lease, ...] = ()
        self.commit(adds=(Entry("site", b"", key=1),), seeded=True, want=5)

    @property
    def pages(self) -> int:
        return sum(3**level for level in range(self.depth + 1))

    def join(self) -> None:
        self.lives += 1
        self.id = f"w{self.lives}"
        _, away = insist(
            lambda: self.store.join(Worker(self.id), PLAN, 60, run=1 if self.lives > 1 else None)
        )
        self.away += away

    def commit(self, **fields: Any) -> Receipt | None:
        self.seq += 1
        self.last = Batch(worker=self.id, seq=self.seq, **fields)
        try:
            receipt, away = insist(lambda: self.store.commit(self.last))
        except StoreRolledBack:
            self.rolled_back += 1
            self.leases = ()
            self.join()
            return self.commit(want=5)
        self.away += away
        self.leases += receipt.leases
        return receipt

    def step(self) -> bool:
        """One commit: what is held is done, and its links are found. Whether there is more to do."""
        done, self.leases = self.leases, ()
        self.runs += len(done)
        parents = [page.payload for page in done if len(page.payload) < self.depth]
        links = [parent + letter for parent in parents for letter in (b"a", b"b", b"c")]
        adds = tuple(Entry("site", link, key=int.from_bytes(b"\1" + link)) for link in links)
        receipt = self.commit(adds=adds, outcomes=tuple(Outcome(page.token) for page in done), want=5)
        assert receipt is not None
        return receipt.counts.open > 0

    def finish(self) -> None:
        while self.step():
            pass
        counts = self.store.snapshot().counts
        assert (counts.accepted, counts.done, counts.open) == (self.pages, self.pages, 0)
        conserved(self.store)


# Sentinels


def test_a_failover_in_the_middle_loses_nothing_that_the_replica_had(watched: Watched) -> None:
    tree = Tree(open_store(watched.url, "c"))
    for _ in range(10):
        tree.step()
    old = watched.master()
    watched.replicated()
    before = tree.store.snapshot()
    old.kill()
    # The answer to the last commit was lost, say: it is sent again, to a server that was a replica.
    receipt, away = insist(lambda: tree.store.commit(tree.last))
    assert away > 0
    assert [lease.token for lease in receipt.leases] == [lease.token for lease in tree.leases]
    assert watched.master() is not old
    assert (receipt.counts, tree.store.snapshot().seen) == (before.counts, before.seen)
    for _ in range(10):
        tree.step()
    # The old master comes back, and is told its new place. Workers do not notice.
    old.start()
    until(lambda: old.client().info("replication").get("master_link_status") == "up", PATIENCE)
    tree.finish()
    assert (tree.rolled_back, tree.runs) == (0, tree.pages)
    watched.replicated()


def test_commits_that_the_replica_did_not_have_are_done_again(watched: Watched) -> None:
    tree = Tree(open_store(watched.url, "c"))
    for _ in range(10):
        tree.step()
    watched.replicated()
    (replica,) = (server for server in watched.servers if server is not watched.master())
    replica.client().replicaof("127.0.0.1", str(free_port()))
    for _ in range(10):
        tree.step()
    lost = tree.runs
    watched.master().kill()
    tree.finish()
    assert tree.rolled_back == 1
    assert tree.pages < tree.runs <= tree.pages + lost


def test_a_master_that_hangs_is_left_for_the_replica(watched: Watched) -> None:
    tree = Tree(open_store(f"{watched.url}?socket_timeout=1&socket_connect_timeout=1", "c"))
    for _ in range(10):
        tree.step()
    watched.replicated()
    old = watched.master()
    old.signal(signal.SIGSTOP)
    try:
        tree.step()
    finally:
        old.signal(signal.SIGCONT)
    assert tree.away > 0
    # What lay in its mailbox it does now that it wakes; but nobody asks it any more.
    tree.finish()
    assert (tree.rolled_back, tree.runs) == (0, tree.pages)


def test_a_master_that_waits_for_its_replica_accepts_nothing_without_it(watched: Watched) -> None:
    """As it should be set up: min-replicas-to-write makes it rare that commits are lost."""
    master = watched.master()
    client: Any = master.client()
    client.config_set("min-replicas-to-write", 1)
    tree = Tree(open_store(watched.url, "c"))
    before = tree.store.snapshot()
    (replica,) = (server for server in watched.servers if server is not master)
    replica.kill()
    until(lambda: master.client().info("replication")["connected_slaves"] == 0)
    with pytest.raises(StoreAway, match="not ready"):
        tree.store.commit(Batch(worker=tree.id, seq=tree.seq + 1, adds=(Entry("a", b"x"),)))
    assert tree.store.snapshot().counts == before.counts
    client.config_set("min-replicas-to-write", 0)
    tree.finish()


# A server that comes back with older data


@pytest.mark.parametrize("find", [valkey_binary, redis_binary])
def test_a_server_that_comes_back_with_an_older_copy(folder: Path, find: Callable[[], str | None]) -> None:
    server = RedisServer(required(find()), folder, port=free_port()).start()
    try:
        tree = Tree(open_store(server.url, "c"))
        idle = open_store(server.url, "c")
        idle.join(Worker("idle"), PLAN, 60)
        for _ in range(10):
            tree.step()
        server.client().save()
        saved = tree.store.snapshot()
        for _ in range(10):
            tree.step()
        server.kill()
        server.start()
        # The worker whose commits are gone is told so once, by whatever it calls first.
        with pytest.raises(StoreRolledBack, match="min-replicas-to-write"):
            tree.store.beat(tree.id)
        with pytest.raises(GivenUp):
            tree.store.beat(tree.id)
        counts = tree.store.snapshot().counts
        assert (counts.accepted, counts.done, counts.leased) == (saved.counts.accepted, saved.counts.done, 0)
        assert {row.attempts for row in tree.store.scan("waiting")} == {0}
        # One that has lost nothing goes on.
        assert idle.beat("idle").counts == counts
        tree.leases = ()
        tree.join()
        tree.finish()
        assert tree.lives == 2
    finally:
        server.stop()


def test_a_rolled_back_store_is_handled_as_an_emptied_one() -> None:
    """Those who see to the one, see to the other: nothing counts as finished by what it said before."""
    assert issubclass(StoreRolledBack, StoreEmptied)


# Clusters


def test_a_node_of_a_cluster_that_dies_and_comes_back(folder: Path) -> None:
    options = ("--appendonly", "yes", "--appendfsync", "always", "--cluster-node-timeout", "1000")
    cluster = Cluster(required(redis_binary()), folder, *options)
    try:
        cluster.start()
        tree = Tree(open_store(cluster.url, "c"))
        for _ in range(10):
            tree.step()
        node = cluster.node_of("fleet:{c}:meta")
        node.kill()
        with pytest.raises(StoreAway):
            tree.store.beat(tree.id)
        node.start()
        tree.finish()
        assert (tree.rolled_back, tree.runs) == (0, tree.pages)
    finally:
        cluster.stop()
