"""Any store does what the store in memory does, whatever is done to both."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from scrapy_fleet.errors import CrawlInUse, GivenUp, NoKeys
from scrapy_fleet.model import (
    TASKS,
    Auto,
    Backoff,
    Batch,
    Entry,
    Lease,
    Mode,
    Notice,
    Outcome,
    Override,
    Plan,
    Receipt,
    Rule,
    Sample,
    SeenPlan,
    Start,
    Worker,
)
from scrapy_fleet.store.base import Store
from scrapy_fleet.store.memory import MemoryStore

from .alike import EVERYTHING, alike, look_alike, look_the_same
from .driver import Clock
from .kinds import EXAMPLES, KINDS, MANY_EXAMPLES

SLOTS = ("plain", "narrow", "slow", "uneven", TASKS)
TTL = 20.0
WHOLE_LOOK = 4
"""After so many steps, and at the end, all is looked at; after each, what the next may hide again."""

# Times are binary fractions, so that sums of them are exact in every store.
RULES = (
    {"slow": Rule(delay=0.5), "uneven": Rule(delay=0.25, jitter=0.5), "narrow": Rule(concurrency=1)},
    {"slow": Rule(delay=4.0, concurrency=2), "narrow": Rule(concurrency=2, delay=0.125)},
)
BACKOFF = Backoff(first=2.0, most=16.0, failures=2, patience=64.0)
plans = st.fixed_dictionaries(
    {
        "slots": st.sampled_from(RULES),
        "lifo": st.booleans(),
        "keep_seen": st.booleans(),
        "auto": st.sampled_from((None, None, Auto(start=0.5, most=4.0, target=2.0))),
        "backoff": st.sampled_from((BACKOFF, BACKOFF, Backoff(first=2.0, most=4.0, failures=0))),
    }
)
entries = st.lists(
    st.builds(
        Entry,
        slot=st.sampled_from(SLOTS),
        payload=st.just(b""),
        priority=st.sampled_from((0, 0, 0, 1, -1)),
        key=st.none() | st.integers(0, 40),
        seed=st.booleans(),
    ),
    max_size=8,
)
workers = st.integers(0, 2)
wants = st.sampled_from((0, 1, 2, 5, 50, 50))
fates = st.sampled_from(("keep", "keep", "done", "done", "dead", "sample", "sampled and done", "release"))
endings = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"status": st.sampled_from((200, 200, 404, 500))}),
    st.fixed_dictionaries(
        {"status": st.sampled_from((429, 503)), "retry_after": st.sampled_from((None, None, 0.0, 1.0, 40.0))}
    ),
    st.fixed_dictionaries({"failed": st.sampled_from(("refused", "timed out"))}),
)
"""How a download ended."""
notices = st.builds(
    Notice,
    slot=st.sampled_from((*SLOTS, "never met")),
    distance=st.sampled_from((None, None, 0.0, 0.5, 3.0)),
    failed=st.sampled_from(("", "", "robots.txt: 503")),
    status=st.sampled_from((None, None, 200, 429, 503)),
    retry_after=st.sampled_from((None, None, 0.0, 1.0, 40.0)),
)
overrides = st.none() | st.builds(
    Override,
    delay=st.sampled_from((None, None, 0.0, 0.25, 2.0)),
    concurrency=st.sampled_from((None, None, 1, 5)),
    blocked=st.sampled_from((False, False, False, True)),
    boost=st.sampled_from((0, 0, 1, -1)),
)


class Driver:
    """One of the workers that are played: who it is now, and what it believes it holds."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.life = 0
        self.last: Batch | None = None
        self.held: list[int] = []
        self.spare: dict[int, str] = {}
        """The slots of those that had no room when they came."""
        self.slots: dict[int, str] = {}
        self.there = False

    @property
    def id(self) -> str:
        return f"w{self.number}.{self.life}"


class StoreMachine(RuleBasedStateMachine):
    kind = "memory"
    seen = SeenPlan()

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        open_store = KINDS[self.kind](Path(self.folder.name))
        # One handle per worker and one for observers; they share the chance that spreads requests.
        chance = Random(1)
        self.stores = [open_store("c", self.clock, chance) for _ in range(4)]
        self.memory = MemoryStore("c", clock=self.clock, random=Random(1))
        self.drivers = [Driver(number) for number in range(3)]
        self.names = iter(range(10**9))
        self.stale: list[int] = []
        self.max_attempts = 3
        self.steps = 0

    def teardown(self) -> None:
        if sys.exception() is None:
            look_the_same(self.memory, self.stores[3], SLOTS)
        for store in self.stores:
            store.close()
        self.folder.cleanup()

    def both(self, store: Store, call: Callable[[Store], Any]) -> Any:
        """Do it to both and compare the answers; None if it was refused, as to a worker that was given up."""
        answers: list[Any] = []
        for each in (self.memory, store):
            try:
                answers.append(call(each))
            except (CrawlInUse, GivenUp, NoKeys) as error:
                answers.append(type(error))
        alike(*answers)
        return None if isinstance(answers[0], type) else answers[0]

    def commit(self, driver: Driver, batch: Batch) -> Any:
        receipt = self.both(self.stores[driver.number], lambda store: store.commit(batch))
        driver.last = batch
        if receipt is None or batch.leave:
            self.gone(driver)
        else:
            self.keep(driver, receipt)
        return receipt

    def next(self, driver: Driver, **fields: Any) -> Any:
        return self.commit(driver, Batch(worker=driver.id, seq=self.seq(driver), **fields))

    def keep(self, driver: Driver, receipt: Receipt) -> None:
        for lease in receipt.leases:
            if lease.token not in driver.held:
                driver.held.append(lease.token)
                driver.slots[lease.token] = lease.slot
                if lease.spare:
                    driver.spare[lease.token] = lease.slot
        self.check_room(receipt.leases)

    def check_room(self, leases: tuple[Lease, ...]) -> None:
        """Whatever was handed out, no slot has more downloads than it may have."""
        names = {lease.slot for lease in leases if not lease.spare}
        if names:
            concurrency = {view.name: view.concurrency for view in self.stores[3].snapshot().slots}
        for name in names:
            slot = self.memory._slots[name]
            members = self.memory._members.values()
            running = [hold for member in members for hold in member.holds.values() if hold.running]
            assert slot.active == sum(hold.slot is slot for hold in running)
            assert slot.active <= concurrency[name]

    def gone(self, driver: Driver) -> None:
        self.stale += driver.held
        driver.held = []
        driver.spare, driver.slots = {}, {}
        driver.there = False

    def seq(self, driver: Driver) -> int:
        return driver.last.seq + 1 if driver.last else 1

    def join(self, driver: Driver, plan: dict[str, Any]) -> None:
        whole = Plan(rule=Rule(concurrency=3), max_attempts=self.max_attempts, seen=self.seen, **plan)
        worker = Worker(driver.id, "host", driver.number)
        self.both(self.stores[driver.number], lambda store: store.join(worker, whole, TTL))

    def present(self, number: int) -> Driver:
        """A worker that is there, as far as it knows; it comes (back) if need be."""
        driver = self.drivers[number]
        if not driver.there:
            driver.life += 1
            driver.last = None
            driver.there = True
            self.join(driver, {"slots": RULES[0], "lifo": True})
        return driver

    def named(self, adds: list[Entry]) -> tuple[Entry, ...]:
        return tuple(msgspec.structs.replace(entry, payload=b"%d" % next(self.names)) for entry in adds)

    @initialize(max_attempts=st.integers(1, 3), plan=plans, adds=entries)
    def begin(self, max_attempts: int, plan: dict[str, Any], adds: list[Entry]) -> None:
        self.max_attempts = max_attempts
        driver = self.present(0)
        self.join(driver, plan)
        self.commit(driver, Batch(worker=driver.id, seq=1, adds=self.named(adds)))

    @rule(worker=workers, plan=plans)
    def join_again(self, worker: int, plan: dict[str, Any]) -> None:
        self.join(self.present(worker), plan)

    @rule(worker=workers, adds=entries, want=wants)
    def work(self, worker: int, adds: list[Entry], want: int) -> None:
        driver = self.present(worker)
        self.next(driver, adds=self.named(adds), want=want)

    @rule(adds=entries, marks=st.lists(st.integers(0, 60), max_size=2))
    def push(self, adds: list[Entry], marks: list[int]) -> None:
        some, keys = self.named(adds), tuple(marks)
        if self.seen.kind != "exact":  # a crawl that was cleared would get that one
            self.both(self.stores[3], lambda store: store.use_seen(self.seen))
        self.both(self.stores[3], lambda store: store.push(some, keys))
        self.both(self.stores[3], lambda store: store.waiting(TASKS))

    @rule(worker=workers, want=wants)
    def lease(self, worker: int, want: int) -> None:
        driver = self.present(worker)
        self.next(driver, want=want)

    @rule(
        worker=workers,
        data=st.data(),
        adds=entries,
        want=wants,
        seeded=st.sampled_from((False, False, False, True)),
        late=st.sampled_from((None, 0.0, 0.25, 3.0)),
        latency=st.sampled_from((None, 0.25, 1.0, 2.5)),
        told=st.lists(notices, max_size=1),
        leave=st.sampled_from((False, False, False, True)),
        finish=st.booleans(),
    )
    def outcomes(
        self,
        worker: int,
        data: st.DataObject,
        adds: list[Entry],
        want: int,
        seeded: bool,
        late: float | None,
        latency: float | None,
        told: list[Notice],
        leave: bool,
        finish: bool,
    ) -> None:
        """What a worker does most: settle some of what it holds, in any way, and ask for more."""
        driver = self.present(worker)
        fate = {token: data.draw(fates) for token in driver.held}
        if self.stale:
            fate.setdefault(data.draw(st.sampled_from(self.stale)), data.draw(fates))
        done = [token for token, what in fate.items() if what in ("done", "sampled and done")]
        dead = [token for token, what in fate.items() if what == "dead"]
        release = [token for token, what in fate.items() if what == "release"]
        batch = Batch(
            worker=driver.id,
            seq=self.seq(driver),
            adds=self.named(adds),
            starts=tuple(Start(token, late) for token in (*fate, *self.stale[-2:]) if late is not None),
            samples=tuple(
                Sample(token, latency, then=self.heir(driver, token, data), **data.draw(endings))
                for token, what in fate.items()
                if what in ("sample", "sampled and done")
            ),
            notices=tuple(told),
            outcomes=(
                *(Outcome(token, items=(b"of %d" % token,)) for token in done),
                *(Outcome(token, "told to") for token in dead),
            ),
            releases=tuple(release),
            items=(b"%d" % next(self.names),),
            marks=(worker, 41 + worker),
            stats={"batches": 1.0, f"of {worker}": 0.5},
            state={"last": b"%d" % worker, f"of {worker}": None if want else b"x"},
            seeded=seeded,
            want=want,
            leave=leave,
            finish=finish,
        )
        ended = {*done, *dead, *release}
        self.stale += [token for token in driver.held if token in ended]
        driver.held = [token for token in driver.held if token not in ended]
        self.commit(driver, batch)

    def heir(self, driver: Driver, token: int, data: st.DataObject) -> int | None:
        """Most often a spare of the same slot; now and then anything."""
        fitting = [spare for spare, slot in driver.spare.items() if slot == driver.slots.get(token)]
        choice = data.draw(st.sampled_from(("none", "fitting", "fitting", "any")))
        if choice == "fitting" and fitting:
            driver.spare.pop(fitting[0])
            return fitting[0]
        return data.draw(st.sampled_from(driver.held)) if choice == "any" and driver.held else None

    @rule(worker=workers, want=wants)
    def hand_rooms_on(self, worker: int, want: int) -> None:
        """All downloads end well, and their rooms go to spares."""
        driver = self.present(worker)
        samples, outcomes = [], []
        for token in [token for token in driver.held if token not in driver.spare]:
            fitting = [spare for spare, slot in driver.spare.items() if slot == driver.slots[token]]
            heir = fitting[0] if fitting else None
            driver.spare.pop(heir, None)  # type: ignore[arg-type]
            samples.append(Sample(token, 0.5, 200, then=heir))
            outcomes.append(Outcome(token))
            driver.held.remove(token)
            self.stale.append(token)
        self.next(driver, samples=tuple(samples), outcomes=tuple(outcomes), want=want)

    @rule(worker=workers, ending=endings, latency=st.sampled_from((None, 0.25, 2.5)), want=wants)
    def download(self, worker: int, ending: dict[str, Any], latency: float | None, want: int) -> None:
        """All that a worker has ends in the same way: the site is down, or up again."""
        driver = self.present(worker)
        samples = tuple(Sample(token, latency, **ending) for token in driver.held)
        releases = tuple(driver.held) if "failed" in ending else ()
        if releases:
            self.stale, driver.held = self.stale + driver.held, []
        seq = self.seq(driver)
        self.commit(driver, Batch(worker=driver.id, seq=seq, samples=samples, releases=releases, want=want))

    @rule(worker=workers, slot=st.sampled_from(SLOTS), want=st.sampled_from((5, 50)))
    def crowd(self, worker: int, slot: str, want: int) -> None:
        """More of one slot than it has room for: there are spares."""
        driver = self.present(worker)
        self.next(driver, adds=self.named([Entry(slot=slot, payload=b"")] * 8), want=want)

    @rule(
        worker=workers,
        slot=st.sampled_from(SLOTS),
        rounds=st.integers(1, 6),
        status=st.sampled_from((None, None, 200, 429)),
    )
    def silence(self, worker: int, slot: str, rounds: int, status: int | None) -> None:
        """A site gives no answer for some time, to no probe; then perhaps it does."""
        driver = self.present(worker)
        self.next(
            driver, adds=self.named([Entry(slot=slot, payload=b"")] * 2), notices=(Notice(slot, None, "x"),)
        )
        for _ in range(rounds):
            self.clock.advance(16.0)
            receipt = self.next(driver, want=5)
            if receipt is None:
                return
            tokens = tuple(lease.token for lease in receipt.leases if lease.slot == slot)
            samples = tuple(Sample(token, failed=f"{slot} is down") for token in tokens)
            driver.held = [token for token in driver.held if token not in tokens]
            self.stale += tokens
            self.next(driver, samples=samples, releases=tokens)
        if status is not None and driver.there:
            self.clock.advance(16.0)
            receipt = self.next(driver, want=5)
            tokens = tuple(lease.token for lease in receipt.leases) if receipt else ()
            self.next(driver, samples=tuple(Sample(token, 0.5, status) for token in tokens), want=5)

    @rule(slot=st.sampled_from((*SLOTS, "never met")), override=overrides)
    def override(self, slot: str, override: Override | None) -> None:
        self.both(self.stores[3], lambda store: store.override(slot, override))

    @rule(
        name=st.sampled_from(("one", "two")),
        worker=workers,
        max_age=st.sampled_from((1.0, 100.0)),
        written=st.booleans(),
    )
    def paper(self, name: str, worker: int, max_age: float, written: bool) -> None:
        store = self.stores[worker]
        self.both(store, lambda store: store.paper(name, f"w{worker}", max_age, 3.0))
        if written:
            self.both(store, lambda store: store.write_paper(name, b"by %d" % worker))

    @rule(verb=st.sampled_from(("mark", "forget")), keys=st.lists(st.integers(0, 60), max_size=6))
    def tell_of_keys(self, verb: str, keys: list[int]) -> None:
        self.both(self.stores[3], lambda store: store.use_seen(self.seen))
        self.both(self.stores[3], lambda store: getattr(store, verb)(tuple(keys)))

    @rule(worker=workers, back=st.sampled_from((0, 0, 1)))
    def repeat(self, worker: int, back: int) -> None:
        """The answer to a batch was lost."""
        driver = self.drivers[worker]
        if driver.there and driver.last is not None:
            batch = msgspec.structs.replace(driver.last, seq=driver.last.seq - back)
            receipt = self.both(self.stores[worker], lambda store: store.commit(batch))
            if receipt is None:
                self.gone(driver)

    @rule(worker=workers)
    def beat(self, worker: int) -> None:
        driver = self.present(worker)
        if self.both(self.stores[worker], lambda store: store.beat(driver.id)) is None:
            self.gone(driver)

    @rule(worker=workers)
    def crash(self, worker: int) -> None:
        """The process is gone; the store learns of it later, if at all."""
        self.gone(self.drivers[worker])

    @rule(lost=st.sets(workers, max_size=2))
    def give_up(self, lost: set[int]) -> None:
        """Workers that may well be alive are given up: they learn of it at their next call."""
        ids = tuple(self.drivers[number].id for number in lost)
        self.both(self.stores[3], lambda store: store.give_up(ids))

    @rule(worker=workers)
    def kill_what_holds(self, worker: int) -> None:
        """A worker takes what it can get, and dies."""
        driver = self.present(worker)
        self.next(driver, want=5)
        self.both(self.stores[3], lambda store: store.give_up((driver.id,)))
        self.gone(driver)

    @rule(seconds=st.sampled_from((0.125, 0.25, 0.5, 1.0, 3.0, 10.0, 31.0, 500.0)))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(mode=st.sampled_from(("run", "run", "run", "pause", "stop")))
    def control(self, mode: Mode) -> None:
        self.both(self.stores[3], lambda store: store.control(mode))

    @rule(later=st.sampled_from((0.0, 0.0, 0.0, 2 * TTL)))
    def clear(self, later: float) -> None:
        """Refused while any worker lives; after a long silence all is forgotten."""
        self.clock.advance(later)
        self.both(self.stores[3], lambda store: store.clear())

    @rule(verb=st.sampled_from(("requeue", "drop")), which=st.none() | st.sets(st.integers(0, 9), max_size=3))
    def mend(self, verb: str, which: set[int] | None) -> None:
        def call(store: Store) -> int:
            dead = [row.id for row in store.scan("dead", limit=EVERYTHING)]
            ids = None if which is None else tuple(dead[n] for n in which if n < len(dead))
            return store.requeue(ids) if verb == "requeue" else store.drop(ids)

        self.both(self.stores[3], call)

    @rule(worker=workers, then=st.sampled_from(("stay", "finish", "finish", "begin anew", "begin anew")))
    def do_all_that_is_left(self, worker: int, then: str) -> None:
        """One worker ends the crawl while another looks on, or begins it anew."""
        driver = self.present(worker)
        others = tuple(each for each in self.drivers if each is not driver)
        self.both(self.stores[3], lambda store: store.give_up(tuple(each.id for each in others)))
        for other in others:
            self.gone(other)
        watcher = self.present(others[0].number)
        self.control("run")
        for slot in SLOTS:
            self.override(slot, None)
        for _ in range(100):
            outcomes = tuple(Outcome(token) for token in driver.held)
            self.stale, driver.held = self.stale + driver.held, []
            receipt = self.next(driver, outcomes=outcomes, seeded=True, want=50)
            if receipt is None or not receipt.counts.open:
                break
            self.clock.advance(4.0)
        if driver.there and then != "stay":
            self.next(driver, leave=True, finish=True)
            if then == "begin anew":
                self.join_again(watcher.number, {"slots": RULES[1], "lifo": True, "keep_seen": bool(worker)})

    @invariant()
    def both_look_the_same(self) -> None:
        self.steps += 1
        if self.steps % WHOLE_LOOK == 0:
            look_the_same(self.memory, self.stores[3], SLOTS)
        else:
            look_alike(self.memory, self.stores[3])


def test_does_what_memory_does(store_kind: str) -> None:
    if store_kind == "memory":
        pytest.skip("it is what the others are compared with")
    run(store_kind, EXAMPLES.get(store_kind, MANY_EXAMPLES))


FILTERS = {
    "bloom": SeenPlan("bloom", capacity=5, error=0.2),
    "rolling": SeenPlan("rolling", window=12.0, hot=2),
    "off": SeenPlan("off"),
}


@pytest.mark.parametrize("name", FILTERS)
def test_does_what_memory_does_with_each_filter(store_kind: str, name: str) -> None:
    if store_kind not in ("sqlite", "valkey"):
        pytest.skip("test_seen.py compares filters with memory on every kind, for less")
    run(store_kind, 6, FILTERS[name])


def run(store_kind: str, examples: int, seen: SeenPlan = StoreMachine.seen) -> None:
    machine = type("Machine", (StoreMachine,), {"kind": store_kind, "seen": seen})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
