"""What holds for all tests."""

from __future__ import annotations

import signal

# Whatever a shell starts in the background ignores Ctrl-C, and so would all the processes of these tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
