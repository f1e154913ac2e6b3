"""The frontier of a worker: when it commits, in which order, and what it does when the store has trouble."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scrapy_fleet.errors import StoreAway, StoreError
from scrapy_fleet.model import Batch, Entry, Outcome, Plan, Rule, Sample, Seeding, Worker
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore
from scrapy_fleet.store.sqlite import SqliteStore
from tests.desk import NEVER, PATIENCE, WIDE, Desk, Limits, Recording, in_loop, names


@pytest.fixture
def store() -> Recording:
    return Recording()


def some(count: int, prefix: str = "p") -> list[str]:
    return [f"{prefix}{n}" for n in range(count)]


async def busy(store: Store, **limits: float) -> Desk:
    """A worker that has enough to run, and 100 pages in the store."""
    desk = await Desk(store, Limits(**limits)).open()  # type: ignore[arg-type]
    desk.add(*some(100))
    await desk.commit()
    return desk


# When it commits


@in_loop
async def test_what_comes_together_goes_together(store: Recording) -> None:
    desk = await Desk(store).open()
    assert desk.frontier.next() is None
    desk.add(*some(300))
    leases = await desk.take(4)
    (batch,) = store.with_adds()
    assert names(batch.adds) == some(300)
    # What it brought came with the same commit.
    assert store.applied[-1][0] is batch
    assert {lease.token for lease in store.applied[-1][1].leases} >= {lease.token for lease in leases}
    await desk.close()


@in_loop
async def test_while_one_commit_is_under_way_the_next_gathers(store: Recording) -> None:
    desk = await busy(store)
    gate = threading.Event()
    store.before = lambda batch: asserted(gate.wait(PATIENCE))
    desk.limits.commit_size = 1
    desk.add("first")
    commits = desk.frontier.commits
    await desk.turns()
    assert desk.frontier.commits == commits + 1
    for name in some(50, "more"):
        desk.add(name)
        await desk.turns(1)
    assert desk.frontier.commits == commits + 1
    gate.set()
    await desk.until(lambda: len(store.with_adds()) == 3 and desk.at_rest())
    assert [names(batch.adds) for batch in store.with_adds()[1:]] == [["first"], some(50, "more")]
    await desk.close()


def asserted(fact: bool) -> None:
    assert fact


@in_loop
async def test_a_worker_with_nothing_to_run_commits_at_once(store: Recording) -> None:
    desk = await Desk(store).open()
    assert desk.limits.commit_interval == NEVER
    desk.add("a")
    a = await desk.next()
    assert desk.frontier.next() is None
    desk.add("b", parent=a)
    desk.settle(a)
    assert names([await desk.next()]) == ["b"]
    assert store.batches[-1].outcomes == (Outcome(a.token),)
    await desk.close()


@in_loop
async def test_a_busy_worker_waits(store: Recording) -> None:
    desk = await busy(store)
    commits = desk.frontier.commits
    for lease in await desk.take(2):
        desk.add(f"child of {lease.token}")
        desk.frontier.sample(Sample(lease.token))
        desk.settle(lease)
    await desk.turns()
    assert desk.frontier.commits == commits
    await desk.close()


@in_loop
async def test_a_busy_worker_waits_no_longer_than_the_interval(store: Recording) -> None:
    desk = await busy(store, commit_interval=0.2)
    commits = desk.frontier.commits
    began = time.monotonic()
    desk.add("late")
    while desk.frontier.commits == commits:
        await desk.turns(1)
        assert time.monotonic() < began + PATIENCE
    assert time.monotonic() - began >= 0.2
    await desk.until(desk.at_rest)
    assert names(store.with_adds()[-1].adds) == ["late"]
    await desk.close()


@in_loop
async def test_a_busy_worker_commits_when_there_is_much(store: Recording) -> None:
    desk = await busy(store, commit_size=110)
    (lease,) = await desk.take(1)
    commits = desk.frontier.commits
    desk.add(*some(109, "more"))
    await desk.turns()
    assert desk.frontier.commits == commits
    desk.settle(lease)
    await desk.until(lambda: desk.frontier.commits > commits and desk.at_rest())
    assert len(store.batches[-1].adds) == 109
    assert store.batches[-1].outcomes == (Outcome(lease.token),)
    await desk.close()


@in_loop
async def test_a_worker_asks_for_more_before_it_runs_dry(store: Recording) -> None:
    desk = await busy(store)
    commits = desk.frontier.commits
    leases = await desk.take(2)
    for lease in leases:
        desk.frontier.sample(Sample(lease.token))
    await desk.turns()
    assert desk.frontier.commits == commits  # it has six more
    leases = await desk.take(4)
    await desk.until(lambda: desk.frontier.commits > commits and desk.at_rest())
    assert store.batches[-1].want == 2  # four run, four are ahead, two have been downloaded
    await desk.close()


@in_loop
async def test_it_holds_no_more_than_it_can_run_and_look_ahead(store: Recording) -> None:
    desk = await busy(store)
    await desk.turns()
    assert store.snapshot().counts.leased == desk.limits.capacity + desk.limits.lookahead
    await desk.close()


# The order


@in_loop
async def test_large_batches_are_cut_and_the_outcomes_come_last(store: Recording) -> None:
    desk = await busy(store)
    parent, other = await desk.take(2)
    desk.add(*some(700, "child"), parent=parent)
    desk.add(*some(3, "keyless"), parent=parent, key=False)
    desk.add(*some(600, "other"))
    desk.frontier.sample(Sample(other.token, 0.5, 200))
    desk.settle(parent, items=(b"item",))
    desk.frontier.outbox.keep(items=[b"stray"], stats={"n": 1}, state={"s": b"1"})
    before = len(store.batches)
    await desk.commit()
    pieces = store.batches[before:]
    assert [len(batch.adds) for batch in pieces] == [500, 500, 303]
    assert [batch.seq for batch in pieces] == list(range(pieces[0].seq, pieces[0].seq + 3))
    for batch in pieces[:-1]:
        assert batch == Batch(worker=batch.worker, seq=batch.seq, adds=batch.adds)
    last = pieces[-1]
    assert last.outcomes == (Outcome(parent.token, items=(b"item",)),)
    assert last.samples == (Sample(other.token, 0.5, 200),)
    assert (last.items, last.stats, last.state) == ((b"stray",), {"n": 1}, {"s": b"1"})
    # What would not be recognised is where its parent ends.
    assert set(some(3, "keyless")) <= set(names(last.adds))
    await desk.close()


@in_loop
async def test_what_no_filter_knows_goes_with_its_parent(store: Recording) -> None:
    desk = await busy(store)
    parent, other = await desk.take(2)
    desk.add("retry", parent=parent, key=False)
    desk.add("orphan", key=False)
    desk.add("known by its key", parent=parent)
    desk.settle(other)
    desk.limits.commit_size = 1
    desk.frontier.tick()
    await desk.until(desk.at_rest)
    assert names(store.batches[-1].adds) == ["orphan", "known by its key"]
    desk.settle(parent)
    await desk.commit()
    assert names(store.batches[-1].adds) == ["retry"]
    assert store.batches[-1].outcomes == (Outcome(parent.token),)
    await desk.close()


@in_loop
async def test_what_no_filter_knows_does_not_wait_for_ever(store: Recording) -> None:
    desk = await busy(store)
    (parent,) = await desk.take(1)
    desk.add("retry", parent=parent, key=False)
    await desk.close()
    assert names(store.batches[-1].adds) == ["retry"]
    assert parent.payload in [row.payload for row in store.scan("waiting", limit=1000)]


@in_loop
async def test_better_priority_displaces_what_was_not_started(store: Recording) -> None:
    desk = await busy(store)
    (running,) = await desk.take(1)
    ahead = store.applied[-1][1].leases[1:]
    desk.add("urgent", priority=10)
    await desk.commit()
    assert set(store.batches[-1].releases) == {lease.token for lease in ahead}
    assert names([await desk.next()]) == ["urgent"]
    assert running.token not in store.batches[-1].releases
    await desk.close()


@in_loop
async def test_the_best_is_run_first(store: Recording) -> None:
    desk = await Desk(store).open()
    for priority in (0, 5, -5, 2):
        desk.add(f"{priority}", priority=priority)
    await desk.commit()
    assert names(await desk.take(4)) == ["5", "2", "0", "-5"]
    await desk.close()


@in_loop
async def test_a_paced_lease_is_not_run_before_its_time(store: Recording) -> None:
    desk = await Desk(store, Limits(plan=Plan(rule=Rule(delay=0.05, concurrency=8)))).open()
    desk.add(*some(4))
    await desk.commit()
    began = time.monotonic()
    for n in range(4):
        await desk.next()
        assert time.monotonic() - began >= n * 0.05 - 0.01
    await desk.close()


# The end


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens one crawl, again and again."""
    if request.param == "sqlite":
        return sqlite(tmp_path)
    memory = MemoryStore("c")
    return lambda: memory


def sqlite(folder: Path) -> Callable[[], SqliteStore]:
    return lambda: SqliteStore(folder / "c.db", "c", durability="normal")


@in_loop
async def test_draining_hands_back_what_was_not_started(open_store: Callable[[], Store]) -> None:
    desk = await busy(open_store())
    (running,) = await desk.take(1)
    desk.frontier.drain()
    assert desk.frontier.next() is None
    await desk.commit()
    look = open_store()
    assert look.snapshot().counts.leased == 1
    desk.settle(running)
    desk.add("found meanwhile")
    await desk.commit()
    counts = look.snapshot().counts
    assert (counts.leased, counts.done, counts.accepted) == (0, 1, 101)
    assert desk.frontier.next() is None
    await desk.close()


@in_loop
async def test_what_arrives_while_draining_is_handed_back(store: Recording) -> None:
    desk = await Desk(store).open()
    gate = threading.Event()
    store.before = lambda batch: asserted(gate.wait(PATIENCE))
    desk.add(*some(20))
    assert desk.frontier.next() is None
    await desk.until(lambda: desk.frontier._busy)
    desk.frontier.drain()
    gate.set()
    await desk.until(lambda: len(store.with_adds()) == 1 and desk.at_rest())
    await desk.commit()
    assert store.snapshot().counts.leased == 0
    assert store.snapshot().counts.waiting == 20
    await desk.close()


@in_loop
async def test_closing_leaves_nothing_leased_and_loses_nothing(open_store: Callable[[], Store]) -> None:
    desk = await busy(open_store())
    done, _running = await desk.take(2)
    desk.add("child", parent=done)
    desk.settle(done)
    await desk.close()
    look = open_store()
    snapshot = look.snapshot()
    assert snapshot.workers == ()
    assert (snapshot.counts.leased, snapshot.counts.done, snapshot.counts.waiting) == (0, 1, 100)
    assert snapshot.status == "stopped"
    # Nobody died: it was given back.
    assert {row.attempts for row in look.scan("waiting", limit=1000)} == {0}


@in_loop
async def test_a_crawl_ends_when_all_is_done_everywhere(tmp_path: Path) -> None:
    open_store = sqlite(tmp_path)
    one = await Desk(open_store(), name="one").open()
    other = await Desk(open_store(), name="other").open()
    assert one.frontier.seeding is Seeding.MINE
    assert other.frontier.seeding is Seeding.OTHER
    one.add("seed")
    seed = await one.next()
    assert not one.frontier.ended
    one.frontier.seeded()
    await one.until(lambda: one.frontier.seeding is Seeding.DONE)
    # The other asks, as one does that has nothing to run, and learns how things are.
    assert other.frontier.next() is None
    await other.until(lambda: other.frontier.seeding is Seeding.DONE)
    assert not other.frontier.ended
    one.add("last", parent=seed)
    one.settle(seed)
    assert not one.frontier.ended
    await one.commit()
    last = await one.next()
    assert one.frontier.counts.done == 1
    asked = other.frontier.commits
    await other.until(lambda: other.frontier.commits > asked + 1)
    assert not one.frontier.ended
    assert not other.frontier.ended
    one.settle(last)
    await one.commit()
    assert one.frontier.ended
    await other.until(lambda: other.frontier.ended)
    await one.close(finish=True)
    await other.close(finish=True)
    assert open_store().snapshot().status == "finished"


@in_loop
async def test_an_idle_worker_gets_what_another_found(tmp_path: Path) -> None:
    open_store = sqlite(tmp_path)
    one = await Desk(open_store(), name="one").open()
    other = await Desk(open_store(), name="other").open()
    assert other.frontier.next() is None
    one.add(*some(20))
    await one.commit()
    before = other.times_ready
    await other.next()
    assert other.times_ready > before
    await one.close()
    await other.close()


@in_loop
async def test_what_the_store_had_seen_is_told(open_store: Callable[[], Store]) -> None:
    desk = await busy(open_store())
    desk.add("new", "p3", "p4", "new")
    await desk.commit()
    assert names(desk.met_again) == ["p3", "p4", "new"]
    assert desk.accepted == 101
    await desk.close()


# The store has trouble


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
async def test_children_wait_within_a_bound_while_the_store_is_away(store: Recording) -> None:
    desk = await busy(store)
    gate = threading.Event()
    store.before = lambda batch: asserted(gate.wait(PATIENCE))
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
    assert not desk.frontier.holds(running.token)
    desk.settle(running)
    await desk.commit()
    assert store.snapshot().counts.done == 0
    new = {lease.token for lease in await desk.take(4)}
    assert not new & old
    await desk.close()
    assert store.snapshot().counts.leased == 0


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
    assert [len(batch.adds) for batch in store.with_adds()[1:]] == [500, 200]
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
