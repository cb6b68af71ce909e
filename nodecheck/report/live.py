"""What a run is doing right now: a list of stages with progress and time left, or plain lines in a pipe."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Literal, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nodecheck.report.text import plain

Event = Literal["planned", "started", "progress", "done", "failed"]


@dataclass(frozen=True)
class Details:
    """What goes with an event."""

    seconds: float = 0.0
    """How long a stage that is `planned` takes where all is well."""
    card: str = ""
    """Whose `progress` it is."""
    fraction: float = 0.0
    """How much of the stage the card has done, 0 to 1."""
    figure: str = ""
    """Its last figure, in words."""


NOTHING = Details()


class Notice(Protocol):
    """Told what a run does; may be called from several threads."""

    def __call__(self, stage: str, event: Event, details: Details = NOTHING) -> None: ...


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

MEASURING = "measure."
"""What the names of stages begin with that put the node under load: one after the other, once they are planned."""

MEASURED: dict[str, str] = {
    "start": "workers: PyTorch on every card",
    "context": "contexts and free memory",
    "memory": "memory, every byte",
    "hbm": "memory bandwidth",
    "gemm": "matrix products",
    "agreement": "the same products, bit by bit",
    "operators": "operators of training",
    "host": "links to the host",
    "pairs": "links between cards",
    "collectives": "collectives",
    "storage": "disks",
}


@dataclass
class Timing:
    started: float | None = None
    ended: float | None = None
    failed: bool = False
    typical_seconds: float = 1.0
    figures: dict[str, tuple[float, str]] = field(default_factory=dict)
    """How far each card is (0 to 1), and its last figure."""

    def seconds(self, now: float) -> float:
        return 0.0 if self.started is None else (self.ended or now) - self.started


class Progress:
    """Which stages have begun and ended; `notice` may be called from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._timings = {
            name: Timing(typical_seconds=stage.typical_seconds) for name, stage in STAGES.items()
        }

    def notice(self, stage: str, event: Event, details: Details = NOTHING) -> Timing:
        """Take the event down; returns the stage's times."""
        with self._lock:
            timing = self._timings.setdefault(stage, Timing())
            if event == "planned":
                timing.typical_seconds = details.seconds
            elif event == "started":
                # A stage that is asked for once more goes on from where it was.
                timing.started = self._clock() - timing.seconds(self._clock())
                timing.ended = None
            elif event == "progress":
                _, before = timing.figures.pop(details.card, (0.0, ""))
                timing.figures[details.card] = (details.fraction, details.figure or before)
            else:
                timing.ended = self._clock()
                timing.failed = timing.failed or event == "failed"
            return timing

    def timings(self) -> tuple[tuple[str, Timing], ...]:
        with self._lock:
            return tuple(self._timings.items())

    def seconds(self, timing: Timing) -> float:
        return timing.seconds(self._clock())

    def seconds_left(self) -> float:
        """What is still needed, going by what is typical: probes run side by side, measurements one after the other."""
        beside, after = [0.0], 0.0
        for name, timing in self.timings():
            if timing.ended is None:
                left = max(timing.typical_seconds - self.seconds(timing), 0.0)
                if name.startswith(MEASURING):
                    after += left
                else:
                    beside.append(left)
        return max(beside) + after

    def fraction(self) -> float:
        """How much of the whole is done, 0 to 1, each stage weighed by its typical time."""
        whole = done = 0.0
        for _, timing in self.timings():
            whole += timing.typical_seconds
            over = timing.ended is not None
            done += (
                timing.typical_seconds if over else min(self.seconds(timing), 0.95 * timing.typical_seconds)
            )
        return done / whole


@contextmanager
def display(*, quiet: bool = False, stream: IO[str] | None = None) -> Iterator[Notice]:
    """Show a run's progress on stderr while the body runs; yields what to tell of it.

    On a terminal the list is redrawn and vanishes at the end; elsewhere each end of a stage is a line.
    """
    progress = Progress()
    stream = stream or sys.stderr
    if quiet or stream is None:  # closed by the caller (`2>&-`)
        yield lambda *_: None
        return
    console = Console(file=stream)
    if not console.is_terminal:
        yield _lines(progress, stream)
        return
    with Live(
        get_renderable=lambda: _picture(progress), console=console, refresh_per_second=8, transient=True
    ):

        def take(stage: str, event: Event, details: Details = NOTHING) -> None:
            progress.notice(stage, event, details)

        yield take


def _lines(progress: Progress, stream: IO[str]) -> Notice:
    def tell(stage: str, event: Event, details: Details = NOTHING) -> None:
        timing = progress.notice(stage, event, details)
        if event not in ("done", "failed"):
            return
        verb = "measured" if stage.startswith(MEASURING) else "seen"
        words = f"not {verb}, after" if event == "failed" else f"{verb} in"
        try:
            stream.write(f"nodecheck: {plain(_title(stage))}: {words} {progress.seconds(timing):.1f} s\n")
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
        table.add_row(sign, Text(plain(_title(name))), Text(seconds, "dim"), Text(_figure(timing), "dim"))
    left = progress.seconds_left()
    words = f"about {left:.0f} s left" if left >= 0.5 else "nearly done, or slower than usual"
    bar = Table.grid(padding=(0, 1))
    bar.add_row(ProgressBar(1.0, progress.fraction(), width=30, complete_style="cyan"), Text(words, "dim"))
    return Group(table, bar)


def _figure(timing: Timing) -> str:
    """How far the slowest card is while the stage runs, and the last figure that came."""
    if not timing.figures:
        return ""
    card, (_, figure) = list(timing.figures.items())[-1]
    told = f"{card}: {figure}" if card and figure else figure
    far = min(fraction for fraction, _ in timing.figures.values())
    return plain(f"{far:.0%}  {told}" if timing.ended is None else told, 80)


def _title(name: str) -> str:
    if name in STAGES:
        return STAGES[name].title
    short = name.removeprefix(MEASURING)
    return MEASURED.get(short, short.replace("_", " "))
