"""The command line: one module a command. Only `typer` is imported here; what a command needs it imports itself."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from nodecheck import __version__
from nodecheck.cli import (
    accept,
    capture,
    check,
    history,
    imports,
    judge,
    measure,
    probe,
    profiles,
    report,
    schedule,
    ticket,
)
from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import complain, hush

app = typer.Typer(
    name="nodecheck",
    help="Is the GPU node in front of me the node I pay for, and can my PyTorch use it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("accept")(accept.accept)
app.command("check")(check.check)
app.command("measure")(measure.measure)
app.command("probe")(probe.probe)
app.command("judge")(judge.judge)
app.command("import")(imports.import_)
app.command("capture")(capture.capture)
app.command("history")(history.history)
app.command("ticket")(ticket.ticket)
app.add_typer(profiles.app, name="profiles")
app.add_typer(report.app, name="report")
app.add_typer(schedule.app, name="schedule")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nodecheck {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line and exit with a code of `Exit`; no traceback reaches the user."""
    if sys.stderr is None:  # closed by the caller (`2>&-`)
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  (until the end)
    if isinstance(sys.stdout, io.TextIOWrapper):  # what the locale cannot write must not end a command
        sys.stdout.reconfigure(errors="backslashreplace")
    code: int | None = Exit.cannot_write
    try:
        code = typer.main.get_command(app)(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except Stop as stop:
        complain(str(stop))
        code = stop.code
    except _CLICK_ERROR as error:
        if isinstance(error, _USAGE_ERROR):
            try:
                error.show()
            except OSError:
                hush(2)
            code = Exit.usage
        else:
            complain(error.format_message())
            code = Exit.unreadable
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        code = Exit.interrupted
    except BrokenPipeError:
        # The reader has gone (`nodecheck … | head`): nothing is left to say, and to nobody. What the command has
        # come to by then stands.
        hush(1)
    except Exception as error:
        if os.environ.get("NODECHECK_TRACEBACK"):
            raise
        complain(
            f"internal error: {type(error).__name__}: {error} (this is a bug in nodecheck; run it again with "
            "NODECHECK_TRACEBACK=1 set and report what it prints)"
        )
        code = Exit.internal
    sys.exit(int(code or 0))


# typer carries its own copy of click in newer releases, so the classes are reached through its public exception.
_USAGE_ERROR: type[typer.BadParameter] = typer.BadParameter.__bases__[0]
_CLICK_ERROR: type[typer.BadParameter] = _USAGE_ERROR.__bases__[0]
