"""Entries that come from outside of any worker, and the slot of tasks."""

from __future__ import annotations

from scrapy_fleet.model import TASKS, Auto, Entry, Override, Plan, Rule
from scrapy_fleet.store.base import Store

from .driver import WIDE, Clock, Hand, conserved, crash, names, page, pages

PACED = Plan(rule=Rule(delay=8.0, concurrency=1, jitter=0.5), auto=Auto(start=4.0))


def tasks(*texts: str, priority: int = 0) -> tuple[Entry, ...]:
    return tuple(page(text, TASKS, seed=True, priority=priority) for text in texts)


def test_they_can_be_there_before_any_worker(store: Store) -> None:
    assert store.push(tasks("1", "2")) == ()
    assert store.snapshot().status == "stopped"
    assert store.snapshot().counts.waiting == 2
    worker = Hand(store)
    assert names(worker.lease()) == ["1", "2"]
    conserved(store)


def test_a_repeat_is_recognised(store: Store) -> None:
    some = (page("1", key=11), page("2"), page("3", key=33), page("4", key=11))
    assert store.push(some) == (3,)
    assert store.push(some) == (0, 2, 3)
    assert store.push(()) == ()
    assert store.snapshot().counts.accepted == 4
    conserved(store)


def test_a_worker_hears_of_them(store: Store) -> None:
    worker = Hand(store)
    assert worker.lease() == []
    store.push(tasks("1"))
    assert worker.beat().counts.waiting == 1
    assert names(worker.lease()) == ["1"]


def test_they_open_a_finished_crawl_again(store: Store) -> None:
    worker = Hand(store)
    worker.commit(adds=(page("old", key=1),), seeded=True)
    worker.settle(*worker.lease())
    worker.leave(finish=True)
    assert store.snapshot().status == "finished"
    assert store.push((page("old", key=1),)) == (0,)
    assert store.snapshot().status == "finished"
    store.push(tasks("1"))
    assert store.snapshot().status == "stopped"
    again = Hand(store, "w2")
    assert again.joined.resumed
    assert names(again.lease()) == ["1"]


def test_they_do_not_touch_the_seeding(store: Store) -> None:
    store.push(tasks("1"))
    first, second = Hand(store, "w1"), Hand(store, "w2")
    store.push(tasks("2"))
    assert (first.joined.seeding.value, second.joined.seeding.value) == ("mine", "other")
    assert first.commit(seeded=True).seeding.value == "done"
    store.push(tasks("3"))
    assert second.commit().seeding.value == "done"


def test_tasks_are_not_paced(store: Store) -> None:
    store.push(tasks(*"123"))
    worker = Hand(store, plan=PACED)
    worker.add(*pages("page 1", "page 2"))
    leases = worker.lease()
    assert [(lease.payload.decode(), lease.delay) for lease in leases] == [
        ("page 1", 0.0) if PACED.lifo is False else ("page 2", 0.0),
        ("1", 0.0),
        ("2", 0.0),
        ("3", 0.0),
    ]
    slot = store.slot(TASKS)
    assert slot is not None
    assert (slot.delay, slot.reason) == (0.0, "")


def test_tasks_are_no_part_of_a_slots_share(store: Store) -> None:
    workers = [Hand(store, f"w{i}", Plan(rule=Rule(concurrency=1))) for i in range(3)]
    store.push(tasks(*map(str, range(30))))
    assert len(workers[0].lease(30)) == 30


def test_people_may_hold_tasks_back(store: Store) -> None:
    worker = Hand(store, plan=PACED)
    store.push(tasks("1"))
    store.override(TASKS, Override(blocked=True))
    assert worker.lease() == []
    store.override(TASKS, Override(boost=1))
    assert names(worker.lease()) == ["1"]


def test_tasks_come_in_order_behind_pages_of_their_priority(store: Store) -> None:
    worker = Hand(store)
    store.push(tasks("1", "2"))
    store.push(tasks("3"))
    store.push(tasks("urgent", priority=1))
    worker.add(page("page"))
    assert names(worker.lease()) == ["urgent", "page", "1", "2", "3"]


def test_a_task_of_a_dead_worker_comes_back(store: Store) -> None:
    worker, other = Hand(store, "w1"), Hand(store, "w2")
    store.push(tasks("1"))
    assert names(worker.lease()) == ["1"]
    assert crash(store, worker) == 1
    (again,) = other.lease()
    assert (again.payload, again.attempts) == (b"1", 1)
    other.settle(again, dead="it is bad")
    assert [row.reason for row in store.scan("dead")] == ["it is bad"]
    assert store.requeue() == 1
    assert names(other.lease()) == ["1"]


def test_how_many_wait_in_a_slot(store: Store) -> None:
    assert store.waiting("a") == 0
    worker = Hand(store)
    assert store.waiting("a") == 0
    worker.add(*pages("1", "2"), page("3", "b"))
    assert (store.waiting("a"), store.waiting("b"), store.waiting("c")) == (2, 1, 0)
    worker.lease()
    assert store.waiting("a") == 0


def test_a_beat_tells_how_many_workers_there_are(store: Store, clock: Clock) -> None:
    one = Hand(store, "w1", WIDE, 10)
    assert one.beat().workers == 1
    other = Hand(store, "w2", WIDE, 10)
    assert (one.beat().workers, other.beat().workers) == (2, 2)
    clock.advance(9)
    one.beat()
    clock.advance(2)
    assert one.beat().workers == 1


def test_keys_can_be_marked_as_seen_with_them(store: Store) -> None:
    assert store.push((page("1", key=1), page("2", key=2)), (1, 3, 3, -(2**63))) == ()
    assert store.seen((1, 2, 3, 4, -(2**63))) == (True, True, True, False, True)
    assert store.push((page("3", key=3), page("4", key=4))) == (0,)
    assert store.push((), (4, 5)) == ()
    assert store.snapshot().seen == 6
    assert store.snapshot().counts.waiting == 3
    conserved(store)
