"""How far a run is: which stages have begun and ended, what they take, and what is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

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


def title(name: str) -> str:
    """The stage in words."""
    if name in STAGES:
        return STAGES[name].title
    short = name.removeprefix(MEASURING)
    return MEASURED.get(short, short.replace("_", " "))
