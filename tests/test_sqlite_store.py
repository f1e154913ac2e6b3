"""What is the SQLite store's own: its file's format, and what its statements cost."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from scrapy_fleet.errors import StoreError
from scrapy_fleet.model import Batch, Entry, Notice, Outcome, Plan, Rule, Start, Worker
from scrapy_fleet.store.base import MAX_WANT
from scrapy_fleet.store.sqlite import SqliteStore

LIVE = "live"
PLAN = Plan(rule=Rule(delay=1e6), slots={LIVE: Rule(concurrency=8)})


def test_a_file_of_an_older_format_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    SqliteStore(path, "c").close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 1")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"older scrapy-fleet \(format 1.*Use the version that began"):
        SqliteStore(path, "c")
    assert path.read_bytes() == before


class Steps:
    """A worker that counts what its commits cost SQLite, in steps of its machine: always the same."""

    def __init__(self, path: Path, plan: Plan = PLAN) -> None:
        self.store = SqliteStore(path, "c", durability="normal", clock=lambda: 1000.0)
        self.store.join(Worker("w"), plan, 60.0)
        self._seq = count(1)
        self._steps = 0
        self.store._db.connection.set_progress_handler(self._count, 10)

    def _count(self) -> int:
        self._steps += 10
        return 0

    def commit(self, **parts: object) -> int:
        self._steps = 0
        batch = Batch(worker="w", seq=next(self._seq), **parts)  # type: ignore[arg-type]
        self.receipt = self.store.commit(batch)
        return self._steps

    def settle_and_lease(self) -> int:
        ended = tuple(Outcome(lease.token) for lease in self.receipt.leases)
        return self.commit(outcomes=ended, want=32)


def steps_with(path: Path, waiting: int, *, held: bool) -> tuple[int, int]:
    """What it costs to lease, and to learn that nothing is to be had, while so many slots must wait."""
    worker = Steps(path)
    names = [f"slot{number:05}" for number in range(waiting)]
    for start in range(0, waiting, MAX_WANT):
        some = names[start : start + MAX_WANT]
        worker.commit(adds=tuple(Entry(slot=name, payload=b"") for name in some for _ in range(2)))
        if held:
            worker.commit(notices=tuple(Notice(name, failed="refused") for name in some))
        else:
            worker.commit(want=MAX_WANT)
            assert len(worker.receipt.leases) == len(some)
            worker.settle_and_lease()
            assert not worker.receipt.leases
    worker.commit(adds=tuple(Entry(slot=LIVE, payload=b"") for _ in range(100)))
    worker.commit(want=32)
    leasing = worker.settle_and_lease()
    assert len(worker.receipt.leases) == 16  # spares included
    while worker.receipt.leases:
        worker.settle_and_lease()
    idle = worker.settle_and_lease()
    assert worker.receipt.retry_in is not None
    worker.store.close()
    return leasing, idle


@pytest.mark.parametrize("held", [False, True], ids=["paced", "held"])
def test_slots_that_wait_cost_nothing(tmp_path: Path, held: bool) -> None:
    few = steps_with(tmp_path / "few.db", 10, held=held)
    many = steps_with(tmp_path / "many.db", 3000, held=held)
    for less, more in zip(few, many, strict=True):
        assert more <= less * 1.05 + 50


def steps_of_paced_pages(path: Path, in_hand: int) -> tuple[int, int]:
    """What it costs to lease some pages of slow slots, and to tell of their start, with so many in hand."""
    worker = Steps(path, Plan(rule=Rule(delay=10)))
    worker.store.join(Worker("other"), Plan(rule=Rule(delay=10)), 60.0)
    worker.commit(adds=tuple(Entry(slot=f"s{n}", payload=b"") for n in range(in_hand + 8) for _ in range(2)))
    for _ in range(0, in_hand, 20):
        worker.commit(want=20)
    leasing = worker.commit(want=8)
    assert len(worker.receipt.leases) == 8
    telling = worker.commit(starts=tuple(Start(lease.token, 1.0) for lease in worker.receipt.leases))
    last = worker.store.slot(f"s{in_hand + 7}")
    assert last is not None
    assert last.next_in == pytest.approx(11)
    worker.store.close()
    return leasing, telling


def test_paced_leases_in_hand_cost_nothing(tmp_path: Path) -> None:
    few = steps_of_paced_pages(tmp_path / "few.db", 20)
    many = steps_of_paced_pages(tmp_path / "many.db", 400)
    for less, more in zip(few, many, strict=True):
        assert more <= less * 1.1 + 50


TOGETHER = """
import os, sys
from pathlib import Path
from scrapy_fleet.store.sqlite import SqliteStore

def workers(path):
    waiting, start = os.pipe()
    for _ in range(6):
        if not os.fork():
            os.close(start)
            os.read(waiting, 1)
            try:
                SqliteStore(path, "c").close()
            except BaseException:
                os._exit(1)
            os._exit(0)
    os.close(start)
    os.close(waiting)
    return [os.wait()[1] for _ in range(6)]

print(sum(any(workers(Path(sys.argv[1], f"{number}.db"))) for number in range(40)))
"""


def test_workers_that_make_the_file_together(tmp_path: Path) -> None:
    """SQLite refuses at once to switch a file's mode while another does."""
    command = [sys.executable, "-c", TOGETHER, str(tmp_path)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "0\n"
