"""Options that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nodecheck.cli.exits import Exit, Stop

if TYPE_CHECKING:
    from nodecheck.facts import Node
    from nodecheck.judge import Judgement
    from nodecheck.profile import Profile
    from nodecheck.report.document import Report
    from nodecheck.report.folder import Written

From = Annotated[
    Path | None,
    typer.Option("--from", help="Read a recording (made by `nodecheck capture`) instead of this machine."),
]
Python = Annotated[
    Path | None,
    typer.Option(
        "--python",
        help="The interpreter whose PyTorch is under test; else the active or first one that has torch.",
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile", "-p", help="What was rented: a name (`nodecheck profiles list`) or a TOML file."
    ),
]
LevelName = Annotated[
    Literal["quick", "standard", "full"] | None,
    typer.Option(
        "--level",
        help="How much is done to the node: `quick` puts no load on it, `standard` measures everything briefly, "
        "`full` longer and at more sizes. Of a recording: what was recorded.",
        show_default="standard",
    ),
]
"""The same words as `nodecheck.facts.Level`, which is too heavy to import for `--help`; mypy compares the two."""
LoadName = Annotated[
    Literal["standard", "full"] | None,
    typer.Option("--level", help="How long is measured, and at how many sizes.", show_default="standard"),
]
TimeBudget = Annotated[
    float | None,
    typer.Option(
        "--time-budget",
        parser=lambda text: seconds(text),
        metavar="TIME",
        help="How long the measurements may take (`90s`, `2m`); what does not fit is left out, and named.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Measure on cards that somebody else uses, too.")]
Waive = Annotated[
    list[str] | None,
    typer.Option(
        "--waive",
        metavar="ID=REASON",
        help="Set a warning or failure aside, with a reason that stands in the report.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 when there are warnings.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict only.")]


def seconds(text: str) -> float:
    """`90`, `90s`, `1.5m` or `1h` in seconds. Raises what makes it a wrong use of the option."""
    number, unit = text.strip(), 1.0
    for ending, factor in (("s", 1.0), ("m", 60.0), ("h", 3600.0)):
        if number.endswith(ending):
            number, unit = number[:-1], factor
            break
    try:
        value = float(number) * unit
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise typer.BadParameter(f"{text!r} is no time: write it as 90s or 2m")
    return value


def load_profile(name: str) -> Profile:
    """The named profile; `Stop` with one sentence where it cannot be used."""
    from nodecheck.judge import REGISTRY
    from nodecheck.profile import ProfileError, load

    try:
        return load(name, findings=REGISTRY)
    except ProfileError as error:
        raise Stop(Exit.unreadable, str(error)) from None


def read_waivers(entries: list[str] | None) -> dict[str, str]:
    """`ID=REASON` entries as a table; `Stop` for one without a reason or with an id that no rule has."""
    from difflib import get_close_matches

    from nodecheck.judge import REGISTRY

    waivers: dict[str, str] = {}
    for entry in entries or ():
        finding_id, _, reason = entry.partition("=")
        if not reason.strip():
            raise Stop(Exit.usage, f"--waive {entry!r}: write it as ID=REASON, with a reason")
        if finding_id not in REGISTRY:
            near = get_close_matches(finding_id, REGISTRY, 1)
            hint = f"did you mean {near[0]}?" if near else "a report has the id beside each finding"
            raise Stop(Exit.usage, f"--waive {finding_id!r}: no such finding; {hint}")
        waivers[finding_id] = reason.strip()
    return waivers


def choose_profile(node: Node, name: str | None) -> Profile:
    """The named profile, or the likely one, which cannot accept."""
    from nodecheck.profile import NO_PROFILE, suggest

    name = name or suggest(node)
    return load_profile(name) if name else NO_PROFILE


def judge_node(node: Node, name: str | None, waivers: dict[str, str]) -> tuple[Profile, Judgement]:
    """Judge against the named profile, or against the likely one, which cannot accept."""
    from nodecheck.judge import judge

    profile = choose_profile(node, name)
    return profile, judge(node, profile, waivers, named=name is not None)


def exit_code(judgement: Judgement, strict: bool) -> Exit:
    from nodecheck.judge import Verdict

    if judgement.verdict is Verdict.accepted_with_warnings:
        return Exit.warnings if strict else Exit.accepted
    return {
        Verdict.accepted: Exit.accepted,
        Verdict.rejected: Exit.rejected,
        Verdict.incomplete: Exit.incomplete,
    }[judgement.verdict]


def show(report: Report, *, quiet: bool, folder: Written | None = None) -> None:
    """The report on stdout."""
    from nodecheck.report import terminal

    with printing():
        terminal.show(report, quiet=quiet, folder=folder)


@contextmanager
def printing() -> Iterator[None]:
    """Print what says the same as the exit code: a reader that has gone or a full disk changes no verdict."""
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        hush(1)


def say(text: str) -> None:
    """What a command is there to print, in UTF-8 whatever the locale: JSON, HTML and metrics are.

    A reader that has gone has read enough; `Stop` where it is not written.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
            sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        hush(1)
    except OSError as error:
        hush(1)
        raise Stop(Exit.cannot_write, f"cannot write to stdout: {error.strerror}") from None


def complain(sentence: str) -> None:
    """Say on stderr what did not go as it should."""
    # Whatever a node or a file put into the sentence must not steer the terminal.
    safe = "".join(char if char.isprintable() else repr(char)[1:-1] for char in sentence)
    try:
        print(f"nodecheck: {safe}", file=sys.stderr, flush=True)
    except OSError:
        hush(2)


def hush(descriptor: int) -> None:
    """Send a stream nowhere: what is still in its buffer would fail again at the interpreter's end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
