"""When a worker commits, and asks for more."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from scrapy_fleet.ahead import Ahead
from scrapy_fleet.appetite import FIRST
from scrapy_fleet.model import Batch, Counts, Lease, Receipt, Sample, Seeding
from scrapy_fleet.outbox import Outbox
from scrapy_fleet.timing import GATHER, Timing
from tests.desk import NEVER, Limits

WAITING = 1000
LIMITS = Limits(capacity=20, lookahead=80, commit_interval=NEVER)


class Worker:
    """What it decides by, and nothing that happens by itself."""

    def __init__(self) -> None:
        self.ahead, self.outbox = Ahead(), Outbox(NEVER)
        self.waits: list[float] = []
        self.timing = Timing(LIMITS, self.outbox, self.ahead, self.waits.append)
        self._tokens = 0

    def gets(self, count: int, delay: float, pace: float = 100.0, trip: float = 0.0) -> None:
        """An answer has just brought so many leases, all that it wanted, that may run in so many seconds;
        it took so long to come."""
        leases = []
        for _ in range(count):
            self._tokens += 1
            leases.append(Lease(self._tokens, f"host{self._tokens}", b"", 0, False, 0, delay, pace=pace))
        self.timing.asked()
        self.timing._sent_at -= trip
        now = time.monotonic()
        for lease in leases:
            self.ahead.put(lease, now, now)
        receipt = Receipt(Counts(waiting=WAITING), Seeding.DONE, tuple(leases))
        self.timing.answered(Batch(worker="w", seq=1, want=count), receipt)

    def commits(self, want: int = 5, running: int = 0) -> bool:
        pending, free = bool(self.outbox), LIMITS.capacity - running
        return self.timing.is_time(pending=pending, waiting=WAITING, free=free, want=want)

    def ends_a_download(self) -> None:
        self.timing.starve()
        self.outbox.sample(Sample(0), "a")


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_who_has_many_leases_whose_time_will_come_gathers_what_ends(worker: Worker) -> None:
    worker.gets(60, delay=1000)
    worker.ends_a_download()
    assert not worker.commits()
    worker.timing._asked_at -= 1  # but not for long
    assert worker.commits()


def test_who_has_spares_says_what_ends_with_others_unless_nothing_is_under_way(worker: Worker) -> None:
    for token in range(8):
        worker.ahead.put(Lease(token, "a", b"", 0, False, 0, 0.0, spare=True), 0.0, 0.0)
    worker.timing.asked()
    worker.timing.answered(Batch(worker="w", seq=1, want=8), Receipt(Counts(waiting=WAITING), Seeding.DONE))
    worker.ends_a_download()
    assert not worker.commits(running=1)
    assert worker.commits(running=0)


def few(worker: Worker) -> None:
    worker.gets(40, delay=1000)


def some_at_once(worker: Worker) -> None:
    worker.gets(60, delay=1000)
    worker.gets(1, delay=0)


@pytest.mark.parametrize("case", [few, some_at_once])
def test_who_may_lack_something_to_run_says_at_once_what_ends(
    worker: Worker, case: Callable[[Worker], None]
) -> None:
    case(worker)
    worker.ends_a_download()
    assert worker.commits()


def test_who_has_what_it_can_start_in_time_does_not_ask_for_a_few_more(worker: Worker) -> None:
    worker.gets(FIRST // 2, delay=0)
    assert not worker.commits()  # it gathers
    worker.timing._ask_at = 0.0
    assert not worker.commits()
    worker.ahead.take()
    worker.ahead.forget(1)
    assert worker.commits()


def asks_in(worker: Worker, taken: int, since: float) -> float:
    """How long it waits before it asks for more, so many seconds after an answer, with so many taken."""
    worker.gets(LIMITS.lookahead, delay=0, pace=0)
    for _ in range(taken):
        worker.ahead.take()
    worker.timing._answered_at -= since
    assert not worker.commits()
    return worker.waits[-1]


def test_who_takes_leases_fast_asks_while_some_are_left(worker: Worker) -> None:
    assert (
        0.25 * GATHER < asks_in(worker, 64, since=GATHER * 4) < GATHER
    )  # 16 are left, which last for GATHER


def test_who_takes_them_slowly_gathers(worker: Worker) -> None:
    assert asks_in(worker, 64, since=100) == GATHER


def test_nobody_asks_before_few_are_left(worker: Worker) -> None:
    worker.gets(LIMITS.lookahead, delay=0, pace=0)
    for _ in range(LIMITS.lookahead // 2):
        worker.ahead.take()
    worker.timing._answered_at -= 100
    assert not worker.commits()
    assert not worker.waits


def test_who_would_run_out_before_the_next_answers_come_asks_at_once(worker: Worker) -> None:
    worker.gets(LIMITS.lookahead, delay=0, pace=0)
    for _ in range(LIMITS.lookahead):
        worker.ahead.take()
    worker.timing._answered_at -= LIMITS.lookahead  # one a second
    worker.gets(LIMITS.lookahead // 2, delay=0, pace=0, trip=0.6 * LIMITS.lookahead // 2)
    assert worker.commits()


def test_who_would_not_gathers(worker: Worker) -> None:
    worker.gets(LIMITS.lookahead, delay=0, pace=0)
    for _ in range(LIMITS.lookahead):
        worker.ahead.take()
    worker.timing._answered_at -= LIMITS.lookahead
    worker.gets(LIMITS.lookahead // 2, delay=0, pace=0, trip=0.4 * LIMITS.lookahead // 2)
    assert not worker.commits()


def test_word_of_something_to_run_says_nothing_about_the_way_to_the_store(worker: Worker) -> None:
    worker.gets(LIMITS.lookahead, delay=0, pace=0)
    for _ in range(LIMITS.lookahead):
        worker.ahead.take()
    worker.timing.asked()
    worker.timing.look()
    receipt = Receipt(Counts(waiting=WAITING), Seeding.DONE)
    worker.timing.answered(Batch(worker="w", seq=2), receipt)
    assert worker.timing._trip < 60
