"""What waits for slots that were given up."""

from __future__ import annotations

import logging
from collections import deque

from scrapy_fleet.model import Lease, Outcome

logger = logging.getLogger(__name__)


class Lost:
    def __init__(self) -> None:
        self._told: deque[str] = deque(maxlen=1000)

    def bury(self, lease: Lease) -> Outcome:
        """Its slot has been given up: what comes of it. Each slot is told of once."""
        if lease.slot not in self._told:
            self._told.append(lease.slot)
            logger.error("%s is given up; what waits for it is kept as dead: %s.", lease.slot, lease.lost)
        return Outcome(lease.token, dead=lease.lost)
