"""How the demo looks: a live display on a terminal where rich is installed, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from scrapy_fleet.model import Counts
from scrapy_fleet.ops.show import count, number, on_terminal, paint

if TYPE_CHECKING:
    from rich.console import RenderableType

STYLES = {"crawling": "green", "finished": "cyan", "killed": "bold red", "starting": "dim"}


class WorkerLine(NamedTuple):
    number: int
    pid: int
    state: str
    note: str


class Progress(NamedTuple):
    """What is shown at one moment."""

    pages: int
    total: int
    rate: float
    counts: Counts
    workers: list[WorkerLine]


class View(Protocol):
    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...

    def update(self, progress: Progress) -> None: ...

    def event(self, text: str) -> None: ...


def new_view(pages: int, workers: int, *, quiet: bool) -> View:
    if quiet:
        return Silent()
    print(paint("scrapy-fleet demo", "bold"))
    crawl = "1 worker crawls" if workers == 1 else f"{number(workers)} workers crawl"
    print(f"{crawl} {count(pages, 'page')} of a local site, with redirects, 404s and errors that heal.")
    print("They share one SQLite file. Half-way, one of them is killed.\n")
    if on_terminal():
        try:
            return Live()
        except ImportError:
            pass
    return Lines()


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        pass

    def update(self, progress: Progress) -> None:
        pass

    def event(self, text: str) -> None:
        pass


class Lines(Silent):
    """A line a second, and one for everything that happens."""

    def __init__(self) -> None:
        self._next = 0.0

    def update(self, progress: Progress) -> None:
        over = all(worker.state not in ("crawling", "starting") for worker in progress.workers)
        if time.monotonic() < self._next and not over:
            return
        self._next = time.monotonic() + 1
        crawling = sum(worker.state == "crawling" for worker in progress.workers)
        print(
            f"  {number(progress.pages):>6} of {number(progress.total)} pages  {progress.rate:4.0f}/s   "
            f"{_frontier(progress.counts)}   {count(crawling, 'worker')}",
            flush=True,
        )

    def event(self, text: str) -> None:
        print(f"* {text}", flush=True)


def _frontier(counts: Counts) -> str:
    return f"{number(counts.waiting)} waiting, {number(counts.leased)} in hand, {number(counts.done)} done"


class Live(Silent):
    """A bar, the frontier and the workers, drawn over and over in place."""

    def __init__(self) -> None:
        from rich.live import Live as RichLive

        self._live = RichLive(auto_refresh=False)

    def __enter__(self) -> Live:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, progress: Progress) -> None:
        self._live.update(self._draw(progress), refresh=True)

    @staticmethod
    def _draw(progress: Progress) -> RenderableType:
        from rich.columns import Columns
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bar = ProgressBar(total=progress.total, completed=progress.pages, width=40)
        label = Text.assemble(
            (f"{number(progress.pages)}", "bold"),
            f" of {number(progress.total)} pages  ",
            (f"{progress.rate:.0f}/s", "cyan"),
        )
        workers = Table.grid(padding=(0, 2))
        for worker in progress.workers:
            workers.add_row(
                Text(f"  worker {worker.number}"),
                Text(f"pid {worker.pid}", style="dim"),
                Text(worker.state, style=STYLES.get(worker.state, "red")),
                Text(worker.note, style="dim"),
            )
        frontier = Text(f"  {_frontier(progress.counts)}", style="dim")
        return Group(Columns([Text(" "), bar, label]), frontier, Text(), workers)


def print_verdict(verdict: dict[str, Any]) -> None:
    killed = verdict["killed"]
    if killed:
        bound = f"at most {number(verdict['repeated_at_most'])}: what the killed worker had in hand"
    else:
        bound = "no worker was killed: the crawl was over too soon"
    repeats, lost = verdict["items_repeated"], verdict["items_lost"]
    items = "each once" if not repeats and not lost else f"{number(lost)} lost, {number(repeats)} repeated"
    ends = [f"{name} {reason}" for name, reason in verdict["workers"].items()]
    rows = [
        ("reached", number(verdict["reached"]), f"of {number(verdict['pages'])} pages"),
        ("lost", number(verdict["lost"]), ""),
        ("repeated", number(verdict["repeated"]), f"({bound})"),
        ("items", number(verdict["items"]), f"stored, {items}"),
        (
            "speed",
            f"{verdict['pages_per_second']:,.0f}",
            f"pages a second, {verdict['seconds']:.1f} s in all",
        ),
    ]
    print(f"\n{paint('Verdict', 'bold')}, from the log of the site:\n")
    for name, value, note in rows:
        good = name in ("lost", "reached") and not verdict["lost"]
        shown = paint(f"{value:>7}", "bold", "green") if good else f"{value:>7}"
        if name == "lost" and verdict["lost"]:
            shown = paint(f"{value:>7}", "bold", "red")
        print(f"  {name:<9}{shown}  {paint(note, 'dim') if note.startswith('(') else note}")
    met = {"redirects": "redirect", "not_found": "missing page", "server_errors": "server error"}
    print(f"\n  On the way: {', '.join(count(verdict[key], noun) for key, noun in met.items())}.")
    print(f"  Workers: {', '.join(ends)}.\n")
    if verdict["ok"]:
        print(paint("Nothing was lost.", "bold", "green"))
    elif verdict["lost"] or verdict["items_lost"]:
        print(paint("Something was lost. This must not happen: please report it.", "bold", "red"))
    else:
        print(paint("Nothing was lost, but the crawl did not end as it should.", "bold", "red"))
