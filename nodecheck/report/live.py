"""What a run is doing right now: a list of stages with progress and time left, or plain lines in a pipe."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nodecheck.report.text import plain

Event = Literal["started", "done", "failed"]
Notice = Callable[[str, Event], None]


@dataclass(frozen=True)
class Stage:
    title: str
    typical_seconds: float
    """How long it takes as a rule; only the display's time left is computed from it."""


STAGES: dict[str, Stage] = {
    "host": Stage("machine", 0.5),
    "kernel_log": Stage("kernel log", 0.5),
    "cards": Stage("cards", 1.0),
    "topology": Stage("links and PCI tree", 1.0),
    "stack": Stage("driver, PyTorch, a context on every card", 8.0),
}
"""In the order of the display. Most of the last is `import torch`: 3 to 4 s, 6 s for the first of a boot."""


@dataclass
class Timing:
    started: float | None = None
    ended: float | None = None
    failed: bool = False

    def seconds(self, now: float) -> float:
        return 0.0 if self.started is None else (self.ended or now) - self.started


class Progress:
    """Which stages have begun and ended; `notice` may be called from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._timings = {name: Timing() for name in STAGES}

    def notice(self, stage: str, event: Event) -> Timing:
        """Take the event down; returns the stage's times."""
        with self._lock:
            timing = self._timings.setdefault(stage, Timing())
            if event == "started":
                timing.started = self._clock()
            else:
                timing.ended = self._clock()
                timing.failed = event == "failed"
            return timing

    def timings(self) -> tuple[tuple[str, Timing], ...]:
        with self._lock:
            return tuple(self._timings.items())

    def seconds(self, timing: Timing) -> float:
        return timing.seconds(self._clock())

    def seconds_left(self) -> float:
        """The longest that any stage still needs, going by what is typical; they run side by side."""
        return max(
            (
                max(_stage(name).typical_seconds - self.seconds(timing), 0.0)
                for name, timing in self.timings()
                if timing.ended is None
            ),
            default=0.0,
        )

    def fraction(self) -> float:
        """How much of the whole is done, 0 to 1, each stage weighed by its typical time."""
        whole = sum(_stage(name).typical_seconds for name, _ in self.timings())
        done = sum(
            _stage(name).typical_seconds
            if timing.ended is not None
            else min(self.seconds(timing), 0.95 * _stage(name).typical_seconds)
            for name, timing in self.timings()
        )
        return done / whole


@contextmanager
def display(*, quiet: bool = False, stream: IO[str] | None = None) -> Iterator[Notice]:
    """Show a run's progress on stderr while the body runs; yields what to tell of it.

    On a terminal the list is redrawn and vanishes at the end; elsewhere each end of a stage is a line.
    """
    progress = Progress()
    stream = stream or sys.stderr
    if quiet:
        yield lambda *_: None
        return
    console = Console(file=stream)
    if not console.is_terminal:
        yield _lines(progress, stream)
        return
    with Live(
        get_renderable=lambda: _picture(progress), console=console, refresh_per_second=8, transient=True
    ):

        def take(stage: str, event: Event) -> None:
            progress.notice(stage, event)

        yield take


def _lines(progress: Progress, stream: IO[str]) -> Notice:
    def tell(stage: str, event: Event) -> None:
        timing = progress.notice(stage, event)
        if event == "started":
            return
        words = "not seen, after" if timing.failed else "seen in"
        try:
            stream.write(
                f"nodecheck: {plain(_stage(stage).title)}: {words} {progress.seconds(timing):.1f} s\n"
            )
            stream.flush()
        except (OSError, ValueError):
            # Nobody reads stderr any more; the run is worth more than its display.
            return

    return tell


def _picture(progress: Progress) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for name, timing in progress.timings():
        if timing.started is None:
            sign = Text("·", "dim")
        elif timing.ended is None:
            sign = Text("|/-\\"[int(progress.seconds(timing) * 8) % 4], "cyan")
        else:
            sign = Text("!", "bold red") if timing.failed else Text("+", "green")
        seconds = "" if timing.started is None else f"{progress.seconds(timing):.1f} s"
        table.add_row(sign, Text(plain(_stage(name).title)), Text(seconds, "dim"))
    left = progress.seconds_left()
    words = f"about {left:.0f} s left" if left >= 0.5 else "nearly done, or slower than usual"
    bar = Table.grid(padding=(0, 1))
    bar.add_row(ProgressBar(1.0, progress.fraction(), width=30, complete_style="cyan"), Text(words, "dim"))
    return Group(table, bar)


def _stage(name: str) -> Stage:
    return STAGES.get(name) or Stage(name.replace("_", " "), 1.0)
