"""The fleet is told to run, to pause or to stop; a crawl is forgotten."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scrapy_fleet.errors import CrawlInUse, GivenUp, StoreError
from scrapy_fleet.model import Counts, Mode, Plan, Seeding, Worker
from scrapy_fleet.store.base import Store

from .driver import WIDE, Clock, Hand, conserved, names, page, pages

held_back = pytest.mark.parametrize("mode", ["pause", "stop"])


def test_a_crawl_runs_unless_told_otherwise(store: Store) -> None:
    assert store.snapshot().mode == "run"
    hand = Hand(store)
    assert hand.joined.mode == hand.commit().mode == hand.beat().mode == "run"


@held_back
def test_every_answer_tells_the_mode(store: Store, mode: Mode) -> None:
    hand = Hand(store)
    store.control(mode)
    assert hand.commit().mode == mode
    assert hand.again().mode == mode
    assert hand.beat().mode == mode
    assert store.snapshot().mode == mode
    assert Hand(store, "other").joined.mode == mode
    assert hand.leave().mode == mode


@held_back
def test_no_leases_are_handed_out_unless_it_runs(store: Store, mode: Mode) -> None:
    hand = Hand(store)
    hand.add(*pages("1", "2"))
    store.control(mode)
    receipt = hand.commit(want=10)
    assert receipt.leases == ()
    assert receipt.retry_in is None
    assert receipt.counts.waiting == 2
    store.control("run")
    assert names(hand.lease()) == ["2", "1"]


@held_back
def test_all_else_works(store: Store, mode: Mode) -> None:
    hand = Hand(store)
    hand.add(*pages("1", "2", "3"))
    first, second, third = hand.lease()
    store.control(mode)
    receipt = hand.settle(first, adds=pages("4"), items=(b"item",), seeded=True, want=5)
    assert receipt.seeding is Seeding.DONE
    hand.release(second)
    assert hand.settle(third, dead="so") == hand.again()
    assert store.snapshot().counts == Counts(accepted=4, waiting=2, done=1, dead=1)
    assert store.requeue() == 1
    assert store.snapshot().items == 1
    conserved(store)


@held_back
def test_a_lost_answer_still_brings_its_leases(store: Store, mode: Mode) -> None:
    hand = Hand(store)
    hand.add(page("1"))
    leases = hand.lease()
    store.control(mode)
    assert list(hand.again().leases) == leases


def test_a_pause_lasts_until_the_crawl_is_resumed(store: Store) -> None:
    hand = Hand(store)
    hand.add(page("1"))
    store.control("pause")
    hand.leave()
    again = Hand(store, "again")
    assert again.joined.mode == "pause"
    assert again.lease() == []
    store.control("run")
    assert names(again.lease()) == ["1"]


def test_a_crawl_may_be_paused_before_it_begins(store: Store) -> None:
    store.control("pause")
    assert (store.snapshot().status, store.snapshot().mode) == ("new", "pause")
    hand = Hand(store)
    assert hand.joined.mode == "pause"
    assert hand.joined.seeding is Seeding.MINE


def test_a_stop_is_for_the_fleet_that_runs(store: Store) -> None:
    first, second = Hand(store, "first"), Hand(store, "second")
    first.add(page("1"))
    store.control("stop")
    third = Hand(store, "third")
    assert third.joined.mode == "stop"
    for hand in (first, second, third):
        hand.leave()
    assert store.snapshot().mode == "stop"
    again = Hand(store, "again")
    assert again.joined.mode == "run"
    assert names(again.lease()) == ["1"]


def test_workers_that_fell_silent_are_not_the_fleet_that_runs(store: Store, clock: Clock) -> None:
    Hand(store, "silent", ttl=10)
    store.control("stop")
    clock.advance(11)
    assert Hand(store, "again").joined.mode == "run"


def test_one_whose_dead_companions_are_given_up_starts_the_crawl_again(store: Store) -> None:
    Hand(store, "killed")
    store.control("stop")
    again = Hand(store, "again")
    assert again.joined.mode == "stop"
    store.give_up(("killed",))
    assert store.join(Worker("again"), WIDE, 60).mode == "run"


def test_one_that_comes_back_starts_nothing_again(store: Store) -> None:
    hand = Hand(store)
    store.control("stop")
    store.give_up((hand.id,))
    assert store.join(Worker("anew"), WIDE, 60, run=hand.joined.run).mode == "stop"


def test_a_new_run_of_a_paused_crawl_is_paused(store: Store) -> None:
    hand = Hand(store)
    hand.commit(seeded=True)
    hand.leave(finish=True)
    store.control("pause")
    again = Hand(store, "again")
    assert (again.joined.run, again.joined.mode) == (2, "pause")


def test_the_mode_is_kept_with_the_crawl(make_store: Callable[..., Store]) -> None:
    make_store("c").control("pause")
    assert make_store("c").snapshot().mode == "pause"
    assert make_store("other").snapshot().mode == "run"


# Clearing


def fill(store: Store) -> Hand:
    hand = Hand(store, plan=Plan(max_attempts=1))
    hand.add(*(page(str(n), f"slot {n % 3}", key=n, priority=n % 2) for n in range(9)))
    one, other, *_ = hand.lease(4)
    hand.settle(one, seeded=True, items=(b"item",), stats={"n": 1.0}, state={"a": b"b"})
    hand.settle(other, dead="so")
    return hand


def test_a_cleared_crawl_is_as_new(store: Store) -> None:
    fill(store).leave()
    store.control("pause")
    before = store.snapshot()
    assert before.counts.waiting == 7
    store.clear()
    found = store.snapshot()
    assert (found.run, found.status, found.mode) == (before.run + 1, "new", "run")
    assert found.counts == Counts()
    assert (found.seen, found.items, found.slot_count) == (0, 0, 0)
    assert (found.slots, found.workers, found.stats) == ((), (), {})
    assert store.scan("waiting") == store.scan("dead") == []
    assert store.items() == []
    conserved(store)
    hand = Hand(store)
    assert (hand.joined.run, hand.joined.resumed, hand.joined.state) == (before.run + 1, False, {})
    assert hand.joined.seeding is Seeding.MINE
    assert hand.add(*(page(str(n), "slot 1", key=n) for n in range(9))).known == ()
    assert names(hand.lease()) == [str(n) for n in range(8, -1, -1)]
    hand.commit(items=(b"first",))
    assert store.items() == [(1, b"first")]
    conserved(store)


def test_a_crawl_in_use_is_not_cleared(store: Store) -> None:
    hand = fill(store)
    before = store.snapshot()
    with pytest.raises(CrawlInUse, match="Stop them first"):
        store.clear()
    assert issubclass(CrawlInUse, StoreError)
    assert store.snapshot() == before
    hand.beat()


def test_silent_workers_are_forgotten_with_the_crawl(store: Store, clock: Clock) -> None:
    hand = fill(store)
    clock.advance(61)
    store.clear()
    assert store.snapshot().counts == Counts()
    with pytest.raises(GivenUp):
        hand.beat()


def test_a_crawl_that_never_was_can_be_cleared(store: Store) -> None:
    store.clear()
    assert store.snapshot().status == "new"


def test_many_slots_are_cleared(store: Store) -> None:
    hand = Hand(store)
    hand.add(*(page(f"{n}", f"slot {n}", key=n) for n in range(1000)))
    hand.leave()
    store.clear()
    assert store.snapshot().slot_count == 0
    again = Hand(store, "again")
    again.add(*(page(f"{n}", f"slot {n}", key=n) for n in range(3)))
    assert len(again.lease()) == 3


def test_another_crawl_is_left_alone(make_store: Callable[..., Store]) -> None:
    fill(make_store("c")).leave()
    fill(make_store("other"))
    make_store("c").clear()
    assert make_store("other").snapshot().counts.waiting == 5
