"""Servers that are more than one: a cluster, a set that sentinels watch, and one that speaks TLS."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis

from tests.certificates import Authority
from tests.servers import START_TIMEOUT, RedisServer, free_port

SLOTS = 16384


def until(what: Callable[[], bool], seconds: float = START_TIMEOUT) -> None:
    """Wait for servers to agree among themselves; they tell nobody when they have."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if what():
                return
        except (redis.ConnectionError, redis.ResponseError):
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "the servers did not come to terms"
        time.sleep(0.02)


class Cluster:
    """Nodes that share the keys among them."""

    def __init__(self, binary: str, folder: Path, *options: str, nodes: int = 3) -> None:
        self.folder = folder
        self.nodes: list[RedisServer] = []
        for number in range(nodes):
            bus = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
            place = folder / str(number)
            self.nodes.append(RedisServer(binary, place, *bus, *options, port=free_port()))

    @property
    def places(self) -> str:
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    @property
    def url(self) -> str:
        return f"redis+cluster://{self.places}"

    def start(self) -> Cluster:
        share = SLOTS // len(self.nodes) + 1
        for number, node in enumerate(self.nodes):
            client: Any = node.start().client()
            last = min(share * (number + 1), SLOTS) - 1
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", share * number, last)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            for other in self.nodes[:number]:
                bus = other.options[other.options.index("--cluster-port") + 1]
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, bus)
        self.wait()
        return self

    def wait(self) -> None:
        """Until every node knows where every key belongs."""
        for node in self.nodes:
            until(lambda node=node: self._knows_all(node))  # type: ignore[misc]

    def _knows_all(self, node: RedisServer) -> bool:
        client: Any = node.client()
        told = client.execute_command("CLUSTER", "INFO")
        facts = told if isinstance(told, dict) else dict(line.split(":") for line in told.decode().split())
        return facts["cluster_state"] == "ok" and int(facts["cluster_size"]) == len(self.nodes)

    def node_of(self, key: str) -> RedisServer:
        client: Any = self.nodes[0].client()
        slot = client.execute_command("CLUSTER", "KEYSLOT", key)
        return self.nodes[slot // (SLOTS // len(self.nodes) + 1)]

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class SentinelServer(RedisServer):
    """One of those who watch. It writes down what it knows in its configuration."""

    def __init__(self, binary: str, folder: Path, port: int, lines: list[str]) -> None:
        super().__init__(binary, folder, port=port)
        folder.mkdir(parents=True)
        (folder / "conf").write_text("\n".join([f"port {port}", f"dir {folder}", *lines, ""]))

    def arguments(self) -> list[str]:
        return [str(self.folder / "conf"), "--sentinel"]

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)


class Watched:
    """A master and its replica, and three sentinels that put the replica in its place."""

    SERVICE = "fleet"
    DOWN_AFTER = 500
    """Milliseconds of silence after which a sentinel takes the master for dead."""

    def __init__(self, binary: str, folder: Path, *options: str) -> None:
        self.binary = binary
        self.folder = folder
        quick = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", *options)
        self.servers = [RedisServer(binary, folder / name, *quick, port=free_port()) for name in "ab"]
        self.sentinels: list[SentinelServer] = []

    @property
    def places(self) -> str:
        return ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)

    @property
    def url(self) -> str:
        return f"redis+sentinel://{self.places}/{self.SERVICE}/0"

    def start(self) -> Watched:
        master, replica = self.servers
        master.start()
        replica.start()
        replica.client().replicaof("127.0.0.1", str(master.port))
        until(lambda: replica.client().info("replication")["master_link_status"] == "up")
        # They would find each other by themselves, but that takes them seconds.
        known = [(free_port(), secrets.token_hex(20)) for _ in range(3)]
        for port, own in known:
            lines = [
                f"sentinel myid {own}",
                f"sentinel monitor {self.SERVICE} 127.0.0.1 {master.port} 2",
                f"sentinel down-after-milliseconds {self.SERVICE} {self.DOWN_AFTER}",
                f"sentinel failover-timeout {self.SERVICE} 5000",
                f"sentinel known-replica {self.SERVICE} 127.0.0.1 {replica.port}",
                *(
                    f"sentinel known-sentinel {self.SERVICE} 127.0.0.1 {other} {id}"
                    for other, id in known
                    if other != port
                ),
            ]
            self.sentinels.append(SentinelServer(self.binary, self.folder / str(port), port, lines))
        for sentinel in self.sentinels:
            sentinel.start()
        for sentinel in self.sentinels:
            until(lambda sentinel=sentinel: self._sees_all(sentinel))  # type: ignore[misc]
        return self

    def _sees_all(self, sentinel: SentinelServer) -> bool:
        facts: Any = sentinel.client().sentinel_master(self.SERVICE)
        (replica,) = sentinel.client().sentinel_slaves(self.SERVICE)
        return (
            facts["num-other-sentinels"] == 2
            and facts["flags"] == "master"
            and replica["flags"] == "slave"
            and replica["master-link-status"] == "ok"
        )

    def master(self) -> RedisServer:
        """The server that is master now, as far as it knows."""
        (master,) = (server for server in self.servers if server.process and self._role(server) == "master")
        return master

    def _role(self, server: RedisServer) -> str:
        role: str = server.client().info("replication")["role"]
        return role

    def replicated(self) -> None:
        """Wait until the replica has all that was written until now."""
        client: Any = self.master().client()
        with client.pipeline(transaction=False) as both:
            both.incr("written").wait(1, 10_000)
            assert both.execute()[1] == 1

    def stop(self) -> None:
        for server in (*self.sentinels, *self.servers):
            server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class TlsServer(RedisServer):
    """A server that lets nobody in but over TLS, and with a name and a password."""

    USER = "worker"
    PASSWORD = "s3cret/pass:word"
    """With signs that must be written otherwise in a URL."""

    def __init__(self, binary: str, folder: Path, rights: str) -> None:
        self.authority = Authority(folder)
        certificate, key = self.authority.certificate("127.0.0.1")
        self.tls_port = free_port()
        super().__init__(
            *(binary, folder, "--tls-port", str(self.tls_port), "--tls-auth-clients", "no"),
            *("--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
            *("--tls-ca-cert-file", str(self.authority.file)),
        )
        self.rights = rights

    def url_of(self, user: str, password: str, ca: Path | None) -> str:
        trust = f"?ssl_ca_certs={ca}" if ca else ""
        return f"rediss://{user}:{password}@127.0.0.1:{self.tls_port}/0{trust}"

    @property
    def url(self) -> str:
        written = self.PASSWORD.replace("/", "%2F").replace(":", "%3A")
        return self.url_of(self.USER, written, self.authority.file)

    def start(self) -> TlsServer:
        super().start()
        client: Any = self.client()
        client.execute_command("ACL", "SETUSER", self.USER, "on", f">{self.PASSWORD}", *self.rights.split())
        client.execute_command("ACL", "SETUSER", "default", "off")
        return self
