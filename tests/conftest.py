"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell starts what runs in its background with SIGINT ignored, and nohup does so with SIGHUP; children inherit it,
# and the tests that send one would test nothing.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)
