"""Workers that come, fall silent, die and come back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scrapy_fleet.errors import GivenUp
from scrapy_fleet.model import Outcome, Plan, Rule, Worker
from scrapy_fleet.politeness import leeway_of
from scrapy_fleet.store.base import PATIENCE, Store

from .driver import WIDE, Clock, Hand, conserved, crash, names, page, pages


def test_a_joining_worker_learns_of_the_others(store: Store) -> None:
    first = Worker("w1", "host", 12, "home", "birth")
    assert store.join(first, WIDE, 60).others == ()
    assert store.join(Worker("w2"), WIDE, 60).others == (first,)


def test_joining_twice_changes_nothing_but_plan_and_ttl(store: Store, clock: Clock) -> None:
    worker = Hand(store, ttl=10)
    worker.add(*pages("1", "2"))
    (lease,) = worker.lease(1)
    clock.advance(5)
    joined = store.join(Worker("w"), Plan(rule=Rule(concurrency=3)), 30)
    assert joined.counts.leased == 1
    (view,) = store.snapshot().workers
    assert (view.age, view.deadline_in, view.leased) == (pytest.approx(5), pytest.approx(30), 1)
    assert store.snapshot().slots[0].concurrency == 3
    assert worker.settle(lease).counts.done == 1


def test_a_silent_worker_is_given_up_at_the_next_beat(store: Store, clock: Clock) -> None:
    worker, other = Hand(store, "w", ttl=10), Hand(store, "o", ttl=60)
    worker.add(*pages("1", "2", "3"))
    worker.lease(2)
    clock.advance(9.5)
    assert other.beat().reaped == 0
    clock.advance(0.5)
    beat = other.beat()
    assert beat.reaped == 2
    assert (beat.counts.waiting, beat.counts.leased) == (3, 0)
    assert [view.id for view in store.snapshot().workers] == ["o"]
    assert sorted(lease.attempts for lease in other.lease()) == [0, 1, 1]
    conserved(store)


@pytest.mark.parametrize("sign", ["commit", "beat", "again"])
def test_every_call_is_a_sign_of_life(store: Store, clock: Clock, sign: str) -> None:
    worker, other = Hand(store, "w", ttl=10), Hand(store, "o", ttl=60)
    worker.commit(adds=pages("1"), want=1)
    clock.advance(8)
    getattr(worker, sign)()
    clock.advance(8)
    assert other.beat().reaped == 0
    clock.advance(2)
    assert other.beat().reaped == 1


def test_a_worker_that_beats_late_but_was_not_given_up_is_alive(store: Store, clock: Clock) -> None:
    worker = Hand(store, ttl=10)
    worker.commit(adds=pages("1"), want=1)
    clock.advance(1000)
    assert worker.beat().reaped == 0
    assert store.snapshot().workers[0].deadline_in == pytest.approx(10)


def test_nobody_is_given_up_but_by_a_beat(store: Store, clock: Clock) -> None:
    worker, other = Hand(store, "w", ttl=10), Hand(store, "o", ttl=10)
    worker.commit(adds=pages("1", "2"), want=1)
    clock.advance(1000)
    other.commit(want=1)
    assert len(store.snapshot().workers) == 2
    assert worker.commit().counts.leased == 2


def test_a_worker_given_up_is_told_and_changes_nothing(store: Store) -> None:
    worker, other = Hand(store, "w"), Hand(store, "o")
    worker.add(*pages("1"))
    (lease,) = worker.lease()
    assert crash(store, worker) == 1
    before = store.snapshot()
    with pytest.raises(GivenUp):
        worker.commit(
            adds=pages("late"),
            outcomes=(Outcome(lease.token, items=(b"item",)),),
            marks=(1,),
            items=(b"item",),
            stats={"n": 1},
            want=5,
        )
    with pytest.raises(GivenUp):
        worker.beat()
    with pytest.raises(GivenUp):
        worker.again()
    assert store.snapshot() == before
    assert names(other.lease()) == ["1"]


def test_a_worker_that_never_joined_is_told(store: Store) -> None:
    worker = Hand(store)
    worker.id = "stranger"
    with pytest.raises(GivenUp):
        worker.add(*pages("1"))
    with pytest.raises(GivenUp):
        worker.beat()
    assert store.snapshot().counts.accepted == 0


def test_a_late_outcome_does_not_settle_what_another_worker_holds(store: Store) -> None:
    worker, other = Hand(store, "w"), Hand(store, "o")
    worker.add(*pages("1"))
    (old,) = worker.lease()
    crash(store, worker)
    (new,) = other.lease()
    back = Hand(store, "w again")
    assert back.settle(old).counts.leased == 1
    assert other.settle(new).counts.done == 1


def test_giving_up_strangers_is_harmless(store: Store) -> None:
    worker = Hand(store)
    worker.commit(adds=pages("1", "2"), want=1)
    assert store.give_up(()) == 0
    assert store.give_up(("nobody", "w", "w")) == 1
    assert store.give_up(("w",)) == 0


def test_a_dead_worker_makes_room(store: Store) -> None:
    plan = Plan(rule=Rule(concurrency=4))
    worker, other = Hand(store, "w", plan), Hand(store, "o", plan)
    worker.add(*(page(str(n)) for n in range(5)))
    sampled, _ = worker.lease()
    worker.sample(sampled)
    crash(store, worker)
    assert len(other.lease()) == 4


def test_leaving_releases_what_is_held(store: Store) -> None:
    plan = Plan(rule=Rule(concurrency=4))
    worker, other = Hand(store, "w", plan), Hand(store, "o", plan)
    worker.add(*pages("1", "2", "3"))
    done, _ = worker.lease()
    receipt = worker.leave(outcomes=(Outcome(done.token),), want=5)
    assert receipt.leases == ()
    assert (receipt.counts.waiting, receipt.counts.leased, receipt.counts.done) == (2, 0, 1)
    assert [lease.attempts for lease in other.lease()] == [0, 0]
    with pytest.raises(GivenUp):
        worker.beat()
    conserved(store)


# Suspects: entries whose holders died.


def die_with_it(store: Store, times: int, plan: Plan = WIDE) -> None:
    """So many workers die while they hold everything there is."""
    for n in range(times):
        victim = Hand(store, f"victim{n}", plan)
        assert victim.lease()
        crash(store, victim)


def test_after_one_crash_an_entry_runs_beside_others(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2"))
    die_with_it(store, 1)
    assert [(lease.attempts, lease.alone) for lease in worker.lease()] == [(1, False), (1, False)]


def test_a_suspect_is_leased_alone(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2"))
    die_with_it(store, 2)
    worker.add(*pages("3"))
    (lease,) = worker.lease()
    assert (lease.payload, lease.attempts, lease.alone) == (b"1", 2, True)
    assert worker.lease() == []
    worker.settle(lease)
    (lease,) = worker.lease()
    assert (lease.payload, lease.alone) == (b"2", True)
    worker.settle(lease)
    assert names(worker.lease()) == ["3"]
    conserved(store)


def test_a_sampled_suspect_is_still_alone(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1"))
    die_with_it(store, 2)
    worker.add(*pages("2"))
    (lease,) = worker.lease()
    worker.sample(lease)
    assert worker.lease() == []


def test_a_worker_that_holds_something_gets_no_suspect(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("bad"))
    die_with_it(store, 1)
    holder = Hand(store, "holder")
    bad = holder.lease()
    worker.add(*pages("1", "2"))
    assert names(worker.lease(1)) == ["2"]
    crash(store, holder)
    assert [lease.payload for lease in bad] == [b"bad"]
    assert names(worker.lease()) == ["1"]


def test_outcomes_of_the_batch_count_before_a_suspect_is_offered(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("bad"))
    die_with_it(store, 1)
    holder = Hand(store, "holder")
    holder.lease()
    worker.add(*pages("1"))
    (held,) = worker.lease()
    crash(store, holder)
    receipt = worker.settle(held, want=5)
    assert [(lease.payload, lease.alone) for lease in receipt.leases] == [(b"bad", True)]


def test_a_suspect_that_waited_long_makes_workers_run_dry(store: Store, clock: Clock) -> None:
    worker = Hand(store, ttl=1e6)
    worker.add(*pages("bad"))
    die_with_it(store, 1)
    holder = Hand(store, "holder", ttl=1e6)
    holder.lease()
    worker.add(*pages("1", "2", "3"))
    (held,) = worker.lease(1)
    crash(store, holder)
    clock.advance(PATIENCE - 1)
    (more,) = worker.lease(1)
    clock.advance(1)
    assert worker.lease() == []
    assert worker.settle(held, want=5).leases == ()
    assert names(worker.settle(more, want=5).leases) == ["bad"]


def test_a_suspect_whose_slot_has_no_room_holds_nobody_up(store: Store, clock: Clock) -> None:
    plan = Plan(rule=Rule(concurrency=1))
    worker = Hand(store, "w", plan, ttl=1e6)
    worker.add(page("bad", "a"))
    die_with_it(store, 2, plan)
    worker.add(page("a1", "a"), page("b1", "b"))
    other = Hand(store, "o", plan, ttl=1e6)
    (bad,) = other.lease()
    assert bad.alone
    other.release(bad)
    assert [lease.alone for lease in other.lease()] == [True]
    clock.advance(PATIENCE * 2)
    assert names(worker.lease()) == ["b1"]


def test_a_suspect_is_paced_as_others_are(store: Store, clock: Clock) -> None:
    plan = Plan(rule=Rule(delay=10, concurrency=9))
    worker = Hand(store, "w", plan)
    worker.add(*pages("bad"))
    for n in range(2):
        clock.advance(10 + leeway_of(10))
        victim = Hand(store, f"v{n}", plan)
        assert len(victim.lease()) == 1
        crash(store, victim)
    receipt = worker.commit(want=1)
    assert receipt.leases == ()
    assert receipt.retry_in == pytest.approx(10 + leeway_of(10))
    clock.advance(10 + leeway_of(10))
    assert [(lease.alone, lease.delay) for lease in worker.lease()] == [(True, 0)]


def test_an_entry_that_kills_its_workers_ends_dead_and_alone(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("bad", "good"))
    die_with_it(store, 2)
    for n in range(10):
        victim = Hand(store, f"v{n}")
        (lease,) = victim.lease()
        assert lease.alone
        if lease.payload == b"good":
            victim.settle(lease)
        else:
            crash(store, victim)
        if not store.snapshot().counts.open:
            break
    (row,) = store.scan("dead")
    assert (row.payload, row.attempts) == (b"bad", WIDE.max_attempts)
    assert row.reason == "its worker died 5 times while holding it, the last time with nothing else"
    counts = store.snapshot().counts
    assert (counts.done, counts.dead) == (1, 1)
    conserved(store)


def test_even_with_a_single_attempt_an_entry_dies_only_alone(store: Store) -> None:
    plan = Plan(rule=WIDE.rule, max_attempts=1)
    worker = Hand(store, "w", plan)
    worker.add(*pages("1", "2"))
    die_with_it(store, 1, plan)
    assert store.snapshot().counts.waiting == 2
    victim = Hand(store, "v", plan)
    assert [lease.alone for lease in victim.lease()] == [True]
    crash(store, victim)
    assert store.snapshot().counts.dead == 1
    assert store.snapshot().counts.waiting == 1


def test_a_released_suspect_is_a_suspect_again_behind_the_others(store: Store, clock: Clock) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2"))
    die_with_it(store, 2)
    (first,) = worker.lease()
    clock.advance(1)
    worker.release(first)
    (second,) = worker.lease()
    assert (second.alone, second.attempts) == (True, 2)
    assert second.payload != first.payload


def test_a_leaving_worker_costs_a_suspect_no_attempt(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1"))
    die_with_it(store, 2)
    worker.lease()
    worker.leave()
    assert [(lease.attempts, lease.alone) for lease in Hand(store, "w2").lease()] == [(2, True)]


def test_suspects_are_counted_as_waiting(store: Store) -> None:
    worker = Hand(store)
    worker.add(*pages("1", "2"))
    die_with_it(store, 2)
    snapshot = store.snapshot()
    assert snapshot.counts.waiting == snapshot.slots[0].waiting == 2
    assert len(store.scan("waiting")) == 2
    conserved(store)


def test_a_worker_that_runs_a_suspect_is_not_told_to_ask_again(
    make_store: Callable[..., Store], clock: Clock
) -> None:
    """What is due by now waits for nobody's time, though this worker gets none of it."""
    plan = Plan(rule=Rule(concurrency=9), slots={"slow": Rule(delay=4.0)})
    store = make_store()
    Hand(store, "first", plan).add(page("killer"))
    for n in range(2):
        victim = Hand(store, f"victim{n}", plan)
        assert victim.lease()
        crash(store, victim)
    worker = Hand(store, "worker", plan)
    assert [lease.alone for lease in worker.lease()] == [True]
    worker.add(page("s1", "slow"), page("s2", "slow"))
    other = Hand(make_store(), "other", plan)
    assert len(other.lease()) == 1
    clock.advance(60)
    assert worker.commit(want=5).retry_in is None
