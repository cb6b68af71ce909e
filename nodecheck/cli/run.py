"""One look at a node, live or recorded, as the commands share it."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import choose_profile
from nodecheck.facts import Absent, Card, Level, Maybe, Node, Stack
from nodecheck.probes import STAGES, Probing, Stage
from nodecheck.report.progress import MEASURING, NOTHING, Details, Event, Notice
from nodecheck.sources import Sources, live_channels, recorders
from nodecheck.sources.channel import Channel, Json
from nodecheck.sources.recording import RecordingError, is_recording, load, members
from nodecheck.sources.secrets import without_secrets

if TYPE_CHECKING:
    from nodecheck.facts.measurements import Figure, StageName
    from nodecheck.measure import Measuring
    from nodecheck.report.document import Report

T = TypeVar("T")


class Run:
    """The sources of this machine, or of a recording, and what the probes and the measurements ask of them."""

    def __init__(
        self,
        recording: Path | None,
        python: Path | None,
        level: Level | None = "quick",
        *,
        force: bool = False,
        report_folder: Path = Path("reports"),
    ) -> None:
        """Without a level: `standard`, or what was recorded. Raises `Stop` for a recording that cannot be used, and
        for an interpreter that does not exist.

        `force` loads cards that somebody else uses; `report_folder` is where the report is to lie: its disk is
        measured too.
        """
        self.interrupted = False
        self.durations: dict[str, float] = {}
        """Seconds each stage took; probes run side by side, so they add up to more than the run."""
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
            self._sources = Sources.recorded(loaded.answers)
            recorded = _recorded_level(loaded.answers)
            level = level or recorded
            self._loads = recorded != "quick"
        else:
            self._loads = level != "quick"
            if python is not None and shutil.which(python) is None:
                raise Stop(Exit.usage, f"--python {python}: there is no such program")
            channels = recorders(self._live(python, report_folder))
            self.answers = {name: recorder.answers for name, recorder in channels.items()}
            self._sources = Sources.over(dict(channels))
        self.level: Level = level or "standard"
        self._force = force
        self._notices: list[Callable[[str, Event, Details], None]] = [self._time]
        self._began: dict[str, float] = {}
        self._probing = Probing(self._sources, self.level, self._tell, self._taken_at)
        self._measuring: Measuring | None = None
        self._labels: dict[str, str] = {}

    def evidence(self) -> dict[str, bytes]:
        """The raw answers as the files of a recording, scrubbed as `nodecheck capture` does it."""
        return members(self.answers, taken_at=self._taken_at)

    def probe(self, notice: Notice | None = None, stages: Collection[Stage] = STAGES) -> Node:
        """Look at the node. Ctrl-C ends it early: what was seen by then is the result, and `interrupted` is set."""
        if notice is not None:
            self._notices.append(notice)
        start = self._start if self._loads else None
        return presentable(
            self._until_interrupted(lambda: self._probing.run(stages, start), self._probing.node)
        )

    def measure(
        self,
        node: Node,
        *,
        stages: Collection[StageName] | None = None,
        budget_seconds: float | None = None,
    ) -> Node:
        """The node with its measurements; as it is at level quick, or where the run was interrupted before."""
        from nodecheck.measure import Measuring

        if self.level == "quick" or self.interrupted:
            return node
        self._labels = {card.key: card.short_name for card in node.known_cards}
        self._measuring = measuring = Measuring(
            self._sources.workers,
            node,
            self.level,
            budget_seconds=budget_seconds,
            force=self._force,
            stages=stages,
            notice=lambda stage, event, seconds=0.0: self._tell(
                f"{MEASURING}{stage}", event, Details(seconds=seconds)
            ),
        )
        found = self._until_interrupted(measuring.run, measuring.measurements)
        return presentable(node.model_copy(update={"measurements": found}))

    def begin_glance(self) -> None:
        """Have the driver answer while others get ready for `glance`; whoever leaves before ends the child."""
        self._probing.begin_glance()

    def glance(self, accepted: Maybe[Stack]) -> Node:
        """Look at the node in passing, as `Probing.glance` does; interrupted like `probe`."""
        return presentable(
            self._until_interrupted(lambda: self._probing.glance(accepted), self._probing.node)
        )

    def settle(self, node: Node, doubtful: Callable[[Node], Collection[Figure]]) -> Node:
        """The node with the figures that are doubtful measured again, as long as that clears something up."""
        measuring = self._measuring
        while measuring is not None and not self.interrupted and (figures := doubtful(node)):
            before = node.measurements
            found = self._until_interrupted(partial(measuring.again, figures), measuring.measurements)
            node = presentable(node.model_copy(update={"measurements": found}))
            if isinstance(before, Absent) or found.figures == before.figures:
                break  # they cannot be had again
        return node

    def look(
        self,
        profile: str | None,
        notice: Notice | None = None,
        *,
        budget_seconds: float | None = None,
    ) -> Node:
        """The node with all that its level asks for; what is doubtful against the profile is measured once more."""
        from nodecheck.judge.figures import borderline

        node = self.measure(self.probe(notice), budget_seconds=budget_seconds)
        expected = choose_profile(node, profile)
        node = self.settle(node, lambda seen: borderline(seen, expected))
        self.close()
        return node

    def close(self) -> None:
        """End the workers."""
        if self._loads:
            self._sources.workers.run("end", (), {})

    def _start(self, python: str, cards: tuple[Card, ...]) -> Mapping[str, Json]:
        """As `probes.stack.Start`."""
        from nodecheck.measure import start

        answers = start(self._sources.workers, python, cards, force=self._force)
        if self.interrupted:
            raise KeyboardInterrupt  # nobody waits any more: nothing else is to be begun
        return answers

    def _live(self, python: Path | None, report_folder: Path) -> dict[str, Channel]:
        from nodecheck.sources.here import Here

        channels = live_channels(str(python) if python else None, self._progress)
        return {**channels, "workers": Here(channels["workers"], report_folder)}

    def _until_interrupted(self, work: Callable[[], T], so_far: Callable[[], T]) -> T:
        from nodecheck.sources import child, workers

        try:
            with ends_like_ctrl_c():
                return work()
        except KeyboardInterrupt:
            self.interrupted = True
            child.end_all()
            workers.end_all()
            return so_far()

    def _progress(self, stage: str, card: str, fraction: float, figure: str) -> None:
        label = self._labels.get(card, card)
        self._tell(f"{MEASURING}{stage}", "progress", Details(card=label, fraction=fraction, figure=figure))

    def _tell(self, stage: str, event: Event, details: Details = NOTHING) -> None:
        for notice in self._notices:
            notice(stage, event, details)

    def _time(self, stage: str, event: Event, _details: Details = NOTHING) -> None:
        if event == "started":
            self._began[stage] = time.monotonic()
        elif event in ("done", "failed"):
            seconds = time.monotonic() - self._began[stage]
            # Measured once more: both times count.
            self.durations[stage] = self.durations.get(stage, 0.0) + seconds


def presentable(node: Node) -> Node:
    """The node as it may be shown and stored: whatever a log, a setting or a message gave away is replaced."""
    seen = json.loads(node.model_dump_json())
    shown = without_secrets(seen)
    return node if shown == seen else Node.model_validate_json(json.dumps(shown))


def _recorded_level(answers: dict[str, dict[str, Json]]) -> Level:
    """What was done to the node as it was recorded."""
    questions = answers.get("workers", {})
    if any('"level": "full"' in question for question in questions):
        return "full"
    return "standard" if questions else "quick"


def ends_like_ctrl_c() -> contextlib.AbstractContextManager[None]:
    """Treat a polite end (`timeout 60 nodecheck …`, a dropped ssh) as Ctrl-C, so that it leaves a report too."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    return _handling(interrupt, signal.SIGTERM, signal.SIGHUP)


def undisturbed() -> contextlib.AbstractContextManager[None]:
    """Finish what is nearly done, whoever asks for an end."""
    return _handling(lambda _number, _frame: None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def _handling(handler: Callable[[int, object], None], *signals: signal.Signals) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # What is ignored (`nohup`) stays so.
    handled = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def read_facts(path: Path) -> tuple[Node, Report | None]:
    """The facts in a file of facts, a report.json or a report's folder, and the report if it is one.

    Raises `Stop` where there are none.
    """
    from pydantic import ValidationError

    from nodecheck.report import document

    try:
        raw = document.read(path)
        outline = document.tree(raw, path)
        form = outline.get("format") if isinstance(outline, dict) else None
        if isinstance(form, str) and form.startswith("nodecheck-report/"):
            report = document.parse(raw, path)
            return report.facts, report
    except document.ReportError as error:
        raise Stop(Exit.unreadable, str(error)) from None
    try:
        return Node.model_validate_json(raw), None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its beginning"
        raise Stop(
            Exit.unreadable, f"{path} does not hold nodecheck facts (at {where}: {first['msg']})"
        ) from None


def read_anything(path: Path) -> tuple[Node, Report | None]:
    """What `read_facts` reads, and the facts that a recording gives. Raises `Stop` where there are none."""
    if is_recording(path):
        return Run(path, None, None).probe(), None
    return read_facts(path)


def write_text(path: Path, text: str) -> None:
    """Write a file as a whole or not at all. Raises `Stop` where it cannot be written."""
    from nodecheck.report.folder import WriteError, write_file

    try:
        write_file(path, text.encode())
    except WriteError as error:
        raise Stop(Exit.cannot_write, str(error)) from None
