"""Items, counters and the spider's state."""

from __future__ import annotations

import pytest

from scrapy_fleet.model import Outcome
from scrapy_fleet.store.base import Store

from .driver import Hand, pages


def test_items_are_kept_oldest_first_with_their_numbers(store: Store) -> None:
    worker = Hand(store)
    worker.commit(items=(b"1", b"2"))
    worker.commit(items=(b"3",))
    numbers = [number for number, _ in store.items()]
    assert [item for _, item in store.items()] == [b"1", b"2", b"3"]
    assert numbers == sorted(set(numbers))
    assert store.snapshot().items == 3


def test_items_of_outcomes_come_before_those_without_a_parent(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2"))
    one, two = worker.lease()
    worker.commit(
        outcomes=(Outcome(one.token, items=(b"a", b"b")), Outcome(two.token, "dead", (b"c",))), items=(b"d",)
    )
    assert [item for _, item in store.items()] == [b"a", b"b", b"c", b"d"]


def test_items_are_read_page_by_page(store: Store) -> None:
    Hand(store).commit(items=tuple(b"%d" % n for n in range(1000)))
    read: list[bytes] = []
    after = 0
    while rows := store.items(after, 300):
        assert len(rows) <= 300
        read += [item for _, item in rows]
        after = rows[-1][0]
    assert read == [b"%d" % n for n in range(1000)]


def test_items_are_any_bytes(store: Store) -> None:
    everything = bytes(range(256))
    Hand(store).commit(items=(b"", everything))
    assert [item for _, item in store.items()] == [b"", everything]


def test_counters_are_added(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.commit(stats={"pages": 2, "seconds": 0.5})
    two.commit(stats={"pages": 3, "errors": -1})
    assert store.snapshot().stats == {"pages": 5, "seconds": pytest.approx(0.5), "errors": -1}


def test_names_of_counters_are_any_text(store: Store) -> None:
    stats = {'downloader/exception_type_count/a."b"': 1.0, "größe": 2.0, "$[0]": 3.0}
    Hand(store).commit(stats=stats)
    assert store.snapshot().stats == stats


def test_state_is_kept_by_key_and_none_removes_one(store: Store) -> None:
    worker = Hand(store)
    worker.commit(state={"a": b"1", "b": b"2", "c": b""})
    worker.commit(state={"a": None, "b": b"3", "never": None})
    assert Hand(store, "w2").joined.state == {"b": b"3", "c": b""}
