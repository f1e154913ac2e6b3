"""What a server says of itself, as far as it may be asked: for ``doctor``, and for a word at start."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from msgspec import Struct
from redis.exceptions import RedisClusterException, RedisError

from scrapy_fleet.errors import FleetError
from scrapy_fleet.store.redis.address import connect
from scrapy_fleet.store.redis.packing import prefix
from scrapy_fleet.store.redis.server import ours

ROUNDS = 5
NAMES = "fleet:{*}:meta"
_ERRORS = (RedisError, RedisClusterException, OSError)

Ask = Callable[..., Any]
"""Sends a command, as ``execute_command`` of a client does."""


class Health(Struct):
    """None: the server does not say, or its user may not ask."""

    version: str | None = None
    brand: str = "Redis"
    append_only: bool | None = None
    snapshots: str | None = None
    """When it writes snapshots, as ``save`` has it; empty: never."""
    write_failed: bool = False
    """It could not write to its disk the last time."""
    policy: str | None = None
    used: int | None = None
    limit: int | None = None
    """Bytes that it may use; 0: no limit."""
    round_trip: float = 0.0
    clock: float = 0.0
    """By how many seconds its clock is ahead of ours."""
    scripts: str | None = None
    """Why scripts cannot be run; None if they can."""

    @property
    def evicts(self) -> bool:
        return self.policy is not None and self.policy != "noeviction"

    @property
    def forgets(self) -> bool:
        """It keeps nothing on disk."""
        return self.append_only is False and self.snapshots == ""


def crawl_names(url: str, shown: str) -> list[str]:
    """The crawls on a server. Goes through all its keys: for people who look, never for a crawl."""
    client = connect(url, shown)
    try:
        found = {_text(key) for key in client.scan_iter(match=NAMES, count=1000)}
    except _ERRORS as error:
        raise ours(error, shown) from error
    finally:
        client.close()
    return sorted(unquote(key[len("fleet:{") : -len("}:meta")]) for key in found)


def examine(url: str, shown: str, crawl: str) -> Health:
    """Ask the server that has this crawl, or would have it."""
    key = f"{prefix(crawl)}meta"
    client = connect(url, shown)
    try:
        node = _node_of(client, key)
        health = Health()
        times: list[float] = []
        for _ in range(ROUNDS):
            began = time.monotonic()
            seconds, micros = node.time()
            times.append(time.monotonic() - began)
            health.clock = seconds + micros / 1e6 - (time.time() - times[-1] / 2)
        health.round_trip = statistics.median(times)
        _fill(health, node.execute_command)
        try:
            node.eval("return redis.call('EXISTS', KEYS[1])", 1, key)
        except RedisError as error:
            health.scripts = str(error)
        return health
    except _ERRORS as error:
        raise ours(error, shown) from error
    finally:
        client.close()


def warnings(ask: Ask, shown: str) -> list[str]:
    """What a worker should say when it starts."""
    health = Health()
    _fill(health, ask)
    told: list[str] = []
    if health.evicts:
        told.append(
            f"{shown} throws away keys when it is full (maxmemory-policy {health.policy}): it may lose "
            "parts of this crawl. Set it: CONFIG SET maxmemory-policy noeviction"
        )
    if health.forgets:
        told.append(
            f"{shown} writes nothing to disk: if it is restarted, the crawl is lost. "
            "Let it write: CONFIG SET appendonly yes"
        )
    return told


def _node_of(client: Any, key: str) -> Any:
    """The server itself: of a cluster, the node that has the key."""
    if hasattr(client, "get_node_from_key"):
        return client.get_redis_connection(client.get_node_from_key(key))
    return client


def _fill(health: Health, ask: Ask) -> None:
    server, memory = _info(ask, "server"), _info(ask, "memory")
    disk = _info(ask, "persistence")
    health.version = server.get("valkey_version") or server.get("redis_version")
    if "valkey_version" in server:
        health.brand = "Valkey"
    health.policy = memory.get("maxmemory_policy") or _config(ask, "maxmemory-policy")
    health.used, health.limit = memory.get("used_memory"), memory.get("maxmemory")
    if "aof_enabled" in disk:
        health.append_only = bool(disk["aof_enabled"])
    elif (on := _config(ask, "appendonly")) is not None:
        health.append_only = on == "yes"
    health.snapshots = _config(ask, "save")
    health.write_failed = "err" in (disk.get("rdb_last_bgsave_status"), disk.get("aof_last_write_status"))


def _info(ask: Ask, section: str) -> dict[str, Any]:
    return _answer(ask, "INFO", section)


def _config(ask: Ask, name: str) -> str | None:
    value = _answer(ask, "CONFIG GET", name).get(name)
    return None if value is None else _text(value)


def _answer(ask: Ask, *command: str) -> dict[str, Any]:
    try:
        found = ask(*command)
    except (*_ERRORS, FleetError):  # its user may not ask, as on many hosted servers
        return {}
    return found if isinstance(found, dict) else {}


def _text(data: bytes | str) -> str:
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else data
