"""Samples, outcomes and releases."""

from __future__ import annotations

import pytest

from scrapy_fleet.model import Outcome, Plan, Rule, Sample, Start
from scrapy_fleet.store.base import Store

from .driver import Hand, conserved, names, pages

NARROW = Plan(rule=Rule(concurrency=1))


def test_settled_is_done(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2"))
    receipt = worker.settle(*worker.lease(1))
    assert (receipt.counts.waiting, receipt.counts.leased, receipt.counts.done) == (1, 0, 1)
    assert store.snapshot().slots[0].done == 1
    conserved(store)


def test_settled_as_dead_is_kept_with_its_reason(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1"))
    receipt = worker.settle(*worker.lease(), dead="cannot be read")
    assert (receipt.counts.dead, receipt.counts.done, receipt.counts.open) == (1, 0, 0)
    (row,) = store.scan("dead")
    assert (row.payload, row.reason, row.worker) == (b"1", "cannot be read", None)
    assert store.snapshot().slots[0].done == 0
    assert worker.lease() == []


def test_settling_twice_counts_once(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2"))
    (lease,) = worker.lease(1)
    worker.commit(outcomes=(Outcome(lease.token), Outcome(lease.token, "no")))
    receipt = worker.settle(lease)
    assert (receipt.counts.done, receipt.counts.dead) == (1, 0)
    conserved(store)


def test_what_is_said_after_an_outcome_is_passed_over(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2", "3"))
    one, two, _ = worker.lease()
    worker.commit(
        outcomes=(
            *(Outcome(one.token, items=(b"kept",)), Outcome(one.token)),
            *(Outcome(two.token), Outcome(two.token, items=(b"late",))),
        )
    )
    assert [item for _, item in store.items()] == [b"kept"]
    receipt = worker.settle(one, two)
    assert (receipt.counts.done, receipt.counts.leased) == (2, 1)
    assert worker.release(one, two).counts.waiting == 0
    conserved(store)


@pytest.mark.parametrize("distance", [1, 255, 256, 1 << 16, -(1 << 40)])
def test_a_token_that_was_never_given_is_passed_over(store: Store, distance: int) -> None:
    worker = Hand(store)
    worker.add(*pages("1"))
    (lease,) = worker.lease()
    other = lease.token + distance
    receipt = worker.commit(
        starts=(Start(other, 0.0),),
        samples=(Sample(other, 1.0), Sample(lease.token, 2.0, then=other)),
        outcomes=(Outcome(other), Outcome(other, items=(b"item",))),
        releases=(other,),
    )
    assert (receipt.counts.leased, receipt.counts.done) == (1, 0)
    assert store.items() == []
    assert store.snapshot().slots[0].latency == 2.0
    assert worker.settle(lease).counts.done == 1


def test_a_token_the_worker_does_not_hold_is_passed_over_its_items_too(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.add(*pages("1"))
    (lease,) = one.lease()
    receipt = two.commit(
        samples=(Sample(lease.token, 1.0),),
        outcomes=(Outcome(lease.token, items=(b"item",)), Outcome(-1), Outcome(2**40)),
        releases=(lease.token, 77),
    )
    assert (receipt.counts.leased, receipt.counts.done) == (1, 0)
    assert store.items() == []
    assert store.snapshot().slots[0].latency is None
    assert one.settle(lease).counts.done == 1


def test_released_goes_back_as_it_was(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2"))
    leases = worker.lease()
    receipt = worker.release(*leases, leases[0])
    assert (receipt.counts.waiting, receipt.counts.leased) == (2, 0)
    again = worker.lease()
    assert names(again) == names(leases)
    assert [lease.attempts for lease in again] == [0, 0]
    assert not {lease.token for lease in again} & {lease.token for lease in leases}


def test_an_outcome_goes_before_a_release_of_the_same_token(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1"))
    (lease,) = worker.lease()
    receipt = worker.commit(outcomes=(Outcome(lease.token),), releases=(lease.token,))
    assert (receipt.counts.done, receipt.counts.waiting) == (1, 0)


@pytest.mark.parametrize("end", ["sample", "settle", "release"])
def test_each_end_of_a_download_makes_room(store: Store, end: str) -> None:
    worker = Hand(store, plan=NARROW)
    worker.add(*pages("1", "2", "3"))
    (lease,) = worker.lease()
    assert worker.lease() == []
    getattr(worker, end)(lease)
    assert len(worker.lease()) == 1


def test_room_and_new_leases_in_one_commit(store: Store) -> None:
    worker = Hand(store, plan=NARROW)
    worker.add(*pages("1", "2"))
    (lease,) = worker.lease()
    receipt = worker.commit(samples=(Sample(lease.token),), want=1)
    assert names(receipt.leases) == ["1"]


def test_room_is_made_once(store: Store) -> None:
    worker = Hand(store, plan=NARROW)
    worker.add(*pages("1", "2", "3", "4"))
    (first,) = worker.lease()
    worker.commit(samples=(Sample(first.token), Sample(first.token)))
    worker.sample(first)
    worker.settle(first)
    (second,) = worker.lease()
    worker.settle(second)
    assert len(worker.lease()) == 1


def test_a_sampled_lease_is_still_held(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1"))
    (lease,) = worker.lease()
    assert worker.sample(lease).counts.leased == 1
    assert store.snapshot().slots[0].leased == 1
    assert worker.settle(lease).counts.done == 1


def test_latency_is_a_moving_average(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2", "3", "4"))
    leases = worker.lease()
    assert store.snapshot().slots[0].latency is None
    worker.sample(leases[0], latency=1.0)
    assert store.snapshot().slots[0].latency == pytest.approx(1.0)
    worker.commit(samples=(Sample(leases[1].token, 2.0), Sample(leases[2].token, 0.5, 404)))
    assert store.snapshot().slots[0].latency == pytest.approx(0.7 * 1.3 + 0.3 * 0.5)
    worker.sample(leases[0], latency=99.0)
    worker.sample(leases[3])
    assert store.snapshot().slots[0].latency == pytest.approx(0.7 * 1.3 + 0.3 * 0.5)


def test_children_and_the_settle_of_their_parent_travel_together(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("parent"))
    (lease,) = worker.lease()
    receipt = worker.settle(lease, adds=pages("child1", "child2"), want=5)
    assert names(receipt.leases) == ["child2", "child1"]
    assert receipt.counts.accepted == 3
    conserved(store)
