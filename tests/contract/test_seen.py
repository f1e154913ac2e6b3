"""How a crawl knows what it has met: exact, bloom, rolling or off."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from scrapy_fleet.errors import CrawlInUse, NoKeys, SeenDiffers
from scrapy_fleet.model import Plan, SeenPlan, SeenView, Worker
from scrapy_fleet.seen import BLOCK_BYTES, GENERATIONS
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore

from .driver import WIDE, Clock, Hand, conserved, names, page

BLOOM = SeenPlan("bloom", capacity=100, error=0.01)
ROLLING = SeenPlan("rolling", window=60.0)
HOT = SeenPlan("rolling", window=60.0, hot=3)
OFF = SeenPlan("off")
FILTERS = {"exact": SeenPlan(), "bloom": BLOOM, "rolling": ROLLING, "hot": HOT, "off": OFF}
PART = 60.0 / GENERATIONS
LEAST, MOST = -(1 << 63), (1 << 63) - 1


def with_seen(seen: SeenPlan, *, keep: bool = False) -> Plan:
    return Plan(rule=WIDE.rule, seen=seen, keep_seen=keep)


def some_keys(count: int, seed: int = 0) -> tuple[int, ...]:
    chance = Random(seed)
    return tuple(chance.getrandbits(64) + LEAST for _ in range(count))


def all_keys(store: Store, limit: int = 100) -> list[int]:
    cursor, keys = store.seen_keys(limit=limit)
    while cursor:
        cursor, more = store.seen_keys(cursor, limit)
        keys += more
    return keys


def finish(worker: Hand) -> None:
    worker.commit(seeded=True)
    worker.settle(*worker.lease())
    worker.leave(finish=True)


@pytest.mark.parametrize("name", ["exact", "bloom", "rolling"])
def test_what_was_met_is_known(make_store: Callable[..., Store], name: str) -> None:
    one, two = (Hand(make_store(), id, with_seen(FILTERS[name])) for id in ("w1", "w2"))
    first = one.add(page("a", key=5), page("b", key=-7), page("again", key=5), page("never", key=None))
    assert first.known == (2,)
    second = two.commit(adds=(page("b", key=-7), page("c", key=MOST), page("d", key=LEAST)), marks=(9, 5))
    assert (second.known, second.counts.accepted) == ((0,), 5)
    assert two.add(page("marked", key=9), page("never", key=None)).known == (0,)
    assert one.store.snapshot().seen == one.store.seen_info().count == 5
    assert one.store.seen((5, 9, MOST, LEAST, 6, -7, 7)) == (True, True, True, True, False, True, False)
    conserved(one.store)


def test_small_keys_are_known_too(store: Store) -> None:
    """They have fewer digits than others, and half of them a sign."""
    keys = tuple(range(-600, 600))
    assert (store.mark(keys), store.mark(keys)) == (1200, 0)


def test_off_is_for_entries_without_keys(store: Store) -> None:
    """Seeds alone have keys then: they are known when start() has to begin again."""
    worker = Hand(store, plan=with_seen(OFF))
    seeds = (page("seed", key=5, seed=True), page("another", key=6, seed=True))
    receipt = worker.add(*seeds, page("a"), page("a"))
    assert (receipt.known, receipt.counts.waiting) == ((), 4)
    # The answer was lost: the batch is the same, though nothing in it has a key.
    assert worker.again().counts.waiting == 4
    assert worker.add(page("a"), *seeds).known == (1, 2)
    assert store.snapshot().seen == 2
    conserved(store)


@pytest.mark.parametrize("name", FILTERS)
def test_it_does_what_memory_does(make_store: Callable[..., Store], clock: Clock, name: str) -> None:
    """Many keys, met again and again, while time passes: the same are known, wherever they are kept."""
    plan, chance = with_seen(FILTERS[name]), Random(3)
    pair = (MemoryStore("c", clock=clock), make_store())
    hands = [Hand(each, plan=plan) for each in pair]
    keys = some_keys(600)
    views = []
    for turn in range(40):
        # New ones, and more and more of those that were met lately.
        chosen = [chance.choice(keys[: 15 * (turn + 1)][-200:]) for _ in range(chance.randrange(25))]
        chosen += keys[15 * turn : 15 * turn + 10]
        batch = tuple(page(str(key), key=key) for key in chosen)
        marks = keys[15 * turn + 10 : 15 * turn + 12]
        receipts = [hand.commit(adds=batch, marks=marks) for hand in hands]
        assert receipts[0].known == receipts[1].known
        if turn % 7 == 0:
            told = tuple(chance.choice(keys) for _ in range(9))
            assert pair[0].mark(told) == pair[1].mark(told)
        if turn % 5 == 0 and name != "bloom":
            told = tuple(chance.choice(keys) for _ in range(9))
            assert pair[0].forget(told) == pair[1].forget(told)
        clock.advance(chance.choice((0.0, 0.5, 3.0, 11.0)))
        left, right = (msgspec.structs.replace(each.seen_info(), bytes=None) for each in pair)
        assert left == msgspec.structs.replace(right, oldest=left.oldest)
        assert left.oldest is None or left.oldest == pytest.approx(right.oldest)
        assert right.count == pair[1].snapshot().seen
        views.append(right)
    assert pair[0].seen(keys) == pair[1].seen(keys)
    if name == "bloom":
        assert views[-1].layers > 2
    else:
        assert sorted(set(all_keys(pair[0]))) == sorted(all_keys(pair[1]))
    if name == "hot":
        assert max(view.generations for view in views) > GENERATIONS + 1
    conserved(pair[1])


def test_a_bloom_filter_errs_no_more_than_it_may(make_store: Callable[..., Store]) -> None:
    """Beyond its capacity, too. (Which keys come, and what is made of them, is not left to chance.)"""
    plan = SeenPlan("bloom", capacity=5000, error=0.01)
    store = make_store()
    store.use_seen(plan)
    keys, others = some_keys(10_000), some_keys(10_000, seed=1)
    memory = MemoryStore("c")
    memory.use_seen(plan)
    assert 10_000 > memory.mark(keys) == store.mark(keys) >= 10_000 * (1 - plan.error)
    assert all(store.seen(keys[:1000] + keys[-1000:]))
    wrong = sum(store.seen(others))
    assert store.seen(others) == memory.seen(others)
    assert 0 < wrong <= 10_000 * plan.error
    view = store.seen_info()
    assert (view.plan, view.layers, view.room) == (plan, 2, 15_000)
    assert view.error is not None
    assert wrong / 10_000 == pytest.approx(view.error, rel=0.5)
    assert view.error <= plan.error
    assert view.fill == pytest.approx(2 / 3, rel=0.01)


def test_a_bloom_filter_neither_tells_nor_forgets(store: Store) -> None:
    store.use_seen(BLOOM)
    store.mark((1, 2))
    for refused in (lambda: store.seen_keys(), lambda: store.forget((1,)), lambda: store.convert(ROLLING)):
        with pytest.raises(NoKeys, match="keeps no keys"):
            refused()
    assert store.seen((1, 2, 3)) == (True, True, False)


def test_blocks_of_a_bloom_filter_can_be_carried_elsewhere(make_store: Callable[..., Store]) -> None:
    one, two = make_store("one"), make_store("two")
    one.use_seen(BLOOM)
    keys = some_keys(700)
    count = one.mark(keys)
    cursor, blocks = one.bloom_blocks(limit=1)
    two.load_bloom(BLOOM, blocks, count)
    while cursor:
        cursor, some = one.bloom_blocks(cursor, limit=1)
        assert all(len(bits) == BLOCK_BYTES for _, bits in some)
        blocks += some
        two.load_bloom(BLOOM, some, count)
    two.load_bloom(BLOOM, blocks[:1], count)
    others = some_keys(700, seed=1)
    assert two.seen(keys + others) == one.seen(keys + others)
    assert two.seen_info().count == one.seen_info().count == count
    assert two.mark(others) == one.mark(others)
    with pytest.raises(SeenDiffers):
        two.load_bloom(SeenPlan("bloom", capacity=9), [], 0)


def test_rolling_forgets_what_was_not_met_for_the_window(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=with_seen(ROLLING))
    worker.add(page("stays", key=1), page("goes", key=2))
    for _ in range(20):
        clock.advance(PART)
        # What is met again stays, however long.
        assert worker.add(page("stays", key=1)).known == (0,)
    assert store.seen((1, 2)) == (True, False)
    assert worker.add(page("goes", key=2)).known == ()
    # To the second: known for the whole window, and not for long after.
    clock.advance(ROLLING.window)
    assert worker.add(page("goes", key=2)).known == (0,)
    clock.advance(ROLLING.window + PART)
    assert worker.add(page("goes", key=2)).known == ()
    assert store.seen_info().generations == 1


def test_rolling_over_twenty_windows(store: Store, clock: Clock) -> None:
    """What is kept stays at its level, and nothing is accepted twice within the window."""
    worker = Hand(store, plan=with_seen(ROLLING))
    accepted: dict[int, float] = {}
    chance, levels = Random(1), []
    for step in range(20 * GENERATIONS):
        clock.advance(0.9 * PART)
        keys = [*range(20 * step, 20 * step + 20), *(chance.randrange(20 * step + 1) for _ in range(5))]
        known = worker.add(*(page("", key=key) for key in keys)).known
        worker.settle(*worker.lease())
        for position, key in enumerate(keys):
            if position not in known:
                assert clock.now - accepted.get(key, -1e9) > ROLLING.window
                accepted[key] = clock.now
        levels.append(store.seen_info().count)
    steady = levels[3 * GENERATIONS :]
    assert max(steady) <= 1.3 * min(steady)
    assert store.snapshot().seen == levels[-1]


def test_what_is_hot_is_kept_for_longer(store: Store, clock: Clock) -> None:
    worker = Hand(store, plan=with_seen(HOT))
    worker.add(page("hot", key=1), page("cold", key=2))
    clock.advance(PART)
    worker.add(page("hot", key=1))
    clock.advance(2 * HOT.window)
    assert worker.add(page("hot", key=1), page("cold", key=2), page("new", key=3)).known == (0,)
    clock.advance(HOT.hot * HOT.window)
    assert worker.add(page("hot", key=1)).known == (0,)
    clock.advance(HOT.hot * HOT.window * (1 + 1 / GENERATIONS))
    assert worker.add(page("hot", key=1)).known == ()


def test_times_of_a_rolling_filter_may_change(store: Store, clock: Clock) -> None:
    Hand(store, plan=with_seen(ROLLING)).add(page("a", key=1))
    clock.advance(2 * ROLLING.window)
    longer = Hand(store, "w2", with_seen(SeenPlan("rolling", window=10 * ROLLING.window)))
    assert longer.add(page("a", key=1)).known == (0,)
    assert store.seen_info().plan == SeenPlan("rolling", window=10 * ROLLING.window)


@pytest.mark.parametrize(("name", "kept"), [("bloom", False), ("rolling", True), ("off", False)])
def test_a_new_run(store: Store, name: str, kept: bool) -> None:
    plan = with_seen(FILTERS[name])
    worker = Hand(store, plan=plan)
    worker.add(page("1", key=1))
    finish(worker)
    again = Hand(store, plan=plan)
    assert again.joined.run == 2
    assert store.snapshot().seen == kept
    assert again.add(page("1", key=1)).known == (0,) * kept


def test_a_bloom_filter_may_be_kept(store: Store) -> None:
    plan = with_seen(BLOOM, keep=True)
    worker = Hand(store, plan=plan)
    worker.add(page("1", key=1))
    finish(worker)
    assert Hand(store, plan=plan).add(page("1", key=1), page("2", key=2)).known == (0,)


@pytest.mark.parametrize("stored", ["exact", "bloom", "rolling", "off"])
def test_another_filter_is_refused(store: Store, stored: str) -> None:
    have = FILTERS[stored]
    worker = Hand(store, plan=with_seen(have, keep=True))
    worker.add(page("1", key=1))
    finish(worker)
    before = store.snapshot()
    for want in (FILTERS[asked] for asked in ("exact", "bloom", "rolling", "off") if asked != stored):
        told = f"(?s){have.kind}.*{want.kind}.*scrapy fleet clear c"
        with pytest.raises(SeenDiffers, match=told):
            store.join(Worker("w2"), with_seen(want, keep=True), 60.0)
        with pytest.raises(SeenDiffers, match=told):
            store.use_seen(want)
        assert store.snapshot() == before
    # All is forgotten: nothing speaks against another.
    store.clear()
    assert store.seen_info() == SeenView()
    assert Hand(store, "w3", with_seen(want)).add(page("1", key=1)).known == ()
    assert store.seen_info().plan == want


def test_a_run_that_forgets_may_have_another_filter(store: Store) -> None:
    worker = Hand(store, plan=with_seen(BLOOM))
    worker.add(page("1", key=1))
    finish(worker)
    again = Hand(store, plan=with_seen(SeenPlan()))
    assert again.add(page("1", key=1)).known == ()
    assert (store.seen_info().plan, all_keys(store)) == (SeenPlan(), [1])


def test_another_size_of_a_bloom_filter_is_refused(store: Store) -> None:
    Hand(store, plan=with_seen(BLOOM))
    with pytest.raises(
        SeenDiffers, match=r"capacity 100, error 0.01.*capacity 300.*FLEET_SEEN_CAPACITY = 100"
    ):
        Hand(store, "w2", with_seen(SeenPlan("bloom", capacity=300, error=0.01)))


def test_keys_page_by_page(store: Store) -> None:
    keys = (*some_keys(1500), LEAST, MOST)
    assert store.mark(keys) == len(keys)
    assert store.mark(keys) == 0
    assert sorted(all_keys(store)) == sorted(keys)
    store.forget(keys[1:1490])
    assert sorted(all_keys(store, limit=1)) == sorted(keys[:1] + keys[1490:])
    store.mark(keys)
    assert store.forget((*keys[:500], 3, keys[0])) == 500
    assert sorted(all_keys(store)) == sorted(keys[500:])
    assert store.snapshot().seen == len(keys) - 500
    assert store.seen(keys[:2] + keys[-2:]) == (False, False, True, True)


def test_keys_of_generations(store: Store, clock: Clock) -> None:
    store.use_seen(ROLLING)
    keys = some_keys(300)
    for first in range(0, 300, 100):
        store.mark(keys[first : first + 100])
        clock.advance(PART)
    store.mark(keys[:10])
    assert sorted(all_keys(store, limit=30)) == sorted(keys)
    assert store.forget(keys[:20]) == 20
    assert sorted(all_keys(store)) == sorted(keys[20:])
    assert store.seen_info().count == store.snapshot().seen == 280


def test_what_is_forgotten_is_fetched_again(store: Store) -> None:
    worker = Hand(store, plan=WIDE)
    worker.add(page("1", key=1))
    assert store.forget((1,)) == 1
    assert worker.add(page("1 again", key=1)).known == ()
    assert names(worker.lease()) == ["1 again", "1"]


CONVERTED = [
    *(("exact", to) for to in ("bloom", "rolling", "off")),
    *(("rolling", to) for to in ("bloom", "exact", "off")),
    ("off", "exact"),
    ("bloom", "off"),
]


@pytest.mark.parametrize(("stored", "to"), CONVERTED)
def test_a_filter_is_converted(make_store: Callable[..., Store], clock: Clock, stored: str, to: str) -> None:
    store, target = make_store(), FILTERS[to]
    worker = Hand(store, plan=with_seen(FILTERS[stored]))
    keys = some_keys(1300)
    store.mark(keys[:1100])
    clock.advance(PART)
    worker.add(*(page(str(key), key=key) for key in keys[1000:]))
    with pytest.raises(CrawlInUse, match="cannot be converted"):
        store.convert(target)
    worker.leave()
    kept = 0 if to == "off" else len(keys)
    assert store.convert(target) == kept
    assert store.seen_info().plan == target
    later = Hand(make_store(), "w2", with_seen(target))
    assert later.joined.counts.waiting == pytest.approx(200, abs=5)
    assert sum(store.seen(keys)) == kept
    assert store.seen_info().count == pytest.approx(kept, rel=0.01)
    new = page("new", key=12345)
    assert later.add(*(page("", key=key) for key in keys[:50]), new, new).known == (
        (*(range(50) if kept else ()), 51)
    )
    conserved(store)
