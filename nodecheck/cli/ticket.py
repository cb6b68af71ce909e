"""`nodecheck ticket`: reports in one zip for support, with names, addresses and secrets replaced."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Literal

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import complain, say


def ticket(
    reports: Annotated[
        list[Path],
        typer.Argument(
            metavar="REPORT", help="Folders of reports, or their report.json.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The zip to write; a file that is there is replaced.",
            show_default="./ticket-….zip",
        ),
    ] = None,
    to: Annotated[
        Literal["provider", "renter"],
        typer.Option("--to", help="Who is to act on it: the summary names what they can mend."),
    ] = "provider",
    scrub_serials: Annotated[
        bool,
        typer.Option("--scrub-serials", help="Replace UUIDs and serial numbers of cards as well."),
    ] = False,
) -> None:
    """Put reports and their evidence into one zip for support.

    Host, user and network names and secrets are replaced.

    A damaged report is named and left out; the others go in, and the exit code is 65.
    """
    from nodecheck.judge import Owner
    from nodecheck.rental import ticket as tickets
    from nodecheck.report.folder import WriteError, write_file

    try:
        made = tickets.build(reports, Owner(to), datetime.now(timezone.utc), scrub_serials=scrub_serials)
        path = output or Path(made.name)
        write_file(path, made.content)
    except tickets.TicketError as error:
        raise Stop(Exit.unreadable, str(error)) from None
    except WriteError as error:
        raise Stop(Exit.cannot_write, str(error)) from None
    if path.is_file():  # what goes to stdout is the zip alone
        say(f"wrote {path}: {tickets.told(made)}\n")
    for out in made.left_out:
        complain(f"left out: {out.what}: {out.why}")
    if made.left_out:
        raise typer.Exit(Exit.unreadable)
