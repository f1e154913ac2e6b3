"""A batch whose answer was lost is sent again, and changes nothing."""

from __future__ import annotations

from scrapy_fleet.model import Batch, Outcome, Plan, Rule
from scrapy_fleet.store.base import MAX_WANT, Store

from .driver import WIDE, Clock, Hand, conserved, names, page, pages, spaced


def test_a_repeated_batch_changes_nothing_and_brings_the_same_leases(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("0"))
    (held,) = worker.lease()
    first = worker.commit(
        adds=(page("1", key=1), page("2", key=1), page("3", key=3)),
        outcomes=(Outcome(held.token, items=(b"i",)),),
        items=(b"j",),
        marks=(9,),
        stats={"n": 1},
        state={"s": b"x"},
        seeded=True,
        want=2,
    )
    before = store.snapshot()
    assert worker.again() == first
    assert worker.again() == first
    assert store.snapshot() == before
    assert [item for _, item in store.items()] == [b"i", b"j"]
    conserved(store)


def test_a_repeat_brings_only_what_is_still_held(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2", "3"))
    older = worker.lease(1)
    newer = worker.lease(2)
    store.commit(Batch(worker="w", seq=worker.last.seq, releases=(newer[0].token,)))
    assert list(worker.again().leases) == newer
    assert names(older) == ["3"]


def test_a_question_that_brought_nothing_brings_nothing_when_it_is_repeated(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.add(page("known", key=1))
    assert one.add(page("known", key=1)).known == (0,)
    one.settle(*one.lease())
    assert one.lease() == []
    two.add(*pages("1"))
    again = one.again()
    assert (again.leases, again.known, again.counts.waiting) == ((), (), 1)
    assert names(one.lease()) == ["1"]


def test_the_counts_of_a_repeat_are_those_of_now(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.add(*pages("1"))
    two.add(*pages("2"))
    assert one.again().counts.accepted == 2


def test_the_delay_of_a_repeated_lease_is_counted_from_now(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=Plan(rule=Rule(delay=0.4)))
    worker.add(*pages("1", "2", "3"))
    assert [lease.delay for lease in worker.lease()] == spaced(0.4, 3)
    clock.advance(0.75)
    again = [lease.delay + 0.75 for lease in worker.again().leases]
    assert again == spaced(0.4, 3)


def test_an_older_batch_changes_nothing_and_brings_nothing(store: Store) -> None:
    worker = Hand(store)
    worker.add(page("1", key=1))
    worker.lease()
    old = Batch(worker="w", seq=1, adds=pages("x", "y"), want=5)
    before = store.snapshot()
    receipt = store.commit(old)
    assert (receipt.leases, receipt.counts) == ((), before.counts)
    assert store.snapshot() == before


def test_numbers_may_have_gaps(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1"))
    receipt = store.commit(Batch(worker="w", seq=1000, adds=pages("2"), want=5))
    assert len(receipt.leases) == 2
    assert store.commit(Batch(worker="w", seq=999, adds=pages("3"))).counts.accepted == 2


def test_numbers_are_each_workers_own(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.add(*pages("1"))
    one.add(*pages("2"))
    assert two.add(*pages("3")).counts.accepted == 3
    assert {lease.token for lease in one.lease(1)} != set()
    two.lease(1)
    two.lease(1)
    assert store.snapshot().counts.leased == 3


def test_a_repeat_of_many_leases(store: Store) -> None:
    worker = Hand(store, plan=WIDE)
    worker.add(*(page(str(n), f"s{n % 5}") for n in range(3000)))
    first = worker.commit(want=MAX_WANT)
    assert len(first.leases) == MAX_WANT
    assert worker.again() == first
