"""How a slot is treated: pure rules, from what happened in it to what it may be asked next.

A store keeps the :class:`Manners` of every slot and changes them with what its workers report, in the
transaction of their commit. The Redis store has the same rules in Lua; tests compare the two.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from scrapy_fleet.model import UNPACED, Auto, Backoff, Notice, Override, Plan, Rule, Sample

REFUSALS = (429, 503)
"""The site is asked too often, or is overloaded."""

SILENCE = "no answer: "
"""How the reason of a hold begins that ends with the next answer."""

LEEWAY, WIDE = 1.5, 0.5
"""How late a request may begin, and from which pace of its slot on it may: in seconds. So long may a busy
worker take for what comes before it."""

Reason = str


class Manners(Struct, frozen=True):
    """How a slot has behaved and what it asked for. Times are the store's own."""

    auto: float | None = None
    """AutoThrottle's delay; None before the first response."""
    robots: float = 0.0
    """The distance that its robots.txt asks for."""
    held_until: float = 0.0
    """It is left alone until then."""
    reason: Reason = ""
    """Why it is, or was last, left alone."""
    holds: int = 0
    """How often it has been left alone since it last answered as it should."""
    failures: int = 0
    """Downloads without an answer since it last answered."""
    failing_since: float = 0.0
    """When the first of these ended."""
    lost: bool = False
    """It is given up."""


def sampled(manners: Manners, sample: Sample, plan: Plan, rule: Rule, now: float) -> Manners:
    """A download in the slot has ended."""
    if sample.failed:
        return _failed(manners, sample.failed, 1, plan.backoff, now)
    if sample.status is None:
        return manners
    if manners.failures:
        manners = _answering(manners)
    if sample.status in REFUSALS:
        manners = _refused(manners, sample, plan.backoff, now)
    elif sample.status < 500 and manners.holds and manners.held_until <= now:
        manners = replace(manners, holds=0, reason="")
    if plan.auto is not None and sample.latency is not None:
        manners = _throttled(manners, sample.latency, sample.status, plan.auto, rule)
    return manners


def noticed(manners: Manners, notice: Notice, plan: Plan, now: float) -> Manners:
    """Something else was learnt about the slot."""
    if notice.distance is not None:
        manners = replace(manners, robots=notice.distance)
    if notice.failed:
        manners = _failed(manners, notice.failed, max(1, plan.backoff.failures), plan.backoff, now)
    if notice.status in REFUSALS and not manners.lost:
        manners = _refused(manners, notice, plan.backoff, now)
    return manners


def pardoned(manners: Manners) -> Manners:
    """A slot that was given up gets a new chance."""
    return Manners(auto=manners.auto, robots=manners.robots) if manners.lost else manners


def _answering(manners: Manners) -> Manners:
    """It answers: it is not left alone for its silence any longer, but still if it asked for it."""
    manners = replace(manners, failures=0, failing_since=0.0, lost=False)
    if manners.reason.startswith(SILENCE):
        manners = replace(manners, holds=0, held_until=0.0, reason="")
    return manners


def _failed(manners: Manners, reason: str, by: int, backoff: Backoff, now: float) -> Manners:
    failures = manners.failures + by
    since = manners.failing_since if manners.failures else now
    manners = replace(manners, failures=failures, failing_since=since)
    if not _is_failing(manners, backoff) or manners.held_until > now:
        return manners  # those that were under way together count once
    lost = now - since >= backoff.patience
    return replace(_held(manners, backoff, f"{SILENCE}{reason}", now), lost=lost)


def _refused(manners: Manners, told: Sample | Notice, backoff: Backoff, now: float) -> Manners:
    if told.retry_after:
        until = now + told.retry_after
        if until <= manners.held_until:
            return manners
        return replace(
            manners, held_until=until, holds=manners.holds + 1, reason=f"{told.status}, Retry-After"
        )
    if manners.held_until > now:
        return manners
    return _held(manners, backoff, str(told.status), now)


def _held(manners: Manners, backoff: Backoff, reason: Reason, now: float) -> Manners:
    # A bounded exponent: a slot may be held for weeks.
    wait = min(backoff.most, backoff.first * 2.0 ** min(manners.holds, 50))
    return replace(manners, held_until=now + wait, holds=manners.holds + 1, reason=reason)


def _throttled(manners: Manners, latency: float, status: int, auto: Auto, rule: Rule) -> Manners:
    """AutoThrottle, as Scrapy's extension has it."""
    old = _auto_delay(manners, auto, rule)
    target = latency / auto.target
    new = max(target, (old + target) / 2.0)
    new = min(max(rule.delay, new), auto.most)
    if status != 200 and new <= old:
        # Error pages come fast; they must not make us faster.
        new = old
    return manners if new == manners.auto else replace(manners, auto=new)


def _auto_delay(manners: Manners, auto: Auto, rule: Rule) -> float:
    return max(rule.delay, auto.start) if manners.auto is None else manners.auto


def _is_failing(manners: Manners, backoff: Backoff) -> bool:
    return 0 < backoff.failures <= manners.failures


def is_probed(manners: Manners, plan: Plan) -> bool:
    """It has not answered lately: one request at a time finds out whether it does again."""
    return _is_failing(manners, plan.backoff) and not manners.lost


def delay_of(manners: Manners, plan: Plan, rule: Rule, override: Override | None) -> float:
    """The distance between requests. What people said goes first; else the longest wish wins."""
    if manners.lost:
        return 0.0
    if override is not None and override.delay is not None:
        return override.delay
    return max(rule.delay, manners.robots, _auto_wish(manners, plan, rule))


def pace_of(manners: Manners, plan: Plan, rule: Rule, override: Override | None) -> float:
    """The least distance between requests. Jitter shortens a delay, but not what robots.txt asks for."""
    least = delay_of(manners, plan, rule, override) * max(0.0, 1 - rule.jitter)
    if manners.lost or (override is not None and override.delay is not None):
        return least
    return max(least, manners.robots)


def concurrency_of(manners: Manners, plan: Plan, rule: Rule, override: Override | None) -> int:
    """How many at a time; 0 when it is blocked."""
    if override is not None and override.blocked:
        return 0
    if is_probed(manners, plan):
        return 1
    return rule.concurrency if override is None or override.concurrency is None else override.concurrency


def leeway_of(pace: float) -> float:
    """How late a paced request may begin. So much longer its slot is reserved, until it is known when it
    began. Where requests follow each other closely, that would be known too late: there is none."""
    return LEEWAY if pace >= WIDE else 0.0


def due_at(manners: Manners, next_at: float) -> float:
    """When it may be asked again; ``next_at`` is when its delay allows it."""
    return 0.0 if manners.lost else max(next_at, manners.held_until)


def loss_of(manners: Manners, plan: Plan) -> Reason:
    """Why its entries are dead; empty if it is not given up."""
    return f"{manners.reason}; given up after {plan.backoff.patience:g} s" if manners.lost else ""


def why_it_waits(
    manners: Manners,
    plan: Plan,
    rule: Rule,
    override: Override | None,
    *,
    waiting: int,
    active: int,
    next_at: float,
    now: float,
) -> Reason:
    """For people: why nothing goes out to it now. Empty if something may, or nothing waits."""
    if override is not None and override.blocked:
        return "blocked"
    if manners.lost:
        return f"given up: {manners.reason}"
    if manners.reason and (manners.held_until > now or is_probed(manners, plan)):
        return manners.reason
    if not waiting:
        return ""
    if active >= concurrency_of(manners, plan, rule, override):
        return "full"
    return _whose_delay(manners, plan, rule, override) if next_at > now else ""


def _whose_delay(manners: Manners, plan: Plan, rule: Rule, override: Override | None) -> Reason:
    if override is not None and override.delay is not None:
        return "delay"
    auto = _auto_wish(manners, plan, rule)
    if manners.robots > rule.delay and manners.robots >= auto:
        return "delay (robots.txt)"
    return "delay (AutoThrottle)" if auto > rule.delay else "delay"


def _auto_wish(manners: Manners, plan: Plan, rule: Rule) -> float:
    return 0.0 if plan.auto is None or rule is UNPACED else _auto_delay(manners, plan.auto, rule)
