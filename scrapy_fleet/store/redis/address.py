"""Where a Redis or Valkey server is: the URLs that FLEET_URL may hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ConnectionError as NoConnection
from redis.retry import Retry
from redis.sentinel import Sentinel

from scrapy_fleet.errors import StoreError

SCHEMES = frozenset(
    f"{name}{tls}{way}"
    for name in ("redis", "valkey")
    for tls in ("", "s")
    for way in ("", "+sentinel", "+cluster")
) | {"unix"}

TIMEOUT = 5.0
"""Seconds the store's thread waits for an answer before it takes the server for away."""

_FORMS = (
    "Use redis://host:6379/0 (rediss:// for TLS), unix:///path/to/socket, "
    "redis+sentinel://host:26379,host:26379/service or redis+cluster://host:6379,host:6379."
)


def _number(value: str, what: str) -> int:
    # The text is not shown: where a password is badly written, it may be part of it.
    if not value.isdecimal():
        raise ValueError(f"{what} is no number (in a password, write / @ : ? # as %2F %40 %3A %3F %23)")
    return int(value)


def _yes(value: str) -> bool:
    if value.lower() not in ("1", "true", "yes", "0", "false", "no"):
        raise ValueError("it must be true or false")
    return value.lower() in ("1", "true", "yes")


def _file(value: str) -> str:
    if not Path(value).exists():
        raise ValueError("there is no such file")
    return value


def _verification(value: str) -> str:
    if value not in ("required", "optional", "none"):
        raise ValueError("it must be required, optional or none")
    return value


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "db": int,
    "username": str,
    "password": str,
    "client_name": str,
    "socket_timeout": float,
    "socket_connect_timeout": float,
    "ssl_ca_certs": _file,
    "ssl_ca_path": _file,
    "ssl_certfile": _file,
    "ssl_keyfile": _file,
    "ssl_password": str,
    "ssl_cert_reqs": _verification,
    "ssl_check_hostname": _yes,
    "sentinel_username": str,
    "sentinel_password": str,
}


class Whole:
    """Packs a command into one piece. The client would send large arguments one by one, and a thread that
    sends something may have to wait for the others of its process before it can go on."""

    def pack(self, name: str, *args: bytes | str | float) -> list[bytes]:
        words = [*name.split(), *args]
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts += (b"$%d\r\n" % len(data), data, b"\r\n")
        return [b"".join(parts)]


def connect(url: str, shown: str) -> Any:
    """A client for the server that a URL names. Nothing is sent yet."""
    try:
        parts = urlsplit(url)
        options = _read_options(parts)
        if parts.scheme == "unix":
            return _in_one_piece(
                redis.Redis(unix_socket_path=unquote(parts.path), **_path_is_all(parts, options))
            )
        way = parts.scheme.partition("+")[2]
        path = [unquote(part) for part in parts.path.split("/")[1:] if part]
        if way == "sentinel":
            return _in_one_piece(_sentinel(_hosts(parts, 26379), path, options))
        if way == "cluster":
            if path not in ([], ["0"]) or options.pop("db", 0):
                raise ValueError("a cluster has no numbered databases")
            nodes = [ClusterNode(*place) for place in _hosts(parts, 6379)]  # type: ignore[no-untyped-call]
            return RedisCluster(startup_nodes=nodes, **options)
        if path:
            options["db"] = _number(path[0], "the database")
        ((host, port),) = _hosts(parts, 6379)
        return _in_one_piece(redis.Redis(host=host, port=port, **options))
    except ValueError as error:
        raise StoreError(f"FLEET_URL = {shown!r} cannot be used: {error}. {_FORMS}") from None


def _in_one_piece(client: Any) -> Any:
    client.connection_pool.connection_kwargs["command_packer"] = Whole()
    return client


def _read_options(parts: SplitResult) -> dict[str, Any]:
    options: dict[str, Any] = {
        "socket_timeout": TIMEOUT,
        "socket_connect_timeout": TIMEOUT,
        "socket_keepalive": True,
        # A connection that was closed while idle is opened again; every call may be repeated.
        "retry": Retry(NoBackoff(), 1, (NoConnection,)),
    }
    user, password = _credentials(parts)
    if user:
        options["username"] = user
    if password:
        options["password"] = password
    tls = parts.scheme.partition("+")[0] in ("rediss", "valkeys")
    if tls:
        options["ssl"] = True
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise ValueError(f"there is no option {name!r}; there are {', '.join(_OPTIONS)}")
        if name.startswith("ssl_") and not tls:
            raise ValueError("options for TLS need rediss://")
        try:
            options[name] = _OPTIONS[name](value)
        except ValueError as error:
            raise ValueError(f"{name}={value}: {error}") from None
    if tls:
        # Old clients check it only when they are told to.
        options.setdefault("ssl_check_hostname", options.get("ssl_cert_reqs") != "none")
    return options


def _credentials(parts: SplitResult) -> tuple[str, str]:
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    return unquote(user), unquote(password)


def _path_is_all(parts: SplitResult, options: dict[str, Any]) -> dict[str, Any]:
    if not parts.path:
        raise ValueError("it has no path")
    for name in ("socket_keepalive",):
        options.pop(name, None)
    return options


def _hosts(parts: SplitResult, default: int) -> list[tuple[str, int]]:
    hosts: list[tuple[str, int]] = []
    for place in (parts.netloc.rpartition("@")[2] or "localhost").split(","):
        one = urlsplit(f"//{place}")
        _, colon, port = place.rpartition("]")[2].partition(":")
        hosts.append((one.hostname or "localhost", _number(port, "the port") if colon else default))
    if len(hosts) > 1 and "+" not in parts.scheme:
        raise ValueError("it names several hosts")
    return hosts


def _sentinel(hosts: list[tuple[str, int]], path: list[str], options: dict[str, Any]) -> Any:
    if not path:
        raise ValueError("it does not say which service the sentinels watch")
    if len(path) > 1:
        options["db"] = _number(path[1], "the database")
    own = {name: options[name] for name in options if name.startswith(("ssl", "socket_", "retry"))}
    for name in ("username", "password"):
        if f"sentinel_{name}" in options:
            own[name] = options.pop(f"sentinel_{name}")
    watching: Any = Sentinel(hosts, sentinel_kwargs=own)  # type: ignore[no-untyped-call]
    return watching.master_for(path[0], **options)
