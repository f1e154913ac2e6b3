"""A crawl is taken out of a store in pieces, and is the same crawl in any other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from scrapy_fleet.cargo import About, Kept, NotEmpty, Piece
from scrapy_fleet.model import Notice, Override, Paper, Plan, Rule, Sample, Snapshot
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore

from .driver import WIDE, Clock, Hand, conserved, crash, names, page, pages

PLAN = replace(WIDE, max_attempts=4)


def live(store: Store, clock: Clock) -> None:
    """A crawl that has seen a lot; in the end nothing is leased, and nobody is there."""
    hand = Hand(store, plan=PLAN)
    store.override("b", Override(delay=2.0, boost=3))
    store.override("never met", Override(blocked=True))
    hand.add(
        *pages("a1", "a2", "a3"), page("a4", priority=5), page("seed1", seed=True), page("seed2", seed=True)
    )
    hand.add(
        page("b1", "b", key=1), page("b2", "b", key=-(2**63)), page("c1", "c", priority=-7, key=2**63 - 1)
    )
    store.write_paper("robots", b"\0anything")
    clock.advance(7.5)
    # The first of a is done, another is dead, one comes back as it was.
    leases = {lease.payload: lease for lease in hand.lease()}
    hand.sample(leases[b"a4"], latency=0.25, status=200)
    hand.settle(leases[b"a4"], items=(b"loose",), stats={"pages": 1.0, "time": 0.125}, state={"n": b"\1\2"})
    hand.settle(leases[b"a3"], dead="it was too much")
    hand.commit(notices=(Notice("c", distance=3.0),), samples=(Sample(leases[b"c1"].token, 0.5, 503, 60.0),))
    # Its worker dies once, then twice: it has attempts, then it is a suspect.
    for round in range(2):
        unlucky = Hand(store, f"unlucky{round}", plan=PLAN)
        hand.release(*hand_held(hand, leases))
        clock.advance(1)
        unlucky.lease(2)
        crash(store, unlucky)
        leases = {lease.payload: lease for lease in hand.lease(0)}
    hand.commit(marks=(77, 78), seeded=True)
    hand.leave()
    clock.advance(11)


def hand_held(hand: Hand, leases: dict[bytes, object]) -> list[object]:
    rows = {row.payload for row in hand.store.scan("leased")}
    return [lease for payload, lease in leases.items() if payload in rows]


def dumped(store: Store) -> list[Piece]:
    return list(store.dump())


def all_seen(store: Store, limit: int = 2) -> set[int]:
    cursor, keys = store.seen_keys("", limit)
    found = [*keys]
    while cursor:
        cursor, keys = store.seen_keys(cursor, limit)
        found += keys
    return {*found}


def carried(pieces: list[Piece], keys: set[int], into: Store) -> Store:
    into.mark(tuple(keys))
    into.load(pieces)
    return into


def same(one: Snapshot, other: Snapshot) -> bool:
    """All counters; how slots are treated follows from a plan, which the next worker brings."""
    strip = {"crawl": "", "workers": (), "slots": ()}
    return replace(one, **strip) == replace(other, **strip) and {
        (slot.name, slot.waiting, slot.done, slot.latency) for slot in one.slots
    } == {(slot.name, slot.waiting, slot.done, slot.latency) for slot in other.slots}


def played(store: Store, clock: Clock) -> list[tuple[str, int, int]]:
    """What workers get of it, in order, until nothing is left."""
    store.override("never met", None)
    store.control("run")
    hand = Hand(store, "player", plan=replace(PLAN, rule=Rule(concurrency=1)))
    hand.add(page("new", "a"), page("new seed", "a", seed=True))
    got: list[tuple[str, int, int]] = []
    for _ in range(100):
        leases = hand.lease(1)
        got += [(lease.payload.decode(), lease.priority, lease.attempts) for lease in leases]
        hand.settle(*leases)
        clock.advance(1)
    return got


def test_it_is_the_same_crawl_wherever_it_is_brought(make_store: Callable[..., Store], clock: Clock) -> None:
    store = make_store("original")
    live(store, clock)
    pieces, keys = dumped(store), all_seen(store)
    assert sum(isinstance(piece, Kept) for piece in pieces) == 8
    assert any(isinstance(piece, Kept) and piece.waited is not None for piece in pieces)
    assert keys == {1, -(2**63), 2**63 - 1, 77, 78}
    there = MemoryStore("elsewhere", clock=clock, random=Random(1))
    back = make_store("back")
    carried(pieces, keys, there)
    carried(dumped(there), all_seen(there), back)
    for copy in (there, back):
        assert dumped(copy) == pieces
        assert all_seen(copy) == keys
        assert same(copy.snapshot(), store.snapshot())
        assert copy.items() == store.items()
        assert copy.scan("dead") == store.scan("dead")
        assert copy.scan("waiting", slot="a") == store.scan("waiting", slot="a")
        assert copy.paper("robots", "w", 100, 10) == Paper(b"\0anything", age=pytest.approx(20.5))
        conserved(copy)
        reader = Hand(copy, "reader", plan=PLAN)
        assert reader.joined.state == {"n": b"\1\2"}
        reader.leave()
    start = clock.now
    expected = played(store, clock)
    assert len(expected) == 9
    for copy in (there, back):
        clock.now = start
        assert played(copy, clock) == expected


def test_an_empty_crawl(make_store: Callable[..., Store]) -> None:
    store = make_store("one")
    Hand(store).leave()
    [about] = dumped(store)
    copy = make_store("two")
    copy.load([about])
    assert dumped(copy) == [about]
    assert copy.snapshot().status == store.snapshot().status == "stopped"


@pytest.mark.parametrize("mode", ["run", "pause"])
def test_run_mode_and_end(mode: str, make_store: Callable[..., Store]) -> None:
    store = make_store("one")
    for _ in range(2):
        hand = Hand(store)
        hand.commit(seeded=True)
        hand.leave(finish=True)
    store.control(mode)  # type: ignore[arg-type]
    copy = make_store("two")
    copy.control("pause")
    copy.load(dumped(store))
    assert same(copy.snapshot(), store.snapshot())
    assert (copy.snapshot().run, copy.snapshot().status, copy.snapshot().mode) == (2, "finished", mode)
    copy.control("run")
    assert Hand(copy, "next").joined.run == 3


def test_many_entries_of_many_slots(make_store: Callable[..., Store], clock: Clock) -> None:
    store = make_store("one")
    hand = Hand(store, plan=Plan(lifo=False))
    for slot in range(40):
        hand.add(*(page(f"{slot} {number}", f"s{slot}", priority=number % 3) for number in range(40)))
    hand.commit(items=tuple(b"%d" % number for number in range(1200)))
    hand.leave()
    pieces = dumped(store)
    copy = make_store("two")
    copy.load(pieces)
    assert dumped(copy) == pieces
    assert copy.snapshot().items == 1200
    conserved(copy)


def test_nothing_is_put_into_a_crawl_that_is_in_use(make_store: Callable[..., Store], clock: Clock) -> None:
    store, other = make_store("one"), make_store("other")
    Hand(store).add(*pages("x"))
    pieces = dumped(store)
    hand = Hand(other)
    with pytest.raises(NotEmpty):
        other.load(pieces)
    hand.add(*pages("y"))
    hand.leave()
    with pytest.raises(NotEmpty):
        other.load(pieces)
    assert names(other.scan("waiting")) == ["y"]
    other.clear()
    other.load(pieces)
    assert names(other.scan("waiting")) == ["x"]


def test_a_page_of_keys_after_another(make_store: Callable[..., Store]) -> None:
    store = make_store()
    keys = tuple(range(-3000, 3000, 3))
    assert store.mark(keys) == 2000
    assert store.mark((0, 1, 3, 4)) == 2
    assert store.snapshot().seen == 2002
    assert all_seen(store, 100) == {*keys, 1, 4}
    assert store.seen((0, 1, 2)) == (True, True, False)
    about = dumped(store)[0]
    assert isinstance(about, About)
