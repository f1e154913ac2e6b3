"""The rules of politeness that the scripts of the Redis store have are those of politeness.py."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from importlib.resources import files

import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scrapy_fleet import politeness
from scrapy_fleet.model import Auto, Backoff, Batch, Entry, Notice, Override, Plan, Rule, Sample, Worker
from scrapy_fleet.politeness import Manners
from scrapy_fleet.store.base import MAX_WANT
from scrapy_fleet.store.redis import RedisStore, packing
from tests.servers import required, shared_server, valkey_binary

Event = Sample | Notice | None
"""None: the slot is pardoned."""
History = list[tuple[float, Event]]
"""Seconds since the event before, and what happened."""

# One slot goes through a history. For each event: what its manners are then, and how it is treated.
DRIVER = """
crawl.auto, crawl.policy = tonumber(ARGV[3]), ARGV[4]
local rules = polite()
local slot = {name = 'a', next_at = 0, override = ARGV[6] ~= '' and rules.read_override(ARGV[6]) or nil}
slot.rule_concurrency, slot.rule_delay, slot.jitter = unpack_struct('<ddd', ARGV[5])
local told, at = {}, 1
while at <= #ARGV[7] do
  local seconds, kind
  seconds, kind, at = unpack_struct('<dc1', ARGV[7], at)
  now = now + seconds
  local held = crawl.held
  if kind == 's' then
    local token, heir, latency, status, more
    local retry_after, failed = 0, ''
    token, heir, latency, status, more, at = unpack_struct('<dddHB', ARGV[7], at)
    if more == 1 then retry_after, failed, at = unpack_struct('<dHc0', ARGV[7], at) end
    rules.learn(slot, rules.sampled, latency, status, retry_after, failed, rules.least_delay(slot))
  elseif kind == 'n' then
    local name, distance, failed, status, retry_after
    name, distance, failed, status, retry_after, at = unpack_struct('<Hc0dHc0Hd', ARGV[7], at)
    rules.learn(slot, rules.noticed, distance, failed, status, retry_after)
  else
    rules.learn(slot, rules.pardon)
  end
  local m = slot.manners
  local numbers = pack('<ddddd', slot.delay, slot.concurrency, rules.pace_of(slot), due_at(slot),
    slot.boost or 0)
  told[#told + 1] = {rules.write(m), numbers, rules.is_probed(m) and 1 or 0, rules.loss_of(m),
    crawl.held > held and 1 or 0}
end
return told
"""


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    server = shared_server(required(valkey_binary()))
    with redis.Redis.from_url(server.url) as client:
        yield client


def script() -> str:
    folder = files("scrapy_fleet.store.redis").joinpath("lua", "shared")
    parts = [folder.joinpath(name).read_text(encoding="utf-8") for name in ("crawl.lua", "politeness.lua")]
    return "\n".join([*parts, DRIVER])


SCRIPT = script()

seconds = st.floats(0, 1e6) | st.sampled_from((0.0, 0.5, 1.0, 5.0, 10.0, 60.0))
words = st.sampled_from(("refused", "timed out", "no such host: \u00e9", "x" * 300))
plans = st.builds(
    Plan,
    rule=st.builds(
        Rule,
        delay=st.floats(0, 100) | st.just(0.0),
        concurrency=st.integers(1, 100),
        jitter=st.floats(0, 1) | st.just(0.0),
    ),
    auto=st.none() | st.builds(Auto, start=seconds, most=seconds, target=st.floats(0.01, 100)),
    backoff=st.builds(
        Backoff, first=st.floats(0, 100), most=seconds, failures=st.integers(0, 3), patience=seconds
    ),
)
overrides = st.builds(
    Override,
    delay=st.none() | st.floats(0, 100),
    concurrency=st.none() | st.integers(1, 100),
    blocked=st.booleans(),
    boost=st.integers(-1000, 1000),
)
statuses = st.sampled_from((None, 200, 200, 204, 301, 404, 429, 429, 500, 502, 503, 503, 599, 999))
samples = st.builds(
    Sample,
    token=st.just(1),
    latency=st.none() | st.floats(0, 1000),
    status=statuses,
    retry_after=st.none() | seconds,
    failed=st.just("") | words,
)
answers = st.builds(Sample, token=st.just(1), latency=st.floats(0, 10), status=statuses)
failures = st.builds(Sample, token=st.just(1), failed=words)
notices = st.builds(
    Notice,
    slot=st.just("a"),
    distance=st.none() | st.floats(0, 100),
    failed=st.just("") | words,
    status=statuses,
    retry_after=st.none() | seconds,
)
events = st.one_of(answers, failures, samples, notices, st.none())
histories = st.lists(
    st.tuples(st.sampled_from((0.0, 0.25, 1.0, 4.0, 6.0, 700.0)) | seconds, events), max_size=30
)


def packed(history: History) -> bytes:
    parts: list[bytes] = []
    for later, event in history:
        kind = b"s" if isinstance(event, Sample) else b"n" if isinstance(event, Notice) else b"p"
        parts += (struct.pack("<d", later), kind)
        if isinstance(event, Sample):
            parts.append(packing.samples([event]))
        elif isinstance(event, Notice):
            parts.append(packing.notices([event]))
    return b"".join(parts)


def after(manners: Manners, event: Event, plan: Plan, now: float) -> Manners:
    if isinstance(event, Sample):
        return politeness.sampled(manners, event, plan, plan.rule, now)
    if isinstance(event, Notice):
        return politeness.noticed(manners, event, plan, now)
    return politeness.pardoned(manners)


KEEPS_FAILING: History = [(400.0, Sample(1, failed="refused"))] * 12
ASKS_FOR_PATIENCE: History = [
    (0.25, Sample(1, 0.5, 503, 20.0)),
    (1.0, Sample(1, 0.5, 429)),
    (60.0, Sample(1, 0.1, 200)),
]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=plans, override=st.none() | overrides, history=histories)
@example(Plan(backoff=Backoff(failures=2)), None, KEEPS_FAILING)
@example(Plan(backoff=Backoff(failures=2)), None, [*KEEPS_FAILING, (0.0, None), *ASKS_FOR_PATIENCE])
@example(Plan(auto=Auto()), Override(boost=1), [*ASKS_FOR_PATIENCE, *KEEPS_FAILING, *ASKS_FOR_PATIENCE])
def test_the_scripts_have_the_rules_of_politeness(
    client: redis.Redis, plan: Plan, override: Override | None, history: History
) -> None:
    now, rule = 1000.0, plan.rule
    told = client.eval(
        SCRIPT,
        1,
        "fleet:{politeness}:meta",
        *(repr(now), ""),
        *(int(plan.auto is not None), packing.policy(plan)),
        *(packing.doubles([rule.concurrency, rule.delay, rule.jitter]), packing.override(override)),
        packed(history),
    )
    manners = Manners()
    for (later, event), (kept, numbers, probed, loss, announced) in zip(history, told, strict=True):
        now += later
        before, manners = manners, after(manners, event, plan, now)
        assert packing.read_manners(kept) == manners
        assert struct.unpack("<ddddd", numbers) == (
            politeness.delay_of(manners, plan, rule, override),
            politeness.concurrency_of(manners, plan, rule, override),
            politeness.pace_of(manners, plan, rule, override),
            politeness.due_at(manners, 0.0),
            override.boost if override else 0,
        )
        assert bool(probed) == politeness.is_probed(manners, plan)
        assert packing.text(loss) == politeness.loss_of(manners, plan)
        assert bool(announced) == (manners.held_until > before.held_until)
        assert packing.read_override(packing.override(override)) == override


@given(plan=plans)
def test_a_plan_comes_back_as_it_was(plan: Plan) -> None:
    read = packing.read_policy(int(plan.auto is not None), packing.policy(plan))
    assert (read.auto, read.backoff) == (plan.auto, plan.backoff)


# What is kept


@pytest.fixture
def store(client: redis.Redis) -> Iterator[RedisStore]:
    store = RedisStore(shared_server(required(valkey_binary())).url, uuid.uuid4().hex)
    store.join(Worker("w"), Plan(rule=Rule(concurrency=1000)), 60)
    yield store
    store.close()


def record(store: RedisStore, client: redis.Redis) -> bytes:
    found = client.hget(f"{packing.prefix(store.snapshot().crawl)}slots", "a")
    assert isinstance(found, bytes)
    return found


def test_only_slots_that_misbehave_have_manners(store: RedisStore, client: redis.Redis) -> None:
    adds = tuple(Entry("a", b"x") for _ in range(9))
    leases = store.commit(Batch(worker="w", seq=1, adds=adds, want=4)).leases
    plain = len(record(store, client))
    store.commit(Batch(worker="w", seq=2, samples=(Sample(leases[0].token, 0.5, 200),)))
    assert len(record(store, client)) == plain
    store.commit(Batch(worker="w", seq=3, samples=(Sample(leases[1].token, failed="refused"),)))
    assert len(record(store, client)) > plain
    store.commit(Batch(worker="w", seq=4, samples=(Sample(leases[2].token, 0.5, 404),)))
    assert len(record(store, client)) == plain


def test_what_all_workers_have_heard_of_is_forgotten(store: RedisStore, client: redis.Redis) -> None:
    store.join(Worker("other"), Plan(rule=Rule(concurrency=1000)), 60)
    names = [f"host{n}" for n in range(1200)]
    adds = tuple(Entry(name, b"x") for name in names)
    store.commit(Batch(worker="other", seq=1, adds=adds))
    seqs = range(2, 2 + 1200 // MAX_WANT + 1)
    leased = [store.commit(Batch(worker="other", seq=seq, want=MAX_WANT)).leases for seq in seqs]
    assert sum(map(len, leased)) == 1200
    last = seqs[-1]
    store.commit(Batch(worker="w", seq=1, notices=tuple(Notice(name, 1.0) for name in names)))
    key = f"{packing.prefix(store.snapshot().crawl)}held"
    store.beat("w")
    assert client.zcard(key) == 1200
    assert store.commit(Batch(worker="other", seq=last + 1)).held == tuple(sorted(names))
    assert store.commit(Batch(worker="other", seq=last + 1)).held == tuple(sorted(names))
    for seq in (last + 2, last + 3):
        store.commit(Batch(worker="other", seq=seq))
        store.commit(Batch(worker="w", seq=seq))
    store.beat("w")
    assert client.zcard(key) == 0
