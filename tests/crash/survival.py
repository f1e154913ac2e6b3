"""What survives what, for every store and every way it can keep a crawl.

``docs/guarantees.md`` shows this table, and ``test_survival.py`` tries every cell of it.
"""

from __future__ import annotations

from typing import Literal

Mode = Literal[
    "SQLite, `full`",
    "SQLite, `normal`",
    "server, `appendfsync always`",
    "server, `appendfsync everysec`",
    "server, snapshots only",
    "server, nothing on disk",
    "`memory:`",
]

Event = Literal[
    "a worker is killed",
    "the store is away, or locked",
    "the server is stopped and started",
    "the server is killed",
    "the power fails",
    "the server is emptied",
]

Left = Literal["all", "all but the newest", "nothing", "-"]

FULL: Mode = "SQLite, `full`"
NORMAL: Mode = "SQLite, `normal`"
ALWAYS: Mode = "server, `appendfsync always`"
EVERYSEC: Mode = "server, `appendfsync everysec`"
SNAPSHOTS: Mode = "server, snapshots only"
NOTHING: Mode = "server, nothing on disk"
MEMORY: Mode = "`memory:`"

DURABILITY: dict[Mode, str] = {FULL: "full", NORMAL: "normal"}

OPTIONS: dict[Mode, tuple[str, ...]] = {
    ALWAYS: ("--appendonly", "yes", "--appendfsync", "always"),
    EVERYSEC: ("--appendonly", "yes", "--appendfsync", "everysec"),
    SNAPSHOTS: ("--save", "3600 1"),
    NOTHING: (),
}
"""How a server is started."""

COLUMNS: tuple[Mode, ...] = (FULL, NORMAL, ALWAYS, EVERYSEC, SNAPSHOTS, NOTHING, MEMORY)

_ROWS: dict[Event, tuple[Left, ...]] = {
    "a worker is killed": ("all", "all", "all", "all", "all", "all", "nothing"),
    "the store is away, or locked": ("all", "all", "all", "all", "all", "all", "-"),
    "the server is stopped and started": ("-", "-", "all", "all", "all", "nothing", "-"),
    "the server is killed": ("-", "-", "all", "all but the newest", "all but the newest", "nothing", "-"),
    "the power fails": (
        *("all", "all but the newest", "all", "all but the newest", "all but the newest"),
        *("nothing", "nothing"),
    ),
    "the server is emptied": ("-", "-", "nothing", "nothing", "nothing", "nothing", "-"),
}

SURVIVAL: dict[Event, dict[Mode, Left]] = {
    event: dict(zip(COLUMNS, cells, strict=True)) for event, cells in _ROWS.items()
}
