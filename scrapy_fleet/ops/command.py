"""``scrapy fleet ...``. Every call of ``scrapy`` loads this file: it imports nothing that costs time."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from scrapy.commands import ScrapyCommand


class Command(ScrapyCommand):
    requires_project = False
    requires_crawler_process = False
    default_settings = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return "COMMAND [CRAWL] [options]"

    def short_desc(self) -> str:
        return "Look after crash-safe crawls: status, workers, pause, stop, doctor, ..."

    def long_desc(self) -> str:
        from scrapy_fleet.ops.cli import DESCRIPTION

        return DESCRIPTION

    def add_options(self, parser: ArgumentParser) -> None:
        from scrapy_fleet.ops.cli import add_commands

        super().add_options(parser)
        add_commands(parser, "scrapy fleet")
        self._parser = parser

    def process_options(self, args: list[str], opts: Namespace) -> None:
        from scrapy_fleet.ops.cli import finish_options

        super().process_options(args, opts)
        # Scrapy passes over what its parser does not know.
        finish_options(self._parser, opts, args)

    def run(self, args: list[str], opts: Namespace) -> None:
        from scrapy_fleet.ops.cli import run

        self.exitcode = run(opts, self.settings)
