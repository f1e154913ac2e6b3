"""Adding entries, and what "seen" means."""

from __future__ import annotations

from collections.abc import Callable

from scrapy_fleet.store.base import Store

from .driver import Hand, conserved, names, page


def test_what_is_added_waits(store: Store) -> None:
    receipt = Hand(store).add(page("1"), page("2"))
    assert receipt.counts.accepted == receipt.counts.waiting == 2
    assert receipt.known == ()


def test_a_key_is_accepted_once(store: Store) -> None:
    worker = Hand(store)
    worker.add(page("first", key=1))
    receipt = worker.add(page("new", key=2), page("again", key=1), page("newer", key=3))
    assert receipt.known == (1,)
    assert receipt.counts.accepted == 3
    assert "again" not in names(worker.lease())


def test_of_equal_keys_in_one_batch_the_first_is_accepted(store: Store) -> None:
    worker = Hand(store)
    receipt = worker.add(page("x", key=7), page("y", key=7), page("z", "b", key=7))
    assert receipt.known == (1, 2)
    assert names(worker.lease()) == ["x"]


def test_without_a_key_nothing_is_filtered(store: Store) -> None:
    worker = Hand(store)
    assert worker.add(page("x"), page("x")).known == ()
    assert worker.add(page("x")).counts.waiting == 3
    assert store.snapshot().seen == 0


def test_a_key_stays_known_after_its_entry_is_done(store: Store) -> None:
    worker = Hand(store)
    worker.add(page("x", key=1))
    worker.settle(*worker.lease())
    assert worker.add(page("x", key=1)).known == (0,)


def test_marks_make_known_without_queueing(store: Store) -> None:
    worker = Hand(store)
    receipt = worker.commit(marks=(5, 6, 5))
    assert receipt.counts.accepted == 0
    assert worker.add(page("x", key=5), page("y", key=8)).known == (0,)
    assert store.snapshot().seen == 3


def test_adds_come_before_marks(store: Store) -> None:
    receipt = Hand(store).commit(adds=(page("x", key=5),), marks=(5,))
    assert receipt.known == ()
    assert receipt.counts.waiting == 1
    assert store.snapshot().seen == 1


def test_what_one_worker_added_is_known_to_another(make_store: Callable[..., Store]) -> None:
    Hand(make_store(), "w1").add(page("x", key=1))
    assert Hand(make_store(), "w2").add(page("x", key=1)).known == (0,)


def test_keys_are_signed_64_bit_numbers(store: Store) -> None:
    worker = Hand(store)
    keys = (-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1)
    worker.add(*(page(str(key), key=key) for key in keys))
    receipt = worker.add(*(page(str(key), key=key) for key in keys), page("near", key=2**53))
    assert receipt.known == (0, 1, 2, 3, 4, 5)
    assert worker.commit(marks=(2**63 - 2, -(2**63))).counts.accepted == 7
    assert store.snapshot().seen == 8


def test_payloads_and_slots_come_back_as_they_were(store: Store) -> None:
    worker = Hand(store)
    payload = bytes(range(256)) * 10
    slots = ["a'b", 'a"b', "ünïcode", "", "x" * 300]
    worker.commit(adds=tuple(page("", slot) for slot in slots))
    assert sorted(lease.slot for lease in worker.lease()) == sorted(slots)
    entry = page("", "z", priority=-3, seed=True)
    worker.commit(adds=(type(entry)("z", payload, -3, None, True), type(entry)("z", b"", 2**31)))
    big, small = worker.lease()
    assert (big.payload, big.priority, big.seed) == (b"", 2**31, False)
    assert (small.payload, small.priority, small.seed) == (payload, -3, True)


def test_a_large_batch(store: Store) -> None:
    worker = Hand(store)
    first = worker.add(*(page(str(n), f"s{n % 7}", key=n) for n in range(5000)))
    assert first.counts.accepted == 5000
    second = worker.add(*(page(str(n), f"s{n % 7}", key=n) for n in range(2500, 7500)))
    assert second.known == tuple(range(2500))
    assert second.counts.waiting == store.snapshot().seen == 7500
    conserved(store)


def test_two_crawls_never_mix(make_store: Callable[..., Store]) -> None:
    one, two = Hand(make_store("one")), Hand(make_store("two"))
    one.add(page("x", key=1))
    assert two.add(page("y", key=1)).known == ()
    assert names(two.lease()) == ["y"]
    assert one.store.snapshot().crawl == "one"
    assert two.store.snapshot().crawl == "two"
