"""Documents that workers share: one makes them, all read them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scrapy_fleet.model import Paper
from scrapy_fleet.store.base import Store

from .driver import Clock, Hand, page

NAME = "robots.txt of example.com"


def ask(store: Store, worker: str = "w1", max_age: float = 100.0, patience: float = 10.0) -> Paper:
    return store.paper(NAME, worker, max_age, patience)


def test_the_first_to_ask_is_to_make_it(make_store: Callable[..., Store]) -> None:
    one, two = make_store(), make_store()
    assert ask(one, "w1") == Paper(mine=True)
    assert ask(two, "w2") == ask(two, "w3") == Paper()
    assert two.paper("another", "w2", 100, 10) == Paper(mine=True)


def test_all_get_what_was_made(make_store: Callable[..., Store], clock: Clock) -> None:
    one, two = make_store(), make_store()
    ask(one, "w1")
    clock.advance(3)
    one.write_paper(NAME, b"User-agent: *")
    assert ask(two, "w2") == Paper(b"User-agent: *")
    clock.advance(40)
    assert ask(one, "w1") == ask(two, "w2") == Paper(b"User-agent: *", age=pytest.approx(40))


def test_the_one_whose_answer_was_lost_hears_again_that_it_is_its_task(store: Store, clock: Clock) -> None:
    ask(store, "w1")
    clock.advance(5)
    assert ask(store, "w1") == Paper(mine=True)
    assert ask(store, "w2") == Paper()
    clock.advance(5)
    assert ask(store, "w2") == Paper(mine=True)
    assert ask(store, "w1") == Paper()


def test_another_makes_it_if_it_does_not_come(store: Store, clock: Clock) -> None:
    ask(store, "w1")
    clock.advance(9.5)
    assert ask(store, "w2") == Paper()
    clock.advance(0.5)
    assert ask(store, "w3") == Paper(mine=True)
    clock.advance(9.5)
    assert ask(store, "w2") == Paper()


def test_a_crawl_that_has_just_begun(make_store: Callable[..., Store]) -> None:
    clock = Clock(1.0)
    store = make_store("young", clock)
    assert ask(store, "w1") == Paper(mine=True)
    store.write_paper(NAME, b"x")
    clock.advance(2)
    assert ask(store, "w2", max_age=1.0) == Paper(mine=True)


def test_patience_is_that_of_who_asks(store: Store, clock: Clock) -> None:
    ask(store, "w1", patience=1000.0)
    clock.advance(5)
    assert ask(store, "w2", patience=20.0) == Paper()
    assert ask(store, "w2", patience=5.0) == Paper(mine=True)


def test_what_comes_late_is_good_as_well(store: Store, clock: Clock) -> None:
    ask(store, "w1")
    clock.advance(20)
    ask(store, "w2")
    store.write_paper(NAME, b"late")
    assert ask(store, "w3") == Paper(b"late")


def test_an_old_one_is_made_anew(store: Store, clock: Clock) -> None:
    ask(store, "w1")
    store.write_paper(NAME, b"old")
    clock.advance(100)
    assert ask(store, "w2").data == b"old"
    clock.advance(0.5)
    assert ask(store, "w2") == Paper(mine=True)
    assert ask(store, "w1") == Paper()
    assert ask(store, "w1", max_age=200.0) == Paper(b"old", age=pytest.approx(100.5))
    store.write_paper(NAME, b"new")
    assert ask(store, "w1") == Paper(b"new")
    clock.advance(100.5)
    assert ask(store, "w3") == Paper(mine=True)


def test_anything_may_be_in_it(store: Store) -> None:
    for data in (b"", bytes(range(256)), b"x" * 600_000):
        store.write_paper(NAME, data)
        assert ask(store) == Paper(data)
    strange = "slot: \N{SNOWMAN} 'quoted' {braces}"
    store.write_paper(strange, b"1")
    assert store.paper(strange, "w", 1, 1) == Paper(b"1")


def test_it_may_be_written_without_being_asked_for(store: Store) -> None:
    store.write_paper(NAME, b"x")
    assert ask(store) == Paper(b"x")


def test_it_outlives_handles_and_runs(make_store: Callable[..., Store]) -> None:
    store = make_store()
    hand = Hand(store)
    store.write_paper(NAME, b"x")
    hand.commit(seeded=True)
    hand.leave(finish=True)
    again = Hand(make_store(), "again")
    assert again.joined.run == 2
    assert ask(again.store) == Paper(b"x")
    assert ask(make_store("other")) == Paper(mine=True)


def test_it_does_not_outlive_the_crawl(store: Store) -> None:
    store.write_paper(NAME, b"x")
    store.paper("being made", "w1", 100, 10)
    store.clear()
    assert ask(store) == Paper(mine=True)
    assert store.paper("being made", "w2", 100, 10) == Paper(mine=True)


# Which keys were seen


def test_keys_that_were_seen(store: Store) -> None:
    assert store.seen(()) == ()
    assert store.seen((1, 2)) == (False, False)
    largest, smallest = 2**63 - 1, -(2**63)
    hand = Hand(store)
    hand.commit(adds=(page("1", key=largest), page("2", key=-5)), marks=(7, smallest))
    assert store.seen((7, 8, largest, -5, smallest, 7)) == (True, False, True, True, True, True)
    hand.settle(*hand.lease())
    assert store.seen((largest, 5)) == (True, False)


def test_many_keys(store: Store) -> None:
    hand = Hand(store)
    hand.commit(marks=tuple(range(0, 4000, 2)))
    assert store.seen(tuple(range(4000))) == (True, False) * 2000
