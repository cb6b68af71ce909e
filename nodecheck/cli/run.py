"""One look at a node, live or recorded, as the commands share it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Literal

from nodecheck.cli.exits import Exit, Stop
from nodecheck.facts import Level, Node
from nodecheck.probes import STAGES, Notice, Probing, Stage
from nodecheck.sources import Sources, live_channels, recorders
from nodecheck.sources.channel import Json
from nodecheck.sources.recording import RecordingError, load, members

_MAX_FACTS_BYTES = 64 * 1024 * 1024


class Run:
    """The sources of this machine, or of a recording, and what the probes ask of them."""

    def __init__(self, recording: Path | None, python: Path | None, level: Level = "quick") -> None:
        """Raises `Stop` for a recording that cannot be used."""
        self.interrupted = False
        self.durations: dict[str, float] = {}
        """Seconds each stage took; stages run side by side, so they add up to more than the run."""
        self.answers: dict[str, dict[str, Json]]
        """The raw answers so far: question → encoded answer, for each source."""
        self._taken_at: datetime | None = None
        if recording is not None:
            try:
                loaded = load(recording)
            except RecordingError as error:
                raise Stop(Exit.unreadable, str(error)) from None
            self.answers = loaded.answers
            self._taken_at = loaded.taken_at
            sources = Sources.recorded(loaded.answers)
        else:
            channels = recorders(live_channels(str(python) if python else None))
            self.answers = {name: recorder.answers for name, recorder in channels.items()}
            sources = Sources.over(dict(channels))
        self._notices: list[Notice] = [self._time]
        self._began: dict[Stage, float] = {}
        self._probing = Probing(sources, level, self._tell, self._taken_at)

    def evidence(self) -> dict[str, bytes]:
        """The raw answers as the files of a recording, scrubbed as `nodecheck capture` does it."""
        return members(self.answers, taken_at=self._taken_at)

    def probe(self, notice: Notice | None = None, stages: Collection[Stage] = STAGES) -> Node:
        """Look at the node. Ctrl-C ends it early: what was seen by then is the result, and `interrupted` is set."""
        from nodecheck.sources import child

        if notice is not None:
            self._notices.append(notice)
        try:
            with _ends_like_ctrl_c(signal.SIGTERM, signal.SIGHUP):
                return self._probing.run(stages)
        except KeyboardInterrupt:
            self.interrupted = True
            child.end_all()
            return self._probing.node()

    def _tell(self, stage: Stage, what: Literal["started", "done", "failed"]) -> None:
        for notice in self._notices:
            notice(stage, what)

    def _time(self, stage: Stage, what: Literal["started", "done", "failed"]) -> None:
        if what == "started":
            self._began[stage] = time.monotonic()
        else:
            self.durations[stage] = time.monotonic() - self._began[stage]


@contextlib.contextmanager
def _ends_like_ctrl_c(*signals: signal.Signals) -> Iterator[None]:
    """Treat a polite end (`timeout 60 nodecheck …`, a dropped ssh) as Ctrl-C, so that it leaves a report too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def read_node(path: Path) -> Node:
    """The facts in a file of facts, a report.json or a report's folder. Raises `Stop` where there are none."""
    from pydantic import ValidationError

    from nodecheck.report.document import ReportError
    from nodecheck.report.document import load as load_report

    file = path / "report.json" if path.is_dir() else path
    try:
        if file.stat().st_size > _MAX_FACTS_BYTES:
            raise Stop(Exit.unreadable, f"{file} is larger than 64 MiB: not a file of facts")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(Exit.unreadable, f"{file} cannot be read: {error}") from None
    if '"nodecheck-report/' in text[:4096]:
        try:
            return load_report(file).facts
        except ReportError as error:
            raise Stop(Exit.unreadable, str(error)) from None
    try:
        return Node.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its beginning"
        raise Stop(
            Exit.unreadable, f"{file} does not hold nodecheck facts (at {where}: {first['msg']})"
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write a file as a whole or not at all. Raises `Stop` where it cannot be written."""
    from nodecheck.report.folder import WriteError, write_file

    try:
        write_file(path, text.encode())
    except WriteError as error:
        raise Stop(Exit.cannot_write, str(error)) from None
