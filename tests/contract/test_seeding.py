"""Seeds run once per crawl, by one worker."""

from __future__ import annotations

from scrapy_fleet.model import Seeding
from scrapy_fleet.store.base import Store

from .driver import Clock, Hand, crash, page, pages


def test_the_first_worker_to_come_gets_the_seeding(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    assert one.joined.seeding is Seeding.MINE
    assert two.joined.seeding is Seeding.OTHER
    assert one.commit().seeding is Seeding.MINE
    assert two.commit().seeding is Seeding.OTHER
    assert two.beat().seeding is Seeding.OTHER


def test_seeded_ends_the_seeding_for_all(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    assert one.commit(adds=(page("1", seed=True),), seeded=True).seeding is Seeding.DONE
    assert two.commit().seeding is Seeding.DONE
    assert two.beat().seeding is Seeding.DONE
    assert Hand(store, "w3").joined.seeding is Seeding.DONE


def test_only_who_holds_the_seeding_ends_it(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    assert two.commit(seeded=True).seeding is Seeding.OTHER
    assert one.commit().seeding is Seeding.MINE


def test_a_dead_seeder_passes_it_on_at_the_next_commit(store: Store) -> None:
    one, two, three = Hand(store, "w1"), Hand(store, "w2"), Hand(store, "w3")
    crash(store, one)
    assert two.commit().seeding is Seeding.MINE
    assert three.commit().seeding is Seeding.OTHER


def test_a_silent_seeder_passes_it_on(store: Store, clock: Clock) -> None:
    Hand(store, "w1", ttl=10)
    two = Hand(store, "w2", ttl=60)
    clock.advance(20)
    two.beat()
    assert two.commit().seeding is Seeding.MINE


def test_a_leaving_seeder_passes_it_on_to_who_comes_next(store: Store) -> None:
    one = Hand(store, "w1")
    one.add(*pages("1"))
    one.leave()
    two = Hand(store, "w2")
    assert two.joined.seeding is Seeding.MINE
    assert two.joined.resumed


def test_a_worker_that_leaves_with_its_last_seeds_has_seeded(store: Store) -> None:
    one = Hand(store, "w1")
    one.leave(adds=pages("1"), seeded=True)
    assert Hand(store, "w2").joined.seeding is Seeding.DONE


def test_a_dead_worker_that_had_seeded_passes_nothing_on(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.commit(seeded=True)
    crash(store, one)
    assert two.commit().seeding is Seeding.DONE


def test_seeding_is_never_told_to_two(store: Store) -> None:
    one, two, three = Hand(store, "w1"), Hand(store, "w2"), Hand(store, "w3")
    two.commit()
    crash(store, one)
    told = [two.again().seeding, three.commit().seeding, two.again().seeding, two.commit().seeding]
    assert told == [Seeding.OTHER, Seeding.MINE, Seeding.OTHER, Seeding.OTHER]
