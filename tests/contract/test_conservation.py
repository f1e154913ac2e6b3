"""Every accepted entry ends, and the counters add up on the way."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from scrapy_fleet.model import Outcome, Plan, Rule, Sample
from scrapy_fleet.store.base import Store

from .driver import Clock, Hand, conserved, crash, page

PLAN = Plan(rule=Rule(concurrency=5), slots={"s0": Rule(delay=0.5, concurrency=3)})


def test_a_crawl_with_crashes_reaches_every_page(make_store: Callable[..., Store], clock: Clock) -> None:
    """A tree of pages, three workers of which one dies now and then; each page is reached by one link."""
    random = Random(1)
    total = 400
    opened: set[bytes] = set()
    settled: list[bytes] = []
    hands = [Hand(make_store(), f"w{n}", PLAN) for n in range(3)]
    hands[0].commit(adds=(page("0", "s0", key=0, seed=True),), seeded=True)
    for step in range(20_000):
        turn = step % 3
        hand = hands[turn]
        leases = hand.lease(random.randint(1, 8))
        opened.update(lease.payload for lease in leases)
        clock.advance(0.25)
        if random.random() < 0.05:
            crash(hand.store, hand)
            hands[turn] = Hand(make_store(), f"w{step}", PLAN)
            continue
        adds = []
        for lease in leases:
            parent = int(lease.payload)
            children = range(3 * parent + 1, min(3 * parent + 4, total))
            adds += [page(str(child), f"s{child % 9}", key=child) for child in children]
        receipt = hand.commit(
            adds=tuple(adds),
            samples=tuple(Sample(lease.token, 0.1) for lease in leases),
            outcomes=tuple(Outcome(lease.token) for lease in leases),
        )
        settled += [lease.payload for lease in leases]
        if step % 50 == 0:
            conserved(hand.store)
        if not receipt.counts.open:
            break
    assert sorted(map(int, opened)) == list(range(total))
    assert sorted(map(int, settled)) == list(range(total))
    for hand in hands:
        hand.leave(finish=True)
    snapshot = hands[0].store.snapshot()
    assert (snapshot.status, snapshot.counts.done) == ("finished", total)
    conserved(hands[0].store)
