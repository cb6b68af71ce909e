"""`nodecheck accept`: look, measure, judge, report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

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
    exit_code,
    judge_node,
    load_profile,
    read_waivers,
    show,
)


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
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Check this node against what was rented, and leave a report for a ticket."""
    from nodecheck.cli.run import Run, ends_like_ctrl_c, undisturbed
    from nodecheck.report import document, folder, live

    waivers = read_waivers(waive)
    if profile is not None:
        load_profile(profile)  # a profile that cannot be used ends the run before anything is asked
    with ends_like_ctrl_c():
        run = Run(recording, python, level, report_folder=report_dir)
        with live.display(quiet=quiet) as notice:
            node = run.look(profile, notice, budget_seconds=time_budget, force=force)
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
        # What was measured is not lost with the disk: it stands on the terminal.
        show(report, quiet=quiet, folder=written)
    if trouble:
        raise Stop(Exit.cannot_write, trouble)
    raise typer.Exit(Exit.interrupted if run.interrupted else exit_code(judgement, strict))
