"""What a run is doing right now: a list of stages with progress and time left, or plain lines in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from nodecheck.report.progress import MEASURING, NOTHING, Details, Event, Notice, Progress, Timing, title
from nodecheck.report.text import plain


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
            stream.write(f"nodecheck: {plain(title(stage))}: {words} {progress.seconds(timing):.1f} s\n")
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
        table.add_row(sign, Text(plain(title(name))), Text(seconds, "dim"), Text(_figure(timing), "dim"))
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
