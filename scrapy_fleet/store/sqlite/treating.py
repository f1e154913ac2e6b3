"""How slots are treated: what politeness.py makes of the plan, of their manners and of what people told.

What follows from these is kept in columns of ``slot``, where the statements read it. It is worked out anew
only for slots in which something may have changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from scrapy_fleet import politeness
from scrapy_fleet.model import TASKS, Notice, Override, Plan, Sample
from scrapy_fleet.politeness import Manners
from scrapy_fleet.store.sqlite.changes import Changes, text
from scrapy_fleet.store.sqlite.database import Database

AS_AT_FIRST = Manners()


class Known(msgspec.Struct, array_like=True):
    """What is known about a slot, as statement ``manners`` gives it."""

    id: int
    name: str
    next_at: float
    kept: list[Any] | None
    override: Override | None

    @property
    def manners(self) -> Manners:
        return AS_AT_FIRST if self.kept is None else Manners(*self.kept)


class Treatment(msgspec.Struct, array_like=True):
    """How a slot is treated from now on; laid out as statement ``treat`` reads it."""

    id: int
    concurrency: int
    delay: float
    jitter: float
    pace: float
    boost: int
    due_at: float
    probed: bool
    lost: str | None
    manners: tuple[Any, ...] | None
    halted: int | None


_decode = msgspec.json.Decoder(list[Known]).decode
_decode_overrides = msgspec.json.Decoder(dict[str, Override]).decode


def manners_of(kept: str | None) -> Manners:
    """From column ``slot.manners``."""
    return AS_AT_FIRST if kept is None else Manners(*msgspec.json.decode(kept))


def override_of(value: str | None) -> Override | None:
    """From column ``override.value``."""
    return None if value is None else msgspec.json.decode(value, type=Override)


class Treating:
    """Changes how slots are treated, inside a transaction."""

    def __init__(self, db: Database, plan: Plan, changes: Changes) -> None:
        self._db = db
        self._plan = plan
        self._changes = changes

    def learn(self, lessons: dict[int, list[Sample | Notice]]) -> None:
        """Something happened in these slots, in this order."""
        plan, now = self._plan, self._changes.now
        treatments: list[Treatment] = []
        for slot in self._known(lessons):
            rule = plan.rule_of(slot.name)
            manners = before = slot.manners
            halted = False
            for lesson in lessons[slot.id]:
                old = manners
                if isinstance(lesson, Sample):
                    manners = politeness.sampled(old, lesson, plan, rule, now)
                else:
                    manners = politeness.noticed(old, lesson, plan, now)
                    delays = [politeness.delay_of(m, plan, rule, slot.override) for m in (old, manners)]
                    halted |= delays[1] > delays[0]
                halted |= manners.held_until > old.held_until
            if manners != before:
                treatments.append(self._treatment(slot, manners, slot.override, halted=halted))
        self._treat(treatments)

    def pardon(self, slots: Collection[int]) -> None:
        """Those of the slots that were given up get a new chance."""
        self._treat(
            self._treatment(slot, politeness.pardoned(slot.manners), slot.override)
            for slot in self._known(slots)
            if slot.manners.lost
        )

    def follow_plan(self) -> None:
        """The plan is new."""
        write_rules(self._db, self._plan)
        self._db.run("apply_rules", **treatment_of(self._plan))
        mannered = msgspec.json.decode(self._db.value("mannered"))
        self._treat(self._treatment(slot, slot.manners, slot.override) for slot in self._known(mannered))
        self._db.run("apply_phase", now=self._changes.now)

    def override(self, name: str, override: Override | None) -> None:
        """People said something about a slot, or took it back."""
        execute = self._db.connection.execute
        ids = execute("SELECT id FROM slot WHERE name = ?", (name,)).fetchall()
        known = self._known([row["id"] for row in ids])
        execute("DELETE FROM override WHERE name = ?", (name,))
        if override is not None:
            execute("INSERT INTO override VALUES (?, ?)", (name, msgspec.json.encode(override).decode()))
        write_rules(self._db, self._plan)
        for slot in known:
            before = self._treatment(slot, slot.manners, slot.override)
            after = self._treatment(slot, politeness.pardoned(slot.manners), override)
            if after.delay > before.delay or after.concurrency < before.concurrency:
                after.halted = self._changes.halt()
            self._treat([after])

    def _known(self, slots: Iterable[int]) -> list[Known]:
        known = _decode(self._db.value("manners", slots=text(list(slots))))
        for slot in known:
            if (moved := self._changes.slot(slot.id).next_at) is not None:
                slot.next_at = moved
        return known

    def _treatment(
        self, slot: Known, manners: Manners, override: Override | None, *, halted: bool = False
    ) -> Treatment:
        plan, rule = self._plan, self._plan.rule_of(slot.name)
        return Treatment(
            id=slot.id,
            concurrency=politeness.concurrency_of(manners, plan, rule, override),
            delay=politeness.delay_of(manners, plan, rule, override),
            jitter=rule.jitter,
            pace=politeness.pace_of(manners, plan, rule, override),
            boost=override.boost if override is not None else 0,
            due_at=politeness.due_at(manners, slot.next_at),
            probed=politeness.is_probed(manners, plan),
            lost=politeness.loss_of(manners, plan) or None,
            manners=None if manners == AS_AT_FIRST else msgspec.structs.astuple(manners),
            halted=self._changes.halt() if halted else None,
        )

    def _treat(self, treatments: Iterable[Treatment]) -> None:
        treatments = list(treatments)
        if treatments:
            self._db.run("treat", treats=text(treatments))
            for treatment in treatments:
                # When it is due is written; whether it may be served is seen to with its counters.
                self._changes.slot(treatment.id).due_at = None


def treatment_of(plan: Plan, name: str | None = None, override: Override | None = None) -> dict[str, Any]:
    """How a slot is treated whose manners are as at first; if none is named, one without its own rule."""
    rule = plan.rule if name is None else plan.rule_of(name)
    return {
        "concurrency": politeness.concurrency_of(AS_AT_FIRST, plan, rule, override),
        "delay": politeness.delay_of(AS_AT_FIRST, plan, rule, override),
        "jitter": rule.jitter,
        "pace": politeness.pace_of(AS_AT_FIRST, plan, rule, override),
    }


def write_rules(db: Database, plan: Plan) -> None:
    """Write down how slots are treated that have a rule of their own or an override."""
    overrides = _decode_overrides(db.value("overrides"))
    names = dict.fromkeys([TASKS, *plan.slots, *overrides])
    rules = []
    for name in names:
        override = overrides.get(name)
        boost = override.boost if override is not None else 0
        rules.append([name, *treatment_of(plan, name, override).values(), boost])
    db.connection.execute("DELETE FROM rule")
    db.run("rules", rules=text(rules))
