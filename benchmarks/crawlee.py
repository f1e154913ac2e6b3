"""Crawlee's request queue on SQLite, to be measured beside us: in an environment of its own.

``python -m benchmarks.crawlee speed FOLDER NUMBER`` (with that environment's Python) adds requests, then
fetches each and marks it as handled, and prints how many seconds both took; ``hold`` fetches some and waits
to be killed; ``look`` says what another client then gets, and when the queue gives it what was held.

The pragmas are those that Crawlee sets itself, but for ``synchronous``, which is ``FULL`` as on the other
sides: a request that was handled stays handled after a power cut.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from benchmarks.environments import CRAWLEE, NoPeer, python_of, version_of
from benchmarks.measure import ROOT, scratch

BATCH = 500
"""How many are added at once: as many as on our side."""
HELD = 5
PRAGMAS = {
    "journal_mode": "WAL",
    "synchronous": "FULL",
    "cache_size": 100_000,
    "temp_store": "MEMORY",
    "mmap_size": 268_435_456,
    "foreign_keys": "ON",
    "busy_timeout": 30_000,
}


# On our side


def find() -> dict[str, Any]:
    """Its Python and version; or why there is none."""
    try:
        return {"python": python_of(CRAWLEE), "version": version_of(CRAWLEE)}
    except NoPeer as error:
        return {"python": None, "no_peer": f"it cannot be installed: {error}"}


def speed(python: str, folder: str, number: int) -> tuple[float, float]:
    """Seconds to add so many requests, and to fetch each and mark it as handled."""
    with _child(python, "speed", folder, str(number)) as child:
        added, handled = json.loads(_answer(child))
    return added, handled


def takeover(python: str) -> dict[str, Any]:
    """A client is killed while it has requests in hand: what another one gets, and in how many seconds from
    when they were fetched it gets those. Read from the queue's own table, not waited for."""
    with scratch() as folder:
        with _child(python, "hold", folder) as child:
            _answer(child)
            child.kill()
        with _child(python, "look", folder) as child:
            found: dict[str, Any] = json.loads(_answer(child))
    return found


def _child(python: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-m", "benchmarks.crawlee", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _answer(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise SystemExit(f"Crawlee's queue cannot be measured: {child.args!r} ended without an answer.")
    return line


# On its side: only in the environment made for it


async def opened(folder: str) -> tuple[Any, Any]:
    """A queue in the file of this folder, and what keeps it."""
    from crawlee.configuration import Configuration  # type: ignore[import-not-found]
    from crawlee.storage_clients import SqlStorageClient  # type: ignore[import-not-found]
    from sqlalchemy import event  # type: ignore[import-not-found]
    from sqlalchemy.ext.asyncio import create_async_engine  # type: ignore[import-not-found]

    engine = create_async_engine(
        f"sqlite+aiosqlite:///{Path(folder, 'crawlee.db')}", pool_recycle=600, pool_pre_ping=True
    )

    @event.listens_for(engine.sync_engine, "connect")  # type: ignore[untyped-decorator]
    def set_pragmas(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        for name, value in PRAGMAS.items():
            cursor.execute(f"PRAGMA {name}={value}")
        cursor.close()

    warnings.simplefilter("ignore")  # it says that it is experimental
    storage = SqlStorageClient(engine=engine)
    queue = await storage.create_rq_client(configuration=Configuration(purge_on_start=False))
    return storage, queue


def requests(number: int) -> list[Any]:
    """What is put into the queues of the other sides."""
    from crawlee import Request  # type: ignore[import-not-found]

    return [
        Request.from_url(f"http://127.0.0.1/p/{n}", label="parse", user_data={"depth": 3})
        for n in range(number)
    ]


async def measured(folder: str, number: int) -> list[float]:
    storage, queue = await opened(folder)
    given = requests(number)
    began = time.perf_counter()
    for start in range(0, number, BATCH):
        await queue.add_batch_of_requests(given[start : start + BATCH])
    added = time.perf_counter()
    handled = 0
    while (request := await queue.fetch_next_request()) is not None:
        await queue.mark_request_as_handled(request)
        handled += 1
    ended = time.perf_counter()
    await storage.close()
    if handled != number:
        raise SystemExit(f"{handled} of {number} requests came back from Crawlee's queue.")
    return [added - began, ended - added]


async def hold(folder: str) -> None:
    _, queue = await opened(folder)
    await queue.add_batch_of_requests(requests(HELD))
    if await queue.fetch_next_request() is None:
        raise SystemExit("Crawlee's queue gave nothing.")
    print("held", flush=True)
    sys.stdin.read()


async def look(folder: str) -> dict[str, Any]:
    from crawlee.storage_clients._sql._db_models import RequestDb  # type: ignore[import-not-found]
    from sqlalchemy import select

    storage, queue = await opened(folder)
    given = await queue.fetch_next_request()
    async with storage.create_session() as session:
        rows = (await session.execute(select(RequestDb.time_blocked_until))).scalars().all()
    await storage.close()
    now = time.time()
    blocked = [row.timestamp() - now for row in rows if row is not None]
    return {
        "given": given is not None,
        "held": len(blocked),
        "left": max(blocked, default=0.0),
        "seconds": float(queue._BLOCK_REQUEST_TIME),
    }


def main() -> None:
    what, folder, *more = sys.argv[1:]
    if what == "speed":
        print(json.dumps(asyncio.run(measured(folder, int(more[0])))))
    elif what == "hold":
        asyncio.run(hold(folder))
    else:
        print(json.dumps(asyncio.run(look(folder))))


if __name__ == "__main__":
    main()
