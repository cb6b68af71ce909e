"""`nodecheck accept`: look, measure, judge, report."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import (
    Force,
    From,
    LevelName,
    ProfileName,
    Python,
    Quiet,
    Strict,
    TimeBudget,
    Waive,
    complain,
    exit_code,
    judge_node,
    load_profile,
    printing,
    read_waivers,
    show,
)

if TYPE_CHECKING:
    from nodecheck.rental.state import Terms
    from nodecheck.report.document import Report


def accept(
    profile: ProfileName = None,
    level: LevelName = None,
    time_budget: TimeBudget = None,
    force: Force = False,
    recording: From = None,
    python: Python = None,
    report_dir: Annotated[
        Path,
        typer.Option("--report-dir", help="Where the report's folder is made.", show_default="./reports"),
    ] = Path("reports"),
    waive: Waive = None,
    rental_ends: Annotated[
        str | None,
        typer.Option(
            "--rental-ends",
            metavar="TIME",
            help="When the rental ends (`2026-12-07T10:00Z`): `nodecheck check` warns from a day before.",
        ),
    ] = None,
    keep: Annotated[
        list[Path] | None,
        typer.Option(
            "--keep",
            metavar="PATH",
            help="What must not be lost with the node; it is looked at before the end.",
        ),
    ] = None,
    copied_if: Annotated[
        str | None,
        typer.Option(
            "--copied-if",
            metavar="COMMAND",
            help="Ends with 0 and prints nothing where `{path}` is copied: 'rclone check {path} far:work'.",
        ),
    ] = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Check this node against what was rented, and leave a report."""
    from nodecheck.cli.run import Run, ends_like_ctrl_c, undisturbed
    from nodecheck.report import document, folder, live

    waivers = read_waivers(waive)
    terms = _terms(rental_ends, keep or [], copied_if)
    if recording is not None and terms.ends_at is not None:
        raise Stop(
            Exit.usage, "--rental-ends is said of this node, and --from reads a recording: leave one out"
        )
    if profile is not None:
        load_profile(profile)  # a profile that cannot be used ends the run before anything is asked
    with ends_like_ctrl_c():
        run = Run(recording, python, level, force=force, report_folder=report_dir)
        with live.display(quiet=quiet) as notice:
            node = run.look(profile, notice, budget_seconds=time_budget)
        with undisturbed():
            chosen, judgement = judge_node(node, profile, waivers)
            report = document.build(
                node,
                chosen,
                judgement,
                waivers=waivers,
                durations=run.durations,
                interrupted=run.interrupted,
                argv=sys.argv[1:],
            )
            written, trouble = None, ""
            try:
                written = folder.write(report, report_dir, evidence=run.evidence())
            except folder.WriteError as error:
                trouble = str(error)
            kept = (
                recording is None
                and not run.interrupted
                and _remember(written.report if written else report, terms)
            )
        # What was measured is not lost with the disk: it stands on the terminal.
        show(report, quiet=quiet, folder=written)
        if kept and not quiet:
            with printing():
                print("Kept: `nodecheck check` holds this node against this report from now on.")
    if trouble:
        raise Stop(Exit.cannot_write, trouble)
    raise typer.Exit(Exit.interrupted if run.interrupted else exit_code(judgement, strict))


def _terms(rental_ends: str | None, keep: list[Path], copied_if: str | None) -> Terms:
    from nodecheck.rental import keeping

    try:
        return keeping.terms(rental_ends, keep, copied_if, datetime.now(timezone.utc))
    except ValueError as error:
        raise Stop(Exit.usage, str(error)) from None


def _remember(report: Report, terms: Terms) -> bool:
    """Keep an accepted node as what `nodecheck check` holds it against; whether it was kept."""
    from nodecheck.judge import Verdict
    from nodecheck.rental import keeping
    from nodecheck.rental.state import State, StateError

    if report.judgement.verdict not in (Verdict.accepted, Verdict.accepted_with_warnings):
        if terms.ends_at is not None:
            complain("the node was not accepted, so its rental's end is not kept")
        return False
    try:
        state = State()
        before = state.acceptance()
        if terms.ends_at is None and before is not None and _lasts(before.terms, report):
            terms = before.terms  # accepted anew, after a repair: the rental is the same
        state.accept(report, terms)
        state.close()
        for path in keeping.missing(terms):
            complain(f"--keep {path}: there is no such path yet; if it is misspelt, accept the node again")
    except StateError as error:
        complain(f"this acceptance is not kept for `nodecheck check`: {error}")
        return False
    return True


def _lasts(terms: Terms, report: Report) -> bool:
    return terms.ends_at is not None and terms.ends_at > report.created_at
