"""A history of a store in the manner of Jepsen's total-queue: what went in, what came out, and who died.

Clients add entries, lease them and settle them, and write down every call and every answer. They die at
random moments, also between a call and its answer; so does the server. In the end all that is left is
taken out, and the history is judged.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from scrapy_fleet.errors import GivenUp, StoreAway
from scrapy_fleet.model import Batch, Entry, Lease, Outcome, Plan, Receipt, Rule, Worker
from scrapy_fleet.store.redis import RedisStore
from tests.servers import RedisServer

PLAN = Plan(rule=Rule(concurrency=1_000_000), max_attempts=1_000_000)
CRAWL = "history"
TTL = 1.0
SLOTS = 7

T = TypeVar("T")


@dataclass
class History:
    """What the clients saw. Entries are named by their payloads."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    tried: set[bytes] = field(default_factory=set)
    """Somebody began to add it."""
    accepted: set[bytes] = field(default_factory=set)
    """The store answered that it has it."""
    out: Counter[bytes] = field(default_factory=Counter)
    """How often it was leased, as the clients that lived to see it tell."""
    settling: set[bytes] = field(default_factory=set)
    """Somebody began to settle it, and died before the answer."""
    settled: dict[bytes, float] = field(default_factory=dict)
    """The store answered that it is done; when."""
    came_late: set[bytes] = field(default_factory=set)
    """Leased, though it had been settled before."""
    dropped: Counter[bytes] = field(default_factory=Counter)
    """How often a client died, or was given up, that held it."""
    deaths: int = 0
    server_kills: int = 0
    unlike: list[str] = field(default_factory=list)
    """Calls that were answered with an error nobody expects."""

    @property
    def lost(self) -> set[bytes]:
        return self.accepted - self.settled.keys() - self.settling

    @property
    def unexpected(self) -> set[bytes]:
        return self.out.keys() - self.tried

    @property
    def recovered(self) -> set[bytes]:
        """Came out, though the answer to the call that added it was never seen."""
        return self.out.keys() - self.accepted

    @property
    def repeated(self) -> Counter[bytes]:
        return self.out - Counter(self.out.keys())

    @property
    def unexplained(self) -> Counter[bytes]:
        """Repeated more often than clients died that held it."""
        return self.repeated - self.dropped

    def report(self) -> str:
        return (
            f"{len(self.tried)} tried, {len(self.accepted)} accepted, {len(self.out)} came out; "
            f"{len(self.lost)} lost, {len(self.unexpected)} unexpected, {len(self.recovered)} recovered, "
            f"{self.repeated.total()} repeated ({self.unexplained.total()} of them without a cause, "
            f"{len(self.came_late)} after they had been settled); "
            f"{self.deaths} clients and {self.server_kills} servers died"
        )


class Died(Exception):
    """The client dies here."""


class Client:
    """Adds, leases and settles, until it dies; then another takes its place."""

    def __init__(self, url: str, name: str, history: History, seed: int) -> None:
        self.url, self.name, self.history = url, name, history
        self.random = Random(seed)
        self.store = RedisStore(url, CRAWL)
        self.lives = 0
        self.added = 0
        self._be_born()

    def _be_born(self) -> None:
        self.lives += 1
        self.id = f"{self.name}/{self.lives}"
        self.seq = 0
        self.held: list[Lease] = []
        self._insist(lambda: self.store.join(Worker(self.id), PLAN, TTL))

    def live(self, until: Callable[[], bool], mortality: float, most_adds: int) -> None:
        """Go on, through many lives, until it is time to end."""
        while not until():
            try:
                self._turn(mortality, self.random.randint(0, most_adds))
            except (Died, GivenUp):
                with self.history.lock:
                    self.history.deaths += 1
                    self.history.dropped.update(lease.payload for lease in self.held)
                self._be_born()

    def _turn(self, mortality: float, adds: int) -> None:
        """One commit: something new, what was done of the last, and a wish for more."""
        entries = []
        for _ in range(adds):
            self.added += 1
            payload = f"{self.name}:{self.added}".encode()
            slot = f"s{self.random.randrange(SLOTS)}"
            entries.append(Entry(slot, payload, self.random.randrange(3), hash((self.name, self.added))))
        done = [lease for lease in self.held if self.random.random() < 0.9]
        self.seq += 1
        batch = Batch(
            worker=self.id,
            seq=self.seq,
            adds=tuple(entries),
            outcomes=tuple(Outcome(lease.token) for lease in done),
            want=self.random.randrange(20),
        )
        with self.history.lock:
            self.history.tried.update(entry.payload for entry in entries)
        if self.random.random() < mortality / 2:
            raise Died
        dies_before_the_answer = self.random.random() < mortality / 2
        began = time.monotonic()
        receipt = self._commit(batch)
        if dies_before_the_answer:
            # Nobody saw the answer: what it brought counts as held, and its news as unknown.
            with self.history.lock:
                self.history.settling.update(lease.payload for lease in done)
            self.held += receipt.leases
            raise Died
        self._note(entries, done, receipt, began)

    def _commit(self, batch: Batch) -> Receipt:
        receipt = self._insist(lambda: self.store.commit(batch))
        if self.random.random() < 0.1:  # as if the answer had been lost
            again = self._insist(lambda: self.store.commit(batch))
            if {lease.token for lease in again.leases} != {lease.token for lease in receipt.leases}:
                self.history.unlike.append(f"{batch.seq} of {self.id} brought other leases when repeated")
        return receipt

    def _note(self, entries: list[Entry], done: list[Lease], receipt: Receipt, began: float) -> None:
        tokens = {lease.token for lease in done}
        self.held = [lease for lease in self.held if lease.token not in tokens]
        with self.history.lock:
            known = {entries[position].payload for position in receipt.known}
            self.history.accepted.update(entry.payload for entry in entries if entry.payload not in known)
            for lease in receipt.leases:
                self.history.out[lease.payload] += 1
                if self.history.settled.get(lease.payload, began) < began:
                    self.history.came_late.add(lease.payload)
            now = time.monotonic()
            self.history.settled.update((lease.payload, now) for lease in done)
        self.held += receipt.leases

    def _insist(self, call: Callable[[], T]) -> T:
        deadline = time.monotonic() + 30
        while True:
            try:
                return call()
            except StoreAway:
                assert time.monotonic() < deadline, "the server does not come back"
                time.sleep(0.01)

    def drain(self) -> None:
        """Take out all that is left, what the dead held included."""
        deadline = time.monotonic() + 30
        while True:
            self.store.beat(self.id)
            self._turn(0.0, 0)
            if self.store.snapshot().counts.open == 0:
                return
            assert time.monotonic() < deadline, f"{self.store.snapshot().counts} are left"
            time.sleep(0.005)


def make_history(server: RedisServer, seed: int, *, clients: int, seconds: float, kills: int) -> History:
    """Let clients live and die for a while, and the server die so many times; then take out the rest."""
    history, random, over = History(), Random(seed), threading.Event()
    all_clients = [Client(server.url, f"c{n}", history, seed * 1000 + n) for n in range(clients)]

    def run(client: Client) -> None:
        try:
            client.live(over.is_set, mortality=0.03, most_adds=10)
        except BaseException as error:
            history.unlike.append(repr(error))

    threads = [threading.Thread(target=run, args=(client,)) for client in all_clients]
    for thread in threads:
        thread.start()
    for _ in range(kills):
        over.wait(seconds / kills * random.uniform(0.5, 1.0))
        server.kill()
        server.start()
        history.server_kills += 1
    over.wait(seconds / kills / 2)
    over.set()
    for thread in threads:
        thread.join()
    for client in all_clients:  # they all leave without a word
        history.dropped.update(lease.payload for lease in client.held)
    last = Client(server.url, "last", history, seed)
    last.drain()
    for client in [*all_clients, last]:
        client.store.close()
    return history
