"""Spare leases: what runs as soon as another download of the worker has ended, without asking first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from scrapy_fleet.model import Auto, Backoff, Lease, Notice, Outcome, Override, Plan, Rule, Sample
from scrapy_fleet.politeness import leeway_of
from scrapy_fleet.store.base import Store

from .driver import Clock, Hand, conserved, crash, names, page, pages

FOUR = Plan(rule=Rule(concurrency=4))


def take(hand: Hand, want: int = 100) -> tuple[list[Lease], list[Lease]]:
    """What may run now, and spares."""
    leases = hand.commit(want=want).leases
    return [lease for lease in leases if not lease.spare], [lease for lease in leases if lease.spare]


def start(store: Store, plan: Plan = FOUR, count: int = 40, id: str = "w") -> Hand:
    hand = Hand(store, id, plan)
    hand.add(*(page(str(n)) for n in range(count)))
    return hand


def test_a_full_slot_gives_as_many_spares_as_downloads_run(store: Store) -> None:
    hand = start(store)
    running, spares = take(hand)
    assert (len(running), len(spares)) == (4, 4)
    assert names(running + spares) == ["39", "38", "37", "36", "35", "34", "33", "32"]
    assert all(lease.delay == 0 for lease in spares)
    assert store.snapshot().counts.leased == 8
    assert take(hand) == ([], [])
    conserved(store)


def test_spares_are_only_of_what_is_wanted(store: Store) -> None:
    hand = start(store)
    running, spares = take(hand, 5)
    assert (len(running), len(spares)) == (4, 1)
    assert [len(each) for each in take(hand, 2)] == [0, 2]
    assert [len(each) for each in take(hand, 9)] == [0, 1]


def test_spares_come_after_all_else(store: Store) -> None:
    hand = Hand(store, plan=FOUR)
    hand.add(*(page(f"a{n}", "a", priority=5) for n in range(9)), *(page(f"b{n}", "b") for n in range(2)))
    leases = hand.commit(want=8).leases
    assert [(lease.slot, lease.spare) for lease in leases] == [
        *[("a", False)] * 4,
        *[("b", False)] * 2,
        *[("a", True)] * 2,
    ]


def test_spares_come_in_the_same_order(store: Store) -> None:
    hand = Hand(store, plan=Plan(rule=Rule(concurrency=1)))
    for slot, priority in (("a", 0), ("b", 2), ("c", 0)):
        hand.add(*(page(f"{slot}{n}", slot, priority=priority) for n in range(3)))
    assert [lease.slot for lease in take(hand)[1]] == ["b", "a", "c"]


def test_a_sample_gives_the_room_to_a_spare(store: Store) -> None:
    hand = start(store)
    running, spares = take(hand)
    hand.commit(samples=(Sample(running[0].token, then=spares[0].token),))
    assert [len(each) for each in take(hand)] == [0, 1]
    assert hand.settle(running[0]).counts.leased == 8
    assert take(hand) == ([], [])
    conserved(store)


def test_a_spare_that_has_room_is_a_download_like_any_other(store: Store) -> None:
    hand = start(store)
    running, spares = take(hand)
    first, second = spares[:2]
    hand.commit(samples=(Sample(running[0].token, then=first.token),))
    hand.commit(samples=(Sample(first.token, latency=1.0, status=200, then=second.token),))
    hand.settle(running[0], first, second)
    assert [len(each) for each in take(hand)] == [1, 2]
    assert store.snapshot().slots[0].latency == 1


def test_a_room_is_given_in_the_commit_that_asks_for_more(store: Store) -> None:
    hand = start(store)
    running, spares = take(hand)
    pairs = zip(running, spares, strict=True)
    receipt = hand.commit(
        samples=tuple(Sample(ended.token, then=spare.token) for ended, spare in pairs),
        outcomes=tuple(Outcome(lease.token) for lease in running),
        want=100,
    )
    assert [lease.spare for lease in receipt.leases] == [True] * 4
    assert receipt.counts.leased == 8


def test_the_room_becomes_free_if_the_spare_is_not_there(store: Store) -> None:
    hand = start(store)
    other = start(store, id="other", count=0)
    running, spares = take(hand)
    assert (len(running), len(spares)) == (2, 2)
    hand.release(spares[0])
    hand.commit(samples=(Sample(running[0].token, then=spares[0].token),))
    assert len(other.lease()) == 2
    assert len(hand.lease()) == 1


def test_the_room_becomes_free_if_it_is_given_to_what_has_one(store: Store) -> None:
    hand = start(store)
    running, _ = take(hand)
    hand.commit(samples=(Sample(running[0].token, then=running[1].token),))
    assert len(take(hand)[0]) == 1
    hand.commit(samples=(Sample(running[1].token, then=running[0].token),))
    assert len(take(hand)[0]) == 1


def test_a_room_is_not_given_to_another_slot(store: Store) -> None:
    hand = Hand(store, plan=Plan(rule=Rule(concurrency=1)))
    hand.add(*pages("a1", "a2", "a3"), *pages("b1", "b2", "b3", slot="b"))
    running, spares = take(hand)
    (ended,) = [lease for lease in running if lease.slot == "a"]
    (foreign,) = [lease for lease in spares if lease.slot == "b"]
    hand.commit(samples=(Sample(ended.token, then=foreign.token),))
    assert [lease.slot for lease in take(hand)[0]] == ["a"]


def test_a_room_is_given_once(store: Store) -> None:
    hand = start(store)
    running, spares = take(hand)
    sample = Sample(running[0].token, then=spares[0].token)
    hand.commit(samples=(sample, Sample(running[0].token, then=spares[1].token)))
    hand.again()
    hand.commit(samples=(Sample(running[0].token, then=spares[1].token),))
    hand.release(*spares[1:])
    assert [len(each) for each in take(hand)] == [0, 4]


def test_a_spare_has_no_room_to_give(store: Store) -> None:
    hand = start(store)
    running, spares = take(hand)
    hand.commit(samples=(Sample(spares[0].token, latency=9.0, status=429, then=spares[1].token),))
    assert [len(each) for each in take(hand)] == [0, 0]
    hand.release(*spares)
    assert [len(each) for each in take(hand)] == [0, 4]
    slot = store.slot("a")
    assert slot is not None
    assert (slot.latency, slot.reason) == (None, "full")
    assert len(running) == 4


def test_the_sample_of_a_spare_is_passed_over(store: Store) -> None:
    hand = start(store)
    running, spares = take(hand)
    hand.sample(*running, *spares)
    assert [len(each) for each in take(hand)] == [4, 0]
    hand.release(*spares)
    assert [len(each) for each in take(hand)] == [0, 4]


@pytest.mark.parametrize("end", ["settle", "release"])
def test_a_spare_that_ends_makes_no_room(store: Store, end: str) -> None:
    hand = start(store)
    _, spares = take(hand)
    getattr(hand, end)(*spares)
    assert [len(each) for each in take(hand)] == [0, 4]
    conserved(store)


def test_the_spares_of_a_dead_worker_go_back(store: Store) -> None:
    hand, other = start(store), start(store, id="other", count=0)
    running, spares = take(hand)
    assert (len(running), len(spares)) == (2, 2)
    crash(store, hand)
    running, spares = take(other)
    assert (len(running), len(spares)) == (4, 4)
    conserved(store)


def test_the_spares_of_one_that_leaves_go_back(store: Store) -> None:
    hand = start(store)
    take(hand)
    assert hand.leave().counts.leased == 0
    assert [len(each) for each in take(start(store, id="other", count=0))] == [4, 4]


def test_a_repeated_batch_brings_the_same_spares(store: Store) -> None:
    hand = start(store)
    first = hand.commit(want=7)
    assert [lease.spare for lease in first.leases] == [False] * 4 + [True] * 3
    assert hand.again() == first


def test_each_worker_has_spares_for_its_share(make_store: Callable[..., Store]) -> None:
    one, two = start(make_store(), id="w1"), start(make_store(), id="w2", count=0)
    assert [len(each) for each in take(one)] == [2, 2]
    assert [len(each) for each in take(two)] == [2, 2]


def test_one_that_has_more_than_its_share_gets_none(store: Store) -> None:
    hand = start(store)
    running, spares = take(hand)
    hand.release(*spares)
    other = start(store, id="other", count=0)
    assert take(hand) == take(other) == ([], [])
    hand.sample(*running[:2])
    assert [len(each) for each in take(other)] == [2, 2]
    assert [len(each) for each in take(hand)] == [0, 2]


def test_one_without_downloads_gets_none(store: Store) -> None:
    plan = Plan(rule=Rule(concurrency=1))
    hand, other = start(store, plan), start(store, plan, id="other", count=0)
    assert [len(each) for each in take(hand)] == [1, 1]
    assert take(other) == ([], [])


@pytest.mark.parametrize(
    "plan",
    [Plan(rule=Rule(concurrency=2, delay=0.125)), Plan(rule=Rule(concurrency=2), auto=Auto(start=0.125))],
    ids=["delay", "AutoThrottle"],
)
def test_a_slot_with_a_delay_has_no_spares(store: Store, clock: Clock, plan: Plan) -> None:
    hand = start(store, plan)
    assert [len(each) for each in take(hand)] == [2, 0]
    clock.advance(10)
    assert take(hand) == ([], [])


def test_a_slot_with_a_delay_of_its_robots_txt_has_no_spares(store: Store) -> None:
    hand = start(store)
    hand.commit(notices=(Notice("a", distance=0.125),))
    assert [len(each) for each in take(hand)] == [4, 0]


def test_a_slot_that_still_waits_for_its_time_has_no_spares(store: Store, clock: Clock) -> None:
    hand = start(store, Plan(rule=Rule(concurrency=1, delay=0.5)))
    assert [len(each) for each in take(hand)] == [1, 0]
    store.override("a", Override(delay=0.0))
    assert take(hand) == ([], [])
    clock.advance(0.5 + leeway_of(0.5))
    assert [len(each) for each in take(hand)] == [0, 1]


def test_a_blocked_slot_has_no_spares(store: Store) -> None:
    hand = start(store)
    take(hand, 4)
    store.override("a", Override(blocked=True))
    assert take(hand) == ([], [])


def test_a_held_slot_has_no_spares(store: Store, clock: Clock) -> None:
    hand = start(store)
    running, _ = take(hand, 4)
    hand.sample(running[0], status=429, retry_after=60.0)
    assert take(hand) == ([], [])
    clock.advance(59.5)
    assert [len(each) for each in take(hand)] == [1, 0]
    clock.advance(0.5)
    assert [len(each) for each in take(hand)] == [0, 4]


def test_a_slot_that_is_probed_or_given_up_has_no_spares(store: Store, clock: Clock) -> None:
    hand = start(store, Plan(rule=Rule(concurrency=4), backoff=Backoff(first=8.0, failures=1, patience=60.0)))
    hand.sample(*hand.lease(1), failed="refused")
    clock.advance(8)
    (probe,), spares = take(hand)
    assert (probe.probe, spares) == (True, [])
    clock.advance(60)
    hand.sample(probe, failed="refused")
    running, spares = take(hand)
    assert ([lease.lost != "" for lease in running], spares) == ([True] * 4, [])


def test_one_that_runs_a_suspect_gets_none(store: Store) -> None:
    plan = Plan(rule=Rule(concurrency=1), max_attempts=2)
    victim = start(store, plan, count=1, id="victim")
    victim.lease(1)
    crash(store, victim)
    hand = start(store, plan, count=5)
    (lease,), spares = take(hand)
    assert (lease.alone, spares) == (True, [])
    assert take(hand) == ([], [])


def test_a_slot_where_a_suspect_waits_has_none(store: Store, clock: Clock) -> None:
    """Else there would never be room for it."""
    plan = Plan(rule=Rule(concurrency=2), max_attempts=2)
    hand = start(store, plan, count=10)
    (first,) = hand.lease(1)
    victim = Hand(store, "victim", plan)
    victim.lease(1)
    crash(store, victim)
    (second,), spares = take(hand)
    assert spares == []
    clock.advance(31)
    hand.settle(first)
    assert take(hand) == ([], [])
    hand.settle(second)
    assert [lease.alone for lease in take(hand)[0]] == [True]


def test_more_concurrency_makes_room_for_all_but_spares_stay_spares(store: Store) -> None:
    hand = start(store)
    take(hand)
    store.override("a", Override(concurrency=6))
    running, spares = take(hand)
    assert (len(running), len(spares)) == (2, 2)


def test_the_room_of_many_slots(store: Store) -> None:
    hand = Hand(store, plan=Plan(rule=Rule(concurrency=2)))
    hand.add(*(page(f"{slot}{n}", f"slot {slot}") for slot in range(50) for n in range(9)))
    running, spares = take(hand, 1000)
    assert Counter(lease.slot for lease in running) == Counter(lease.slot for lease in spares)
    assert len(spares) == 100
    pairs = tuple(
        Sample(ended.token, then=next(spare.token for spare in spares if spare.slot == ended.slot))
        for ended in running[::2]
    )
    hand.commit(samples=pairs)
    conserved(store)


def test_concurrency_holds_whatever_is_handed_over(make_store: Callable[..., Store]) -> None:
    """Three workers that hand rooms on all the time never have more downloads than the slot allows."""
    plan = Plan(rule=Rule(concurrency=5))
    hands = [Hand(make_store(), f"w{n}", plan) for n in range(3)]
    hands[0].add(*(page(str(n)) for n in range(120)))
    running: dict[str, list[int]] = {hand.id: [] for hand in hands}
    spare: dict[str, list[int]] = {hand.id: [] for hand in hands}
    most, done = 0, 0
    while hands[0].commit().counts.open:
        for hand in hands:
            ended, running[hand.id] = running[hand.id][:1], running[hand.id][1:]
            heirs, spare[hand.id] = spare[hand.id][: len(ended)], spare[hand.id][len(ended) :]
            running[hand.id] += heirs
            heir = heirs[0] if heirs else None
            done += len(ended)
            receipt = hand.commit(
                samples=tuple(Sample(token, latency=0.5, status=200, then=heir) for token in ended),
                outcomes=tuple(Outcome(token) for token in ended),
                want=10,
            )
            for lease in receipt.leases:
                (spare if lease.spare else running)[hand.id].append(lease.token)
            most = max(most, sum(map(len, running.values())))
            assert most <= 5
    assert (most, done) == (5, 120)
    conserved(hands[0].store)
