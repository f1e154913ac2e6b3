"""Servers that a fleet is stored on, to be hurt."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.servers import RedisServer, free_port, redis_binary, valkey_binary

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""Nothing that was answered is lost when the server dies."""


def needed_binary() -> str:
    """Valkey, else Redis; without both the test is skipped, but not in CI."""
    binary = valkey_binary() or redis_binary()
    if binary is None:
        if os.environ.get("CI"):
            pytest.fail("a server that the tests need is not installed")
        pytest.skip("no server is installed")
    return binary


@contextmanager
def a_server(binary: str, *options: str) -> Iterator[RedisServer]:
    # Paths of sockets must be short: not pytest's folders.
    folder = Path(tempfile.mkdtemp(prefix="fleet-"))
    server = RedisServer(binary, folder, *options, port=free_port())
    try:
        yield server.start()
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def durable(binary: str) -> Iterator[RedisServer]:
    """One that survives being killed."""
    with a_server(binary, *DURABLE) as server:
        yield server
