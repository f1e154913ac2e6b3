"""A producer that is about to bring more holds the crawl open."""

from __future__ import annotations

from scrapy_fleet.store.base import Store

from .driver import Clock, Hand, pages


def test_it_is_told_to_all(store: Store) -> None:
    worker = Hand(store)
    assert worker.joined.counts.feeding == 0
    store.feed("one", 60)
    store.feed("two", 60)
    store.feed("one", 60)
    assert worker.commit().counts.feeding == 2
    assert worker.beat().counts.feeding == 2
    assert Hand(store, "w2").joined.counts.feeding == 2
    assert store.snapshot().counts.feeding == 2


def test_a_crawl_that_is_fed_does_not_finish(store: Store) -> None:
    worker = Hand(store)
    worker.commit(seeded=True)
    store.feed("one", 60)
    worker.commit(leave=True, finish=True)
    assert store.snapshot().status != "finished"


def test_a_producer_that_is_done_holds_nothing_open(store: Store) -> None:
    worker = Hand(store)
    worker.commit(seeded=True)
    store.feed("one", 60)
    store.feed("one", 0)
    store.feed("never there", 0)
    assert worker.commit().counts.feeding == 0
    worker.commit(leave=True, finish=True)
    assert store.snapshot().status == "finished"


def test_a_producer_that_died_is_given_up(store: Store, clock: Clock) -> None:
    worker = Hand(store)
    store.feed("one", 5)
    store.feed("two", 50)
    clock.advance(4)
    assert worker.beat().counts.feeding == 2
    clock.advance(2)
    assert worker.beat().counts.feeding == 1
    assert worker.commit().counts.feeding == 1


def test_it_can_be_there_before_any_worker(store: Store) -> None:
    store.feed("one", 60)
    worker = Hand(store)
    assert worker.joined.counts.feeding == 1
    worker.add(*pages("1"))
    assert [lease.payload for lease in worker.lease()] == [b"1"]


def test_clear_forgets_it(store: Store) -> None:
    store.feed("one", 60)
    store.clear()
    assert Hand(store).joined.counts.feeding == 0
