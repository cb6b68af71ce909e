"""What happened on a node during its rental: the document that every form of `nodecheck history` is made from."""

from __future__ import annotations

import socket
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, cast

from pydantic import AwareDatetime

from nodecheck import __version__
from nodecheck.facts import Fact
from nodecheck.rental.place import state_file
from nodecheck.rental.state import ENDING, Accepted, Boot, Checks, Episode, Series, State

FORMAT: Final = "nodecheck-history/1"

FORMATS: dict[str, tuple[str, str]] = {
    "text": ("nodecheck.rental.history.terminal", "render"),
    "json": ("nodecheck.rental.history", "dump"),
    "html": ("nodecheck.rental.history.html", "render"),
}
"""Name → module and function from a `History` to text. The module is imported when it is asked for."""


class History(Fact):
    """What is remembered of a node."""

    format: Literal["nodecheck-history/1"] = FORMAT
    tool_version: str
    host: str
    made_at: AwareDatetime
    """UTC."""
    since: AwareDatetime | None = None
    """What was over before is left out; None: nothing is."""
    acceptances: tuple[Accepted, ...] = ()
    checks: Checks | None = None
    reboots: tuple[Boot, ...] = ()
    episodes: tuple[Episode, ...] = ()
    """Those that are going on first, then the newest first."""
    series: tuple[Series, ...] = ()
    notes: tuple[str, ...] = ()
    """A sentence each: what of the state could not be read."""

    @property
    def begins(self) -> datetime:
        """Where the time begins that is shown: with the first that is known, or later as it was asked for."""
        known = [
            *(accepted.at for accepted in self.acceptances),
            *(episode.first_seen for episode in self.episodes),
            *((self.checks.first_at,) if self.checks else ()),
        ]
        first = min(known, default=self.made_at)
        return first if self.since is None else max(first, self.since)

    @property
    def ends(self) -> datetime:
        """Now, or later where the clock has been set back since."""
        return max(self.made_at, self.begins, self.checks.last_at if self.checks else self.made_at)

    @property
    def empty(self) -> bool:
        return self.checks is None and not (self.acceptances or self.episodes or self.reboots)


def gather(now: datetime, since: datetime | None = None, folder: Path | None = None) -> History:
    """What the state of this host says; one that does not exist is not made. Raises `StateError`."""
    history = History(tool_version=__version__, host=socket.gethostname(), made_at=now, since=since)
    if not state_file(ENDING, folder).exists():
        return history
    state = State(folder)
    newest = sorted(state.episodes(since), key=lambda episode: episode.first_seen, reverse=True)
    told = {
        "acceptances": state.acceptances(since),
        "checks": state.checks(since),
        "reboots": state.reboots(since),
        "episodes": tuple(sorted(newest, key=lambda episode: episode.over)),
        "series": state.series(since),
    }
    state.close()
    return history.model_copy(update={**told, "notes": tuple(state.notes)})


def dump(history: History) -> str:
    """The history as JSON."""
    return history.model_dump_json() + "\n"


def render(history: History, form: str) -> str:
    """The history in one of `FORMATS`. Raises KeyError for another."""
    module, function = FORMATS[form]
    return cast(str, getattr(import_module(module), function)(history))
