"""`nodecheck report`: a report shown in another form, and checked."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import printing, say

if TYPE_CHECKING:
    from nodecheck.report.document import Report

app = typer.Typer(help="Show a report in another form, check it, or compare two.", no_args_is_help=True)


class Format(str, Enum):
    """The names of `nodecheck.report.FORMATS`, which is too heavy to import for `--help`."""

    html = "html"
    md = "md"
    json = "json"
    junit = "junit"
    terminal = "terminal"


class DiffFormat(str, Enum):
    """What a difference can be told in."""

    terminal = "terminal"
    md = "md"
    json = "json"


ReportPath = Annotated[
    Path,
    typer.Argument(metavar="REPORT", help="A report.json, or the folder of a report.", show_default=False),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="Write to this file instead of stdout. One that is there is replaced."
    ),
]


@app.command("render")
def render(
    path: ReportPath,
    form: Annotated[Format, typer.Option("--format", "-f", help="What to make of it.")] = Format.terminal,
    output: Output = None,
) -> None:
    """Print a report as HTML, Markdown, JSON, JUnit XML or text."""
    from nodecheck.cli.run import write_text
    from nodecheck.report import render as render_as
    from nodecheck.report import terminal

    report = _load(path)
    if output is not None:
        write_text(output, render_as(report, form.value))
    elif form is Format.terminal:
        with printing():
            terminal.show(report)
    else:
        say(render_as(report, form.value))


@app.command("verify")
def verify(path: ReportPath) -> None:
    """Check that a report is as it was written.

    Its hashes are computed and its facts judged again; exit 2 where anything differs. This finds damage, edits and
    what was taken away. It cannot find a report that somebody made anew with all its hashes: compare the SHA-256 of
    report.json with the one that was printed when it was written.
    """
    from nodecheck.report import folder
    from nodecheck.report.document import ReportError

    try:
        result = folder.verify(path)
    except ReportError as error:
        raise Stop(Exit.unreadable, str(error)) from None
    with printing():
        print("\n".join(result.differences) or f"as it was written: {', '.join(result.checked)}")
    raise typer.Exit(Exit.rejected if result.differences else Exit.accepted)


@app.command("diff")
def diff(
    before: Annotated[
        Path,
        typer.Argument(metavar="A", help="A report.json, or the folder of a report.", show_default=False),
    ],
    after: Annotated[Path, typer.Argument(metavar="B", help="The other one.", show_default=False)],
    form: Annotated[DiffFormat, typer.Option("--format", "-f", help="How to tell it.")] = DiffFormat.terminal,
    output: Output = None,
) -> None:
    """Say what differs between two reports.

    They may be of two nodes, or of one node before and after a repair.
    Figures differ where their ranges from p5 to p95 do not meet. Exits with 0 whether or not anything differs.
    """
    from nodecheck.cli.run import write_text
    from nodecheck.report import diff as diffing
    from nodecheck.report import differences

    told = differences.render(diffing.diff(_load(before), _load(after)), form.value)
    if output is not None:
        write_text(output, told)
    else:
        say(told)


@app.command("schema")
def schema() -> None:
    """Print the JSON Schema of report.json."""
    import json

    from nodecheck.report import document

    say(json.dumps(document.schema(), indent=2) + "\n")


def _load(path: Path) -> Report:
    from nodecheck.report.document import ReportError, load

    try:
        return load(path)
    except ReportError as error:
        raise Stop(Exit.unreadable, str(error)) from None
