"""The frozen values that travel between Scrapy's side, the frontier and a store."""

from __future__ import annotations

import enum
from typing import Literal

from msgspec import Struct

from scrapy_fleet.sharing import Beside as Beside
from scrapy_fleet.sharing import ItemGroup as ItemGroup
from scrapy_fleet.sharing import Paper as Paper


class Entry(Struct, frozen=True, gc=False):
    """A request as a store keeps it.

    ``key`` is what "seen" means: an entry whose key the crawl has met is not queued again. It fits
    into 64 bits, with its sign.
    Without a key the entry is never filtered (``dont_filter``).
    """

    slot: str
    payload: bytes
    priority: int = 0
    key: int | None = None
    seed: bool = False

    @property
    def rank(self) -> int:
        """Sort key inside a slot, smallest first: by priority, seeds after others."""
        return -2 * self.priority + self.seed


class Lease(Struct, frozen=True, gc=False):
    """An entry handed to one worker, until it is settled, released or the worker is given up."""

    token: int
    slot: str
    payload: bytes
    priority: int
    seed: bool
    attempts: int
    """How many workers died holding this entry."""
    delay: float
    """Seconds from now until it may run; below 0 if its time has passed, in an answer that is given again."""
    alone: bool = False
    """Its earlier holders died: this worker gets nothing else while it runs."""
    pace: float = 0.0
    """The least distance of its slot's requests, in seconds (its delay, less jitter); 0: none. A lease
    that could not run at its time is not to be run late, but to be handed back."""
    spare: bool = False
    """It has no room of its own: it may run when another download of this worker in its slot has ended,
    whose room goes over to it (``Sample.then``)."""
    probe: bool = False
    """Its slot has not answered lately; this one finds out whether it does again."""
    lost: str = ""
    """Why nothing of its slot is to be fetched any more: it is to be settled as dead, with this reason."""

    @property
    def rank(self) -> int:
        return -2 * self.priority + self.seed


class Start(Struct, frozen=True, gc=False):
    """The download of a lease has begun, so many seconds after its time."""

    token: int
    late: float


class Sample(Struct, frozen=True, gc=False):
    """The download of a lease is over: its slot has room again, whatever happens to the response."""

    token: int
    latency: float | None = None
    status: int | None = None
    """None: no response came, for a reason that says nothing about the site."""
    retry_after: float | None = None
    """Seconds for which the site asked to be left alone."""
    failed: str = ""
    """Why the site gave no answer at all: refused, not found, timed out."""
    then: int | None = None
    """The spare lease that runs in its room."""


class Notice(Struct, frozen=True, gc=False):
    """What was learnt about a slot otherwise than by a lease. Of answers, only refusals (429, 503) count."""

    slot: str
    distance: float | None = None
    """The least distance between requests, in seconds, that the site's robots.txt asks for; 0: none."""
    failed: str = ""
    """Why the slot is to be left alone for now, as if it did not answer."""
    status: int | None = None
    retry_after: float | None = None


class Outcome(Struct, frozen=True, gc=False):
    """What came of a lease. ``dead`` is the reason why the entry was given up, if it was."""

    token: int
    dead: str | None = None
    items: tuple[bytes, ...] = ()
    beside: tuple[Beside, ...] = ()


class Batch(Struct, frozen=True, kw_only=True):
    """One commit. Everything in it takes effect together or not at all.

    ``seq`` numbers a worker's batches: a batch sent again under the number it had
    (its answer was lost) changes nothing and brings the same leases.
    """

    worker: str
    seq: int
    adds: tuple[Entry, ...] = ()
    starts: tuple[Start, ...] = ()
    samples: tuple[Sample, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    releases: tuple[int, ...] = ()
    """Tokens handed back unstarted."""
    items: tuple[bytes, ...] = ()
    """Items without a parent; those with one travel in its outcome."""
    beside: tuple[Beside, ...] = ()
    """The same, for what is written beside the crawl."""
    notices: tuple[Notice, ...] = ()
    marks: tuple[int, ...] = ()
    """Keys to mark as seen without queueing anything: requests that ran from memory."""
    stats: dict[str, float] = {}
    """Counters to add to the crawl's."""
    state: dict[str, bytes | None] = {}
    """Changed keys of ``spider.state``; None removes a key."""
    seeded: bool = False
    """All seeds are in this batch or in earlier ones."""
    want: int = 0
    """How many leases to bring back at most."""
    leave: bool = False
    """The worker's last batch: whatever it still holds goes back."""
    finish: bool = False
    """With ``leave``: the crawl has ended, if nothing is left of it."""


class Seeding(enum.Enum):
    """Who runs the seeds of this crawl, seen from one worker."""

    MINE = "mine"
    OTHER = "other"
    DONE = "done"


class Counts(Struct, frozen=True):
    """``waiting + leased + done + dead == accepted``, at every moment."""

    accepted: int = 0
    waiting: int = 0
    leased: int = 0
    done: int = 0
    dead: int = 0
    feeding: int = 0
    """Producers that hold the crawl open, though nothing may be left of it."""

    @property
    def open(self) -> int:
        """What still has to be done."""
        return self.waiting + self.leased


Mode = Literal["run", "pause", "stop"]
"""What the fleet is told to do: to run, to hold until it is told to run again, or to end."""


class Receipt(Struct, frozen=True):
    """What the store answers to a commit."""

    counts: Counts
    seeding: Seeding
    leases: tuple[Lease, ...] = ()
    known: tuple[int, ...] = ()
    """Positions in ``batch.adds`` of what had been seen before."""
    retry_in: float | None = None
    """Seconds until a waiting slot may be asked again; None when no slot waits for its time."""
    mode: Mode = "run"
    held: tuple[str, ...] = ()
    """Slots in which this worker has leases and that, since its last answer, were blocked, slowed down, or
    asked to be left alone: what it has not started in them goes back."""


class Beat(Struct, frozen=True):
    """What the store answers to a heartbeat."""

    counts: Counts
    seeding: Seeding
    reaped: int = 0
    """Leases that came back from workers that fell silent."""
    mode: Mode = "run"
    workers: int = 1
    """How many are in the crawl."""


class Rule(Struct, frozen=True):
    """How a slot is treated by the whole crawl."""

    delay: float = 0.0
    concurrency: int = 8
    jitter: float = 0.0


TASKS = "(tasks)"
"""The slot of tasks: they ask nothing of any site, and are handed out without pacing."""
UNPACED = Rule(concurrency=1 << 30)
"""Its rule, whatever the plan says; AutoThrottle passes it over."""


class Auto(Struct, frozen=True):
    """AutoThrottle: a slot's delay follows its latency, between its rule's delay and ``most``."""

    start: float = 5.0
    most: float = 60.0
    target: float = 1.0
    """How many requests the site should have in hand at a time, of the whole fleet."""


class Backoff(Struct, frozen=True):
    """How long a slot is left alone that refuses (429, 503) or does not answer: twice as long every time."""

    first: float = 5.0
    most: float = 600.0
    failures: int = 10
    """From so many downloads without an answer, in a row, on a slot is only probed; 0: never."""
    patience: float = 3600.0
    """A slot that has not answered for so many seconds is given up: what waits for it ends as dead."""


class Override(Struct, frozen=True):
    """What people told the fleet about one slot. It goes before the plan, until it is taken back."""

    delay: float | None = None
    concurrency: int | None = None
    blocked: bool = False
    boost: int = 0
    """Added to the priority of all its entries, when it is chosen among slots."""


SeenKind = Literal["exact", "bloom", "rolling", "off"]


class SeenPlan(Struct, frozen=True):
    """How a crawl knows what it has met: see :mod:`scrapy_fleet.seen`. It is settled when a crawl begins."""

    kind: SeenKind = "exact"
    capacity: int = 1_000_000
    """How many keys are expected. A Bloom filter is made for so many, and grows by layers."""
    error: float = 0.001
    """Bloom: how likely a new key may be taken for a known one, at most."""
    window: float = 7 * 86400.0
    """Rolling: a key is forgotten when it has not been met for so many seconds."""
    hot: int = 1
    """Rolling: what is met again and again is kept for so many windows."""


class Plan(Struct, frozen=True, kw_only=True):
    """How a crawl is run. Every worker brings the same; the newest to join is believed."""

    rule: Rule = Rule()
    slots: dict[str, Rule] = {}
    auto: Auto | None = None
    backoff: Backoff = Backoff()
    lifo: bool = True
    max_attempts: int = 5
    keep_seen: bool = False
    """A finished crawl that is started again keeps what it has seen. (A rolling filter is always kept.)"""
    seen: SeenPlan = SeenPlan()

    @property
    def forgets(self) -> bool:
        """Whether a new run begins with nothing seen."""
        return not self.keep_seen and self.seen.kind != "rolling"

    def rule_of(self, slot: str) -> Rule:
        return UNPACED if slot == TASKS else self.slots.get(slot, self.rule)

    @property
    def suspect_after(self) -> int:
        """From how many crashes on an entry is run alone."""
        return max(1, min(2, self.max_attempts - 1))


class Worker(Struct, frozen=True):
    """One Scrapy process (or one of several crawlers in it), as the others see it.

    ``home`` and ``birth`` tell whether its process is still there, when asked on its own machine.
    """

    id: str
    host: str = ""
    pid: int = 0
    home: str = ""
    birth: str = ""


class Joined(Struct, frozen=True):
    """What a worker learns when it joins a crawl."""

    run: int
    """Counts how often the crawl was begun anew."""
    resumed: bool
    counts: Counts
    seeding: Seeding
    state: dict[str, bytes] = {}
    others: tuple[Worker, ...] = ()
    mode: Mode = "run"


class SlotView(Struct, frozen=True):
    name: str
    waiting: int
    leased: int
    done: int
    delay: float
    concurrency: int
    latency: float | None
    next_in: float
    """Seconds until its next request may go out."""
    reason: str = ""
    """Why it waits, if it does: ``blocked``, what politeness.py says of it, ``delay`` or ``full``."""
    robots: float = 0.0
    """The distance that its robots.txt asks for."""
    override: Override | None = None


class WorkerView(Struct, frozen=True):
    id: str
    host: str
    pid: int
    leased: int
    age: float
    deadline_in: float


Status = Literal["new", "seeding", "running", "paused", "stopping", "finished", "stopped"]


class Snapshot(Struct, frozen=True):
    """All that an observer reads."""

    crawl: str
    run: int
    status: Status
    """``stopped``: it is not finished, and no worker has been heard of lately. A store does not say
    ``paused`` and ``stopping``: they are for people, who look at the mode as well."""
    counts: Counts
    seen: int
    items: int
    """How many were ever kept, in all runs; also those that have been removed."""
    slot_count: int
    slots: tuple[SlotView, ...]
    """The ones with most waiting, first."""
    workers: tuple[WorkerView, ...]
    stats: dict[str, float]
    mode: Mode = "run"


class SeenView(Struct, frozen=True):
    """What a crawl has met, and what it costs to know that."""

    plan: SeenPlan | None = None
    """None: it is not settled yet, since nobody has joined."""
    count: int = 0
    """Keys; those that were added, in a Bloom filter."""
    bytes: int | None = None
    """What they take in the store; None where that is not known."""
    room: int | None = None
    """Bloom: for how many keys its layers are made."""
    layers: int = 0
    error: float | None = None
    """Bloom: how likely it is now that a new key is taken for a known one, by its fill."""
    generations: int = 0
    oldest: float | None = None
    """Rolling: seconds since anything of its oldest generation was met."""

    @property
    def fill(self) -> float | None:
        return self.count / self.room if self.room else None


Kind = Literal["waiting", "leased", "dead"]


class Row(Struct, frozen=True):
    """An entry as ``scan`` shows it."""

    id: int
    slot: str
    priority: int
    seed: bool
    attempts: int
    payload: bytes
    worker: str | None = None
    reason: str | None = None
