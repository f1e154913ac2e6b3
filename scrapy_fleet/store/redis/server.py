"""The server: its scripts, and its errors in our words."""

from __future__ import annotations

import hashlib
import re
import secrets
from functools import cache
from importlib.resources import files
from typing import Any

from redis import Redis, exceptions
from redis.exceptions import RedisError

from scrapy_fleet.errors import FleetError, StoreAway, StoreError
from scrapy_fleet.store.redis.address import connect

OLDEST = "6.2"
RIGHTS = "~fleet:* +@all -@dangerous +info"
"""What a user of the server must be allowed, as ACL SETUSER takes it."""
_ERRORS = (RedisError, exceptions.RedisClusterException, OSError)
_BROKEN = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)


@cache
def script(verb: str) -> tuple[bytes, str]:
    """The text of a verb's script, with the shared parts where it needs them, and its name on the server."""
    folder = files("scrapy_fleet.store.redis").joinpath("lua")
    own = folder.joinpath(f"{verb}.lua").read_text(encoding="utf-8")

    def shared(needs: re.Match[str]) -> str:
        parts = [folder.joinpath("shared", f"{name}.lua") for name in needs[1].split()]
        return "\n".join(part.read_text(encoding="utf-8") for part in parts)

    needs = re.compile(r"^ *-- needs: (.*)\n", flags=re.MULTILINE)
    while needs.search(own):
        own = needs.sub(shared, own)
    whole = own.encode()
    return whole, hashlib.sha1(whole, usedforsecurity=False).hexdigest()


def new_id() -> str:
    """For a crawl that is made."""
    return f"i{secrets.token_hex(8)}"


class Server:
    """Runs scripts on the keys of one crawl."""

    def __init__(self, url: str, shown: str, key: str) -> None:
        self._url = url
        self._shown = shown
        self._key = key
        self._pool: Any = None
        self._client: Any = None

    def run(self, verb: str, *args: bytes | str | float, keys: tuple[str, ...] = ()) -> list[Any]:
        """Run a verb's script; ``keys`` are those it touches that are not the crawl's."""
        return self.run_on(self._key, verb, *args, keys=keys)

    def run_on(
        self, key: str, verb: str, *args: bytes | str | float, keys: tuple[str, ...] = ()
    ) -> list[Any]:
        whole, name = script(verb)
        words = (1 + len(keys), key, *keys, *args)
        try:
            try:
                answer = self._connected().execute_command("EVALSHA", name, *words)
            except exceptions.NoScriptError:
                # A server that was restarted, or another one after a failover.
                answer = self._client.execute_command("EVAL", whole, *words)
        except _ERRORS as error:
            raise self._failed(error) from error
        assert isinstance(answer, list)
        return answer

    def command(self, *args: bytes | str | float) -> Any:
        """Run a command that only reads."""
        try:
            return self._connected().execute_command(*args)
        except _ERRORS as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> FleetError:
        if isinstance(self._client, Redis) and isinstance(error, _BROKEN):
            # The next call asks anew where the server is: by sentinels, another may have its place by now.
            # And a late answer is not taken for one to the next call.
            self.close()
        return ours(error, self._shown)

    def _connected(self) -> Any:
        if self._client is None:
            self._pool = connect(self._url, self._shown)
            # One connection for all calls. One that is taken from the pool for each is looked at before, and
            # while the thread does that, the loop takes the interpreter: a commit would go out after the
            # loop's work instead of beside it. One that was closed meanwhile is opened again as well.
            one = isinstance(self._pool, Redis)
            self._client = self._pool.client() if one else self._pool
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._pool.close()
            self._client = None


def ours(error: Exception, shown: str) -> FleetError:
    """What passes by itself is StoreAway, what does not is StoreError."""
    said = _words(error)
    for pattern, kind, remedy in _SAID:
        if re.search(pattern, said, re.IGNORECASE):
            return kind(f"{shown}: {remedy} ({said})")
    if isinstance(error, exceptions.AuthenticationError):
        return StoreError(f"{shown}: the user or password is wrong ({said}). Set them in FLEET_URL.")
    if isinstance(error, exceptions.MovedError) or said.startswith("MOVED "):
        return StoreError(f"{shown} is part of a cluster: use redis+cluster:// in FLEET_URL.")
    if isinstance(error, exceptions.InvalidResponse):
        return StoreError(
            f"{shown} does not answer as Redis does ({said}). Check host and port in FLEET_URL."
        )
    if isinstance(error, exceptions.TimeoutError):
        return StoreAway(f"{shown} does not answer in time ({said}).")
    if isinstance(
        error,
        exceptions.ConnectionError
        | exceptions.ReadOnlyError
        | exceptions.ClusterError
        | exceptions.RedisClusterException
        | exceptions.TryAgainError
        | OSError,
    ):
        return StoreAway(f"{shown} cannot be reached or used now ({said}).")
    return StoreError(f"{shown}: {said}")


def _words(error: BaseException) -> str:
    if isinstance(error, exceptions.RedisClusterException):
        # Whatever a node said, the client takes it for no cluster: its first words are in the chain.
        while (earlier := error.__cause__ or error.__context__) is not None:
            error = earlier
    # The client's way to show itself, and arguments of commands, help nobody.
    return str(error).partition(" : <")[0].partition(", with args beginning")[0]


_SAID: tuple[tuple[str, type[FleetError], str], ...] = (
    (
        r"^OOM |command not allowed when used memory|OOM command",
        StoreAway,
        "the server is full (maxmemory). Raise maxmemory, or remove what is not needed",
    ),
    (
        r"Hostname mismatch|IP address mismatch",
        StoreError,
        "its certificate is for another name: use that name in FLEET_URL",
    ),
    (r"certificate has expired", StoreError, "its certificate has expired: renew it"),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        StoreError,
        "its certificate is not trusted: name the authority that signed it, ?ssl_ca_certs=/path/to/ca.pem",
    ),
    (
        r"\[X509|PEM lib|KEY_VALUES_MISMATCH",
        StoreError,
        "a file that FLEET_URL names is no certificate, or no key",
    ),
    (r"WRONG_VERSION_NUMBER|record layer failure", StoreError, "it does not speak TLS: use redis://"),
    (
        r"WRONGPASS|NOAUTH|invalid (password|username-)|authentication required|HELLO must|unauthenticated",
        StoreError,
        "the user or password is wrong; set them in FLEET_URL, as in redis://user:password@host:6379/0",
    ),
    (
        r"NOPERM|no permission|executing the script can't",
        StoreError,
        f"the user lacks rights; give them: ACL SETUSER <user> {RIGHTS}",
    ),
    (
        r"(DB index is out of range|invalid DB index)",
        StoreError,
        "there is no such database; name another in FLEET_URL",
    ),
    (
        r"cluster support disabled|Cluster mode is not enabled",
        StoreError,
        "it is no cluster: use redis:// instead of redis+cluster://",
    ),
    (
        r"a key is missing",
        StoreError,
        "keys of this crawl were deleted or evicted; set maxmemory-policy to noeviction",
    ),
    (
        r"non local key",
        StoreError,
        "the crawl is being moved to another node of the cluster: stop the fleet while that is done",
    ),
    (r"SELECT is not allowed in cluster mode", StoreError, "it is part of a cluster: use redis+cluster://"),
    (r"unknown command '?SENTINEL", StoreError, "it is no sentinel: use redis:// for the server itself"),
    (
        r"unknown command '?EVAL",
        StoreError,
        "it runs no scripts; if it is a sentinel, use redis+sentinel://host:26379/service",
    ),
    (
        r"unknown command",
        StoreError,
        f"it lacks commands that are needed; use Redis {OLDEST} or newer, or Valkey",
    ),
    (
        r"No master found",
        StoreAway,
        "no sentinel knows a master; if it stays so, check FLEET_URL, also the name of the service",
    ),
    (
        r"read only replica",
        StoreAway,
        "it is a replica; if it stays so, name the master in FLEET_URL, or its sentinels (redis+sentinel://)",
    ),
    (r"MISCONF", StoreAway, "the server cannot write to its disk and refuses changes; see its log"),
    (r"max number of clients", StoreAway, "the server has no connection left; raise maxclients"),
    (
        r"LOADING|MASTERDOWN|CLUSTERDOWN|READONLY|NOREPLICAS|BUSY |UNBLOCKED|TRYAGAIN",
        StoreAway,
        "the server is not ready",
    ),
)
