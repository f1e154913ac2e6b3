"""The verbs of the store protocol, on Redis."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any, Self

from scrapy_fleet import seen
from scrapy_fleet.cargo import NotEmpty, Piece
from scrapy_fleet.errors import CrawlInUse, GivenUp, NoKeys, StoreEmptied, StoreError, StoreRolledBack
from scrapy_fleet.model import (
    Batch,
    Beat,
    Counts,
    Entry,
    Joined,
    Kind,
    Mode,
    Override,
    Paper,
    Plan,
    Receipt,
    Row,
    Seeding,
    SeenPlan,
    SlotView,
    Snapshot,
    Worker,
)
from scrapy_fleet.store.base import MAX_WANT
from scrapy_fleet.store.redis import cargo, health, observing, packing
from scrapy_fleet.store.redis.items import ItemVerbs
from scrapy_fleet.store.redis.knowing import Knowing
from scrapy_fleet.store.redis.server import OLDEST, Server, new_id

logger = logging.getLogger(__name__)

MODES: tuple[Mode, ...] = ("run", "pause", "stop")
"""In the order of the numbers that the scripts have for them."""
MENDED_AT_ONCE = 500
ROWS_AT_ONCE = 1000

chance = Random()

_EMPTIED, _ROLLED_BACK = (
    " ".join((error.__doc__ or "").replace("``", "").split()) for error in (StoreEmptied, StoreRolledBack)
)


class Dice:
    """Numbers by chance for a script. A generator that was given is left as if only those used were drawn."""

    def __init__(self, given: Random | None, count: int) -> None:
        self.rolled = 0
        self._given = given
        self._before = given.getstate() if given else None
        roll = (given or chance).random
        self.numbers = [roll() for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._given and self._before:
            self._given.setstate(self._before)
            for _ in range(self.rolled):
                self._given.random()


class RedisStore(Knowing, ItemVerbs):
    """See :class:`scrapy_fleet.store.base.Store` for what each verb means.

    Nothing is sent before the first verb is called, unless ``create`` is false: then the crawl must
    be there. ``clock`` takes the place of the server's, for tests.
    """

    def __init__(
        self,
        url: str,
        crawl: str,
        *,
        shown: str | None = None,
        clock: Callable[[], float] | None = None,
        random: Random | None = None,
        create: bool = True,
    ) -> None:
        self.url = shown or url
        self._crawl = crawl
        self._prefix = packing.prefix(crawl)
        self._server = Server(url, self.url, f"{self._prefix}meta")
        self._clock = clock
        self._random = random
        self._incarnation = ""
        self._emptied = False
        self._told = False
        self._jitter = True
        # The last batch of each worker that the server has answered: one that it must know.
        self._answered: dict[str, int] = {}
        if not create and self._server.command("EXISTS", f"{self._prefix}meta") == 0:
            self.close()
            raise StoreError(f"There is no crawl {crawl!r} at {self.url}. Check the name and FLEET_URL.")

    def close(self) -> None:
        self._server.close()

    def _run(self, verb: str, *args: bytes | str | float, keys: tuple[str, ...] = ()) -> list[Any]:
        now = "" if self._clock is None else repr(self._clock())
        status, *answer = self._server.run(verb, now, self._incarnation, *args, keys=keys)
        if status == b"given up":
            raise GivenUp(GivenUp.__doc__)
        if status == b"emptied":
            self._emptied = True
            raise StoreEmptied(f"{self.url}: {_EMPTIED}")
        if status == b"behind":
            raise StoreRolledBack(f"{self.url}: {_ROLLED_BACK}")
        if status == b"in use":
            raise CrawlInUse(CrawlInUse.__doc__)
        if status == b"beside":
            raise StoreError(
                f"{self.url}: results cannot be written for others to read: {answer[0].decode()}. "
                "Remove or rename that key, or choose another (REDIS_ITEMS_KEY, STATS_KEY)."
            )
        if status == b"differs":
            seen.check(packing.read_seen_plan(answer[0]), self._asked, self._crawl)
        if status == b"no keys":
            raise NoKeys(NoKeys.__doc__)
        if status == b"changed":
            raise StoreError(f"{self.url}: the crawl was used while its filter was converted. Do it again.")
        if status == b"clearing":
            # Whoever began to clear it was interrupted.
            self.clear()
            return self._run(verb, *args, keys=keys)
        if status == b"old":
            raise StoreError(
                f"{self.url} is Redis {answer[0].decode()}; {OLDEST} or newer, or Valkey, is needed."
            )
        if status == b"format":
            found, known = answer
            age, remedy = (
                ("a newer", "Upgrade scrapy-fleet") if found > known else ("an older", "Clear it with that")
            )
            raise StoreError(
                f"{self.url}: the crawl {self._crawl!r} was written by {age} scrapy-fleet (format {found}, "
                f"this one knows {known}). {remedy}, or set FLEET_CRAWL."
            )
        return answer

    def join(self, worker: Worker, plan: Plan, ttl: float, *, run: int | None = None) -> Joined:
        if self._emptied:
            self._incarnation, self._emptied = "", False
        self._answered.pop(worker.id, None)
        rule = plan.rule
        self._asked = plan.seen
        self._jitter = any(each.jitter for each in (rule, *plan.slots.values()))
        id, run_now, resumed, counts, seeding, state, others, mode = self._run(
            "join",
            new_id(),
            *(worker.id, worker.host, worker.pid, worker.home, worker.birth, ttl, int(run is not None)),
            *(rule.concurrency, rule.delay, rule.jitter),
            *(int(plan.lifo), plan.max_attempts, plan.suspect_after, int(not plan.forgets)),
            packing.rules(plan),
            *(int(plan.auto is not None), packing.policy(plan), packing.seen_plan(plan.seen)),
        )
        self._incarnation = id.decode()
        if not self._told:
            self._told = True
            for warning in health.warnings(self._server.command, self.url):
                logger.warning("%s", warning)
        return Joined(
            run=run_now,
            resumed=bool(resumed),
            counts=Counts(*counts),
            seeding=Seeding(seeding.decode()),
            state=dict(zip(map(packing.text, state[::2]), state[1::2], strict=True)),
            others=observing.read_workers(others),
            mode=MODES[mode],
        )

    def commit(self, batch: Batch) -> Receipt:
        besides = packing.Besides()
        flags = "s" * batch.seeded + "l" * batch.leave + "f" * batch.finish
        want = min(max(batch.want, 0), MAX_WANT)
        tokens = {*(s.token for s in batch.samples), *(o.token for o in batch.outcomes), *batch.releases}
        tokens.update(s.token for s in batch.starts)
        tokens.update(s.then for s in batch.samples if s.then is not None)
        done, outcomes = packing.outcomes(batch.outcomes, besides)
        bloom = self._asked.kind == "bloom"
        # Without dice, should a newer plan than ours need them, nothing is spread: no delay is cut short.
        rolls = want if self._jitter or self._random else 0
        with Dice(self._random, rolls) as dice:
            now, counts, seeding, known, hand, raws, retry_in, dice.rolled, mode, terms, held = self._run(
                "commit",
                *(batch.worker, batch.seq, flags, want),
                *packing.adds(batch.adds, bloom=bloom),
                packing.marks(batch.marks, bloom=bloom),
                packing.named(tokens),
                packing.samples(batch.samples),
                packing.notices(batch.notices),
                outcomes,
                packing.tokens(batch.releases),
                packing.items(batch.items),
                packing.stats(batch.stats),
                packing.state(batch.state),
                packing.doubles(dice.numbers),
                self._answered.get(batch.worker, -1),
                *(besides.pack(batch.beside), besides.kinds),
                packing.starts(batch.starts),
                done,
                keys=tuple(besides.keys),
            )
        if batch.leave:
            self._answered.pop(batch.worker, None)
        else:
            self._answered[batch.worker] = max(batch.seq, self._answered.get(batch.worker, -1))
        return Receipt(
            Counts(*counts),
            Seeding(seeding.decode()),
            packing.read_leases(batch.seq, hand, raws, float(now), terms),
            packing.read_positions(known),
            float(retry_in) if retry_in else None,
            MODES[mode],
            tuple(sorted(map(packing.text, held))),
        )

    def beat(self, worker: str) -> Beat:
        counts, seeding, reaped, mode, workers = self._run("beat", worker, self._answered.get(worker, -1))
        return Beat(Counts(*counts), Seeding(seeding.decode()), reaped, MODES[mode], workers)

    def give_up(self, workers: tuple[str, ...]) -> int:
        return int(self._run("give_up", *workers)[0])

    # Observing and controlling

    def snapshot(self, slots: int = 20) -> Snapshot:
        return observing.snapshot(self._crawl, self._run("snapshot", slots), MODES)

    def scan(self, kind: Kind, *, slot: str | None = None, after: int = 0, limit: int = 100) -> list[Row]:
        if kind == "waiting" and slot is not None:
            return self._waiting(slot, after, limit)
        if kind == "leased":
            rows = iter(packing.read_rows(self._run("scan", "leased", "", 0, 0)[0]))
        else:
            rows = self._dead(after) if kind == "dead" else self._all_waiting()
        chosen = (row for row in rows if row.id > after and slot in (None, row.slot))
        if kind == "dead":  # they come by id
            return [row for _, row in zip(range(limit), chosen, strict=False)]
        return heapq.nsmallest(limit, chosen, key=lambda row: row.id)

    def _waiting(self, slot: str, after: int, limit: int) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < limit:
            most = min(ROWS_AT_ONCE, limit - len(rows))
            found = packing.read_rows(self._run("scan", "waiting", slot, after + len(rows), most)[0])
            rows += found
            if len(found) < most:
                break
        return rows

    def _all_waiting(self) -> Iterator[Row]:
        at = 0
        while names := self._server.command("ZRANGE", f"{self._prefix}sizes", at, at + ROWS_AT_ONCE - 1):
            at += len(names)
            for name in names:
                yield from self._waiting(packing.text(name), 0, 1 << 60)

    def _dead(self, after: int) -> Iterator[Row]:
        while rows := packing.read_rows(self._run("scan", "dead", "", after, ROWS_AT_ONCE)[0]):
            yield from rows
            after = rows[-1].id

    def control(self, mode: Mode) -> None:
        self._run("control", new_id(), MODES.index(mode))

    def feed(self, producer: str, ttl: float) -> None:
        self._run("feed", new_id(), packing.raw(producer), ttl)

    def push(self, entries: tuple[Entry, ...], marks: tuple[int, ...] = ()) -> tuple[int, ...]:
        keyed = marks or any(entry.key is not None for entry in entries)
        plan = packing.seen_plan(SeenPlan()) if keyed else b""
        adds = packing.adds(entries, bloom=self._asked.kind == "bloom")
        return packing.read_positions(self._run("push", new_id(), plan, *adds, self._packed(marks))[0])

    def waiting(self, slot: str) -> int:
        size = self._server.command("ZSCORE", f"{self._prefix}sizes", packing.raw(slot))
        return -int(float(size)) if size else 0

    def draw(self, key: str, room: int, mark: bytes) -> int:
        """Move what producers have put into a list, set or sorted set on this server into the crawl, in one
        transaction, as tasks whose payloads begin with ``mark``, until so many of them wait; how many."""
        if not self._server.command("EXISTS", key):
            return 0
        return int(self._run("draw", new_id(), room, mark, keys=(key,))[0])

    def override(self, slot: str, override: Override | None) -> None:
        self._run("override", new_id(), packing.raw(slot), packing.override(override))

    def slot(self, name: str) -> SlotView | None:
        answer = self._run("slot", packing.raw(name))
        return observing.one_slot(*answer) if answer else None

    def paper(self, name: str, worker: str, max_age: float, patience: float) -> Paper:
        what, *found = self._run("paper", new_id(), packing.raw(name), worker, max_age, patience)
        if what == b"data":
            return Paper(found[1], float(found[0]))
        return Paper(mine=what == b"mine")

    def write_paper(self, name: str, data: bytes) -> None:
        self._run("write_paper", new_id(), packing.raw(name), data)

    def clear(self) -> None:
        more = self._run("clear", "begin")[0]
        while more:
            more = self._run("clear", "go on")[0]

    def requeue(self, ids: tuple[int, ...] | None = None) -> int:
        return self._mend("requeue", ids)

    def drop(self, ids: tuple[int, ...] | None = None) -> int:
        return self._mend("drop", ids)

    def _mend(self, verb: str, ids: tuple[int, ...] | None) -> int:
        """In pieces, so that no call holds the server for long."""
        mended = 0
        if ids is not None:
            for first in range(0, len(ids), MENDED_AT_ONCE):
                piece = ids[first : first + MENDED_AT_ONCE]
                mended += self._run("mend", verb, len(piece), *piece)[0]
            return mended
        while (some := self._run("mend", verb, MENDED_AT_ONCE)[0]) > 0:
            mended += some
        return mended

    # Carrying a crawl elsewhere

    def dump(self) -> Iterator[Piece]:
        return cargo.dump(self._run, self._server.command, self._prefix, MODES)

    def load(self, pieces: Iterable[Piece]) -> None:
        now = float(self._run("dump", "about")[0])
        try:
            cargo.Loading(self._run, MODES, new_id(), now).load(pieces)
        except CrawlInUse:
            raise NotEmpty(NotEmpty.__doc__) from None
