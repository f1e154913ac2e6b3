"""Leases that have their times are handed out so that they are sent at them."""

from __future__ import annotations

import time

from scrapy_fleet.ahead import EARLY, FORGIVEN, WAYS, Ahead
from scrapy_fleet.model import Lease

LATER = 1000.0


def lease(token: int, delay: float = 0.0, pace: float = 2.0) -> Lease:
    return Lease(token, f"host{token}", b"", 0, False, 0, delay, pace=pace)


def learn(ahead: Ahead, count: int, way: float) -> float:
    """So many begin, each at least so many seconds after it was handed out; what it took, at most."""
    now = time.monotonic()
    for token in range(count):
        ahead.put(lease(token), now, now)
    taken = [ahead.take() for _ in range(count)]
    last = time.monotonic()
    while time.monotonic() < last + way:
        time.sleep(way / 10)
    for each in taken:
        assert each is not None
        ahead.begin(each)
    return time.monotonic() - now


def head_start(ahead: Ahead, pace: float) -> float:
    """How much sooner than its time the next lease may run."""
    answered = time.monotonic()
    ahead.put(lease(10_000, LATER, pace), answered, answered)
    at = ahead.ripen()
    assert at is not None
    return answered + LATER - at


def test_a_lease_is_handed_out_before_its_time_by_most_of_what_its_way_takes() -> None:
    ahead = Ahead()
    most = learn(ahead, WAYS, 0.01)
    assert 0.008 <= head_start(ahead, pace=100.0) <= 0.8 * most


def test_but_only_by_a_small_part_of_its_distance() -> None:
    ahead = Ahead()
    learn(ahead, WAYS, 0.05)
    assert 0 < head_start(ahead, pace=1.0) <= EARLY * 1.0 + 1e-6
    assert FORGIVEN + EARLY < 0.1  # what is not told of being late, and this: together under a tenth


def test_not_before_the_way_is_known() -> None:
    ahead = Ahead()
    learn(ahead, WAYS - 1, 0.01)
    assert abs(head_start(ahead, pace=2.0)) < 1e-6


def test_not_where_nothing_is_told_of_starts() -> None:
    ahead = Ahead()
    learn(ahead, WAYS, 0.01)
    assert abs(head_start(ahead, pace=0.25)) < 1e-6


def test_one_quick_way_is_enough_to_expect_no_more() -> None:
    ahead = Ahead()
    learn(ahead, WAYS - 1, 0.01)
    most = learn(ahead, 1, 0.0)
    assert 0 <= head_start(ahead, pace=2.0) <= 0.8 * most
