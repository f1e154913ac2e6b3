"""The store protocol: where a crawl lives.

A store is synchronous, knows no Scrapy, and is used by one thread at a time. Every verb is one
transaction. Times are the store's own: callers give and get durations only.

**Entries** are *waiting*, *leased* or *dead*, or have left as *done*;
``waiting + leased + done + dead == accepted`` holds after every verb.

**Who is next.** Among slots that have waiting entries, room (fewer leases with a running download
than their concurrency) and are due, the one whose first entry ranks best, its priority raised by the slot's
``Override.boost``; on a tie, the slot served longest ago. Inside a slot: higher priority first, seeds
after others of their priority, then the newest first (``Plan.lifo``) or the oldest first; seeds always
oldest first. An entry that comes back takes the place it had. While several workers are in the
crawl, none is given more of a slot than its share, the slot's concurrency by the number of workers,
rounded up: so that the first to come does not leave the others idle.

**Pacing.** A slot with a delay hands out its entries at least that far apart, up to ``HORIZON``
seconds ahead; each lease says in how many seconds it may run, and none may run before the slot's
time. Jitter spreads the distance evenly over ``delay * (1 - jitter)`` to ``delay * (1 + jitter)``.

Where requests are far apart, one may also begin late, by ``politeness.leeway_of`` its slot's pace: so much
longer the slot is reserved, and handed out not ahead of that but when it is over. What of it was not needed
is given back when the worker says how late the slot's newest paced lease began (``Batch.starts``). If that
was later still, the slot is reserved for as much longer: but not as if it had begun after now. If that lease
is released before, and no sample of it was told, it has not begun: the slot is due when it was for this one.

How far apart, and how many at a time, is decided by :mod:`scrapy_fleet.politeness` from the plan, the
slot's manners and what people told about it (``override``): ``delay_of``, ``pace_of`` (what no jitter goes
below, and ``Lease.pace``) and ``concurrency_of`` take the place of what its rule says. A slot is due
when ``due_at`` is; one that is blocked has no room. In a slot that is given up (``Manners.lost``) neither
delay nor hold counts any more, and its leases say that they are lost. What a lease says of its slot
(``pace``, ``probe``, ``lost``) is true when the answer is given, also if it is given again.

What was reserved stays reserved. But the workers that have leases in a slot are told, once, that it was
*halted* (``Receipt.held``): a sample or a notice moved its ``held_until`` forward, a notice raised its delay,
or an override raised its delay or lowered its concurrency. The crawl counts such events, and each slot keeps
the count of its last. A receipt names, sorted, the slots that were halted after the worker's batch before
this one was answered, and in which it has leases of earlier batches.

**Spare leases.** Of a slot without delay that is due now, not probed, not given up, and in which no
suspect waits, a worker that has no more downloads running there than its share gets as many spares as it has
downloads running, less the spares it has: after all else, in the same order, and only of what it wants.
A spare counts as leased, but takes no room until a sample says that it has taken over the room of another
of its slot (``Sample.then``); if it is not held any more, or is no spare, the room becomes free. A worker
that runs a suspect gets none.

**Workers that die.** A worker that neither commits nor beats for its time-to-live is given up at
the next beat of any worker: its entries go back to where they were, with one attempt more. From
``Plan.suspect_after`` attempts on an entry is a *suspect*: it is leased alone, only to a worker
that holds nothing else, and nothing is added to it. So an entry that dies at
``Plan.max_attempts`` was alone with the worker it took along. A suspect that has waited for
``PATIENCE`` seconds makes workers that ask get nothing, so that one runs dry and can take it.

**Seen.** How keys are known is said by ``Plan.seen`` (see :mod:`scrapy_fleet.seen`). What the first worker to
join asks for is settled for as long as the keys are kept: until a new run that forgets them, or
:meth:`Store.clear`. A worker that asks for another then is refused
(:class:`~scrapy_fleet.errors.SeenDiffers`), and nothing is changed. A rolling filter is kept from run to run,
whatever ``Plan.keep_seen`` says, and its times are the newest plan's. Its generations begin and end with
commits that bring keys.

**Control.** The crawl's mode is kept with it and told in every answer. In ``pause`` and ``stop`` a commit
hands out no leases; all else works. A pause lasts until the crawl is told to run. A stop is for the
fleet that is running: a worker that comes (and does not come back, see ``join``) while none other
is alive sets the mode to ``run``.

**Fencing.** A verb called for a worker that was given up (or never joined) raises
:class:`~scrapy_fleet.errors.GivenUp` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from scrapy_fleet.cargo import Piece
from scrapy_fleet.errors import StoreError
from scrapy_fleet.model import (
    Batch,
    Beat,
    Entry,
    ItemGroup,
    Joined,
    Kind,
    Mode,
    Override,
    Paper,
    Plan,
    Receipt,
    Row,
    SeenPlan,
    SeenView,
    SlotView,
    Snapshot,
    Worker,
)

HORIZON = 1.0
PATIENCE = 30.0
MAX_WANT = 256
"""Leases a single commit may bring at most; what is wanted beyond comes with the next."""
MAX_ITEMS = 1000
"""Items that a consumer gets at a time, at most."""
CONVERTED_IN_USE = "The filter cannot be converted while workers are in the crawl. Stop them first."


class Store(Protocol):
    """One crawl in one place."""

    url: str
    """Where it is, fit to be shown: without secrets."""

    def join(self, worker: Worker, plan: Plan, ttl: float, *, run: int | None = None) -> Joined:
        """Enter the crawl, and begin it anew if it had finished.

        A worker that was given up and comes back says to which ``run`` it belongs: it begins none anew.

        A new run clears all entries, slots and counters, and what was seen if ``plan.forgets``.
        The first worker to come gets the seeding (``Seeding.MINE``); later, whoever joins, commits or
        beats while nobody has it and it has not ended. ``ttl`` is how many seconds of
        silence the others allow. Joining twice under one id changes nothing but plan and ttl.
        """

    def commit(self, batch: Batch) -> Receipt:
        """Apply a batch, in this order, and lease up to ``batch.want`` entries.

        1. ``adds`` whose key is new are accepted and their key marked seen; others are *known*.
        2. ``marks`` are marked seen.
        3. ``samples`` free the room that a download took in its slot, or give it to a spare lease, and
           change the slot's manners. Those of leases that the worker does not hold, or that have no room,
           are passed over. ``notices`` come after them; a slot that was not met is made for its notice.
        4. ``outcomes`` settle leases: to *done*, or to *dead* with a reason; their items are kept.
           ``releases`` go back as they were. A token the worker does not hold is passed over,
           its items too.
        5. Seeding that nobody holds and that has not ended passes to the worker; ``seeded`` ends it,
           if the worker holds it.
        6. ``items``, ``stats`` and ``state`` are kept; what is to be written ``beside`` the crawl is written,
           as items are: of outcomes only if they were held. Where that cannot be, because the store is no
           server, or what is under the key is of another type, the batch is refused with
           :class:`~scrapy_fleet.errors.StoreError`, and nothing of it takes effect.
        7. Leases are handed out, or with ``leave`` the worker is forgotten and all it holds
           released; with ``finish`` the crawl is finished if it is seeded, nothing is open and nobody
           feeds it.

        What is accepted opens a finished crawl again. Repeating the worker's last batch (same
        ``seq``) changes nothing and brings its leases again, those it still holds.
        """

    def beat(self, worker: str) -> Beat:
        """The worker is alive; give up every worker that has been silent for its ttl."""

    def give_up(self, workers: tuple[str, ...]) -> int:
        """Give up these workers now (their processes are known to be gone); how many leases came back."""

    def feed(self, producer: str, ttl: float) -> None:
        """A producer is about to bring more: the crawl is not over, whatever is left of it.

        It holds for ``ttl`` seconds, and is given up at the next beat of any worker after that; 0 ends it.
        """

    def push(self, entries: tuple[Entry, ...], marks: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Queue entries from outside of any worker; the positions of those whose key is *known*.
        Then mark keys as seen without queueing anything.

        They are treated as ``adds`` of a batch are: what is accepted opens a finished crawl again. The
        crawl is made if it is not there. How keys are known is settled by keys as :meth:`mark` does it.
        """

    def waiting(self, slot: str) -> int:
        """How many entries wait in a slot: the cheapest look there is, made to be repeated often."""

    def snapshot(self, slots: int = 20) -> Snapshot:
        """The counters, the ``slots`` busiest slots, and the workers."""

    def scan(self, kind: Kind, *, slot: str | None = None, after: int = 0, limit: int = 100) -> list[Row]:
        """Look at entries without touching them.

        ``waiting`` of one slot in the order they will be handed out (``after`` is then how many to skip);
        otherwise by id, those above ``after``.
        """

    def requeue(self, ids: tuple[int, ...] | None = None) -> int:
        """Dead entries (all, if no ids) wait again, with no attempts; a finished crawl is open again.

        If their slots were given up, these get a new chance (``pardoned``).
        """

    def drop(self, ids: tuple[int, ...] | None = None) -> int:
        """Dead entries (all, if no ids) are given up for good; they count as done."""

    def control(self, mode: Mode) -> None:
        """Tell the fleet to run, to pause or to stop; the workers learn it with their next answer."""

    def clear(self) -> None:
        """Forget the crawl: entries, what was seen and how, items, counters, state, slots, overrides, papers,
        mode.

        It is as if it were new, with the next ``run``. While live workers are in it, it raises
        :class:`~scrapy_fleet.errors.StoreError` and changes nothing; silent ones are forgotten.
        """

    def override(self, slot: str, override: Override | None) -> None:
        """Tell the fleet how to treat a slot, or take it back; it outlives runs, but not :meth:`clear`.

        A slot that was given up gets a new chance (``pardoned``).
        """

    def slot(self, name: str) -> SlotView | None:
        """One slot, if the crawl has met it or was told about it."""

    def seen(self, keys: tuple[int, ...]) -> tuple[bool, ...]:
        """Which of these keys the crawl has met."""

    def seen_info(self) -> SeenView:
        """How many keys, how they are known, and what that takes."""

    def use_seen(self, plan: SeenPlan) -> None:
        """Settle how keys are known, as the first worker does; if it is settled otherwise, it raises
        :class:`~scrapy_fleet.errors.SeenDiffers`."""

    def mark(self, keys: tuple[int, ...]) -> int:
        """Mark keys as seen, in pieces; how many were new. If the filter is not settled, it is exact."""

    def forget(self, keys: tuple[int, ...]) -> int:
        """Keys are not seen any more, in pieces; how many were. A Bloom filter cannot
        (:class:`~scrapy_fleet.errors.NoKeys`)."""

    def seen_keys(self, cursor: str = "", limit: int = 1000) -> tuple[str, list[int]]:
        """A page of keys, of about ``limit``, and where the next begins; an empty cursor: that was the last.

        What is there all the time comes once at least. A Bloom filter has none
        (:class:`~scrapy_fleet.errors.NoKeys`).
        """

    def convert(self, plan: SeenPlan) -> int:
        """Know the same keys by another filter; how many there were. It is done at the end, or not at all.

        Of a Bloom filter only ``off`` can be made (:class:`~scrapy_fleet.errors.NoKeys`). While live workers
        are in the crawl, it raises :class:`~scrapy_fleet.errors.CrawlInUse`.
        """

    def bloom_blocks(self, cursor: str = "", limit: int = 64) -> tuple[str, list[tuple[int, bytes]]]:
        """A page of the blocks of a Bloom filter that have bits, by their numbers; as :meth:`seen_keys`."""

    def load_bloom(self, plan: SeenPlan, blocks: list[tuple[int, bytes]], count: int) -> None:
        """Add blocks that were read from a filter of the same plan, which had ``count`` keys."""

    def paper(self, name: str, worker: str, max_age: float, patience: float) -> Paper:
        """A document that the workers of a crawl share, or the task of making it.

        The first to ask for one that is not there, or is older than ``max_age`` seconds, is to make it
        (``Paper.mine``), and hears so again if it asks again; others learn that somebody does (no data, and
        not theirs), and ask again. If it has not come within ``patience`` seconds of the first, the next
        to ask is to make it. The worker is a name here, nothing more: it need not be in the crawl.
        """

    def write_paper(self, name: str, data: bytes) -> None:
        """Here it is. Papers outlive runs, but not :meth:`clear`."""

    def items(self, after: int = 0, limit: int = 100) -> list[tuple[int, bytes]]:
        """Items kept by the crawl, oldest first, with their numbers: 1, 2, 3, ... over all runs."""

    def take_items(
        self, group: str, consumer: str, limit: int = 100, ttl: float = 60.0
    ) -> list[tuple[int, bytes]]:
        """Items for one consumer, at most ``MAX_ITEMS``: each goes to one consumer of every group.

        First come, by number, those in the group's hands that are the consumer's own (it did not get the
        answer, or died and came back), or that were given to another ``ttl`` seconds ago or earlier. Then
        come new ones. All of them are the consumer's from now on. The first to take makes the group, which
        begins with the oldest item that is kept.
        """

    def ack_items(self, group: str, numbers: tuple[int, ...]) -> int:
        """These have been dealt with, by whomever; how many of them were in the group's hands."""

    def item_groups(self) -> list[ItemGroup]:
        """The groups that consume items, by name. They outlive runs, as items do, but not :meth:`clear`."""

    def drop_item_group(self, group: str) -> bool:
        """Forget a group; whether there was one."""

    def trim_items(self) -> int:
        """Remove items, from the oldest on, as far as every group has acknowledged them; how many.

        Without a group, none. Numbers are not given again, and ``Snapshot.items`` goes on counting them.
        """

    def dump(self) -> Iterator[Piece]:
        """All of the crawl, in pieces, but for what was seen (see ``seen_keys``) and for workers.

        It is one crawl at one moment only if nothing changes it meanwhile: who takes it sees to that, and
        that nothing is leased, which has no piece.
        """

    def load(self, pieces: Iterable[Piece]) -> None:
        """What ``dump`` gave, of this store or of another, becomes this crawl, with the places and numbers
        that entries had. It is then as one that nobody has joined since its workers left.

        While entries or live workers are in it, it raises :class:`~scrapy_fleet.cargo.NotEmpty`, and changes
        nothing. What was seen stays, and is to be marked before. It need not be one transaction: a load that
        was interrupted is to be cleared.
        """

    def close(self) -> None:
        """Let go of the connection. The crawl stays."""


def refuse_beside(batch: Batch) -> None:
    """For stores that are no servers: there is nothing beside the crawl."""
    if batch.beside or any(outcome.beside for outcome in batch.outcomes):
        raise StoreError("The store is no server: nothing can be written beside the crawl.")
