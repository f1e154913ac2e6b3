"""The frontier of a worker in slots that are limited: spares, leases that come late, slots that are held."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from scrapy_fleet.model import Batch, Lease, Notice, Outcome, Override, Plan, Rule, Sample, Worker
from tests.desk import Desk, Limits, Recording, busy, hold, in_loop, page, some

TWO = Plan(rule=Rule(concurrency=2))


@pytest.fixture
def store() -> Recording:
    return Recording()


def released(store: Recording) -> list[int]:
    return [token for batch in store.batches for token in batch.releases]


@in_loop
async def test_a_spare_follows_on_what_ends_without_asking_the_store(store: Recording) -> None:
    desk = await busy(store, plan=TWO)
    first, _ = await desk.take(2)
    assert desk.frontier.next() is None
    commits = desk.frontier.commits
    desk.frontier.sample(Sample(first.token, 0.1, 200))
    third = desk.frontier.next()
    assert third is not None
    assert third.spare
    assert desk.frontier.next() is None
    assert desk.frontier.commits == commits
    await desk.commit()
    sample = next(batch for batch in reversed(store.batches) if batch.samples).samples[0]
    assert sample == Sample(first.token, 0.1, 200, then=third.token)
    await desk.close()


@in_loop
async def test_a_spare_follows_on_what_was_never_downloaded(store: Recording) -> None:
    desk = await busy(store, plan=TWO)
    first, _ = await desk.take(2)
    assert desk.frontier.next() is None
    desk.settle(first)
    assert desk.frontier.next() is not None
    await desk.close()


@in_loop
async def test_a_crawl_of_spares_comes_to_its_end(store: Recording) -> None:
    desk = await busy(store, plan=TWO, commit_interval=0.01)
    for _ in range(100):
        desk.settle(await desk.next())
    desk.frontier.seeded()
    await desk.until(lambda: desk.frontier.ended)
    assert store.snapshot().counts.done == 100
    await desk.close(finish=True)


async def late_spares(store: Recording, status: int = 200) -> tuple[Desk, Lease, Lease]:
    """A worker whose two downloads have ended, the first with this status, while two spares were on their way
    that are to follow on them."""
    desk = await busy(store, plan=TWO, lookahead=2)
    first, second = await desk.take(2)
    gate = hold(store)
    for lease in (first, second):
        desk.frontier.sample(Sample(lease.token, 0.1, 200))
    third, fourth = await desk.take(2)
    assert desk.frontier.next() is None
    await desk.until(lambda: desk.frontier._busy)
    desk.frontier.sample(Sample(third.token, 0.1, status))
    desk.frontier.sample(Sample(fourth.token, 0.1, 200))
    gate.set()
    await desk.until(lambda: store.applied[-1][0].samples != ())
    return desk, third, fourth


@in_loop
async def test_a_spare_that_comes_after_the_end_takes_its_room_all_the_same(store: Recording) -> None:
    desk, third, fourth = await late_spares(store)
    fifth, sixth = await desk.take(2)
    assert desk.frontier.next() is None  # the limit is two
    await desk.commit()
    told = {sample.token: sample.then for batch in store.batches for sample in batch.samples}
    assert {told[third.token], told[fourth.token]} == {fifth.token, sixth.token}
    await desk.close()


@in_loop
async def test_a_lease_that_ends_without_being_sent_reserves_its_host_no_longer(store: Recording) -> None:
    desk = await busy(store, plan=Plan(rule=Rule(delay=100)))
    lease = await desk.next()
    desk.settle(lease)
    await desk.commit()
    assert [start.token for batch in store.batches for start in batch.starts] == [lease.token]
    assert store.snapshot().slots[0].next_in <= 100
    await desk.close()


@in_loop
async def test_but_not_where_the_site_has_refused_one(store: Recording) -> None:
    desk, _, _ = await late_spares(store, status=429)
    assert desk.frontier.next() is None
    await desk.close()


@in_loop
async def test_a_slot_that_refuses_is_left_alone_at_once(store: Recording) -> None:
    desk = await busy(store, plan=TWO)
    first, second = await desk.take(2)
    desk.frontier.sample(Sample(first.token, 0.1, 429, retry_after=100))
    assert desk.frontier.next() is None
    await desk.commit()
    assert released(store)
    desk.frontier.sample(Sample(second.token, 0.1, 200))
    await desk.commit()
    assert desk.frontier.next() is None
    await desk.close()


@in_loop
async def test_a_slot_that_refuses_what_has_no_lease_is_left_alone_at_once(store: Recording) -> None:
    desk = await busy(store, plan=TWO)
    first = await desk.next()
    desk.frontier.notice(Notice("b", status=429))
    desk.frontier.notice(Notice("a", status=503, retry_after=100))
    assert desk.frontier.next() is None
    await desk.commit()
    assert released(store)
    desk.frontier.sample(Sample(first.token, 0.1, 200))
    await desk.commit()
    assert desk.frontier.next() is None
    await desk.close()


@in_loop
async def test_what_came_to_nothing_goes_back_as_it_was(store: Recording) -> None:
    desk = await busy(store, plan=Plan(rule=Rule(concurrency=1)), lookahead=0)
    first = await desk.next()
    accepted = store.snapshot().counts.accepted
    desk.frontier.release(first.token)
    assert desk.frontier.lease(first.token) is None
    again = await desk.next()
    assert again.payload == first.payload
    assert again.token != first.token
    desk.frontier.release(first.token)  # it is not held any more
    desk.frontier.settle(Outcome(first.token))
    await desk.commit()
    counts = store.snapshot().counts
    assert (counts.accepted, counts.done) == (accepted, 0)
    await desk.close()


@in_loop
async def test_a_slot_that_others_were_told_to_leave_is_left(store: Recording) -> None:
    desk = await busy(store, plan=TWO)
    await desk.take(1)
    store.override("a", Override(blocked=True))
    # What it had not started goes back, though it has nothing to report.
    await desk.until(lambda: not len(desk.frontier.ahead))
    assert desk.frontier.next() is None
    await desk.commit()
    assert store.snapshot().counts.leased == 1
    await desk.close()


@in_loop
async def test_a_lease_that_comes_too_late_is_handed_back(store: Recording) -> None:
    """The answer takes longer than a tenth of the distance: the next request may be under way elsewhere."""
    store.join(Worker("feeder"), Plan(), 60)
    store.commit(Batch(worker="feeder", seq=1, adds=tuple(page(name) for name in some(5)), leave=True))
    slow = [0.15, 0.15, 0.0]

    def be_slow(batch: Batch) -> None:
        if batch.want and slow:
            time.sleep(slow.pop(0))  # as a network does

    store.before = be_slow
    desk = await Desk(store, Limits(plan=Plan(rule=Rule(delay=0.3)))).open()
    before = time.monotonic()
    lease = await desk.next()
    assert len(released(store)) >= 1
    assert lease.token not in released(store)
    assert time.monotonic() - before >= 0.3  # a distance passed unused
    await desk.close()


@in_loop
async def test_a_worker_that_is_always_late_goes_on_all_the_same(store: Recording) -> None:
    store.join(Worker("feeder"), Plan(), 60)
    store.commit(Batch(worker="feeder", seq=1, adds=tuple(page(name) for name in some(3)), leave=True))
    store.before = lambda batch: time.sleep(0.05)
    desk = await Desk(store, Limits(plan=Plan(rule=Rule(delay=0.05)))).open()
    for _ in range(3):
        desk.settle(await desk.next())
    await desk.close()


@in_loop
async def test_a_response_that_is_faster_than_the_word_of_its_start_brings_it_along(store: Recording) -> None:
    """Else its slot would be left alone for as long as the request might have been late."""
    desk = await busy(store, plan=Plan(rule=Rule(delay=1)))
    lease = await desk.next()
    desk.frontier.sample(Sample(lease.token, 0.001, 200))
    desk.frontier.begin(lease.token)
    await desk.commit()
    assert [start.token for batch in store.batches for start in batch.starts] == [lease.token]
    await desk.close()


class Timers(Desk):
    """Knows how many of its timers are running."""

    timers = 0

    def later(self, delay: float, call: Callable[[], None]) -> None:
        def over() -> None:
            self.timers -= 1
            call()

        self.timers += 1
        super().later(delay, over)


@in_loop
async def test_one_timer_serves_all_leases_that_wait_for_their_time(store: Recording) -> None:
    plan = Plan(rule=Rule(delay=0.03, concurrency=100))
    desk = await Timers(store, Limits(plan=plan, capacity=32, lookahead=32)).open()
    desk.add(*some(100))
    await desk.commit()
    gate = hold(store)  # what it is told from now on, it is not told because of an answer
    assert len(desk.frontier.ahead) > 20
    assert desk.timers < 6
    rung = desk.times_ready
    await desk.until(lambda: desk.times_ready > rung + 5)
    gate.set()
    await desk.close()
