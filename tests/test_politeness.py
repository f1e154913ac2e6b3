"""The rules of politeness: against Scrapy's own AutoThrottle, and what must hold whatever happens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from msgspec.structs import replace
from scrapy import Request, Spider
from scrapy.core.downloader import Slot
from scrapy.crawler import Crawler
from scrapy.extensions.throttle import AutoThrottle
from scrapy.http import Response

from scrapy_fleet import politeness
from scrapy_fleet.model import Auto, Backoff, Notice, Override, Plan, Rule, Sample
from scrapy_fleet.politeness import Manners

seconds = st.floats(0, 1000, allow_nan=False)
some_seconds = st.floats(0.001, 1000, allow_nan=False)
statuses = st.sampled_from((200, 200, 200, 201, 301, 304, 404, 429, 500, 502, 503))


# AutoThrottle


class Stock:
    """Scrapy's own extension and one of its downloader's slots; it finds the slot where an engine has it."""

    def __init__(self, delay: float, auto: Auto) -> None:
        values = {
            "AUTOTHROTTLE_ENABLED": True,
            "AUTOTHROTTLE_START_DELAY": auto.start,
            "AUTOTHROTTLE_MAX_DELAY": auto.most,
            "AUTOTHROTTLE_TARGET_CONCURRENCY": auto.target,
            "DOWNLOAD_DELAY": delay,
        }
        crawler = Crawler(Spider, values)
        self.spider = Spider("stock")
        downloader: Any = SimpleNamespace(slots={})
        crawler.engine = SimpleNamespace(downloader=downloader)  # type: ignore[assignment]
        self.extension = AutoThrottle(crawler)
        self.extension._spider_opened(self.spider)
        # Where the start delay is kept depends on the version.
        start = vars(downloader).get("_delay", getattr(self.spider, "download_delay", None))
        assert start is not None
        self.slot = downloader.slots["a"] = Slot(8, start, 0)

    def sees(self, latency: float | None, status: int) -> float:
        meta = (
            {"download_slot": "a"} if latency is None else {"download_slot": "a", "download_latency": latency}
        )
        request = Request("http://a/", meta=meta)
        self.extension._response_downloaded(Response("http://a/", status=status), request, self.spider)
        return float(self.slot.delay)


def ours(delay: float, auto: Auto, seen: list[tuple[float | None, int]]) -> list[float]:
    rule = Rule(delay=delay)
    plan = Plan(rule=rule, auto=auto)
    manners, delays = Manners(), [politeness.delay_of(Manners(), plan, rule, None)]
    for number, (latency, status) in enumerate(seen):
        sample = Sample(number, latency, status)
        manners = politeness.sampled(manners, sample, plan, rule, now=float(number))
        delays.append(politeness.delay_of(manners, plan, rule, None))
    return delays


def theirs(delay: float, auto: Auto, seen: list[tuple[float | None, int]]) -> list[float]:
    stock = Stock(delay, auto)
    return [float(stock.slot.delay), *(stock.sees(latency, status) for latency, status in seen)]


WELL_KNOWN = [
    (0.3, 200),
    (2.0, 200),
    (0.1, 404),
    (9.0, 503),
    (0.2, 200),
    (None, 200),
    (0.2, 200),
    (99.0, 200),
]


@pytest.mark.parametrize("delay", [0.0, 0.25, 7.0])
@pytest.mark.parametrize("auto", [Auto(), Auto(start=0.5, most=3.0, target=4.0), Auto(target=0.5)])
def test_delays_are_those_of_scrapys_autothrottle(delay: float, auto: Auto) -> None:
    auto = replace(auto, most=max(auto.most, delay))
    assert ours(delay, auto, WELL_KNOWN) == theirs(delay, auto, WELL_KNOWN)


@settings(deadline=None, max_examples=200)
@given(
    delay=seconds,
    start=seconds,
    more=seconds,
    target=st.floats(0.01, 100),
    seen=st.lists(st.tuples(st.none() | seconds, statuses), max_size=12),
)
def test_delays_are_those_of_scrapys_autothrottle_whatever_is_seen(
    delay: float, start: float, more: float, target: float, seen: list[tuple[float | None, int]]
) -> None:
    # A maximum under DOWNLOAD_DELAY is a mistake: Scrapy then goes below the delay, and we do not.
    auto = Auto(start=start, most=delay + more, target=target)
    assert ours(delay, auto, seen) == theirs(delay, auto, seen)


def test_the_delay_counts_more_than_a_maximum_under_it() -> None:
    auto = Auto(start=1.0, most=2.0)
    assert ours(5.0, auto, [(0.5, 200)]) == [5.0, 5.0]
    assert theirs(5.0, auto, [(0.5, 200)]) == [5.0, 2.0]


# Whatever happens to a slot

backoffs = st.builds(
    Backoff,
    first=st.floats(0.5, 20),
    most=st.floats(20, 600),
    failures=st.integers(0, 4),
    patience=st.floats(10, 2000),
)
rules = st.builds(
    Rule, delay=st.sampled_from((0.0, 0.5, 3.0)), concurrency=st.integers(1, 9), jitter=st.floats(0, 1.5)
)
plans = st.builds(
    Plan, backoff=backoffs, auto=st.none() | st.builds(Auto, start=seconds, most=seconds, target=some_seconds)
)
samples = st.one_of(
    st.builds(
        Sample,
        token=st.just(1),
        latency=st.none() | seconds,
        status=st.none() | statuses,
        retry_after=st.none() | st.floats(0, 5000),
    ),
    st.builds(Sample, token=st.just(1), failed=st.sampled_from(("refused", "timed out"))),
)
notices = st.builds(
    Notice,
    slot=st.just("a"),
    distance=st.none() | seconds,
    failed=st.sampled_from(("", "", "robots.txt")),
    status=st.none() | statuses,
    retry_after=st.none() | st.floats(0, 5000),
)
overrides = st.none() | st.builds(
    Override,
    delay=st.none() | seconds,
    concurrency=st.none() | st.integers(1, 20),
    blocked=st.booleans(),
    boost=st.integers(-5, 5),
)
events = st.lists(st.tuples(st.floats(0, 300), st.one_of(samples, samples, notices)), max_size=30)
Event = Sample | Notice


def told(manners: Manners, event: Event, plan: Plan, rule: Rule, now: float) -> Manners:
    if isinstance(event, Notice):
        return politeness.noticed(manners, event, plan, now)
    return politeness.sampled(manners, event, plan, rule, now)


def longest_hold(event: Event, backoff: Backoff) -> float:
    return max(backoff.most, event.retry_after or 0.0)


@settings(deadline=None)
@given(plan=plans, rule=rules, override=overrides, events=events)
def test_what_holds_at_every_moment(
    plan: Plan, rule: Rule, override: Override | None, events: list[tuple[float, Event]]
) -> None:
    manners, now = Manners(), 1000.0
    for passed, event in events:
        now += passed
        before, manners = manners, told(manners, event, plan, rule, now)
        delay = politeness.delay_of(manners, plan, rule, override)
        pace = politeness.pace_of(manners, plan, rule, override)
        room = politeness.concurrency_of(manners, plan, rule, override)
        due = politeness.due_at(manners, now)
        why = politeness.why_it_waits(
            *(manners, plan, rule, override), waiting=1, active=0, next_at=now, now=now
        )
        # How long it is left alone is bounded, but for what the site asked for.
        assert manners.held_until <= max(before.held_until, now + longest_hold(event, plan.backoff))
        assert 0 <= pace <= delay
        assert (room == 0) == (override is not None and override.blocked)
        # The reason is always there when it waits, and never when it does not.
        assert (due > now or room == 0) <= (why != "")
        if why == "":
            assert not manners.lost
            assert manners.held_until <= now
        if override is None and not manners.lost:
            assert delay >= max(rule.delay, manners.robots)
            assert pace >= manners.robots
        # Probes and losses are of silence alone.
        silent = politeness.is_probed(manners, plan) or manners.lost
        assert silent <= (0 < plan.backoff.failures <= manners.failures)
        if manners.lost:
            assert now - manners.failing_since >= plan.backoff.patience or before.lost
            assert (delay, pace, due) == (0, 0, 0)
        assert (politeness.loss_of(manners, plan) != "") == manners.lost


@settings(deadline=None)
@given(plan=plans, rule=rules, events=events, status=statuses)
def test_any_answer_ends_the_silence(
    plan: Plan, rule: Rule, events: list[tuple[float, Event]], status: int
) -> None:
    manners, now = Manners(), 1000.0
    for passed, event in events:
        now += passed
        manners = told(manners, event, plan, rule, now)
    manners = politeness.sampled(manners, Sample(1, None, status), plan, rule, now)
    assert (manners.failures, manners.failing_since, manners.lost) == (0, 0, False)
    assert not politeness.is_probed(manners, plan)
    assert not manners.reason.startswith(politeness.SILENCE)


@settings(deadline=None)
@given(plan=plans, rule=rules, events=events, wait=st.floats(1, 10**6))
def test_what_a_site_asked_for_is_never_cut_short(
    plan: Plan, rule: Rule, events: list[tuple[float, Event]], wait: float
) -> None:
    now = 1000.0
    manners = politeness.sampled(Manners(), Sample(1, 0.5, 429, wait), plan, rule, now)
    until = manners.held_until
    assert until == now + wait
    for passed, event in events:
        now += passed
        manners = told(manners, event, plan, rule, now)
        if now < until:
            assert manners.held_until >= until
            assert manners.reason.endswith("Retry-After")


@settings(deadline=None)
@given(rule=rules, statuses=st.lists(st.sampled_from((200, 204, 301, 404, 500, None)), max_size=20))
def test_a_slot_that_answers_is_never_changed(rule: Rule, statuses: list[int | None]) -> None:
    """So that a store need not look at it."""
    for status in statuses:
        assert politeness.sampled(Manners(), Sample(1, 0.5, status), Plan(), rule, 1000.0) == Manners()


@given(holds=st.integers(1, 10**9))
def test_a_slot_may_be_left_alone_any_number_of_times(holds: int) -> None:
    plan = Plan(backoff=Backoff(first=1.0, most=600.0))
    manners = politeness.sampled(Manners(holds=holds), Sample(1, None, 503), plan, Rule(), 1000.0)
    assert manners.held_until == 1000.0 + min(600.0, 2.0 ** min(holds, 20))


@settings(deadline=None)
@given(plan=plans, rule=rules, events=events)
def test_only_what_was_given_up_is_pardoned(
    plan: Plan, rule: Rule, events: list[tuple[float, Event]]
) -> None:
    manners, now = Manners(), 1000.0
    for passed, event in events:
        now += passed
        manners = told(manners, event, plan, rule, now)
        pardoned = politeness.pardoned(manners)
        assert pardoned == (Manners(manners.auto, manners.robots) if manners.lost else manners)


def test_reasons_for_people() -> None:
    plan, rule = Plan(), Rule(delay=2.0, concurrency=3)

    def why(manners: Manners = Manners(), override: Override | None = None, **fields: Any) -> str:  # noqa: B008
        facts = {"waiting": 1, "active": 0, "next_at": 0.0, "now": 100.0, **fields}
        return politeness.why_it_waits(manners, plan, rule, override, **facts)

    held = Manners(held_until=150.0, reason="429, Retry-After", holds=1)
    assert why() == ""
    assert why(waiting=0, next_at=101.0) == ""
    assert why(next_at=101.0) == "delay"
    assert why(Manners(robots=3.0), next_at=101.0) == "delay (robots.txt)"
    assert why(Manners(robots=1.0), next_at=101.0) == "delay"
    assert why(Manners(robots=3.0), Override(delay=9.0), next_at=101.0) == "delay"
    assert why(active=3, next_at=101.0) == "full"
    assert why(active=3, override=Override(concurrency=4)) == ""
    assert why(held, waiting=0) == why(held, active=3) == "429, Retry-After"
    assert why(replace(held, held_until=100.0)) == ""
    assert why(held, Override(blocked=True)) == "blocked"
    silent = Manners(failures=10, reason="no answer: timed out", held_until=90.0)
    assert why(silent, active=1) == "no answer: timed out"
    assert why(replace(silent, lost=True)) == "given up: no answer: timed out"
    plan = Plan(auto=Auto(start=5.0))
    assert why(next_at=101.0) == "delay (AutoThrottle)"
    assert why(Manners(robots=5.0), next_at=101.0) == "delay (robots.txt)"
    assert why(Manners(auto=2.0), next_at=101.0) == "delay"
