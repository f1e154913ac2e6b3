"""The functions that a crawl spends its time in, for ``python -m benchmarks.profile --functions``.

The crawl runs under cProfile, which sees the event loop's thread alone; what the store's thread takes is
told from the process's CPU time. Profiling makes small functions look dear: trust the proportions.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
from collections import Counter
from typing import Any

from benchmarks.crawl import SITES, VARIANTS, settings_of, shape_of
from benchmarks.measure import ROOT, scratch, table
from benchmarks.worker import crawl
from scrapy_fleet.ops.site import running

GROUPS = {
    "scrapy_fleet": (str(ROOT / "scrapy_fleet"), "/scrapy_fleet/"),
    "scrapy": ("/scrapy/", "/queuelib/", "/itemadapter/", "/pydispatch/"),
    "parsel, lxml, w3lib": ("/parsel/", "/lxml/", "/cssselect/", "/w3lib/"),
    "twisted, asyncio, HTTP": ("/twisted/", "/asyncio/", "/aiohttp/", "/selectors.py", "/zope/"),
}


def group_of(file: str, name: str) -> str:
    path = file.replace("\\", "/")
    for group, parts in GROUPS.items():
        if any(part in path for part in parts):
            return group
    return "idle" if "epoll" in name and "poll" in name else "built-in and other"


def measure(site: str, variant: str, pages: int) -> tuple[dict[str, Any], pstats.Stats]:
    profile = cProfile.Profile()
    with scratch() as folder, running(shape_of(site, pages)) as served:
        os.chdir(folder)
        job = {"url": served.start_url, "settings": settings_of(variant, folder)}
        result = profile.runcall(crawl, job)
        os.chdir(ROOT)
    return result, pstats.Stats(profile)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--functions", action="store_true", help="the functions of one crawl, by cProfile")
    parser.add_argument("--variant", choices=list(VARIANTS), default="fleet", help="which crawl")
    parser.add_argument("--site", choices=list(SITES), default="links")
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--top", type=int, default=12, help="functions to show of each group")


def show(args: argparse.Namespace) -> None:
    result, stats = measure(args.site, args.variant, args.pages)
    functions = [
        (group_of(file, name), own, total, calls, f"{'/'.join(file.split('/')[-2:])}:{line} {name}")
        for (file, line, name), (_, calls, own, total, _) in stats.stats.items()  # type: ignore[attr-defined]
    ]
    groups: Counter[str] = Counter()
    for group, own, *_ in functions:
        groups[group] += own
    us = 1e6 / args.pages
    cpu, others = us * result["cpu"], us * result["cpu_other_threads"]
    print(f"Under the profiler {args.pages / result['seconds']:.0f} pages/s; {cpu:.0f} us CPU a page,")
    print(f"of which other threads (the store's) {others:.0f}.\n")
    print(
        table(["group", "own us a page"], [[group, f"{us * own:.0f}"] for group, own in groups.most_common()])
    )
    for group in groups:
        top = sorted((f for f in functions if f[0] == group), key=lambda f: -f[1])[: args.top]
        rows = [
            [where, f"{us * own:.1f}", f"{us * total:.1f}", f"{calls / args.pages:.1f}"]
            for _, own, total, calls, where in top
        ]
        print("\n" + table([group, "own us a page", "with callees", "calls a page"], rows))
