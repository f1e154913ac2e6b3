"""How far a command is, for people who wait for it."""

from __future__ import annotations

import sys
import time

EVERY = 0.1


class Progress:
    """Says on the terminal how far it is, and takes it away again."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._shown = False
        self._quiet = quiet or not sys.stderr.isatty()
        self._next = 0.0

    def __enter__(self) -> Progress:
        return self

    def tell(self, text: str) -> None:
        if not self._quiet and (now := time.monotonic()) >= self._next:
            self._shown, self._next = True, now + EVERY
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
