"""Where items are written to, and how: lines of JSON, or a table (CSV); to the screen or to a file."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

from scrapy_fleet.errors import FleetError
from scrapy_fleet.ops.plain_json import dumps, jsonable

STDOUT = "The output"


class Output(Protocol):
    def write(self, item: dict[Any, Any]) -> None: ...
    def flush(self) -> None:
        """What was written is safe from now on."""


class Lines:
    """One JSON object a line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, item: dict[Any, Any]) -> None:
        self._file.write(dumps(item) + "\n")

    def flush(self) -> None:
        self._file.flush()
        if self._file is not sys.stdout:
            os.fsync(self._file.fileno())


class Table(Lines):
    """CSV. Only the given columns."""

    def __init__(self, file: TextIO, fields: Sequence[str], *, head: bool) -> None:
        super().__init__(file)
        self._fields = fields
        self._rows = csv.writer(file)
        if head and fields:
            self._rows.writerow(fields)

    def write(self, item: dict[Any, Any]) -> None:
        by_name = {str(name): value for name, value in item.items()}
        self._rows.writerow([_cell(by_name.get(name)) for name in self._fields])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    ready = jsonable(value)
    text = ready if isinstance(ready, str) else json.dumps(ready, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()


@contextmanager
def open_output(path: Path | None, format: str, fields: Sequence[str], *, append: bool) -> Iterator[Output]:
    """A whole file is put in its place when it is complete; one that grows is written where it is."""
    if path is None:
        with _errors(STDOUT):
            yield _writer(sys.stdout, format, fields, head=True)
        return
    target = path if append else path.with_name(f"{path.name}.part")
    with _errors(str(path)), target.open("a" if append else "w", encoding="utf-8", newline="") as file:
        output = _writer(file, format, fields, head=file.tell() == 0)
        yield output
        output.flush()
    if target is not path:
        target.replace(path)


@contextmanager
def _errors(what: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if what == STDOUT:
            # Python would stumble over what is left for it to write at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise FleetError(f"{what} cannot be written: {error.strerror}.") from error


def _writer(file: TextIO, format: str, fields: Sequence[str], *, head: bool) -> Output:
    return Table(file, fields, head=head) if format == "csv" else Lines(file)
