"""``stats``: the counters of all workers of a crawl together."""

from __future__ import annotations

from contextlib import closing

from scrapy_fleet.ops.place import Place
from scrapy_fleet.ops.show import number, plain, print_json, table


def stats(place: Place, crawl: str | None, *, as_json: bool) -> int:
    place, name = place.resolve(crawl)
    with closing(place.open(name)) as store:
        snapshot = store.snapshot(0)
    found = dict(sorted(snapshot.stats.items()))
    if as_json:
        whole = {key: int(value) if value.is_integer() else value for key, value in found.items()}
        print_json({"crawl": name, "run": snapshot.run, "status": snapshot.status, "stats": whole})
    elif not found:
        print(f"No worker of crawl {plain(name)!r} has counted anything yet.")
    else:
        print(table(("counter", ">value"), [(key, _value(value)) for key, value in found.items()]))
    return 0


def _value(value: float) -> str:
    return number(value) if value.is_integer() else f"{value:,.3f}"
