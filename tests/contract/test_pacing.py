"""Delays: entries of a slot go out at least that far apart, over all workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from scrapy_fleet.model import Outcome, Plan, Rule, Sample, Start
from scrapy_fleet.politeness import leeway_of
from scrapy_fleet.store.base import HORIZON, Store

from .driver import Clock, Hand, crash, names, page, pages, spaced


def slow(delay: float, jitter: float = 0.0) -> Plan:
    return Plan(rule=Rule(concurrency=1000), slots={"a": Rule(delay=delay, concurrency=1000, jitter=jitter)})


def test_without_a_delay_everything_may_run_now(store: Store) -> None:
    worker = Hand(store)
    receipt = worker.commit(adds=pages("1", "2", "3"), want=9)
    assert [lease.delay for lease in receipt.leases] == [0, 0, 0]
    assert receipt.retry_in is None


def test_leases_are_handed_out_ahead_each_with_its_offset(store: Store) -> None:
    worker = Hand(store, plan=slow(0.25))
    receipt = worker.commit(adds=pages(*"123456789"), want=9)
    assert [lease.delay for lease in receipt.leases] == spaced(0.25, 5)
    assert receipt.retry_in == pytest.approx(5 * 0.25 - HORIZON)


def test_a_delay_beyond_the_horizon_gives_one_at_a_time(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(5))
    worker.add(*pages("1", "2", "3"))
    receipt = worker.commit(want=9)
    assert [lease.delay for lease in receipt.leases] == [0]
    assert receipt.retry_in == pytest.approx(5 + leeway_of(5))
    assert worker.begin(receipt.leases[0]).retry_in is None  # nothing was asked for
    receipt = worker.commit(want=9)
    assert receipt.retry_in == pytest.approx(5 - HORIZON)
    assert receipt.retry_in is not None
    clock.advance(receipt.retry_in)
    receipt = worker.commit(want=9)
    assert [lease.delay for lease in receipt.leases] == [pytest.approx(HORIZON)]


def test_nothing_comes_before_its_time(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(5))
    worker.add(*pages("1", "2"))
    worker.lease()
    clock.advance(3.5)
    receipt = worker.commit(want=1)
    assert receipt.leases == ()
    assert receipt.retry_in == pytest.approx(5 + leeway_of(5) - 3.5)


def test_time_that_passed_unused_is_not_saved_up(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(0.4))
    worker.add(*pages(*"123456789"))
    worker.lease(1)
    clock.advance(100)
    assert [lease.delay for lease in worker.lease()] == spaced(0.4, 3)


def test_a_delay_holds_over_all_workers(make_store: Callable[..., Store], clock: Clock) -> None:
    one, two = Hand(make_store(), "w1", slow(0.4)), Hand(make_store(), "w2", slow(0.4))
    one.add(*pages(*"123456789"))
    runs = []
    for _ in range(8):
        runs += [clock.now + lease.delay for hand in (one, two) for lease in hand.lease(1)]
        clock.advance(0.25)
    assert len(runs) >= 5
    gaps = [later - earlier for earlier, later in itertools.pairwise(runs)]
    assert gaps == pytest.approx([0.4] * len(gaps))


def test_a_delay_holds_through_crashes_releases_and_repeats(store: Store, clock: Clock) -> None:
    one, two = Hand(store, "w1", slow(0.4)), Hand(store, "w2", slow(0.4))
    one.add(*pages(*"1234"))
    first = one.lease(1)
    assert one.again().leases == tuple(first)
    crash(store, one)
    (second,) = two.lease(1)
    assert second.delay == pytest.approx(0.4)
    two.release(second)
    clock.advance(0.25)
    assert [lease.delay for lease in two.lease(1)] == [pytest.approx(0.55)]


def test_a_slow_slot_does_not_hold_up_others(store: Store) -> None:
    worker = Hand(store, plan=slow(60))
    worker.add(*(page(f"a{n}", "a", priority=1) for n in range(3)), *pages("b1", "b2", slot="b"))
    assert names(worker.lease()) == ["a2", "b2", "b1"]


def test_jitter_spreads_the_distance_evenly_around_the_delay(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(0.8, jitter=0.5))
    worker.add(*(page(str(n)) for n in range(200)))
    runs: list[float] = []
    for _ in range(400):
        runs += [clock.now + lease.delay for lease in worker.lease()]
        clock.advance(1)
    assert len(runs) == 200
    gaps = [later - earlier for earlier, later in itertools.pairwise(runs)]
    # A reservation further ahead than the horizon waits for a later call, never for a shorter gap.
    assert min(gaps) >= 0.4 - 1e-9
    assert max(gaps) <= 1.2 + 1.0
    assert len({round(gap, 6) for gap in gaps}) > 100


def test_no_time_to_wait_for_when_only_room_is_missing(store: Store) -> None:
    worker = Hand(store, plan=Plan(rule=Rule(delay=10, concurrency=1)))
    worker.add(*pages("1", "2"))
    assert len(worker.lease()) == 1
    assert worker.commit(want=1).retry_in is None


def test_no_time_to_wait_for_when_all_that_was_wanted_came(store: Store) -> None:
    worker = Hand(store, plan=slow(10))
    worker.add(*pages("1", "2"))
    assert worker.commit(want=1).retry_in is None
    assert worker.commit(want=0).retry_in is None


def test_a_new_delay_counts_from_the_next_lease_on(store: Store) -> None:
    worker = Hand(store, plan=slow(0))
    worker.add(*pages(*"1234"))
    assert [lease.delay for lease in worker.lease(2)] == [0, 0]
    Hand(store, "w2", slow(0.4))
    assert [lease.delay for lease in worker.lease()] == spaced(0.4, 2)


# Leeway: where requests are far apart, one may begin late


def test_a_slot_is_reserved_for_one_that_begins_late(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(2))
    worker.add(*pages("1", "2"))
    worker.lease()
    assert worker.commit(want=1).retry_in == pytest.approx(2 + leeway_of(2))
    clock.advance(2 + leeway_of(2))
    assert [lease.delay for lease in worker.lease()] == [0]


@pytest.mark.parametrize(
    ("now", "late"), [(1.25, 0.0), (1.25, 0.25), (1.25, 1.0), (1.25, 5.0), (2.5, 2.25), (2.5, 5.0)]
)
def test_what_was_not_needed_is_given_back_and_what_was_needed_more_is_taken(
    store: Store, clock: Clock, now: float, late: float
) -> None:
    worker = Hand(store, plan=slow(2))
    worker.add(*pages("1", "2"))
    (first,) = worker.lease()
    clock.advance(now)
    worker.begin(first, late)
    reserved = 2 - now + min(late, max(leeway_of(2), now))
    is_near = reserved <= HORIZON
    assert [lease.delay for lease in worker.lease()] == ([pytest.approx(reserved)] if is_near else [])
    reserved += 2 + leeway_of(2) if is_near else 0
    assert store.snapshot().slots[0].next_in == pytest.approx(reserved)


def test_none_begins_after_now(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(2))
    worker.add(*pages("1", "2"))
    (first,) = worker.lease()
    clock.advance(0.25)
    worker.begin(first, 5.0)
    assert store.snapshot().slots[0].next_in == pytest.approx(1.75 + leeway_of(2))


def test_only_the_newest_lease_gives_back(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(2))
    worker.add(*pages("1", "2", "3"))
    (first,) = worker.lease()
    clock.advance(2 + leeway_of(2))
    (second,) = worker.lease()
    worker.begin(first)
    assert worker.commit(want=1).retry_in == pytest.approx(2 + leeway_of(2))
    worker.begin(second, 0.5)
    assert worker.commit(want=1).retry_in == pytest.approx(2.5 - HORIZON)


def test_it_is_given_back_once_and_by_who_holds_it(make_store: Callable[..., Store]) -> None:
    one, two = Hand(make_store(), "w1", slow(2)), Hand(make_store(), "w2", slow(2))
    one.add(*pages("1", "2"))
    (lease,) = one.lease()
    two.begin(lease)
    assert two.commit(want=1).retry_in == pytest.approx(2 + leeway_of(2))
    one.begin(lease, 0.5)
    one.again()
    one.begin(lease)
    assert two.commit(want=1).retry_in == pytest.approx(2.5 - HORIZON)


def test_a_start_and_its_end_in_one_batch(store: Store) -> None:
    worker = Hand(store, plan=slow(2))
    worker.add(*pages("1", "2"))
    (lease,) = worker.lease()
    receipt = worker.commit(
        starts=(Start(lease.token, 0.25),),
        samples=(Sample(lease.token, 0.1, 200),),
        outcomes=(Outcome(lease.token),),
        want=1,
    )
    assert receipt.retry_in == pytest.approx(2.25 - HORIZON)


def test_who_died_gives_nothing_back(store: Store, clock: Clock) -> None:
    one, two = Hand(store, "w1", slow(2)), Hand(store, "w2", slow(2))
    one.add(*pages("1", "2"))
    one.lease()
    crash(store, one)
    assert two.commit(want=1).retry_in == pytest.approx(2 + leeway_of(2))


def test_who_hands_back_what_has_not_begun_leaves_its_time_to_others(
    make_store: Callable[..., Store], clock: Clock
) -> None:
    one, two = Hand(make_store(), "w1", slow(2)), Hand(make_store(), "w2", slow(2))
    one.add(*pages("1", "2", "3"))
    for lease in one.lease():
        one.begin(lease)
    clock.advance(1.5)
    (late,) = one.lease()
    assert late.delay == pytest.approx(0.5)
    clock.advance(0.25)
    one.commit(releases=(late.token,))
    assert [lease.delay for lease in two.lease()] == [pytest.approx(0.25)]


def test_it_is_due_at_once_if_its_time_is_over(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(2))
    worker.add(*pages("1", "2"))
    (lease,) = worker.lease()
    clock.advance(1)
    worker.commit(releases=(lease.token,))
    assert [again.delay for again in worker.lease()] == [0]


def test_what_began_is_handed_back_without_its_time(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(2))
    worker.add(*pages("1", "2"))
    (lease,) = worker.lease()
    worker.commit(starts=(Start(lease.token, 0.0),), releases=(lease.token,))
    assert [again.delay for again in worker.lease()] == []
    assert store.snapshot().slots[0].next_in == pytest.approx(2)


def test_what_was_answered_is_handed_back_without_its_time(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(2))
    worker.add(*pages("1", "2"))
    (lease,) = worker.lease()
    worker.commit(samples=(Sample(lease.token, 0.1, 200),))
    worker.commit(releases=(lease.token,))
    assert store.snapshot().slots[0].next_in == pytest.approx(2 + leeway_of(2))


def test_a_slot_that_is_left_alone_stays_so(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=slow(2))
    worker.add(*pages("1", "2"))
    (lease,) = worker.lease()
    worker.commit(
        starts=(Start(lease.token, 0.0),), samples=(Sample(lease.token, 0.1, 429, retry_after=60.0),)
    )
    assert store.snapshot().slots[0].next_in == pytest.approx(60)
    clock.advance(59.5)
    worker.begin(lease)
    assert [each.delay for each in worker.lease()] == [pytest.approx(0.5)]


def test_a_start_after_a_hold(store: Store) -> None:
    worker = Hand(store, plan=slow(2))
    worker.add(*pages("1", "2"))
    (lease,) = worker.lease()
    worker.sample(lease, latency=0.1, status=503, retry_after=2.5)
    worker.begin(lease)
    assert store.snapshot().slots[0].next_in == pytest.approx(2.5)


def test_jitter_is_kept_when_leeway_is_given_back(store: Store) -> None:
    worker = Hand(store, plan=slow(2, jitter=0.5))
    worker.add(*pages("1", "2"))
    (lease,) = worker.lease()
    reserved = store.snapshot().slots[0].next_in
    worker.begin(lease, 0.25)
    assert store.snapshot().slots[0].next_in == pytest.approx(reserved - leeway_of(1) + 0.25)
