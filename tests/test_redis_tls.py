"""TLS on both sides, and to sentinels and clusters."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scrapy_fleet.errors import FleetError
from scrapy_fleet.model import Batch, Entry, Plan, Rule, Worker
from scrapy_fleet.settings import open_store
from tests.certificates import Authority
from tests.server_sets import SentinelServer, until
from tests.servers import RedisServer, free_port, redis_binary, required

PLAN = Plan(rule=Rule(concurrency=1000))


class Keys:
    """An authority, and what it signed for this machine."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.certificate, self.key = self.authority.certificate("127.0.0.1")

    def options(self, port: int) -> dict[str, str]:
        return {
            "tls-port": str(port),
            "tls-auth-clients": "yes",
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-ca-cert-file": str(self.authority.file),
        }

    @property
    def trust(self) -> str:
        return f"ssl_ca_certs={self.authority.file}"

    @property
    def shown(self) -> str:
        """What a client shows of itself."""
        return f"ssl_certfile={self.certificate}&ssl_keyfile={self.key}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        yield Path(name)


@pytest.fixture
def keys(folder: Path) -> Keys:
    return Keys(folder / "keys")


def server(folder: Path, options: dict[str, str]) -> RedisServer:
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return RedisServer(required(redis_binary()), folder, *words)


def works(url: str) -> None:
    store = open_store(url, "c")
    store.join(Worker("w"), PLAN, 60)
    assert len(store.commit(Batch(worker="w", seq=1, adds=(Entry("a", b"x"),), want=1)).leases) == 1
    store.close()


def refused(url: str) -> None:
    with pytest.raises(FleetError) as told:
        works(url)
    assert "Traceback" not in str(told.value)


def test_a_server_that_asks_for_certificates_of_its_clients(folder: Path, keys: Keys) -> None:
    port = free_port()
    one = server(folder / "one", keys.options(port)).start()
    try:
        works(f"rediss://127.0.0.1:{port}/0?{keys.trust}&{keys.shown}")
        refused(f"rediss://127.0.0.1:{port}/0?{keys.trust}")
    finally:
        one.stop()


def test_a_cluster_over_tls(folder: Path, keys: Keys) -> None:
    port = free_port()
    options = {"cluster-enabled": "yes", "tls-cluster": "yes", "cluster-port": str(free_port())}
    node = server(folder / "node", {**keys.options(port), **options}).start()
    try:
        client: Any = node.client()
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: "cluster_state:ok" in str(client.execute_command("CLUSTER", "INFO")))
        works(f"rediss+cluster://127.0.0.1:{port}?{keys.trust}&{keys.shown}")
        refused(f"rediss+cluster://127.0.0.1:{port}?{keys.shown}")
    finally:
        node.stop()


def test_sentinels_over_tls(folder: Path, keys: Keys) -> None:
    port, watch = free_port(), free_port()
    master = server(folder / "master", keys.options(port)).start()
    options = {**keys.options(watch), "tls-replication": "yes"}
    lines = [
        *(f"{name} {value}" for name, value in options.items()),
        f"unixsocket {folder}/watcher/s",
        f"sentinel monitor fleet 127.0.0.1 {port} 1",
    ]
    watcher = OnSocket(required(redis_binary()), folder / "watcher", 0, lines)
    try:
        watcher.start()
        url = f"rediss+sentinel://127.0.0.1:{watch}/fleet/0"
        works(f"{url}?{keys.trust}&{keys.shown}")
        refused(f"{url}?{keys.shown}")
    finally:
        watcher.stop()
        master.stop()


class OnSocket(SentinelServer):
    """One that has no door without TLS but its socket."""

    def client(self) -> Any:
        return RedisServer.client(self)
