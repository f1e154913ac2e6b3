"""How a crawl begins, is resumed, finishes and begins anew."""

from __future__ import annotations

from collections.abc import Callable

from scrapy_fleet.model import Counts, Outcome, Plan, Seeding, Worker
from scrapy_fleet.store.base import Store

from .driver import WIDE, Hand, conserved, names, page, pages

KEEP = Plan(rule=WIDE.rule, keep_seen=True)


def finished(store: Store) -> None:
    """One whole run."""
    worker = Hand(store, "first")
    worker.commit(
        adds=(page("1", key=1), page("2", "b")),
        seeded=True,
        items=(b"item",),
        stats={"n": 1},
        state={"s": b"x"},
    )
    worker.settle(*worker.lease())
    worker.leave(finish=True)
    assert store.snapshot().status == "finished"


def test_status_of_a_crawl(store: Store) -> None:
    assert store.snapshot().status == "new"
    worker = Hand(store)
    assert store.snapshot().status == "seeding"
    worker.commit(adds=pages("1"), seeded=True)
    assert store.snapshot().status == "running"
    worker.leave()
    assert store.snapshot().status == "stopped"
    worker = Hand(store)
    assert store.snapshot().status == "running"
    worker.settle(*worker.lease())
    worker.leave(finish=True)
    assert store.snapshot().status == "finished"


def test_the_first_run_is_number_one_and_not_resumed(store: Store) -> None:
    joined = Hand(store).joined
    assert (joined.run, joined.resumed, joined.counts) == (1, False, Counts())
    assert store.snapshot().run == 1


def test_an_unfinished_crawl_is_resumed(make_store: Callable[..., Store]) -> None:
    worker = Hand(make_store(), "w1")
    worker.commit(adds=pages("1", "2", "3"), seeded=True, state={"page": b"7"})
    done, _ = worker.lease(2)
    worker.leave(outcomes=(Outcome(done.token),))
    second = Hand(make_store(), "w2")
    assert (second.joined.run, second.joined.resumed) == (1, True)
    assert second.joined.state == {"page": b"7"}
    assert second.joined.counts == Counts(accepted=3, waiting=2, done=1)
    assert second.joined.seeding is Seeding.DONE
    assert names(second.lease()) == ["2", "1"]


def test_a_crawl_with_something_left_does_not_finish(store: Store) -> None:
    worker = Hand(store, "w1")
    worker.commit(adds=pages("1"), seeded=True)
    worker.leave(finish=True)
    assert store.snapshot().status == "stopped"


def test_a_crawl_in_which_another_holds_something_does_not_finish(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.commit(adds=pages("1"), seeded=True)
    two.lease()
    one.leave(finish=True)
    assert store.snapshot().status == "running"


def test_what_the_leaving_worker_still_holds_is_left(store: Store) -> None:
    worker = Hand(store)
    worker.commit(adds=pages("1"), seeded=True, want=1)
    worker.leave(finish=True)
    assert store.snapshot().status == "stopped"


def test_a_crawl_that_is_not_seeded_does_not_finish(store: Store) -> None:
    worker = Hand(store)
    worker.leave(finish=True)
    assert store.snapshot().status == "stopped"


def test_a_crawl_finishes_with_its_last_batch(store: Store) -> None:
    worker = Hand(store)
    worker.commit(adds=pages("1"), seeded=True)
    (lease,) = worker.lease()
    worker.leave(outcomes=(Outcome(lease.token),), finish=True)
    assert store.snapshot().status == "finished"


def test_dead_entries_do_not_keep_a_crawl_open(store: Store) -> None:
    worker = Hand(store)
    worker.commit(adds=pages("1"), seeded=True)
    worker.settle(*worker.lease(), dead="why")
    worker.leave(finish=True)
    assert store.snapshot().status == "finished"


def test_finish_without_leave_means_nothing(store: Store) -> None:
    worker = Hand(store)
    worker.commit(seeded=True)
    worker.commit(finish=True)
    assert store.snapshot().status == "running"


def test_a_finished_crawl_begins_anew(store: Store) -> None:
    finished(store)
    worker = Hand(store)
    assert (worker.joined.run, worker.joined.resumed) == (2, False)
    assert worker.joined.counts == Counts()
    assert worker.joined.state == {}
    assert worker.joined.seeding is Seeding.MINE
    snapshot = store.snapshot()
    assert (snapshot.run, snapshot.seen, snapshot.slot_count, snapshot.stats) == (2, 0, 0, {})
    assert snapshot.status == "seeding"
    assert worker.add(page("1", key=1)).known == ()
    conserved(store)


def test_a_new_run_forgets_the_dead(store: Store) -> None:
    worker = Hand(store)
    worker.commit(adds=pages("1"), seeded=True)
    worker.settle(*worker.lease(), dead="why")
    worker.leave(finish=True)
    Hand(store, "w2")
    assert store.scan("dead") == []
    assert store.requeue() == 0


def test_a_new_run_keeps_the_items(store: Store) -> None:
    finished(store)
    Hand(store).commit(items=(b"second",))
    assert [item for _, item in store.items()] == [b"item", b"second"]
    assert store.snapshot().items == 2


def test_a_new_run_may_keep_what_was_seen(store: Store) -> None:
    finished(store)
    worker = Hand(store, plan=KEEP)
    assert store.snapshot().seen == 1
    receipt = worker.add(page("1", key=1), page("3", key=3))
    assert receipt.known == (0,)
    assert receipt.counts.accepted == 1


def test_the_second_worker_of_a_new_run_joins_it(store: Store) -> None:
    finished(store)
    Hand(store, "w1").add(*pages("1"))
    two = Hand(store, "w2")
    assert (two.joined.run, two.joined.resumed, two.joined.seeding) == (2, True, Seeding.OTHER)
    assert two.joined.counts.accepted == 1


def test_a_worker_that_lingers_does_not_reopen_a_finished_crawl(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.commit(adds=pages("1"), seeded=True)
    one.settle(*one.lease())
    one.leave(finish=True)
    two.commit(stats={"n": 1}, want=5)
    two.beat()
    two.leave()
    assert store.snapshot().status == "finished"


def test_what_is_accepted_after_the_end_is_not_lost(store: Store) -> None:
    one, two = Hand(store, "w1"), Hand(store, "w2")
    one.commit(seeded=True)
    one.leave(finish=True)
    two.add(*pages("late"))
    three = Hand(store, "w3")
    assert (three.joined.run, three.joined.counts.waiting) == (1, 1)
    assert names(three.lease()) == ["late"]


def test_an_open_file_left_behind_is_the_same_crawl(make_store: Callable[..., Store]) -> None:
    worker = Hand(make_store())
    worker.commit(adds=pages("1", "2"), seeded=True, items=(b"i",), stats={"n": 2})
    assert make_store().snapshot() == worker.store.snapshot()


def test_a_worker_that_comes_back_does_not_begin_anew(store: Store) -> None:
    worker = Hand(store)
    worker.commit(adds=pages("1"), seeded=True)
    worker.settle(*worker.lease())
    run = store.snapshot().run
    worker.leave(finish=True)
    back = store.join(Worker("back"), Plan(), 30, run=run)
    assert (back.run, back.seeding, back.counts.done) == (run, Seeding.DONE, 1)
    assert store.snapshot().status == "finished"
    assert store.join(Worker("new"), Plan(), 30).run == run + 1
