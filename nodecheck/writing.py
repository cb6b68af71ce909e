"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file that nobody ever sees half written. Raises OSError; nothing is left behind then.

    It is made under a hidden name in the same folder, brought to the disk, and renamed.
    """
    descriptor, draft = tempfile.mkstemp(prefix=".nodecheck-", suffix=".partial", dir=path.parent)
    try:
        if mode != 0o600:  # as it is made; some file systems let nobody change that
            os.fchmod(descriptor, mode)
        write_out(descriptor, content)
        Path(draft).replace(path)
    finally:
        Path(draft).unlink(missing_ok=True)


def write_out(descriptor: int, content: bytes) -> None:
    """Write everything to an open file, bring it to the disk and close it. Raises OSError."""
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def reason(error: Exception) -> str:
    """Why a file could not be read or written, in the system's words."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
