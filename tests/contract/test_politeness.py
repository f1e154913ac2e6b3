"""What a site does and asks for changes how the whole fleet treats it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from scrapy_fleet.model import (
    Auto,
    Backoff,
    Entry,
    Lease,
    Notice,
    Outcome,
    Override,
    Plan,
    Rule,
    Sample,
    SlotView,
)
from scrapy_fleet.politeness import leeway_of
from scrapy_fleet.store.base import HORIZON, Store

from .driver import Clock, Hand, conserved, names, page, pages

BACKOFF = Backoff(first=8.0, most=64.0, failures=3, patience=1000.0)
WIDE = Plan(rule=Rule(concurrency=100), backoff=BACKOFF)


def view(store: Store, name: str = "a") -> SlotView:
    found = store.slot(name)
    assert found is not None
    return found


def many(count: int, slot: str = "a") -> tuple[Entry, ...]:
    return tuple(page(f"{slot}{n}", slot) for n in range(count))


def start(store: Store, plan: Plan = WIDE, count: int = 50) -> Hand:
    hand = Hand(store, plan=plan)
    hand.commit(adds=many(count))
    return hand


def one(hand: Hand) -> Lease:
    (lease,) = hand.lease(1)
    return lease


# AutoThrottle


def throttled(delay: float = 0.0, concurrency: int = 8, **auto: float) -> Plan:
    rule = Rule(delay=delay, concurrency=concurrency)
    return Plan(rule=rule, auto=Auto(**{"start": 4.0, "most": 16.0, **auto}))


def test_autothrottle_begins_with_its_start_delay(store: Store) -> None:
    hand = start(store, throttled())
    receipt = hand.commit(want=9)
    assert [(lease.delay, lease.pace) for lease in receipt.leases] == [(0, 4)]
    assert receipt.retry_in == pytest.approx(4 + leeway_of(4))
    assert view(store).delay == 4


def test_the_plans_delay_is_the_start_if_it_is_longer(store: Store) -> None:
    start(store, throttled(delay=6.0))
    assert view(store).delay == 6


def test_autothrottle_follows_the_latency_over_all_workers(
    make_store: Callable[..., Store], clock: Clock
) -> None:
    plan = throttled()
    one_store, other_store = make_store(), make_store()
    workers = [Hand(one_store, "w1", plan), Hand(other_store, "w2", plan)]
    workers[0].commit(adds=many(9))
    delays = []
    for turn, (latency, status) in enumerate(
        [(2.0, 200), (1.0, 200), (8.0, 200), (0.5, 404), (12.0, 500), (0.0, 200), (40.0, 200)]
    ):
        hand = workers[turn % 2]
        lease = one(hand)
        hand.sample(lease, latency=latency, status=status)
        delays.append(view(workers[(turn + 1) % 2].store).delay)
        clock.advance(100)
    # The mean with the old one; a longer one at once; an error page makes it no shorter; the bound.
    assert delays == [3, 2, 8, 8, 12, 6, 16]


def test_the_delay_counts_for_the_other_worker_from_its_next_lease_on(
    make_store: Callable[..., Store],
) -> None:
    plan = throttled(start=0.4)
    first, second = Hand(make_store(), "w1", plan), Hand(make_store(), "w2", plan)
    first.commit(adds=many(9))
    first.sample(one(first), latency=0.75, status=200)
    assert [lease.delay for lease in second.lease(1)] == [pytest.approx(0.4)]
    assert view(second.store).delay == 0.75
    assert second.commit(want=9).retry_in == pytest.approx(0.4 + 0.75 + leeway_of(0.75))


def test_the_target_is_the_fleets_concurrency_on_the_host(store: Store) -> None:
    hand = start(store, throttled(target=4.0))
    hand.sample(one(hand), latency=40.0, status=200)
    assert view(store).delay == 10


def test_autothrottle_never_goes_under_the_plans_delay(store: Store, clock: Clock) -> None:
    hand = start(store, throttled(delay=3.0))
    for _ in range(4):
        hand.sample(one(hand), latency=0.25, status=200)
        clock.advance(100)
    assert view(store).delay == 3


def test_a_sample_without_latency_or_answer_leaves_the_delay(store: Store, clock: Clock) -> None:
    hand = start(store, throttled())
    hand.sample(one(hand), status=200)
    clock.advance(10)
    hand.sample(one(hand), latency=9.0)
    assert view(store).delay == 4


def test_a_sample_counts_once(store: Store) -> None:
    hand = start(store, throttled())
    lease = one(hand)
    hand.sample(lease, latency=2.0, status=200)
    hand.again()
    hand.sample(lease, latency=2.0, status=200)
    assert view(store).delay == 3


def test_the_sample_of_a_lease_that_is_not_held_says_nothing(store: Store) -> None:
    hand = start(store, throttled())
    lease = one(hand)
    Hand(store, "other", throttled()).sample(lease, latency=9.0, status=429, retry_after=60.0)
    hand.release(lease)
    hand.sample(lease, latency=9.0, status=429, retry_after=60.0)
    assert (view(store).delay, view(store).next_in) == (4, 0)


def test_each_slot_has_its_own_delay(store: Store) -> None:
    hand = start(store, throttled())
    hand.commit(adds=many(3, "b"))
    leases = hand.lease(9)
    assert sorted(lease.slot for lease in leases) == ["a", "b"]
    hand.sample(*(lease for lease in leases if lease.slot == "b"), latency=8.0, status=200)
    assert (view(store, "a").delay, view(store, "b").delay) == (4, 8)


def test_a_new_run_begins_with_the_start_delay_again(store: Store) -> None:
    hand = start(store, throttled(), count=1)
    lease = one(hand)
    hand.sample(lease, latency=8.0, status=200)
    hand.settle(lease, seeded=True)
    hand.leave(finish=True)
    again = Hand(store, "again", throttled())
    again.commit(adds=many(1))
    assert view(store).delay == 4


# Sites that refuse


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_holds_the_slot_for_the_whole_fleet(
    make_store: Callable[..., Store], clock: Clock, status: int
) -> None:
    first, second = Hand(make_store(), "w1", WIDE), Hand(make_store(), "w2", WIDE)
    first.commit(adds=(*many(9), *many(1, "b")))
    first.sample(one(first), status=status, retry_after=7200.0)
    assert names(second.lease(9)) == ["b0"]
    seen = view(second.store)
    assert (seen.next_in, seen.reason) == (pytest.approx(7200), f"{status}, Retry-After")
    clock.advance(7200 - HORIZON - 0.5)
    receipt = second.commit(want=9)
    assert (receipt.leases, receipt.retry_in) == ((), pytest.approx(0.5))
    clock.advance(0.5)
    leases = second.lease(3)
    assert [lease.delay for lease in leases] == [pytest.approx(HORIZON)] * 3
    assert not any(lease.probe or lease.lost for lease in leases)
    clock.advance(HORIZON)
    assert view(second.store).reason == ""


def test_a_longer_retry_after_counts_a_shorter_one_does_not(store: Store) -> None:
    hand = start(store)
    leases = hand.lease(4)
    for lease, seconds in zip(leases, (30.0, 60.0, 10.0, 0.0), strict=True):
        hand.sample(lease, status=429, retry_after=seconds)
    assert view(store).next_in == pytest.approx(60)


def test_an_answer_that_was_under_way_does_not_end_a_hold(store: Store) -> None:
    hand = start(store)
    refused, failed, fine = hand.lease(3)
    hand.sample(refused, status=429, retry_after=500.0)
    hand.sample(failed, failed="timed out")
    hand.sample(fine, status=200, latency=0.5)
    assert (view(store).next_in, view(store).reason) == (pytest.approx(500), "429, Retry-After")


def refuse(hand: Hand, clock: Clock, **fields: object) -> float:
    """Ask once more, be refused; for how long the slot is left alone now."""
    clock.advance(view(hand.store).next_in)
    (lease,) = hand.lease(1)
    assert lease.delay == 0
    hand.settle(lease, samples=(Sample(lease.token, **fields),))  # type: ignore[arg-type]
    return view(hand.store).next_in


def test_without_retry_after_every_hold_is_twice_as_long_up_to_a_bound(store: Store, clock: Clock) -> None:
    hand = start(store)
    holds = [refuse(hand, clock, status=status) for status in (429, 503, 429, 429, 429, 503)]
    assert holds == [pytest.approx(seconds) for seconds in (8, 16, 32, 64, 64, 64)]
    assert view(store).reason == "503"


def test_a_retry_after_of_nothing_is_none(store: Store, clock: Clock) -> None:
    hand = start(store)
    holds = [refuse(hand, clock, status=429, retry_after=0.0) for _ in range(2)]
    assert holds == [pytest.approx(8), pytest.approx(16)]


def test_an_answer_after_the_hold_begins_it_all_anew(store: Store, clock: Clock) -> None:
    hand = start(store)
    assert refuse(hand, clock, status=429) == pytest.approx(8)
    assert refuse(hand, clock, status=429) == pytest.approx(16)
    assert refuse(hand, clock, status=404, latency=0.5) == 0
    assert refuse(hand, clock, status=429) == pytest.approx(8)


def test_an_error_of_the_server_neither_holds_nor_forgives(store: Store, clock: Clock) -> None:
    hand = start(store)
    assert refuse(hand, clock, status=500) == 0
    assert refuse(hand, clock, status=429) == pytest.approx(8)
    assert refuse(hand, clock, status=502) == 0
    assert refuse(hand, clock, status=429) == pytest.approx(16)


def test_refusals_that_were_under_way_together_count_once(store: Store) -> None:
    hand = start(store)
    hand.sample(*hand.lease(9), status=503)
    assert view(store).next_in == pytest.approx(8)


def test_a_hold_and_a_delay_go_together(store: Store, clock: Clock) -> None:
    hand = start(store, Plan(rule=Rule(delay=0.4), backoff=BACKOFF))
    hand.sample(one(hand), status=429)
    clock.advance(8 - HORIZON)
    assert [lease.delay for lease in hand.lease()] == [pytest.approx(HORIZON)]
    clock.advance(HORIZON)
    assert [lease.delay for lease in hand.lease()] == [pytest.approx(0.4), pytest.approx(0.8)]


def test_a_hold_lasts_through_new_workers_and_handles(make_store: Callable[..., Store]) -> None:
    hand = start(make_store())
    hand.sample(one(hand), status=503, retry_after=90.0)
    hand.leave()
    again = Hand(make_store(), "again", WIDE)
    assert again.lease() == []
    assert view(again.store).next_in == pytest.approx(90)
    conserved(again.store)


# Sites that do not answer


def silent(hand: Hand, count: int = BACKOFF.failures) -> None:
    """So many requests get no answer; they are tried again later."""
    leases = hand.lease(count)
    assert len(leases) == count
    hand.commit(
        samples=tuple(Sample(lease.token, failed="connection refused") for lease in leases),
        releases=tuple(lease.token for lease in leases),
    )


def fail(hand: Hand, clock: Clock) -> float:
    """The probe gets no answer; for how long the slot is left alone now."""
    clock.advance(view(hand.store).next_in)
    (lease,) = hand.lease()
    assert (lease.probe, lease.lost) == (True, "")
    token = lease.token
    hand.commit(samples=(Sample(token, failed="timed out"),), releases=(token,))
    return view(hand.store).next_in


def test_a_few_failures_change_nothing(store: Store) -> None:
    hand = start(store)
    silent(hand, BACKOFF.failures - 1)
    assert (view(store).next_in, view(store).reason, view(store).concurrency) == (0, "", 100)
    assert not any(lease.probe for lease in hand.lease())


def test_an_answer_between_failures_forgives_them(store: Store) -> None:
    hand = start(store)
    for _ in range(3):
        silent(hand, BACKOFF.failures - 1)
        hand.settle(lease := one(hand), samples=(Sample(lease.token, status=500),))
    assert view(store).reason == ""


def test_a_download_that_ended_for_another_reason_says_nothing(store: Store) -> None:
    hand = start(store)
    silent(hand, BACKOFF.failures - 1)
    hand.sample(one(hand))
    silent(hand, 1)
    assert view(store).reason == "no answer: connection refused"


def test_a_slot_that_does_not_answer_is_left_alone_then_probed_one_at_a_time(
    make_store: Callable[..., Store], clock: Clock
) -> None:
    first, second = Hand(make_store(), "w1", WIDE), Hand(make_store(), "w2", WIDE)
    first.commit(adds=many(20))
    silent(first)
    first.commit(adds=many(1, "b"))
    assert names(second.lease()) == ["b0"]
    seen = view(second.store)
    assert (seen.reason, seen.next_in) == ("no answer: connection refused", pytest.approx(8))
    assert (seen.concurrency, seen.waiting) == (1, 20)
    clock.advance(8)
    (probe,) = second.lease()
    assert (probe.probe, probe.spare, probe.delay) == (True, False, 0)
    assert first.lease() == second.lease() == []
    assert view(first.store).reason == "no answer: connection refused"
    second.sample(probe, failed="DNS lookup failed")
    assert first.lease() == second.lease() == []
    seen = view(first.store)
    assert (seen.reason, seen.next_in) == ("no answer: DNS lookup failed", pytest.approx(16))


def test_a_probe_that_comes_back_unrun_lets_another_go(store: Store, clock: Clock) -> None:
    hand = start(store)
    silent(hand)
    clock.advance(8)
    hand.release(one(hand))
    assert one(hand).probe


def test_downloads_under_way_keep_their_room_before_the_probe(store: Store, clock: Clock) -> None:
    hand = start(store)
    running = hand.lease(2)
    silent(hand)
    clock.advance(8)
    assert hand.lease() == []
    hand.sample(*running)
    assert one(hand).probe


def test_failures_that_were_under_way_together_count_once(store: Store) -> None:
    hand = start(store)
    silent(hand, 20)
    assert view(store).next_in == pytest.approx(8)


def test_probes_are_ever_further_apart_up_to_a_bound(store: Store, clock: Clock) -> None:
    hand = start(store)
    silent(hand)
    assert [fail(hand, clock) for _ in range(5)] == [pytest.approx(wait) for wait in (16, 32, 64, 64, 64)]


def test_a_probe_that_is_answered_opens_the_slot(store: Store, clock: Clock) -> None:
    hand = start(store)
    silent(hand)
    fail(hand, clock)
    clock.advance(16)
    hand.sample(one(hand), status=404, latency=0.5)
    seen = view(store)
    assert (seen.reason, seen.next_in, seen.concurrency) == ("", 0, 100)
    assert not any(lease.probe for lease in hand.lease(5))
    silent(hand)
    assert view(store).next_in == pytest.approx(8)


def test_a_probe_that_is_refused_is_an_answer_too(store: Store, clock: Clock) -> None:
    hand = start(store)
    silent(hand)
    fail(hand, clock)
    clock.advance(16)
    hand.sample(one(hand), status=503)
    seen = view(store)
    assert (seen.reason, seen.next_in, seen.concurrency) == ("503", pytest.approx(8), 100)


def test_what_waits_is_not_burnt(store: Store, clock: Clock) -> None:
    hand = start(store, count=10)
    silent(hand)
    for _ in range(5):
        fail(hand, clock)
    assert view(store).waiting == 10
    assert all(row.attempts == 0 for row in store.scan("waiting"))
    conserved(store)


def give_up_on(hand: Hand, clock: Clock) -> None:
    silent(hand)
    clock.advance(BACKOFF.patience)
    fail(hand, clock)


def test_a_slot_that_stays_silent_is_given_up(store: Store, clock: Clock) -> None:
    hand = start(store, Plan(rule=Rule(concurrency=6, delay=0.125), backoff=BACKOFF), count=10)
    give_up_on(hand, clock)
    seen = view(store)
    assert (seen.reason, seen.next_in) == ("given up: no answer: timed out", 0)
    assert (seen.delay, seen.concurrency) == (0, 6)
    leases = hand.lease()
    assert len(leases) == 6
    assert {lease.lost for lease in leases} == {"no answer: timed out; given up after 1000 s"}
    assert {(lease.delay, lease.pace, lease.probe, lease.spare) for lease in leases} == {(0, 0, False, False)}
    hand.settle(*leases, dead="so")
    assert len(hand.lease()) == 4
    conserved(store)


def test_patience_counts_from_the_first_failure(store: Store, clock: Clock) -> None:
    hand = start(store)
    silent(hand)
    clock.advance(BACKOFF.patience - 32)
    assert fail(hand, clock) == pytest.approx(16)
    assert not view(store).reason.startswith("given up")
    fail(hand, clock)
    assert not view(store).reason.startswith("given up")
    fail(hand, clock)
    assert view(store).reason.startswith("given up")


def lost_ones(store: Store, clock: Clock) -> Hand:
    hand = start(store, count=10)
    give_up_on(hand, clock)
    hand.settle(*hand.lease(), dead="so")
    hand.commit(adds=pages("new"))
    return hand


def test_what_comes_later_is_lost_as_well(store: Store, clock: Clock) -> None:
    hand = lost_ones(store, clock)
    assert [lease.lost != "" for lease in hand.lease()] == [True]


def test_requeued_entries_get_a_new_chance(store: Store, clock: Clock) -> None:
    hand = lost_ones(store, clock)
    assert store.requeue() == 10
    seen = view(store)
    assert (seen.reason, seen.next_in, seen.concurrency) == ("", 0, 100)
    leases = hand.lease()
    assert len(leases) == 11
    assert not any(lease.lost or lease.probe for lease in leases)


@pytest.mark.parametrize("override", [None, Override(concurrency=5)])
def test_a_slot_that_people_speak_of_gets_a_new_chance(
    store: Store, clock: Clock, override: Override | None
) -> None:
    hand = lost_ones(store, clock)
    store.override("a", override)
    (lease,) = hand.lease()
    assert (lease.lost, lease.probe) == ("", False)


def test_a_lost_slot_that_answers_after_all_is_back(store: Store, clock: Clock) -> None:
    hand = start(store, count=10)
    late = one(hand)
    leases = hand.lease(3)
    hand.commit(
        samples=tuple(Sample(lease.token, failed="refused") for lease in leases),
        releases=tuple(lease.token for lease in leases),
    )
    clock.advance(BACKOFF.patience)
    hand.commit(notices=(Notice("a", failed="refused"),))
    assert view(store).reason == "given up: no answer: refused"
    hand.sample(late, status=200)
    assert view(store).reason == ""


def test_without_a_number_of_failures_nothing_is_held(store: Store) -> None:
    hand = start(store, Plan(rule=Rule(concurrency=100), backoff=Backoff(failures=0)))
    silent(hand, 50)
    hand.commit(notices=(Notice("a", failed="robots.txt"),))
    assert view(store).reason == ""
    assert not any(lease.probe for lease in hand.lease())


# What is learnt otherwise


def robots(hand: Hand, distance: float, slot: str = "a") -> None:
    hand.commit(notices=(Notice(slot, distance=distance),))


def test_the_distance_of_robots_txt_is_kept(store: Store, clock: Clock) -> None:
    hand = start(store)
    robots(hand, 5.0)
    assert [(lease.delay, lease.pace) for lease in hand.lease()] == [(0, 5)]
    seen = view(store)
    assert (seen.delay, seen.robots, seen.next_in) == (5, 5, pytest.approx(5 + leeway_of(5)))
    assert seen.reason == "delay (robots.txt)"
    clock.advance(5 + leeway_of(5))
    assert [lease.delay for lease in hand.lease()] == [0]
    robots(hand, 0.0)
    assert (view(store).delay, view(store).robots) == (0, 0)


@pytest.mark.parametrize(
    ("delay", "distance", "latency", "longest", "reason"),
    [
        (6.0, 3.0, 4.0, 6, "delay"),
        (2.0, 7.0, 4.0, 7, "delay (robots.txt)"),
        (2.0, 3.0, 9.0, 9, "delay (AutoThrottle)"),
    ],
)
def test_the_longest_wish_wins(
    store: Store, delay: float, distance: float, latency: float, longest: float, reason: str
) -> None:
    hand = start(store, throttled(delay=delay, start=1.0))
    hand.sample(one(hand), latency=latency, status=200)
    robots(hand, distance)
    assert view(store).delay == longest
    assert view(store).reason == reason


def test_jitter_does_not_go_below_what_robots_txt_asks_for(store: Store, clock: Clock) -> None:
    hand = start(store, Plan(rule=Rule(delay=0.25, jitter=0.5)), count=60)
    robots(hand, 0.25)
    times = []
    for _ in range(60):
        leases = hand.lease()
        assert all(lease.pace == 0.25 for lease in leases)
        times += [clock.now + lease.delay for lease in leases]
        hand.settle(*leases)
        clock.advance(0.5)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(times) == 60
    assert min(gaps) >= 0.25 - 1e-9
    assert max(gaps) > 0.26


def test_the_pace_of_a_delay_with_jitter_is_its_shortest(store: Store) -> None:
    hand = start(store, Plan(rule=Rule(delay=2.0, jitter=0.25)))
    assert one(hand).pace == 1.5


def test_a_notice_makes_the_slot(store: Store) -> None:
    hand = Hand(store, plan=WIDE)
    robots(hand, 3.0, "new")
    assert (view(store, "new").robots, view(store, "new").waiting) == (3, 0)
    assert store.snapshot().slot_count == 1
    hand.commit(adds=many(2, "new"))
    assert len(hand.lease()) == 1
    conserved(store)


def test_a_repeated_notice_changes_nothing(store: Store) -> None:
    hand = start(store)
    hand.commit(notices=(Notice("a", failed="robots.txt: 503"),))
    before = view(store)
    hand.again()
    assert view(store) == before


def test_a_slot_may_be_left_alone_for_another_reason(store: Store, clock: Clock) -> None:
    hand = start(store)
    hand.commit(notices=(Notice("a", failed="robots.txt: 503"),))
    seen = view(store)
    assert (seen.reason, seen.next_in) == ("no answer: robots.txt: 503", pytest.approx(8))
    clock.advance(8)
    assert [lease.probe for lease in hand.lease()] == [True]


@pytest.mark.parametrize(
    ("notice", "seconds", "reason"),
    [
        (Notice("a", status=429, retry_after=100.0), 100, "429, Retry-After"),
        (Notice("a", status=503, retry_after=0.0), 8, "503"),
        (Notice("a", status=429), 8, "429"),
    ],
)
def test_a_refusal_of_what_has_no_lease_holds_the_slot(
    make_store: Callable[..., Store], clock: Clock, notice: Notice, seconds: float, reason: str
) -> None:
    hand, other = start(make_store()), Hand(make_store(), "other", WIDE)
    hand.commit(notices=(notice,))
    seen = view(other.store)
    assert (seen.reason, seen.next_in) == (reason, pytest.approx(seconds))
    assert other.lease() == []
    clock.advance(seconds - 2 * HORIZON)
    assert other.lease() == []
    clock.advance(2 * HORIZON)
    assert [lease.probe for lease in other.lease(2)] == [False, False]
    # Twice as long the next time, as after any refusal.
    hand.commit(notices=(Notice("a", status=503),))
    assert view(other.store).next_in == pytest.approx(16)


@pytest.mark.parametrize("status", [None, 200, 404, 500])
def test_any_other_answer_to_what_has_no_lease_changes_nothing(store: Store, status: int | None) -> None:
    hand = start(store)
    before = view(store)
    hand.commit(notices=(Notice("a", status=status, retry_after=100.0),))
    assert view(store) == before


def test_a_refused_robots_txt_is_silence_and_a_refusal(store: Store, clock: Clock) -> None:
    hand = start(store)
    hand.commit(notices=(Notice("a", failed="robots.txt: 503", status=503),))
    assert (view(store).reason, view(store).next_in) == ("no answer: robots.txt: 503", pytest.approx(8))
    hand.commit(notices=(Notice("a", failed="robots.txt: 503", status=503, retry_after=100.0),))
    assert (view(store).reason, view(store).next_in) == ("503, Retry-After", pytest.approx(100))
    clock.advance(100)
    assert [lease.probe for lease in hand.lease()] == [True]
    clock.advance(BACKOFF.patience)
    hand.commit(notices=(Notice("a", failed="robots.txt: 503", status=503, retry_after=100.0),))
    assert view(store).reason == "given up: no answer: robots.txt: 503"


def test_a_new_run_forgets_how_the_sites_behaved(store: Store) -> None:
    hand = start(store, count=1)
    lease = one(hand)
    hand.commit(
        samples=(Sample(lease.token, status=429, retry_after=500.0),),
        notices=(Notice("a", distance=9.0),),
        outcomes=(Outcome(lease.token),),
        seeded=True,
    )
    hand.leave(finish=True)
    again = Hand(store, "again", WIDE)
    again.commit(adds=many(2))
    assert [lease.delay for lease in again.lease()] == [0, 0]
    assert view(store).robots == 0


# What people see


def test_why_a_slot_waits(store: Store, clock: Clock) -> None:
    plan = Plan(rule=Rule(delay=4.0), slots={"b": Rule(concurrency=1)})
    hand = Hand(store, plan=plan)
    hand.commit(adds=(*many(2), *many(2, "b")))
    assert (view(store).reason, view(store, "b").reason) == ("", "")
    hand.lease(2)
    assert (view(store).reason, view(store, "b").reason) == ("delay", "full")
    assert {slot.name: slot.reason for slot in store.snapshot().slots} == {"a": "delay", "b": "full"}
    clock.advance(4 + leeway_of(4))
    assert view(store).reason == ""


def test_a_slot_nobody_met_is_none(store: Store) -> None:
    assert store.slot("a") is None
    hand = Hand(store)
    hand.commit(adds=pages("1"))
    assert store.slot("b") is None
    assert view(store).waiting == 1


def test_one_slot_is_shown_as_among_all(store: Store) -> None:
    hand = start(store, throttled())
    hand.sample(one(hand), latency=3.0, status=429)
    hand.commit(adds=many(2, "b"))
    assert store.snapshot().slots == (view(store), view(store, "b"))
