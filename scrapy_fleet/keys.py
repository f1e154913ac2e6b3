"""What "seen" means: requests are known to a crawl by 64 bits of their fingerprints."""

from __future__ import annotations

from hashlib import blake2b


def key_of(fingerprint: bytes) -> int:
    """The key of a request that is filtered."""
    if len(fingerprint) < 8:
        fingerprint = blake2b(fingerprint, digest_size=8).digest()
    return int.from_bytes(fingerprint[:8], "big", signed=True)


def seed_key_of(fingerprint: bytes, run: int, time: int) -> int:
    """The key of a start request that is not filtered: it comes this often in this run.

    So it is recognised when ``start()`` has to begin again, and hides no link to the same page.
    """
    return key_of(blake2b(b"%d %d %s" % (run, time, fingerprint), digest_size=8).digest())
