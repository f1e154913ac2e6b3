"""What people tell the fleet about one slot: slower, faster, not at all, first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scrapy_fleet.model import Auto, Notice, Override, Plan, Rule, Sample, SlotView
from scrapy_fleet.politeness import leeway_of
from scrapy_fleet.store.base import HORIZON, Store

from .driver import WIDE, Clock, Hand, conserved, names, page, pages, spaced


def view(store: Store, name: str = "a") -> SlotView:
    found = store.slot(name)
    assert found is not None
    return found


def test_a_slot_is_slowed_down(store: Store, clock: Clock) -> None:
    hand = Hand(store)
    hand.add(*pages(*"123456"), *pages("other", slot="b"))
    store.override("a", Override(delay=2.0))
    assert [(lease.slot, lease.delay, lease.pace) for lease in hand.lease()] == [("a", 0, 2), ("b", 0, 0)]
    assert (view(store).delay, view(store).reason) == (2, "delay")
    assert view(store).override == Override(delay=2.0)
    assert view(store, "b").override is None
    clock.advance(2 + leeway_of(2))
    assert len(hand.lease()) == 1


def test_a_slot_is_given_less_room(store: Store) -> None:
    hand = Hand(store)
    hand.add(*pages(*"123456"))
    store.override("a", Override(concurrency=2))
    assert len(hand.lease()) == 2
    assert view(store).concurrency == 2
    assert view(store).reason == "full"


def test_a_slot_is_given_more_room_and_less_delay_than_the_plan_says(store: Store) -> None:
    hand = Hand(store, plan=Plan(rule=Rule(delay=5.0, concurrency=1)))
    hand.add(*pages(*"123456"))
    store.override("a", Override(delay=0.0, concurrency=4))
    assert [(lease.delay, lease.pace) for lease in hand.lease()] == [(0, 0)] * 4


def test_what_is_not_said_stays_as_it_was(store: Store) -> None:
    hand = Hand(store, plan=Plan(rule=Rule(delay=0.5, concurrency=3)))
    hand.add(*pages(*"123456"))
    store.override("a", Override(delay=0.25))
    assert [lease.delay for lease in hand.lease()] == spaced(0.25, 3)
    assert view(store).concurrency == 3


def test_it_goes_before_every_wish(store: Store) -> None:
    hand = Hand(store, plan=Plan(rule=Rule(delay=3.0, jitter=0.5), auto=Auto(start=4.0)))
    hand.commit(adds=pages("1", "2"), notices=(Notice("a", distance=9.0),))
    assert view(store).delay == 9
    store.override("a", Override(delay=0.5))
    assert (view(store).delay, view(store).robots) == (0.5, 9)
    assert {lease.pace for lease in hand.lease()} == {0.25}
    assert view(store).next_in <= 1.5
    store.override("a", None)
    assert (view(store).delay, view(store).override) == (9, None)


def test_a_later_word_replaces_an_earlier(store: Store) -> None:
    hand = Hand(store)
    hand.add(*pages("1"))
    store.override("a", Override(delay=2.0, concurrency=1))
    store.override("a", Override(boost=3))
    seen = view(store)
    assert (seen.delay, seen.concurrency, seen.override) == (0, WIDE.rule.concurrency, Override(boost=3))


def test_what_was_reserved_stays_reserved(store: Store) -> None:
    hand = Hand(store, plan=Plan(rule=Rule(delay=0.4)))
    hand.add(*pages(*"123456"))
    assert [lease.delay for lease in hand.lease()] == spaced(0.4, 3)
    store.override("a", Override(delay=0.0))
    receipt = hand.commit(want=9)
    assert receipt.retry_in == pytest.approx(3 * 0.4 - HORIZON)


# Blocked


def test_a_blocked_slot_gives_nothing_but_keeps_all(store: Store, clock: Clock) -> None:
    hand = Hand(store)
    hand.add(*pages("1", "2", "3"), *pages("other", slot="b"))
    store.override("a", Override(blocked=True))
    receipt = hand.commit(want=9)
    assert names(receipt.leases) == ["other"]
    assert receipt.retry_in is None
    assert receipt.counts.waiting == 3
    assert (view(store).reason, view(store).concurrency) == ("blocked", 0)
    hand.add(*pages("4"))
    clock.advance(10_000)
    assert hand.lease() == []
    store.override("a", None)
    assert names(hand.lease()) == ["4", "3", "2", "1"]
    conserved(store)


def test_what_runs_in_a_slot_when_it_is_blocked_ends_as_ever(store: Store) -> None:
    hand = Hand(store)
    hand.add(*pages("1", "2", "3"))
    one, two, three = hand.lease()
    store.override("a", Override(blocked=True))
    hand.sample(one, status=200, latency=1.0)
    hand.settle(one)
    hand.release(two)
    hand.settle(three, dead="so")
    seen = view(store)
    assert (seen.waiting, seen.leased, seen.done) == (1, 0, 1)
    conserved(store)
    store.override("a", None)
    assert names(hand.lease()) == names([two])


def test_a_suspect_of_a_blocked_slot_holds_nobody_up(store: Store, clock: Clock) -> None:
    victim = Hand(store, "victim", Plan(rule=WIDE.rule, max_attempts=2))
    victim.add(*pages("bad"))
    assert len(victim.lease()) == 1
    hand = Hand(store, plan=Plan(rule=WIDE.rule, max_attempts=2))
    store.give_up(("victim",))
    store.override("a", Override(blocked=True))
    hand.add(*pages("1", "2", slot="b"))
    clock.advance(40)
    assert len(hand.lease(1)) == 1
    assert len(hand.lease(1)) == 1
    store.override("a", None)
    assert hand.lease() == []


def test_a_slot_may_be_blocked_before_it_is_met(store: Store) -> None:
    store.override("a", Override(blocked=True))
    seen = view(store)
    assert (seen.name, seen.reason, seen.waiting, seen.leased, seen.done) == ("a", "blocked", 0, 0, 0)
    assert store.snapshot().slot_count == 0
    hand = Hand(store)
    hand.add(*pages("1"))
    assert hand.lease() == []
    store.override("a", None)
    assert len(hand.lease()) == 1


def test_a_slot_that_was_only_told_of_is_forgotten_with_the_word(store: Store) -> None:
    store.override("a", Override(delay=2.0))
    assert view(store).delay == 2
    store.override("a", None)
    assert store.slot("a") is None
    store.override("a", None)


# Boosted


def test_a_boosted_slot_goes_first(store: Store) -> None:
    hand = Hand(store)
    hand.add(*pages("a1", "a2"), page("b1", "b", priority=5), page("c1", "c", priority=20))
    store.override("a", Override(boost=10))
    assert names(hand.lease()) == ["c1", "a2", "a1", "b1"]


def test_a_slot_may_be_put_behind_the_others(store: Store) -> None:
    hand = Hand(store)
    hand.add(page("a1", priority=3), page("a2", priority=3), *pages("b1", "b2", slot="b"))
    store.override("a", Override(boost=-10))
    assert names(hand.lease()) == ["b2", "b1", "a2", "a1"]
    assert [row.priority for row in store.scan("leased", slot="a")] == [3, 3]


def test_a_boost_counts_among_slots_only(store: Store) -> None:
    hand = Hand(store)
    hand.add(page("low", priority=-1), page("seed", seed=True), page("high", priority=1))
    store.override("a", Override(boost=100))
    leases = hand.lease()
    assert names(leases) == ["high", "seed", "low"]
    assert [lease.priority for lease in leases] == [1, 0, -1]


def test_an_equal_boost_takes_turns(store: Store) -> None:
    hand = Hand(store)
    hand.add(*(page(f"{slot}{n}", slot, priority=n == 1 and slot == "c") for slot in "abc" for n in range(2)))
    store.override("a", Override(boost=1))
    store.override("b", Override(boost=1))
    assert [lease.slot for lease in hand.lease()] == ["a", "b", "c", "a", "b", "c"]


def test_a_boost_is_taken_back(store: Store) -> None:
    hand = Hand(store)
    hand.add(*pages("a1", "a2"), page("b1", "b", priority=5))
    store.override("a", Override(boost=10))
    assert names(hand.lease(1)) == ["a2"]
    store.override("a", None)
    assert names(hand.lease()) == ["b1", "a1"]


# How long it is kept

WORD = Override(delay=2.5, concurrency=3, blocked=True, boost=-7)


def test_it_is_kept_with_the_crawl(make_store: Callable[..., Store]) -> None:
    make_store("c").override("a", WORD)
    assert view(make_store("c")).override == WORD
    assert make_store("other").slot("a") is None


def test_it_outlives_a_run(store: Store) -> None:
    hand = Hand(store)
    hand.commit(adds=pages("1"), seeded=True)
    hand.settle(*hand.lease())
    store.override("a", Override(delay=2.0))
    store.override("never met", WORD)
    hand.leave(finish=True)
    again = Hand(store, "again")
    assert again.joined.run == 2
    assert view(store, "never met").override == WORD
    assert view(store).override == Override(delay=2.0)
    again.add(*pages("1", "2"))
    assert [lease.pace for lease in again.lease()] == [2]


def test_it_outlives_workers_and_plans(store: Store) -> None:
    hand = Hand(store)
    hand.add(*pages("1", "2"))
    store.override("a", Override(concurrency=1))
    hand.leave()
    again = Hand(
        store, "again", Plan(rule=Rule(concurrency=9), slots={"a": Rule(concurrency=50, delay=0.25)})
    )
    assert (view(store).concurrency, view(store).delay) == (1, 0.25)
    assert len(again.lease()) == 1


def test_it_does_not_outlive_the_crawl(store: Store) -> None:
    hand = Hand(store)
    hand.add(*pages("1"))
    store.override("a", WORD)
    store.override("b", WORD)
    hand.leave()
    store.clear()
    assert store.slot("a") is store.slot("b") is None
    again = Hand(store, "again")
    again.add(*pages("1"), *pages("2", slot="b"))
    assert len(again.lease()) == 2


def test_it_does_not_forgive_a_slot_that_asked_to_be_left_alone(store: Store) -> None:
    hand = Hand(store)
    hand.add(*pages("1", "2"))
    (lease,) = hand.lease(1)
    hand.commit(samples=(Sample(lease.token, status=429, retry_after=90.0),))
    store.override("a", Override(concurrency=5))
    assert hand.lease() == []
    assert view(store).next_in == pytest.approx(90)
