"""How many paced leases a worker takes: as many as it can start in time."""

from __future__ import annotations

import time
from itertools import count

from scrapy_fleet.ahead import FORGIVEN, SLACK, WAY, Ahead
from scrapy_fleet.appetite import FIRST, LEAST, MOST, STEP, Appetite
from scrapy_fleet.model import Lease, Start
from scrapy_fleet.politeness import leeway_of

MANY = 10_000


def settled(carried: int, rounds: int = 200) -> list[int]:
    """How many a worker takes at a time that can start so many of them in time, after a while."""
    appetite, newest, sizes = Appetite(), 0, []
    appetite.came()
    for _ in range(rounds):
        size = appetite.limit(MANY, 0)
        sizes.append(size)
        first, newest = newest, newest + size
        for number in range(first + 1, newest + 1):
            if number - first <= carried:
                appetite.kept()
            else:
                appetite.missed(number, newest)
    return sizes[rounds // 2 :]


def test_what_has_no_pace_is_not_limited() -> None:
    assert Appetite().limit(MANY, 0) == MANY
    assert not Appetite().is_sated(MANY)


def test_it_is_found_out_how_many_start_in_time() -> None:
    for carried in (12, 40, 300):
        sizes = settled(carried)
        assert carried / 2 - 1 <= min(sizes)
        assert max(sizes) <= carried + STEP + 1


def test_a_worker_that_is_never_in_time_goes_on_with_a_few() -> None:
    assert set(settled(0)) == {LEAST}


def test_a_long_calm_does_not_make_it_slow_to_learn() -> None:
    appetite = Appetite()
    appetite.came()
    for _ in range(100 * MOST):
        appetite.limit(10 * MOST, 0)
        appetite.kept()
    assert appetite.limit(10 * MOST, 0) == MOST


def test_what_was_not_the_limit_says_nothing_of_more() -> None:
    appetite = Appetite()
    appetite.came()
    assert appetite.limit(FIRST // 2, 0) == FIRST // 2
    appetite.kept()
    assert appetite.limit(MANY, 0) == FIRST
    appetite.kept()
    assert appetite.limit(MANY, 0) == FIRST + 1


def test_those_that_were_late_together_count_once() -> None:
    appetite = Appetite()
    appetite.came()
    for number in range(1, FIRST + 1):
        appetite.missed(number, FIRST)
    assert appetite.limit(MANY, 0) == FIRST // 2
    appetite.missed(FIRST + 1, FIRST + 1)
    assert appetite.limit(MANY, 0) == FIRST // 4


def test_what_is_in_hand_counts_and_half_of_it_is_enough() -> None:
    appetite = Appetite()
    appetite.came()
    assert appetite.limit(MANY, FIRST - 3) == 3
    assert appetite.limit(MANY, FIRST + 3) == 0
    assert appetite.is_sated(FIRST // 2)
    assert not appetite.is_sated(FIRST // 2 - 1)


def lease(token: int, delay: float = 0.0, pace: float = 100.0) -> Lease:
    return Lease(token, f"host{token}", b"", 0, False, 0, delay, pace=pace)


def test_leases_that_wait_for_their_time_are_not_in_hand() -> None:
    ahead, tokens = Ahead(), count()
    ahead.put(lease(next(tokens)), 0.0, 0.0)
    for _ in range(500):
        ahead.put(lease(next(tokens), delay=1e9), 0.0, 0.0)
    assert ahead.limit(MANY) == FIRST - 1
    ahead.forget(0)
    assert ahead.limit(MANY) == FIRST


def test_a_lease_may_begin_late_where_its_slot_is_reserved_longer() -> None:
    ahead = Ahead()
    most = WAY * leeway_of(100) / 100
    for pace, delay, ago, late in (
        (100.0, 0.0, most + SLACK / 2, False),
        (100.0, 0.0, most + SLACK * 1.5, True),
        (100.0, 50.0, 0.5 + most + SLACK / 2, False),
        (100.0, 50.0, 0.5 + most + SLACK * 1.5, True),
        (100.0, -100 * (most + SLACK * 1.5), 0.0, True),
        (0.4, 0.0, SLACK / 2, False),
        (0.4, 0.0, SLACK * 1.5, True),
    ):
        sent = time.monotonic() - pace * ago
        given = lease(1, delay, pace)
        ahead.put(given, sent, sent)
        assert ahead.is_late(given) is late


def test_the_store_is_told_how_late_it_began() -> None:
    ahead = Ahead()
    sent = time.monotonic() - 30
    given = lease(1, delay=10.0)
    ahead.put(given, sent, sent)
    assert ahead.limit(MANY) == FIRST - 1
    begun = ahead.begin(given)
    assert begun is not None
    assert (begun.token, round(begun.late + 100 * FORGIVEN)) == (1, 20)  # a little late is not told
    assert ahead.limit(MANY) == FIRST  # it is not in hand any more
    assert ahead.begin(given) is None
    early = lease(2, delay=60.0)
    ahead.put(early, sent, sent)
    assert ahead.begin(early) == Start(2, 0.0)
    close = lease(3, pace=0.4)
    ahead.put(close, sent, sent)
    assert ahead.begin(close) is None
