"""What holds for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

# A shell starts what runs in its background with SIGINT ignored, and nohup does so with SIGHUP; children inherit it,
# and the tests that send one would test nothing.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="session")
def _state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What an accepted node leaves behind is no business of the account that the tests run in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
