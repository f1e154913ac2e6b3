"""How things are shown: numbers, times, tables and colours, without any library."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def print_json(data: object) -> None:
    print(json.dumps(data, ensure_ascii=False), flush=True)


def on_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, *styles: str) -> str:
    """The text in these styles, where somebody looks at it."""
    if not on_terminal() or os.environ.get("NO_COLOR"):
        return text
    return f"\033[{';'.join(_STYLES[style] for style in styles)}m{text}\033[0m"


def plain(text: str) -> str:
    """What comes from a store or a site must not steer the terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def agreed(question: str) -> bool:
    """Whether somebody is there who says yes."""
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        print()
        return False
    return answer.strip().lower() in ("y", "yes")


def number(value: float) -> str:
    return f"{value:,.0f}"


def count(value: int, noun: str, plural: str = "") -> str:
    """``1 request``, ``2 requests``."""
    return f"{number(value)} {noun if value == 1 else plural or f'{noun}s'}"


def duration(seconds: float) -> str:
    """``250 ms``, ``8 s``, ``12 min``, ``3.5 h``, ``2.1 days``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 ", " ")
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    if seconds < 7170:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"


def size(value: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, indent: int = 0) -> str:
    """Columns under their heads. A head that starts with ``>`` has its column on the right."""
    right = [name.startswith(">") for name in head]
    names = [name.removeprefix(">") for name in head]
    lines = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        parts = (
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(cells, widths, right, strict=True)
        )
        return (" " * indent + "  ".join(parts)).rstrip()

    return "\n".join([paint(line(names), "dim"), *(line(cells) for cells in lines)])
