"""Who is next: inside a slot, and among slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from scrapy_fleet.model import Plan, Rule
from scrapy_fleet.store.base import MAX_WANT, Store

from .driver import WIDE, Hand, crash, names, page, pages

FIFO = Plan(rule=WIDE.rule, lifo=False)


def test_the_newest_comes_first(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2"))
    worker.add(*pages("3"))
    assert names(worker.lease()) == ["3", "2", "1"]


def test_the_oldest_comes_first_if_the_plan_says_so(store: Store) -> None:
    worker = Hand(store, plan=FIFO)
    worker.add(*pages("1", "2"))
    worker.add(*pages("3"))
    assert names(worker.lease()) == ["1", "2", "3"]


def test_higher_priority_comes_first(store: Store) -> None:
    worker = Hand(store)
    worker.add(page("low", priority=-1), page("high", priority=5), page("zero"))
    assert names(worker.lease()) == ["high", "zero", "low"]


def test_seeds_come_after_others_of_their_priority_oldest_first(store: Store) -> None:
    worker = Hand(store)
    worker.add(page("seed1", seed=True), page("seed2", seed=True), page("page"), page("low", priority=-1))
    worker.add(page("seed3", seed=True), page("newer"))
    assert names(worker.lease()) == ["newer", "page", "seed1", "seed2", "seed3", "low"]


def test_an_entry_that_comes_back_takes_the_place_it_had(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2", "3"))
    three, two = worker.lease(2)
    worker.add(*pages("4"))
    worker.release(two, three)
    assert names(worker.lease()) == ["4", "3", "2", "1"]


def test_an_entry_of_a_dead_worker_takes_the_place_it_had(store: Store) -> None:
    worker, other = Hand(store, "w"), Hand(store, "o")
    worker.add(*pages("1", "2", "3"))
    other.lease(2)
    worker.add(*pages("4"))
    crash(store, other)
    assert names(worker.lease()) == ["4", "3", "2", "1"]


def test_no_more_than_wanted(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2", "3"))
    assert len(worker.lease(2)) == 2
    assert worker.lease(0) == []
    assert len(worker.lease(2)) == 1


def test_one_commit_brings_a_bounded_number(store: Store) -> None:
    worker = Hand(store)
    worker.add(*(page(str(n)) for n in range(MAX_WANT + 10)))
    leases = worker.lease(MAX_WANT + 10)
    assert len(leases) == MAX_WANT
    more = worker.lease(MAX_WANT)
    assert len(more) == 10
    assert len({lease.token for lease in leases + more}) == MAX_WANT + 10


def test_no_entry_is_leased_twice(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.add(*(page(str(n), f"s{n % 3}") for n in range(20)))
    taken = []
    for _ in range(5):
        taken += one.lease(3) + two.lease(3)
    assert len(taken) == len(set(names(taken))) == 20


def test_a_batch_may_lease_what_it_adds(store: Store) -> None:
    receipt = Hand(store).commit(adds=pages("1", "2"), want=5)
    assert names(receipt.leases) == ["2", "1"]


def test_slots_of_equal_rank_take_turns(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("a1", "a2", "a3", slot="a"), *pages("b1", slot="b"), *pages("c1", "c2", slot="c"))
    assert [lease.slot for lease in worker.lease()] == ["a", "b", "c", "a", "c", "a"]


def test_turns_go_on_over_commits_and_workers(make_store: Callable[..., Store]) -> None:
    one, two = Hand(make_store(), "w1"), Hand(make_store(), "w2")
    one.add(*(page(f"{slot}{n}", slot) for slot in "abc" for n in range(4)))
    slots = [hand.lease(1)[0].slot for hand in (one, two, two, one, one, two)]
    assert slots == ["a", "b", "c", "a", "b", "c"]


def test_a_busy_slot_does_not_starve_a_small_one(store: Store) -> None:
    worker = Hand(store)
    worker.add(*(page(str(n), "big") for n in range(500)), *(page(str(n), "small") for n in range(5)))
    assert Counter(lease.slot for lease in worker.lease(10)) == {"big": 5, "small": 5}


def test_the_best_first_entry_wins_whichever_slot_it_is_in(store: Store) -> None:
    worker = Hand(store)
    worker.add(page("a1", "a"), page("a2", "a", priority=2), page("b1", "b", priority=1), page("b2", "b"))
    assert names(worker.lease()) == ["a2", "b1", "a1", "b2"]


def test_strict_priority_over_many_slots(store: Store) -> None:
    worker = Hand(store)
    worker.add(*(page(f"{n}", f"s{n % 10}", priority=n // 10) for n in range(100)))
    ranks = [lease.rank for _ in range(10) for lease in worker.lease(10)]
    assert len(ranks) == 100
    assert ranks == sorted(ranks)


def test_a_slot_without_room_is_passed_over(store: Store) -> None:
    plan = Plan(rule=Rule(concurrency=2))
    worker = Hand(store, plan=plan)
    worker.add(*(page(f"a{n}", "a", priority=9) for n in range(5)), *pages("b1", "b2", "b3", slot="b"))
    assert Counter(lease.slot for lease in worker.lease()) == {"a": 2, "b": 2}
    assert worker.lease() == []


def test_concurrency_holds_over_all_workers(make_store: Callable[..., Store]) -> None:
    plan = Plan(rule=Rule(concurrency=9), slots={"a": Rule(concurrency=3)})
    one, two = Hand(make_store(), "w1", plan), Hand(make_store(), "w2", plan)
    one.add(*(page(f"a{n}", "a") for n in range(10)), *(page(f"b{n}", "b") for n in range(10)))
    taken = one.lease(6) + two.lease(100)
    assert Counter(lease.slot for lease in taken) == {"a": 3, "b": 9}


def test_no_worker_takes_more_of_a_slot_than_its_share(make_store: Callable[..., Store]) -> None:
    plan = Plan(rule=Rule(concurrency=7))
    one, two, three = (Hand(make_store(), f"w{n}", plan) for n in range(3))
    one.add(*(page(f"a{n}", "a") for n in range(20)), *(page(f"b{n}", "b") for n in range(20)))
    first = one.lease()
    assert Counter(lease.slot for lease in first) == {"a": 3, "b": 3}
    assert one.lease() == []
    one.sample(next(lease for lease in first if lease.slot == "a"))
    assert [lease.slot for lease in one.lease()] == ["a"]
    assert Counter(lease.slot for lease in two.lease()) == {"a": 3, "b": 3}
    assert Counter(lease.slot for lease in three.lease()) == {"a": 1, "b": 1}
    three.leave()
    assert Counter(lease.slot for lease in one.lease()) == {"a": 1, "b": 1}


def test_the_newest_plan_is_believed_for_slots_that_are_there(store: Store) -> None:
    worker = Hand(store, "w1", Plan(rule=Rule(concurrency=1)))
    worker.add(*(page(f"a{n}") for n in range(10)))
    assert len(worker.lease()) == 1
    Hand(store, "w1", Plan(rule=Rule(concurrency=1), slots={"a": Rule(concurrency=4)}))
    assert len(worker.lease()) == 3
    assert store.snapshot().slots[0].concurrency == 4


def test_a_changed_order_leaves_what_is_queued_where_it_is(store: Store) -> None:
    worker = Hand(store, "w1")
    worker.add(*pages("1", "2"))
    Hand(store, "w2", FIFO)
    worker.add(*pages("3", "4"))
    assert names(worker.lease()) == ["2", "1", "3", "4"]
