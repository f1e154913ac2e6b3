"""Every accepted request comes out, whoever dies."""

from __future__ import annotations

import pytest

from scrapy_fleet.store.redis import RedisStore
from tests.crash.history import CRAWL, make_history
from tests.servers import RedisServer

pytestmark = pytest.mark.crash


def test_every_accepted_request_comes_out(server: RedisServer) -> None:
    history = make_history(server, seed=1, clients=6, seconds=5, kills=4)
    report = history.report()
    print(report)
    assert not history.unlike
    assert not history.lost, report
    assert not history.unexpected, report
    assert not history.unexplained, report
    assert not history.came_late, report
    assert min(history.deaths, len(history.recovered), history.repeated.total()) > 0, report
    store = RedisStore(server.url, CRAWL)
    counts = store.snapshot().counts
    store.close()
    assert counts.accepted == counts.done == len(history.out), report
