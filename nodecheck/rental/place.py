"""Where the state of a node lies, for each host name a file of its own: several nodes may share one home."""

from __future__ import annotations

import hashlib
import re
import socket
from pathlib import Path

from platformdirs import user_state_path

from nodecheck.writing import reason


class StateError(Exception):
    """The state cannot be read or written, in one sentence."""


def state_folder() -> Path:
    """platformdirs' state folder, which XDG_STATE_HOME moves. Raises `StateError` where there is no home."""
    try:
        folder = user_state_path("nodecheck")
    except RuntimeError:
        folder = Path("~")
    if not folder.is_absolute():  # older releases of platformdirs leave the ~ in it
        raise StateError(
            "there is no home to keep the state in: set HOME, or XDG_STATE_HOME, to the absolute path of a folder"
        )
    return folder


def state_file(ending: str, folder: Path | None = None, host: str | None = None) -> Path:
    """The file of this host's, or of another's, that ends so. `folder` is `state_folder` unless given."""
    return (
        folder or state_folder()
    ) / f"{_file_name(socket.gethostname() if host is None else host)}{ending}"


def make_folder(folder: Path) -> None:
    """Make it, readable by its owner alone. Raises `StateError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"cannot make the folder {folder} for the state: {reason(error)}; XDG_STATE_HOME names another place"
        ) from None


def _file_name(host: str) -> str:
    """The host's name if it is a harmless file name, else what is left of it with a hash of the whole."""
    harmless = re.sub(r"[^A-Za-z0-9._-]+", "-", host)[:64].strip(".-")
    if harmless == host:
        return host
    return f"{harmless or 'host'}-{hashlib.sha256(host.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
