"""What the frontier of a worker does when its store is slow, away, or broken, or has given it up."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import pytest

from scrapy_fleet import link
from scrapy_fleet.errors import StoreAway, StoreEmptied, StoreError
from scrapy_fleet.model import Batch, Entry, Worker
from scrapy_fleet.outbox import ADDS_PER_CALL
from scrapy_fleet.store.memory import MemoryStore
from tests.desk import (
    PATIENCE,
    WIDE,
    Desk,
    Limits,
    Recording,
    busy,
    hold,
    in_loop,
    names,
    some,
    sqlite,
)


@pytest.fixture
def store() -> Recording:
    return Recording()


class Away:
    """The store does not answer so many times; ``lost`` if the answer alone is lost."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self, batch: Batch) -> None:
        if self.times:
            self.times -= 1
            raise StoreAway("The server is away.")


@pytest.mark.parametrize("lost", ["the batch", "the answer"])
@in_loop
async def test_a_store_that_is_away_for_a_while(
    lost: str, store: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    desk = await busy(store)
    first = await desk.next()
    setattr(store, "before" if lost == "the batch" else "after", Away(3))
    desk.add("child", parent=first)
    desk.settle(first, items=(b"item",))
    await desk.commit()
    assert store.snapshot().counts.done == 1
    assert store.snapshot().counts.accepted == 101
    assert [item for _, item in store.items()] == [b"item"]
    told = [record.getMessage() for record in caplog.records if "scrapy_fleet" in record.name]
    assert len(told) == 2
    assert told[0] == "The server is away. The crawl pauses until the store is back; nothing is lost."
    assert told[1].startswith("The store is back after ")
    # All that the store handed out can be run.
    leased = store.snapshot().counts.leased
    assert len({lease.token for lease in await desk.take(leased)}) == leased
    await desk.close()


@in_loop
async def test_a_store_that_comes_and_goes_is_told_once_a_minute(
    store: Recording, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    desk = await busy(store)
    for number in range(5):
        store.before = Away(2)
        desk.add(f"child {number}")
        await desk.commit()
    assert caplog.text.count("The crawl pauses") == caplog.text.count("The store is back") == 1
    monkeypatch.setattr(link, "TELL_EVERY", 0.0)  # the minute is over
    store.before = Away(1)
    desk.add("last child")
    await desk.commit()
    assert caplog.text.count("The crawl pauses") == caplog.text.count("The store is back") == 2
    await desk.close()


@in_loop
async def test_children_wait_within_a_bound_while_the_store_is_away(store: Recording) -> None:
    desk = await busy(store)
    gate = hold(store)
    desk.limits.commit_size = 10
    desk.add(*some(10, "first"))
    await desk.turns()
    assert not desk.frontier.congested
    desk.add(*some(201, "more"))
    assert desk.frontier.congested
    assert desk.frontier.next() is None
    gate.set()
    await desk.until(lambda: not desk.frontier.congested and desk.at_rest())
    assert desk.frontier.next() is not None
    await desk.close()


@in_loop
async def test_the_loop_does_not_wait_for_the_store(store: Recording) -> None:
    desk = await busy(store)
    entered, gate = threading.Event(), threading.Event()

    def wait(batch: Batch) -> None:
        entered.set()
        assert gate.wait(PATIENCE)

    store.before = wait
    desk.limits.commit_size = 1
    desk.add("slow")
    await desk.until(lambda: desk.frontier._busy)
    assert entered.wait(PATIENCE)
    running = await desk.take(3)
    desk.add("meanwhile", parent=running[0])
    desk.settle(*running)
    await desk.turns(100)
    assert not desk.at_rest()
    gate.set()
    await desk.until(desk.at_rest)
    assert names(store.with_adds()[-1].adds) == ["meanwhile"]
    await desk.close()


@in_loop
async def test_a_blocked_loop_does_not_silence_the_worker(tmp_path: Path) -> None:
    open_store = sqlite(tmp_path)
    desk = await busy(open_store(), worker_timeout=0.6)
    other = open_store()
    held = other.snapshot().counts.leased
    other.join(Worker("other"), WIDE, 60)
    time.sleep(1.5)  # a callback that takes its time
    assert other.beat("other").reaped == 0
    assert {worker.id for worker in other.snapshot().workers} == {"w", "other"}
    assert other.snapshot().counts.leased == held > 0
    await desk.close()


@in_loop
async def test_a_silent_worker_is_given_up_by_the_others(tmp_path: Path) -> None:
    """Its entries are run by another, which learns of it by its own beats."""
    open_store = sqlite(tmp_path)
    silent = open_store()
    silent.join(Worker("silent"), WIDE, 0.5)
    pages = tuple(Entry("a", name.encode()) for name in some(3))
    silent.commit(Batch(worker="silent", seq=1, adds=pages, want=3, seeded=True))
    desk = await Desk(open_store(), Limits(worker_timeout=0.6)).open()
    assert sorted(names(await desk.take(3))) == some(3)
    await desk.close()


@in_loop
async def test_a_worker_that_was_given_up_comes_back(
    store: Recording, caplog: pytest.LogCaptureFixture
) -> None:
    desk = await busy(store)
    parent, settled, running = await desk.take(3)
    old = {lease.token for _, receipt in store.applied for lease in receipt.leases}
    desk.add("child", parent=parent)
    desk.add("retry", parent=parent, key=False)
    desk.add("beside", parent=running, key=False)
    desk.add("orphan", key=False)
    desk.frontier.outbox.keep(items=[b"stray"], stats={"n": 2}, state={"s": b"1"})
    desk.settle(settled, parent, items=(b"item",))
    store.give_up(("w",))
    await desk.commit()
    await desk.until(lambda: desk.frontier._open and desk.at_rest())
    assert desk.frontier.worker.id != "w"
    assert "It goes on under a new name" in caplog.text
    # Others run the parent, and meet what comes of it again; what would not be recognised comes from them.
    await desk.commit()
    late = [name for batch in store.batches if batch.worker != "w" for name in names(batch.adds)]
    assert late == ["child", "orphan"]
    assert [item for _, item in store.items()] == [b"stray"]
    assert store.snapshot().stats == {"n": 2}
    assert store.snapshot().counts.done == 0
    # What ends late settles nothing, and what is new is not taken for it.
    assert desk.frontier.lease(running.token) is None
    desk.settle(running)
    await desk.commit()
    assert store.snapshot().counts.done == 0
    new = {lease.token for lease in await desk.take(4)}
    assert not new & old
    await desk.close()
    assert store.snapshot().counts.leased == 0


@in_loop
async def test_an_emptied_store_gets_back_all_that_the_worker_had(store: Recording) -> None:
    """Also what it was about to hand back, in a commit that came too late."""
    desk = await busy(store)
    running = await desk.next()
    told: list[str] = []

    def lose(batch: Batch) -> None:
        if batch.releases and not told:
            told.append("emptied")
            raise StoreEmptied("The store has lost the crawl.")

    store.before = lose
    before = {row.payload for row in store.scan("leased")}
    assert len(before) > 1
    desk.add("important", priority=5)  # what ranks behind it goes back
    await desk.commit()
    await desk.until(lambda: told and desk.frontier._open and desk.at_rest())
    await desk.commit()
    again = [entry.payload for batch in store.batches if batch.worker != "w" for entry in batch.adds]
    assert set(again) >= before
    assert running.payload in again
    await desk.close()


@in_loop
async def test_what_was_stored_before_it_was_given_up_is_not_stored_again(store: Recording) -> None:
    desk = await busy(store)
    desk.add(*some(700, "orphan"), key=False)

    def lose_the_second(batch: Batch) -> None:
        if store.with_adds()[1:] and batch.worker == "w":
            store.give_up(("w",))

    store.before = lose_the_second
    await desk.commit()
    await desk.until(lambda: desk.frontier._open and desk.at_rest())
    await desk.commit()
    sizes = [len(batch.adds) for batch in store.with_adds()[1:]]
    assert (sizes[0], sum(sizes)) == (ADDS_PER_CALL, 700)
    assert store.snapshot().counts.accepted == 800
    await desk.close()


@in_loop
async def test_a_worker_that_was_given_up_while_idle_comes_back(store: Recording) -> None:
    desk = await Desk(store, Limits(worker_timeout=0.5)).open()
    store.give_up(("w",))
    # Its next beat tells it.
    await desk.until(lambda: desk.frontier.worker.id != "w" and desk.frontier._open)
    desk.add("page")
    assert names([await desk.next()]) == ["page"]
    await desk.close()


@in_loop
async def test_a_store_that_cannot_be_used_is_told(store: Recording) -> None:
    desk = await busy(store)

    def broken(batch: Batch) -> None:
        raise StoreError("The file is damaged.")

    store.before = broken
    desk.add("child")
    await desk.commit()
    await desk.until(lambda: desk.failure)
    assert str(desk.failure) == "The file is damaged."
    assert store.closed.wait(PATIENCE)


@in_loop
async def test_a_store_that_breaks_is_told(store: Recording, caplog: pytest.LogCaptureFixture) -> None:
    desk = await busy(store)

    def broken(batch: Batch) -> None:
        raise ZeroDivisionError

    store.before = broken
    desk.add("child")
    await desk.commit()
    await desk.until(lambda: desk.failure)
    assert "ZeroDivisionError" in str(desk.failure)
    assert "Please report this" in str(desk.failure)


@in_loop
async def test_a_store_that_fails_while_closing_does_not_hold_the_worker(store: Recording) -> None:
    desk = await busy(store)

    def broken(batch: Batch) -> None:
        raise StoreError("The file is damaged.")

    store.before = broken
    await desk.close()
    assert str(desk.failure) == "The file is damaged."


@in_loop
async def test_a_store_that_stays_away_does_not_hold_a_worker_that_closes(store: Recording) -> None:
    desk = await busy(store, worker_timeout=0.5)
    store.before = Away(1_000_000)
    desk.limits.commit_size = 1
    desk.add("child")
    await desk.until(lambda: desk.frontier._busy)
    await desk.close()
    assert isinstance(desk.failure, StoreAway)


@pytest.mark.parametrize("error", [StoreError("It is not a database."), StoreAway("It is locked.")])
@in_loop
async def test_a_crawl_that_cannot_begin_says_so_at_once(error: StoreError | StoreAway) -> None:
    class Broken(MemoryStore):
        def join(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            raise error

    desk = await Desk(Broken("c")).open()
    assert desk.failure is error
    assert desk.joined is None
