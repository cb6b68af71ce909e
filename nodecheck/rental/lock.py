"""One run a node at a time: a second one would count the same things twice."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock, Timeout

from nodecheck.rental.place import StateError, make_folder, state_file
from nodecheck.writing import reason, write_whole


class Busy(Exception):
    """Another run holds the lock, in one sentence."""


@contextmanager
def lock(folder: Path | None = None, host: str | None = None) -> Iterator[None]:
    """Hold this node's lock, without waiting for it. Raises `Busy`, and `StateError` where there can be no lock.

    The kernel frees it with the process that holds it, whatever ends that: a file that was left behind is no lock.
    """
    path = state_file(".lock", folder, host)
    # Not in the lock's own file, which filelock empties before it knows whether the lock is free.
    holder = state_file(".run", folder, host)
    make_folder(path.parent)
    held = FileLock(path, mode=0o600)
    try:
        held.acquire(timeout=0)
    except Timeout:
        raise Busy(f"another run is at work on this node{_told(holder)}: {path} is locked") from None
    except (OSError, NotImplementedError) as error:
        raise StateError(f"cannot lock {path}: {reason(error)}") from None
    try:
        with suppress(OSError):  # a full disk: it is locked all the same, and does not say by whom
            holder.unlink(missing_ok=True)
            write_whole(
                holder, f"{os.getpid()} {datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S} UTC\n".encode()
            )
        yield
    finally:
        held.release()


def _told(holder: Path) -> str:
    try:
        told = re.fullmatch(
            r"(\d{1,10}) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC)\n", holder.read_text(), re.ASCII
        )
    except (OSError, ValueError):
        told = None
    return f" (process {told[1]}, since {told[2]})" if told else ""
