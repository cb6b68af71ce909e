"""`nodecheck judge`: facts judged again, anywhere, against any profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import (
    From,
    ProfileName,
    Quiet,
    Strict,
    Waive,
    exit_code,
    judge_node,
    read_waivers,
    show,
)


def judge(
    facts: Annotated[
        Path | None,
        typer.Argument(help="Facts (from `nodecheck probe`), a report.json or a report folder."),
    ] = None,
    recording: From = None,
    profile: ProfileName = None,
    waive: Waive = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Judge facts against a profile, without touching a node.

    Without --profile a report is judged by the profile that it holds, named or suggested as it was then; of
    anything else the likely one is taken, which accepts nothing. The report's waivers are not taken over.
    """
    from nodecheck.cli.run import Run, read_facts
    from nodecheck.judge import judge as judge_by
    from nodecheck.report import document

    if (facts is None) == (recording is None):
        raise Stop(Exit.usage, "name either a file of facts or a recording (--from)")
    waivers = read_waivers(waive)
    report = None
    if facts is not None:
        node, report = read_facts(facts)
    else:
        node = Run(recording, None, None).look(profile)
    if report is not None and profile is None:
        chosen = report.profile
        judgement = judge_by(node, chosen, waivers, named=report.judgement.named)
    else:
        chosen, judgement = judge_node(node, profile, waivers)
    show(document.build(node, chosen, judgement, waivers=waivers), quiet=quiet)
    raise typer.Exit(exit_code(judgement, strict))
