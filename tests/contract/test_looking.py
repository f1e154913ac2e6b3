"""Observers: snapshot and scan; and what may be done with the dead."""

from __future__ import annotations

import pytest

from scrapy_fleet.model import Plan, Rule, Worker
from scrapy_fleet.store.base import Store

from .driver import WIDE, Clock, Hand, conserved, crash, names, page, pages


def test_slots_with_most_waiting_come_first_then_by_name(store: Store) -> None:
    worker = Hand(store)
    worker.add(
        *(page(f"{slot}{n}", slot) for slot, count in (("c", 1), ("b", 1), ("d", 3)) for n in range(count))
    )
    snapshot = store.snapshot()
    assert [(slot.name, slot.waiting) for slot in snapshot.slots] == [("d", 3), ("b", 1), ("c", 1)]
    assert [slot.name for slot in store.snapshot(slots=2).slots] == ["d", "b"]
    assert store.snapshot(slots=2).slot_count == 3
    assert store.snapshot(slots=0).slots == ()


def test_a_slot_shows_its_rule_its_load_and_its_next_time(store: Store, clock: Clock) -> None:
    plan = Plan(rule=Rule(), slots={"a": Rule(delay=0.4, concurrency=4)})
    worker = Hand(store, plan=plan)
    worker.add(*pages(*"12345"))
    leases = worker.lease(2)
    worker.settle(leases[0])
    (slot,) = store.snapshot().slots
    assert (slot.waiting, slot.leased, slot.done) == (3, 1, 1)
    assert (slot.delay, slot.concurrency) == (0.4, 4)
    assert slot.next_in == pytest.approx(0.8)
    clock.advance(5)
    assert store.snapshot().slots[0].next_in == 0


def test_workers_show_what_they_hold_and_how_long_they_are_there(store: Store, clock: Clock) -> None:
    store.join(Worker("w1", "host", 42), WIDE, 60)
    clock.advance(5)
    two = Hand(store, "w2", ttl=30)
    two.commit(adds=pages("1", "2", "3"), want=2)
    clock.advance(5)
    one, two_view = sorted(store.snapshot().workers, key=lambda view: view.id)
    assert (one.id, one.host, one.pid, one.leased) == ("w1", "host", 42, 0)
    assert (one.age, one.deadline_in) == (pytest.approx(10), pytest.approx(50))
    assert (two_view.leased, two_view.age, two_view.deadline_in) == (2, pytest.approx(5), pytest.approx(25))


def test_a_look_changes_nothing(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2", "3"))
    worker.lease(1)
    before = store.snapshot()
    for kind in ("waiting", "leased", "dead"):
        store.scan(kind)
        store.scan(kind, slot="a")
    store.items()
    assert store.snapshot() == before


def test_waiting_of_a_slot_is_listed_in_the_order_it_will_be_handed_out(store: Store) -> None:
    worker = Hand(store)
    worker.add(page("1"), page("seed", seed=True), page("2"), page("top", priority=3), page("other", "b"))
    rows = store.scan("waiting", slot="a")
    assert names(rows) == ["top", "2", "1", "seed"]
    assert [(row.priority, row.seed) for row in rows] == [(3, False), (0, False), (0, False), (0, True)]
    assert names(store.scan("waiting", slot="a", after=1, limit=2)) == ["2", "1"]
    assert store.scan("waiting", slot="nowhere") == []


def test_suspects_are_listed_after_the_others(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2"))
    for n in range(2):
        victim = Hand(store, f"v{n}")
        victim.lease()
        crash(store, victim)
    worker.add(page("low", priority=-9))
    rows = store.scan("waiting", slot="a")
    assert names(rows) == ["low", "1", "2"]
    assert [row.attempts for row in rows] == [0, 2, 2]


def test_otherwise_entries_are_listed_by_id(store: Store) -> None:
    worker = Hand(store)
    worker.add(page("1", "a"), page("2", "b", priority=5), page("3", "a"), page("4", "c"))
    rows = store.scan("waiting")
    assert names(rows) == ["1", "2", "3", "4"]
    assert [row.id for row in rows] == sorted(row.id for row in rows)
    assert names(store.scan("waiting", after=rows[1].id)) == ["3", "4"]
    assert names(store.scan("waiting", after=rows[0].id, limit=2)) == ["2", "3"]


def test_leased_entries_are_listed_with_their_worker(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.add(page("1", "a"), page("2", "b"), page("3", "c"))
    one.lease(2)
    two.lease(1)
    assert [(row.payload, row.worker) for row in store.scan("leased")] == [
        (b"1", "w1"),
        (b"2", "w1"),
        (b"3", "w2"),
    ]
    assert names(store.scan("leased", slot="b")) == ["2"]


def bury(worker: Hand, *labels: str, slot: str = "a") -> None:
    worker.add(*pages(*labels, slot=slot))
    for lease in worker.lease():
        worker.settle(lease, dead=f"why {lease.payload.decode()}")


def test_dead_entries_are_listed_with_their_reason(store: Store) -> None:
    worker = Hand(store)
    bury(worker, "1", "2")
    bury(worker, "3", slot="b")
    rows = store.scan("dead")
    assert [(row.payload, row.reason) for row in rows] == [(b"1", "why 1"), (b"2", "why 2"), (b"3", "why 3")]
    assert names(store.scan("dead", slot="b")) == ["3"]
    assert names(store.scan("dead", after=rows[0].id, limit=1)) == ["2"]


def test_requeued_entries_wait_again_in_their_place_with_no_attempts(store: Store) -> None:
    worker = Hand(store)
    bury(worker, "1", "2", "3")
    worker.add(*pages("4"))
    assert store.requeue() == 3
    assert store.scan("dead") == []
    leases = worker.lease()
    assert names(leases) == ["4", "3", "2", "1"]
    assert {lease.attempts for lease in leases} == {0}
    assert store.scan("leased")[0].reason is None
    conserved(store)


def test_an_entry_that_died_of_its_workers_is_no_suspect_once_requeued(store: Store) -> None:
    plan = Plan(rule=WIDE.rule, max_attempts=1)
    worker = Hand(store, "w", plan)
    worker.add(*pages("1", "2"))
    for n in range(3):
        victim = Hand(store, f"v{n}", plan)
        victim.lease()
        crash(store, victim)
    assert store.requeue() == 2
    assert [(lease.attempts, lease.alone) for lease in worker.lease()] == [(0, False), (0, False)]


def test_only_the_dead_that_are_named_are_requeued(store: Store) -> None:
    worker = Hand(store)
    bury(worker, "1", "2", "3")
    worker.add(*pages("waiting"))
    (waiting,) = store.scan("waiting")
    ids = [row.id for row in store.scan("dead")]
    assert store.requeue((ids[1], ids[1], waiting.id, 10**9)) == 1
    assert store.requeue(()) == 0
    assert names(store.scan("dead")) == ["1", "3"]
    assert sorted(names(store.scan("waiting"))) == ["2", "waiting"]
    conserved(store)


def test_requeueing_opens_a_finished_crawl(store: Store) -> None:
    worker = Hand(store)
    bury(worker, "1")
    worker.leave(seeded=True, finish=True)
    assert store.snapshot().status == "finished"
    store.requeue((10**9,))
    assert store.snapshot().status == "finished"
    store.requeue()
    assert store.snapshot().status == "stopped"
    second = Hand(store, "w2")
    assert (second.joined.run, second.joined.resumed) == (1, True)
    assert names(second.lease()) == ["1"]


def test_dropped_entries_count_as_done(store: Store) -> None:
    worker = Hand(store)
    bury(worker, "1", "2", "3")
    before = store.snapshot().counts
    assert store.drop((store.scan("dead")[0].id,)) == 1
    assert store.drop() == 2
    assert store.drop() == 0
    after = store.snapshot().counts
    assert (after.accepted, after.dead, after.done) == (before.accepted, 0, 3)
    assert store.requeue() == 0
    conserved(store)


def test_what_is_added_after_drops_comes_after_what_was_there(store: Store) -> None:
    worker = Hand(store, plan=Plan(rule=WIDE.rule, lifo=False))
    bury(worker, "dead1", "dead2")
    worker.add(*pages("1"))
    store.drop()
    worker.add(*pages("2"))
    assert names(worker.lease()) == ["1", "2"]
