"""One run a node at a time: a second one would count the same things twice."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from nodecheck.rental.place import StateError, make_folder, state_file
from nodecheck.writing import reason


class Busy(Exception):
    """Another run holds the lock, in one sentence."""


@contextmanager
def lock(folder: Path | None = None, host: str | None = None) -> Iterator[None]:
    """Hold this node's lock, without waiting for it. Raises `Busy`, and `StateError` where there can be no lock.

    The kernel frees it with the process that holds it, whatever ends that: a file that was left behind is no lock.
    Programs that were started meanwhile do not inherit it.
    """
    path = state_file(".lock", folder, host)
    make_folder(path.parent)
    try:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(f"cannot lock {path}: {reason(error)}") from None
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another run is at work on this node{_told(held)}: {path} is locked") from None
        except OSError as error:
            raise StateError(f"cannot lock {path}: {reason(error)}") from None
        with suppress(OSError):  # a full disk: it is locked all the same, and does not say by whom
            os.ftruncate(held, 0)
            os.pwrite(held, f"{os.getpid()} {datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} UTC\n".encode(), 0)
        yield
    finally:
        os.close(held)


def _told(held: int) -> str:
    """Who holds it, as far as the file says."""
    try:
        told = re.fullmatch(rb"(\d{1,10}) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC)\n", os.pread(held, 100, 0))
    except OSError:
        told = None
    return f" (process {told[1].decode()}, since {told[2].decode()})" if told else ""
