"""What a frontier tells people about, in their words."""

from __future__ import annotations

from scrapy_fleet.model import Mode

GIVEN_UP = (
    "This worker (%s) was silent for more than %g s and was given up; what it held went to others. "
    "It goes on under a new name. Raise FLEET_WORKER_TIMEOUT if this happens often."
)
EMPTIED = (
    "%s This worker puts back the %d requests it holds and goes on. The crawl does not count "
    "as finished; when it is started again, it starts from its seeds."
)
TOLD: dict[Mode, str] = {
    "run": "The crawl was resumed.",
    "pause": "The crawl is paused: what is in flight ends, nothing new runs until it is resumed.",
    "stop": "The fleet was told to stop: what is in flight ends, then this worker leaves.",
}
