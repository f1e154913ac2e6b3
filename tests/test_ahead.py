"""Leases that have their times are handed out so that they are sent at them."""

from __future__ import annotations

import time

import pytest

from scrapy_fleet.ahead import EARLY, FORGIVEN, HEAD_START, WAYS, Ahead
from scrapy_fleet.model import Lease

LATER = 1000.0
NEXT = 10_000


def lease(token: int, delay: float = 0.0, pace: float = 2.0) -> Lease:
    return Lease(token, f"host{token}", b"", 0, False, 0, delay, pace=pace)


def learn(ahead: Ahead, count: int, *, way: float = 0.0, last: float = 0.0) -> float:
    """So many are through Scrapy and begin, each at least so many seconds later; what it took, at most."""
    began = time.monotonic()
    for token in range(count):
        ahead.put(lease(token), began, began)
    taken = [ahead.take() for _ in range(count)]
    time.sleep(way)
    for each in taken:
        assert each is not None
        ahead.let_go(each.token)
    time.sleep(last)
    for each in taken:
        assert each is not None
        ahead.begin(each)
    return time.monotonic() - began


def head_start(ahead: Ahead, pace: float) -> float:
    """How much sooner than its time the next lease may run."""
    answered = time.monotonic()
    ahead.put(lease(NEXT, LATER, pace), answered, answered)
    at = ahead.ripen()
    assert at is not None
    ahead.all()
    return answered + LATER - at


def lead(ahead: Ahead, pace: float) -> float:
    """How much sooner than its time the next lease is let go."""
    answered = time.monotonic()
    ahead.put(lease(NEXT, LATER, pace), answered, answered)
    left = answered + LATER - time.monotonic()
    return left - ahead.let_go(NEXT)


def test_a_lease_is_handed_out_before_its_time_by_what_its_way_takes() -> None:
    ahead = Ahead()
    most = learn(ahead, WAYS, way=0.01)
    assert 0.01 <= head_start(ahead, pace=100.0) <= most


@pytest.mark.parametrize("pace", [0.5, 100.0])
def test_but_not_too_long_before(pace: float) -> None:
    ahead = Ahead()
    learn(ahead, WAYS, way=HEAD_START + 0.05)
    longest = HEAD_START * min(pace, 1.0)
    assert longest <= head_start(ahead, pace) <= longest + EARLY * pace + 1e-6


def test_some_that_take_long_do_not_count_and_some_that_do_not_neither() -> None:
    ahead = Ahead()
    most = learn(ahead, WAYS * 7 // 8, way=0.02)
    for way in (0.0, 0.2):
        learn(ahead, WAYS // 8, way=way)
        assert 0.02 <= head_start(ahead, pace=100.0) <= most + 0.02


def test_one_that_is_through_too_early_waits_there_for_its_time() -> None:
    ahead = Ahead()
    learn(ahead, WAYS, way=0.02)
    now = time.monotonic()
    ahead.put(lease(NEXT, 0.02), now, now)
    taken = None
    while taken is None:
        taken = ahead.take()
    left = ahead.time_left(NEXT)
    wait = ahead.let_go(NEXT)
    took = time.monotonic() - now
    assert 0 < wait <= left
    assert 0.02 - EARLY * taken.pace - took <= wait <= 0.02
    assert ahead.time_left(NEXT) == ahead.let_go(NEXT) == 0  # it has been let go


def test_it_is_let_go_before_its_time_by_most_of_what_the_rest_takes() -> None:
    ahead = Ahead()
    most = learn(ahead, WAYS, last=0.01)
    assert 0.008 <= lead(ahead, pace=100.0) <= 0.8 * most


def test_but_only_by_a_small_part_of_its_distance() -> None:
    ahead = Ahead()
    learn(ahead, WAYS, last=0.05)
    assert 0 < lead(ahead, pace=1.0) <= EARLY * 1.0 + 1e-3
    assert FORGIVEN + EARLY < 0.1  # what is not told of being late, and this: together under a tenth


def test_one_quick_last_way_is_enough_to_expect_no_more() -> None:
    ahead = Ahead()
    learn(ahead, WAYS - 1, last=0.01)
    most = learn(ahead, 1)
    assert 0 <= lead(ahead, pace=2.0) <= 0.8 * most + 1e-3


def test_not_before_the_ways_are_known() -> None:
    ahead = Ahead()
    learn(ahead, WAYS - 1, way=0.01, last=0.01)
    assert abs(head_start(ahead, pace=2.0)) < 1e-6
    assert abs(lead(ahead, pace=2.0)) < 1e-3


def test_not_where_nothing_is_told_of_starts() -> None:
    ahead = Ahead()
    learn(ahead, WAYS, way=0.01, last=0.01)
    assert abs(head_start(ahead, pace=0.25)) < 1e-6
    assert ahead.let_go(NEXT) == 0
