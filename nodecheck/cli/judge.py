"""`nodecheck judge`: facts judged again, anywhere, against any profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.imports import STDIN, content, read_pasted, tell
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

if TYPE_CHECKING:
    from nodecheck.facts import Node
    from nodecheck.report.document import Report

MARK = b'"nodecheck-'
"""Stands in facts and reports (`"format": "nodecheck-facts/1"`) and in no other tool's output."""


def judge(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Facts (from `nodecheck probe`), a report.json or a report folder; or what tools printed on one node, "
            "in any number of files (see `nodecheck import`; - is stdin).",
            show_default=False,
        ),
    ] = None,
    recording: From = None,
    profile: ProfileName = None,
    waive: Waive = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Judge facts, a report or pasted outputs against a profile.

    No node is touched.

    Without --profile a report is judged by the profile that it holds, named or suggested as it was then; of
    anything else the likely one is taken, which accepts nothing. The report's waivers are not taken over.
    """
    from nodecheck.cli.run import Run, presentable
    from nodecheck.judge import judge as judge_by
    from nodecheck.report import document

    if (not files) == (recording is None):
        raise Stop(Exit.usage, "name either files of facts or outputs, or a recording (--from)")
    waivers = read_waivers(waive)
    report = None
    if files:
        node, report = _read(files, quiet)
        node = presentable(node)  # whoever wrote the file may not have looked for secrets
    else:
        node = Run(recording, None, None).look(profile)
    if report is not None and profile is None:
        chosen = report.profile
        judgement = judge_by(node, chosen, waivers, named=report.judgement.named)
    else:
        chosen, judgement = judge_node(node, profile, waivers)
    show(document.build(node, chosen, judgement, waivers=waivers), quiet=quiet)
    raise typer.Exit(exit_code(judgement, strict))


def _read(files: list[Path], quiet: bool) -> tuple[Node, Report | None]:
    """The facts in a file of them, in a report, or in outputs that were pasted."""
    from nodecheck.cli.run import read_facts

    ours = [path for path in files if path != STDIN and (path.is_dir() or MARK in content(path))]
    if ours:
        if len(files) > 1:
            raise Stop(Exit.usage, f"{ours[0]} holds facts or a report, which are judged alone")
        return read_facts(files[0])
    imported = read_pasted(files)
    if not quiet:
        tell(imported)
    return imported.node, None
