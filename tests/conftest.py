"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell starts what runs in its background with SIGINT ignored, and children inherit that: the tests that send one
# would test nothing.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
