"""`nodecheck capture`: the raw answers of this node in one file, scrubbed, for support or for a test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import Force, LevelName, Python, TimeBudget, say


def capture(
    path: Annotated[
        Path, typer.Argument(help="Where to write it: node.tar.gz. A file that is there is replaced.")
    ],
    level: LevelName = "quick",
    time_budget: TimeBudget = None,
    force: Force = False,
    python: Python = None,
    keep_identity: Annotated[
        bool,
        typer.Option("--keep-identity", help="Keep host name, addresses and user names; secrets never stay."),
    ] = False,
    scrub_serials: Annotated[
        bool,
        typer.Option(
            "--scrub-serials", help="Replace UUIDs and serial numbers, the same one alike everywhere."
        ),
    ] = False,
) -> None:
    """Record everything that `accept` would read. Host name, addresses, user names and secrets are replaced."""
    from nodecheck.cli.run import Run, undisturbed
    from nodecheck.sources import recording

    try:
        recording.check_place(path)
    except recording.RecordingError as error:
        raise Stop(Exit.cannot_write, str(error)) from None
    run = Run(None, python, level, force=force)
    run.measure(run.probe(), budget_seconds=time_budget)
    run.close()
    try:
        with undisturbed():
            recording.save(run.answers, path, keep_identity=keep_identity, scrub_serials=scrub_serials)
    except recording.RecordingError as error:
        raise Stop(Exit.cannot_write, str(error)) from None
    say(f"wrote {path}; replay it with: nodecheck accept --from {path} --profile NAME\n")
    if run.interrupted:
        raise Stop(Exit.interrupted, f"interrupted: what had not been asked by then is missing in {path}")
