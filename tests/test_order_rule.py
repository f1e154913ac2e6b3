"""The one order that always holds: a request is settled with its children or after them.

Random crawls of random trees, with a store that is away, loses answers, and gives the worker up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from scrapy_fleet import outbox
from scrapy_fleet.errors import StoreAway
from scrapy_fleet.model import Batch, Lease
from tests.desk import NEVER, Desk, Limits, Recording

EVENTS = ["start", "child", "end", "end", "turn", "commit", "away", "lost answer", "give up"]


class Troubled(Recording):
    """Does what goes wrong in the thread that talks to it, when it is talked to."""

    def __init__(self) -> None:
        super().__init__()
        self.troubles: list[str] = []
        self.before = self._before
        self.after = self._after

    def _before(self, batch: Batch) -> None:
        if "away" in self.troubles:
            self.troubles.remove("away")
            raise StoreAway("It is away.")
        if "give up" in self.troubles and not batch.leave:
            self.troubles.remove("give up")
            self.give_up((batch.worker,))

    def _after(self, batch: Batch) -> None:
        if "lost answer" in self.troubles:
            self.troubles.remove("lost answer")
            raise StoreAway("It went away.")


class Crawl:
    """A worker that crawls a tree, and the notes it takes."""

    def __init__(self, desk: Desk, random: Random, pages: int) -> None:
        self.desk = desk
        self.tree: dict[str, list[str]] = {"root": []}
        for n in range(pages):
            # Every third page is one that no filter would recognise.
            name = f"{'keyless' if random.random() < 0.3 else 'page'} {n}"
            self.tree[random.choice(list(self.tree))].append(name)
            self.tree[name] = []
        self.running: list[tuple[Lease, list[str]]] = []
        self.payloads: dict[int, str] = {}
        self.children: dict[int, list[str]] = {}
        """What had been added for a lease when it was settled."""

    def start(self) -> bool:
        lease = self.desk.frontier.next()
        if lease is None:
            return False
        assert lease.token not in self.payloads, "a token was given twice"
        name = self.payloads[lease.token] = lease.payload.decode()
        self.running.append((lease, list(self.tree[name])))
        return True

    def child(self, at: int) -> None:
        lease, children = self.running[at % len(self.running)]
        if children:
            name = children.pop()
            is_keyless = name.startswith("keyless")
            # As the scheduler does: what comes of a lease that was lost comes again with it.
            if not is_keyless or self.desk.frontier.lease(lease.token) is not None:
                self.desk.add(name, parent=lease, key=not is_keyless)

    def end(self, at: int) -> None:
        at %= len(self.running)
        lease, children = self.running[at]
        while children:
            self.child(at)
        self.children[lease.token] = list(self.tree[self.payloads[lease.token]])
        self.desk.settle(lease)
        self.running.pop(at)

    async def finish(self) -> None:
        frontier = self.desk.frontier
        while not frontier.ended:
            while self.start():
                pass
            while self.running:
                self.end(0)
            await self.desk.until(lambda: self.start() or frontier.ended)
        await self.desk.close(finish=True)


def check(store: Recording, crawl: Crawl, *, exactly_once: bool) -> None:
    stored: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for batch, receipt in store.applied:
        known = set(receipt.known)
        stored.update(add.payload.decode() for n, add in enumerate(batch.adds) if n not in known)
        for outcome in batch.outcomes:
            for name in crawl.children[outcome.token]:
                assert stored[name], f"{crawl.payloads[outcome.token]} was settled before {name} was stored"
            done[crawl.payloads[outcome.token]] += 1
    assert done.keys() == crawl.tree.keys(), "something was lost"
    snapshot = store.snapshot()
    assert snapshot.status == "finished"
    assert snapshot.counts.done == snapshot.counts.accepted == stored.total()
    assert snapshot.workers == ()
    if exactly_once:
        assert set(stored.values()) == {1}


@contextmanager
def cut_at(adds: int) -> Iterator[None]:
    before, outbox.ADDS_PER_CALL = outbox.ADDS_PER_CALL, adds
    try:
        yield
    finally:
        outbox.ADDS_PER_CALL = before


async def crawl_a_tree(seed: int, events: list[tuple[str, int]], limits: Limits, pieces: int) -> None:
    store = Troubled()
    desk = Desk(store, limits)
    crawl = Crawl(desk, Random(seed), pages=25)
    await desk.open()
    desk.add("root")
    desk.frontier.seeded()
    await desk.until(desk.at_rest)
    for event, number in events:
        if event == "start":
            crawl.start()
        elif event == "child" and crawl.running:
            crawl.child(number)
        elif event == "end" and crawl.running:
            crawl.end(number)
        elif event == "turn":
            await desk.turns(number)
        elif event == "commit":
            await desk.commit()
        elif len(store.troubles) < 3:
            store.troubles.append(event)
    await crawl.finish()
    check(store, crawl, exactly_once=limits.commit_interval == NEVER and pieces > 100)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1_000_000),
    events=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 5)), max_size=60),
    limits=st.builds(
        Limits,
        capacity=st.integers(1, 5),
        lookahead=st.integers(0, 4),
        commit_interval=st.sampled_from([0.0, 0.01, NEVER]),
        commit_size=st.sampled_from([1, 5, 1_000_000]),
    ),
    pieces=st.sampled_from([2, 500]),
)
def test_no_request_is_settled_before_its_children_are_stored(
    seed: int, events: list[tuple[str, int]], limits: Limits, pieces: int
) -> None:
    with cut_at(pieces):
        asyncio.run(crawl_a_tree(seed, events, limits, pieces))
