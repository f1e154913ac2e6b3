"""Workers are told of slots that were halted, so that what they have not started there goes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scrapy_fleet.model import Auto, Backoff, Notice, Override, Plan, Rule, Sample
from scrapy_fleet.store.base import Store

from .driver import Clock, Hand, page, pages

PLAN = Plan(rule=Rule(concurrency=100, delay=0.125), backoff=Backoff(first=8.0, failures=2))


def start(store: Store, *ids: str, plan: Plan = PLAN) -> list[Hand]:
    """Workers that hold two leases in each of two slots."""
    hands = [Hand(store, id, plan) for id in ids or ("w",)]
    hands[0].add(*(page(f"{slot}{n}", slot) for slot in "ab" for n in range(20)))
    for hand in hands:
        assert {lease.slot for lease in hand.lease(4)} == {"a", "b"}
    return hands


def leases_of(hand: Hand, slot: str) -> list[int]:
    """The tokens that its last batch brought."""
    return [lease.token for lease in hand.again().leases if lease.slot == slot]


def test_nothing_is_told_while_nothing_happens(store: Store) -> None:
    (hand,) = start(store)
    assert hand.commit(want=1).held == ()
    assert hand.again().held == ()
    leases = hand.lease(2)
    assert hand.sample(*leases, latency=9.0, status=200).held == ()
    assert hand.sample(*hand.lease(1), failed="timed out").held == ()


def test_all_that_have_leases_in_a_held_slot_are_told_once(make_store: Callable[..., Store]) -> None:
    one, two, idle = start(make_store(), "w1", "w2", "w3")
    idle.release(*(lease for lease in idle.again().leases if lease.slot == "a"))
    ended = leases_of(one, "a")[0]
    assert one.commit(samples=(Sample(ended, status=429, retry_after=60.0),)).held == ("a",)
    assert two.commit().held == ("a",)
    assert idle.commit().held == ()
    for hand in (one, two, idle):
        assert hand.commit().held == ()


def test_one_whose_answer_was_lost_is_told_again(store: Store) -> None:
    one, two = start(store, "w1", "w2")
    one.commit(samples=(Sample(leases_of(one, "b")[0], status=503),))
    assert two.commit().held == ("b",)
    assert two.again().held == two.again().held == ("b",)
    assert two.commit().held == ()
    assert two.again().held == ()


def test_slots_are_told_in_order(store: Store) -> None:
    one, two = start(store, "w1", "w2")
    b, a = leases_of(one, "b")[0], leases_of(one, "a")[0]
    one.commit(samples=(Sample(b, status=503), Sample(a, status=429)))
    assert two.commit().held == ("a", "b")


def test_one_that_gives_all_back_is_not_told(store: Store) -> None:
    (hand,) = start(store)
    tokens = leases_of(hand, "a")
    assert hand.commit(samples=(Sample(tokens[0], status=429),), releases=tuple(tokens)).held == ()


def test_what_comes_with_the_answer_is_not_meant(store: Store, clock: Clock) -> None:
    one, two = start(store, "w1", "w2")
    two.release(*two.again().leases)
    one.commit(samples=(Sample(leases_of(one, "a")[0], status=429, retry_after=1.0),))
    receipt = two.commit(want=3)
    assert "a" in {lease.slot for lease in receipt.leases}
    assert receipt.held == ()
    assert two.again() == receipt
    assert two.commit().held == ()


def test_one_that_came_later_is_not_told_of_what_was_before(store: Store) -> None:
    (hand,) = start(store)
    hand.commit(notices=(Notice("a", distance=0.25),))
    late = Hand(store, "late", PLAN)
    late.lease(4)
    assert late.commit().held == ()
    hand.commit(notices=(Notice("a", distance=0.5),))
    assert late.commit().held == ("a",)


def test_joining_again_forgets_nothing(store: Store) -> None:
    one, two = start(store, "w1", "w2")
    one.commit(notices=(Notice("a", distance=0.5),))
    last = two.last
    two = Hand(store, "w2", PLAN)
    two.last = last
    assert two.commit().held == ("a",)


def test_a_slot_that_stops_answering_is_told(store: Store) -> None:
    one, two = start(store, "w1", "w2")
    first, second = leases_of(one, "a")
    tokens = (Sample(first, failed="refused"), Sample(second, failed="refused"))
    one.commit(samples=tokens[:1])
    assert two.commit().held == ()
    one.commit(samples=tokens[1:])
    assert two.commit().held == ("a",)


def test_a_longer_hold_is_told_a_shorter_is_not(store: Store) -> None:
    one, two = start(store, "w1", "w2")
    first, second = leases_of(one, "a")
    third = leases_of(two, "a")[0]
    one.commit(samples=(Sample(first, status=429, retry_after=60.0),))
    assert two.commit().held == ("a",)
    one.commit(samples=(Sample(second, status=429, retry_after=30.0),))
    assert two.commit().held == ()
    two.commit(samples=(Sample(third, status=429, retry_after=90.0),))
    assert one.commit().held == ("a",)


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (Override(blocked=True), True),
        (Override(delay=2.0), True),
        (Override(concurrency=1), True),
        (Override(delay=0.0), False),
        (Override(concurrency=1000), False),
        (Override(boost=5), False),
        (None, False),
    ],
)
def test_a_slot_that_people_slow_down_is_told(store: Store, override: Override | None, told: bool) -> None:
    (hand,) = start(store)
    store.override("a", override)
    assert hand.commit().held == (("a",) if told else ())
    assert hand.commit().held == ()


def test_what_is_taken_back_is_told_if_it_slows_down(store: Store) -> None:
    (hand,) = start(store)
    store.override("a", Override(delay=0.0))
    store.override("b", Override(blocked=True))
    assert hand.commit().held == ("b",)
    store.override("a", None)
    store.override("b", None)
    assert hand.commit().held == ("a",)


def test_the_same_said_twice_is_told_once(store: Store) -> None:
    (hand,) = start(store)
    store.override("a", Override(blocked=True))
    assert hand.commit().held == ("a",)
    store.override("a", Override(blocked=True))
    assert hand.commit().held == ()


def test_a_longer_distance_of_robots_txt_is_told(store: Store) -> None:
    (hand,) = start(store)
    assert hand.commit(notices=(Notice("a", distance=5.0), Notice("b", distance=0.0625))).held == ("a",)
    assert hand.commit(notices=(Notice("a", distance=5.0),)).held == ()
    assert hand.commit(notices=(Notice("a", distance=1.0),)).held == ()


def test_a_refusal_of_what_has_no_lease_is_told(make_store: Callable[..., Store]) -> None:
    one, two = start(make_store(), "w1", "w2")
    assert one.commit(notices=(Notice("a", status=429, retry_after=60.0),)).held == ("a",)
    assert two.commit().held == ("a",)
    assert one.commit(notices=(Notice("a", status=503),)).held == ()


def test_autothrottle_is_not_told(store: Store) -> None:
    (hand,) = start(store, plan=Plan(rule=Rule(concurrency=100), auto=Auto(start=0.125)))
    token = leases_of(hand, "a")[0]
    assert hand.commit(samples=(Sample(token, latency=30.0, status=200),)).held == ()
    slot = store.slot("a")
    assert slot is not None
    assert slot.delay == 30


def test_it_is_told_in_a_pause_as_well(store: Store) -> None:
    (hand,) = start(store)
    store.control("pause")
    store.override("a", Override(blocked=True))
    assert hand.commit(want=5).held == ("a",)


def test_spares_are_leases_too(store: Store) -> None:
    hand = Hand(store, plan=Plan(rule=Rule(concurrency=1)))
    hand.add(*pages("1", "2", "3"))
    running, spare = hand.commit(want=2).leases
    assert spare.spare
    hand.settle(running)
    store.override("a", Override(blocked=True))
    assert hand.commit().held == ("a",)


def test_one_that_leaves_is_told_nothing(store: Store) -> None:
    (hand,) = start(store)
    store.override("a", Override(blocked=True))
    assert hand.leave().held == ()
