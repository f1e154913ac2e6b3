"""What ``benchmarks.loss`` found, as tables, goals and a picture."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.measure import Goal, Spread, table

SIDES = {
    "jobdir": "Scrapy, JOBDIR",
    "jobdir-fifo": "Scrapy, JOBDIR, FIFO queues",
    "jobdir-sqlite": "Scrapy, JOBDIR on SQLite queues",
    "peer": "scrapy-redis",
    "fleet": "scrapy-fleet, SQLite",
    "fleet-redis": "scrapy-fleet, Redis",
}
ON_SERVER = {"peer", "fleet-redis"}
NEEDS_PEER = {"peer"}
OURS = {"fleet", "fleet-redis"}
SITES = {
    "tree": "one link to each page",
    "links": "20 links a page, most of them known",
}
OUTAGES = {"refused": "it refuses connections", "suspended": "it stands still"}


def tables(results: dict[str, Any]) -> str:
    with_peer = f"scrapy-redis {results['peer'] or 'is missing: ' + results['no_peer']}"
    found = [f"{with_peer}; medians (lowest to highest). A worker is killed and started again:"]
    for site, sides in results["kills"].items():
        rounds = len(next(iter(sides.values())))
        head = [f"{results['pages'][site]:,} pages, {SITES[site]}; {_times(rounds)}", "fetched when killed"]
        head += ["never fetched", "asked for twice", "it held", "ended as"]
        rows = [
            [SIDES[side], *(_shown(runs, what) for what in ("at", "lost", "repeated", "held")), _ends(runs)]
            for side, runs in sides.items()
        ]
        found.append(table(head, rows))
    for kind, sides in results["outages"].items():
        rows = [
            [SIDES[side], *(_shown(runs, what) for what in ("at", "lost", "repeated")), _ends(runs)]
            for side, runs in sides.items()
        ]
        title = f"the server is away for {results['seconds']:g} s: {OUTAGES[kind]}"
        found.append(table([title, "fetched before", "never fetched", "asked for twice", "ended as"], rows))
    return "\n\n".join(found)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _shown(runs: list[dict[str, Any]], what: str) -> str:
    return Spread.of(run[what] for run in runs).show() if what in runs[0] else ""


def _ends(runs: list[dict[str, Any]]) -> str:
    """All that was said, and how often if it was not always the same."""
    said = Counter(run["reason"] for run in runs)
    return ", ".join(f"{reason} ({n})" if len(said) > 1 else reason for reason, n in said.items())


def goals(results: dict[str, Any]) -> list[Goal]:
    """The worst of all rounds, on every site."""
    found = []
    for side in SIDES.keys() & OURS:
        kills = [run for sides in results["kills"].values() for run in sides.get(side, ())]
        away = [run for sides in results["outages"].values() for run in sides.get(side, ())]
        for title, runs in (("a worker killed", kills), ("the server away", away)):
            if runs:
                found.append(_none(f"{SIDES[side]}, {title}: pages lost", runs, "lost"))
        if kills:
            title = f"{SIDES[side]}, a worker killed: pages repeated that it did not hold"
            found.append(_none(title, kills, "not_held"))
        if away:
            found.append(_none(f"{SIDES[side]}, the server away: pages repeated", away, "repeated"))
    return sorted(found)


def _none(title: str, runs: list[dict[str, Any]], what: str) -> Goal:
    return Goal(title, max(run[what] for run in runs), 0, at_most=True, form="{:.0f}")


def noise(results: dict[str, Any]) -> list[str]:
    """What is lost depends on the moment, not on how busy the machine is."""
    return []


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks.plot import bars

    found = {}
    for site, sides in results["kills"].items():
        rows = [
            (SIDES[side], 100 * Spread.of(run["lost"] / run["pages"] for run in runs).median)
            for side, runs in sides.items()
        ]
        note = f"{results['pages'][site]:,} pages, {SITES[site]}."
        if all(run["reason"] == "finished" for runs in sides.values() for run in runs):
            note = f"{note[:-1]}; started again, every crawl ended as 'finished'."
        title = "Pages never fetched after one kill -9 at a third of them"
        name = "loss.svg" if site == "tree" else f"loss-{site}.svg"
        found[name] = bars(title, rows, unit="%", best="lower", note=note)
    return found
