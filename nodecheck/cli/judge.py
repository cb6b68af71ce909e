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
    """Judge facts against a profile, without touching a node."""
    from nodecheck.cli.run import Run, read_node
    from nodecheck.report import document

    if (facts is None) == (recording is None):
        raise Stop(Exit.usage, "name either a file of facts or a recording (--from)")
    waivers = read_waivers(waive)
    node = read_node(facts) if facts is not None else Run(recording, None, None).look(profile)
    chosen, judgement = judge_node(node, profile, waivers)
    show(document.build(node, chosen, judgement), quiet=quiet)
    raise typer.Exit(exit_code(judgement, strict))
