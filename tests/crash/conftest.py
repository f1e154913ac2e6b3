from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.servers import a_server, durable, needed_binary
from tests.servers import RedisServer


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of the test's own, which survives being killed."""
    with durable(needed_binary()) as server:
        yield server


@pytest.fixture(params=["sqlite", "server"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Where the crawl of the test is stored; None is the fleet's own file."""
    if request.param == "sqlite":
        return None
    server: RedisServer = request.getfixturevalue("server")
    return server.url


@pytest.fixture
def forgetful_server() -> Iterator[RedisServer]:
    """One that writes nothing down."""
    with a_server(needed_binary()) as server:
        yield server
