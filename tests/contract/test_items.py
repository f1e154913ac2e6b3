"""Items are handed to groups of consumers, and acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from scrapy_fleet.model import ItemGroup
from scrapy_fleet.store.base import MAX_ITEMS, Store
from scrapy_fleet.store.memory import MemoryStore

from .driver import Clock, Hand


def keep(store: Store, *items: str, worker: str = "w") -> None:
    Hand(store, worker).commit(items=tuple(item.encode() for item in items), leave=True)


def take(store: Store, consumer: str, limit: int = 100, group: str = "g", ttl: float = 60.0) -> list[str]:
    return [item.decode() for _, item in store.take_items(group, consumer, limit, ttl)]


def numbers(store: Store, *items: str) -> tuple[int, ...]:
    by_item = {item.decode(): number for number, item in store.items(limit=10_000)}
    return tuple(by_item[item] for item in items)


def test_consumers_of_a_group_share_the_items(store: Store) -> None:
    keep(store, "1", "2", "3")
    assert take(store, "one", 2) == ["1", "2"]
    assert take(store, "two", 2) == ["3"]
    assert take(store, "three") == []
    keep(store, "4")
    assert take(store, "three") == ["4"]


def test_groups_do_not_disturb_each_other(store: Store) -> None:
    keep(store, "1", "2")
    assert take(store, "one", group="a") == ["1", "2"]
    store.ack_items("a", numbers(store, "1", "2"))
    keep(store, "3")
    assert take(store, "one", group="b") == ["1", "2", "3"]
    assert take(store, "one", group="a") == ["3"]


def test_what_was_not_acknowledged_comes_to_the_same_consumer_again(store: Store) -> None:
    """Its answer was lost, or it died and came back under its name."""
    keep(store, "1", "2", "3", "4")
    assert take(store, "one", 3) == ["1", "2", "3"]
    assert store.ack_items("g", numbers(store, "2")) == 1
    assert take(store, "one", 3) == ["1", "3", "4"]


def test_what_a_dead_consumer_took_comes_to_another_after_a_time(store: Store, clock: Clock) -> None:
    keep(store, "1", "2", "3", "4")
    assert take(store, "one", 2) == ["1", "2"]
    clock.advance(30)
    assert take(store, "two", 1) == ["3"]
    clock.advance(31)
    assert take(store, "three", 3) == ["1", "2", "4"]
    assert take(store, "one") == []
    assert store.ack_items("g", numbers(store, "1", "2", "3", "4")) == 4
    clock.advance(100)
    assert take(store, "one") == []


def test_taking_again_makes_it_last_longer(store: Store, clock: Clock) -> None:
    keep(store, "1")
    assert take(store, "one") == ["1"]
    clock.advance(50)
    assert take(store, "one") == ["1"]
    clock.advance(50)
    assert take(store, "two") == []


def test_acknowledging_counts_what_was_in_hand(store: Store) -> None:
    keep(store, "1", "2")
    take(store, "one", 1)
    both = numbers(store, "1", "2")
    assert store.ack_items("g", (*both, 1000)) == 1
    assert store.ack_items("g", both) == 0
    assert store.ack_items("nobody", both) == 0
    assert store.ack_items("g", ()) == 0


def test_groups_tell_what_is_left(store: Store) -> None:
    assert store.item_groups() == []
    assert take(store, "early", group="early") == []
    keep(store, "1", "2", "3")
    take(store, "one", 2)
    assert store.item_groups() == [ItemGroup("early", 3, 0), ItemGroup("g", 1, 2)]
    store.ack_items("g", numbers(store, "1", "2"))
    assert store.drop_item_group("early")
    assert not store.drop_item_group("early")
    assert store.item_groups() == [ItemGroup("g", 1, 0)]
    take(store, "one")
    assert store.drop_item_group("g")
    assert take(store, "one") == ["1", "2", "3"]


def test_items_that_all_groups_acknowledged_can_be_removed(store: Store) -> None:
    keep(store, *map(str, range(1, 6)))
    assert store.trim_items() == 0
    take(store, "one", group="a")
    take(store, "one", 3, group="b")
    store.ack_items("a", numbers(store, "1", "2", "4", "5"))
    store.ack_items("b", numbers(store, "1", "2", "3"))
    assert store.trim_items() == 2
    assert store.trim_items() == 0
    assert [item for _, item in store.items()] == [b"3", b"4", b"5"]
    assert store.snapshot().items == 5
    assert store.item_groups() == [ItemGroup("a", 0, 1), ItemGroup("b", 2, 0)]
    assert take(store, "new", group="c") == ["3", "4", "5"]


def test_numbers_of_removed_items_are_not_given_again(store: Store) -> None:
    keep(store, "1", "2")
    take(store, "one")
    store.ack_items("g", numbers(store, "1", "2"))
    assert store.trim_items() == 2
    assert store.items() == []
    assert store.item_groups() == [ItemGroup("g", 0, 0)]
    keep(store, "3")
    assert store.items() == [(3, b"3")]
    assert store.item_groups() == [ItemGroup("g", 1, 0)]
    assert take(store, "one") == ["3"]


def test_many_items(store: Store) -> None:
    many = 2 * MAX_ITEMS + 100
    keep(store, *map(str, range(1, many + 1)))
    read = store.items(limit=many)
    assert [item for _, item in read] == [b"%d" % n for n in range(1, many + 1)]
    assert len(take(store, "one", many)) == MAX_ITEMS
    taken = {*take(store, "two", MAX_ITEMS), *take(store, "three", MAX_ITEMS), *take(store, "one", many)}
    assert len(taken) == many
    assert store.ack_items("g", tuple(range(1, many + 1))) == many
    assert store.trim_items() == many


def test_items_and_groups_outlive_runs_but_not_a_clear(store: Store) -> None:
    worker = Hand(store)
    worker.commit(items=(b"1", b"2"), seeded=True)
    take(store, "one", 1)
    worker.leave(finish=True)
    worker = Hand(store, "w2")
    assert store.snapshot().run == 2
    assert store.item_groups() == [ItemGroup("g", 1, 1)]
    worker.leave()
    store.clear()
    assert (store.items(), store.item_groups(), store.snapshot().items) == ([], [], 0)
    keep(store, "new")
    assert store.items() == [(1, b"new")]


def test_names_are_any_text(store: Store) -> None:
    keep(store, "1")
    assert take(store, "a b\n{}é", group="gr {öße}:\x00*") == ["1"]
    assert store.item_groups() == [ItemGroup("gr {öße}:\x00*", 0, 1)]
    assert store.ack_items("gr {öße}:\x00*", (1,)) == 1


def test_it_does_what_the_store_in_memory_does(
    make_store: Callable[..., Store], clock: Clock, store_kind: str
) -> None:
    random = Random(store_kind)
    store, model = make_store("played"), MemoryStore("played", clock=clock)
    kept = 0
    for _ in range(80):
        deed = random.choice(("keep", "take", "take", "ack", "ack", "trim", "drop", "wait"))
        group, consumer = random.choice("ab"), random.choice("xyz")
        both = (store, model)
        if deed == "keep":
            new = tuple(b"%d" % (kept + n) for n in range(random.randint(0, 5)))
            kept += len(new)
            for each in both:
                Hand(each).commit(items=new, leave=True)
        elif deed == "take":
            limit, ttl = random.randint(0, 4), random.choice((0.0, 10.5, 100.5))
            ours, theirs = (each.take_items(group, consumer, limit, ttl) for each in both)
            assert ours == theirs
        elif deed == "ack":
            some = tuple(random.randint(1, kept + 1) for _ in range(4))
            ours, theirs = (each.ack_items(group, some) for each in both)
            assert ours == theirs
        elif deed == "trim":
            assert store.trim_items() == model.trim_items()
        elif deed == "drop" and random.random() < 0.2:
            assert store.drop_item_group(group) == model.drop_item_group(group)
        else:
            clock.advance(random.choice((1.0, 4.0, 20.0)))
        assert store.item_groups() == model.item_groups()
        assert store.items(limit=1000) == model.items(limit=1000)
