"""The tables of ``benchmarks.fleet``, and which goals were reached."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.measure import Goal, Spread, table

SIDES = {
    "fleet": "scrapy-fleet, Redis",
    "peer": "scrapy-redis",
    "peer-stats": "scrapy-redis, shared stats",
}
FASTER = {"peer": {"0": 3, "1": 10, "5": 30}, "peer-stats": {"0": 6, "1": 35, "5": 120}}
"""How many times scrapy-redis, by milliseconds to the server and back."""
MOST_TRIPS = 0.2
MOST_SERVER_US, PEER_SERVER_US = 40, 370
"""The goal, and what scrapy-redis took when it was set: machines differ, and so does one by the hour, so that
their ratio is a goal too."""
TWO_WORKERS = 1.9
MEMORY = {"waiting": 4, "seen": 10}
MOST_IDLE = 0.05
TAKEOVER = 1.0

RECORDS = {
    "waiting": "a waiting request",
    "waiting_referer": "a waiting request with a Referer",
    "seen": "a seen URL",
}
RATE = "steady_pages_per_second"
"""What two workers are compared by: their beginning and end take as long as one's."""
PAIRS = {"slow": "pages of 0.1 s, 8 at a time", "fast": "as fast as this machine can"}


def spread(runs: list[dict[str, Any]], what: str) -> Spread:
    return Spread.of(run[what] for run in runs)


def ratio(runs: list[dict[str, Any]], base: list[dict[str, Any]], what: str) -> float:
    """The median of the ratios within the rounds."""
    return float(statistics.median(one[what] / other[what] for one, other in zip(runs, base, strict=True)))


def tables(results: dict[str, Any]) -> str:
    with_peer = f"scrapy-redis {results['peer'] or 'is missing: ' + results['no_peer']}"
    title = (
        f"{results['server']}, {with_peer}; 20 links a page, 95 % of them known; up to {results['pages']:,} "
        f"pages, medians of {results['rounds']} (lowest to highest):"
    )
    return "\n\n".join([title, _crawls(results), _pairs(results), _records(results), _standing(results)])


def _crawls(results: dict[str, Any]) -> str:
    headers = ["", "away", "pages", "pages/s", "scrapy-fleet is faster", "CPU ms a page"]
    headers += ["server CPU us a page", "round trips a page", "bytes a page"]
    rows = []
    for delay, sides in results["runs"].items():
        for side, runs in sides.items():
            faster = "" if side == "fleet" else f"{ratio(sides['fleet'], runs, 'pages_per_second'):.1f}x"
            rows.append(
                [
                    SIDES[side],
                    f"{delay} ms",
                    f"{runs[0]['pages']:,}",
                    spread(runs, "pages_per_second").show(1),
                    faster,
                    f"{spread(runs, 'cpu_ms_per_page').median:.2f}",
                    f"{spread(runs, 'server_us_per_page').median:,.0f}",
                    f"{spread(runs, 'trips_per_page').median:,.2f}",
                    f"{spread(runs, 'bytes_per_page').median:,.0f}",
                ]
            )
    return table(headers, rows)


def _pairs(results: dict[str, Any]) -> str:
    headers = ["two workers against one", "one, pages/s", "two, pages/s", "ratio"]
    headers += ["CPU ms a page: one", "two"]
    rows = []
    for kind, found in results["pairs"].items():
        row = [PAIRS[kind], *(spread(found[n], RATE).show(1) for n in ("1", "2"))]
        row.append(f"{ratio(found['2'], found['1'], RATE):.2f}x")
        row += [f"{spread(found[n], 'cpu_ms_per_page').median:.2f}" for n in ("1", "2")]
        rows.append(row)
    return table(headers, rows)


def _records(results: dict[str, Any]) -> str:
    rows = []
    for server, sides in results["memory"].items():
        ours, theirs = sides["fleet"], sides.get("peer")
        for name, title in RECORDS.items():
            row = [f"{server}: {title}, bytes", f"{ours[name]:.1f}"]
            row += [f"{theirs[name]:.1f}", f"1/{theirs[name] / ours[name]:.1f}"] if theirs else ["", ""]
            rows.append(row)
    title = f"memory of the server, {results['records']:,} of each"
    return table([title, "scrapy-fleet", "scrapy-redis", "ratio"], rows)


def _standing(results: dict[str, Any]) -> str:
    idle, taken = results["idle"], results["takeover"]
    rows = [
        [
            f"{idle['workers']} idle workers ({idle['calls_per_second']:.0f} calls a second)",
            f"{idle['server_share']:.1%} of a core",
        ],
        [
            f"a worker is killed, its timeout {taken['timeout']:g} s: until another has all it held",
            f"{taken['seconds']:.2f} s",
        ],
    ]
    return table(["", "the server"], rows)


def goals(results: dict[str, Any]) -> list[Goal]:
    return list(_goals(results))


def _goals(results: dict[str, Any]) -> Iterator[Goal]:
    runs = results["runs"]
    for side, bars in FASTER.items():
        for delay, bar in bars.items():
            if side in runs.get(delay, ()):
                value = ratio(runs[delay]["fleet"], runs[delay][side], "pages_per_second")
                what = f"{SIDES['fleet']} against {SIDES[side]}, {delay} ms away"
                yield Goal(what, value, bar, form="{:.1f}x")
    for what, key, most, form in (
        ("round trips a page", "trips_per_page", MOST_TRIPS, "{:.2f}"),
        ("server CPU a page", "server_us_per_page", MOST_SERVER_US, "{:.0f} us"),
    ):
        value = max(spread(sides["fleet"], key).median for sides in runs.values())
        yield Goal(f"{what}, at the worst distance", value, most, at_most=True, form=form)
    if "peer" in runs["0"]:
        value = ratio(runs["0"]["fleet"], runs["0"]["peer"], "server_us_per_page")
        what = f"server CPU a page, as a share of {SIDES['peer']}'s, 0 ms away"
        yield Goal(what, value, MOST_SERVER_US / PEER_SERVER_US, at_most=True, form="{:.1%}")
    pair = results["pairs"]["slow"]
    yield Goal(f"two workers against one, {PAIRS['slow']}", ratio(pair["2"], pair["1"], RATE), TWO_WORKERS)
    for server, sides in results["memory"].items():
        for name, bar in MEMORY.items() if "peer" in sides else ():
            value = sides["peer"][name] / sides["fleet"][name]
            yield Goal(f"memory of {RECORDS[name]}, {server}", value, bar, form="1/{:.1f} of scrapy-redis's")
    idle, taken = results["idle"], results["takeover"]
    what = f"{idle['workers']} idle workers, of the server's core"
    yield Goal(what, idle["server_share"], MOST_IDLE, at_most=True, form="{:.1%}")
    late = taken["seconds"] - taken["timeout"]
    yield Goal("takeover, after the worker timeout", late, TAKEOVER, at_most=True, form="{:.2f} s")


def noise(results: dict[str, Any]) -> list[str]:
    """What spread so far that it should be measured again."""
    found = {
        f"{SIDES[side]}, {delay} ms away": spread(runs, "pages_per_second")
        for delay, sides in results["runs"].items()
        for side, runs in sides.items()
    }
    for kind, pairs in results["pairs"].items():
        for workers, runs in pairs.items():
            found[f"workers: {workers}, {PAIRS[kind]}"] = spread(runs, RATE)
    return [f"{what}: {each.show(1)} pages/s" for what, each in found.items() if each.noisy]


def plots(results: dict[str, Any]) -> dict[str, str]:
    from benchmarks import plot

    def by_distance(key: str) -> dict[str, dict[str, float]]:
        return {
            f"{delay} ms away": {SIDES[side]: spread(runs, key).median for side, runs in sides.items()}
            for delay, sides in results["runs"].items()
        }

    memory = {
        f"{RECORDS[name]}, {server}": {
            SIDES[side]: found[side][name] for side in ("fleet", "peer") if side in found
        }
        for name in ("waiting", "seen")
        for server, found in results["memory"].items()
    }
    return {
        "fleet.svg": plot.groups(
            "One worker, by the distance of its server", by_distance("pages_per_second"), unit="pages/s"
        ),
        "fleet-trips.svg": plot.groups(
            "Round trips a page", by_distance("trips_per_page"), unit="round trips, lower is better", log=True
        ),
        "fleet-memory.svg": plot.groups("Memory of the server", memory, unit="bytes, lower is better"),
    }
