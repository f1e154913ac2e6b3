"""The frontier of a worker: when it commits, in which order, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scrapy_fleet.model import Batch, Outcome, Plan, Rule, Sample, Seeding, Worker
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore
from tests.desk import (
    NEVER,
    PATIENCE,
    WIDE,
    Desk,
    Limits,
    Recording,
    busy,
    hold,
    in_loop,
    names,
    page,
    some,
    sqlite,
)


@pytest.fixture
def store() -> Recording:
    return Recording()


# When it commits


@in_loop
async def test_what_comes_together_goes_together(store: Recording) -> None:
    desk = await Desk(store).open()
    assert desk.frontier.next() is None
    desk.add(*some(200))
    leases = await desk.take(4)
    (batch,) = store.with_adds()
    assert names(batch.adds) == some(200)
    # What it brought came with the same commit.
    assert store.applied[-1][0] is batch
    assert {lease.token for lease in store.applied[-1][1].leases} >= {lease.token for lease in leases}
    await desk.close()


@in_loop
async def test_while_one_commit_is_under_way_the_next_gathers(store: Recording) -> None:
    desk = await busy(store)
    gate = hold(store)
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
    desk.add(*some(350, "child"), parent=parent)
    desk.add(*some(3, "keyless"), parent=parent, key=False)
    desk.add(*some(300, "other"))
    desk.frontier.sample(Sample(other.token, 0.5, 200))
    desk.settle(parent, items=(b"item",))
    desk.frontier.outbox.keep(items=[b"stray"], stats={"n": 1}, state={"s": b"1"})
    before = len(store.batches)
    await desk.commit()
    pieces = store.batches[before:]
    assert [len(batch.adds) for batch in pieces] == [250, 250, 153]
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
async def test_many_outcomes_go_apart_from_many_links(store: Recording) -> None:
    desk = await busy(store, capacity=100, lookahead=0)
    leases = await desk.take(100)
    desk.add(*some(240, "child"), parent=leases[0])
    desk.add("keyless", parent=leases[0], key=False)
    desk.settle(*leases)
    before = len(store.batches)
    await desk.commit()
    first, last = store.batches[before : before + 2]
    assert (len(first.adds), first.outcomes) == (240, ())
    assert (names(last.adds), len(last.outcomes)) == (["keyless"], 100)
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


# Beats


async def long_idle(open_store: Callable[[], Store], name: str) -> Desk:
    """A worker that has had nothing to run for so long that it asks no more."""
    desk = await Desk(open_store(), Limits(worker_timeout=6.0), name).open()
    assert desk.frontier.next() is None
    await desk.until(lambda: desk.frontier.commits > 0 and desk.at_rest())
    desk.frontier.timing._poll = NEVER
    return desk


@in_loop
async def test_a_beat_tells_an_idle_worker_that_something_waits(tmp_path: Path) -> None:
    desk = await long_idle(sqlite(tmp_path), "idle")
    other = sqlite(tmp_path)()
    other.join(Worker("other"), WIDE, 60)
    other.commit(Batch(worker="other", seq=0, adds=(page("found"),)))
    assert names([await desk.next()]) == ["found"]
    await desk.close()


@in_loop
async def test_a_beat_tells_an_idle_worker_that_the_crawl_has_ended(tmp_path: Path) -> None:
    other = await Desk(sqlite(tmp_path)(), name="other").open()
    other.add("last")
    last = await other.next()
    other.frontier.seeded()
    desk = await long_idle(sqlite(tmp_path), "idle")
    ready = desk.times_ready
    other.settle(last)
    await other.commit()
    await desk.until(lambda: desk.frontier.ended and desk.times_ready > ready)
    await desk.close()
    await other.close()


# The end


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens one crawl, again and again."""
    if request.param == "sqlite":
        return sqlite(tmp_path)
    memory = MemoryStore("c")
    return lambda: memory


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
    gate = hold(store)
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
    before = other.times_ready
    one.add(*some(20))
    await one.commit()
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
