"""`nodecheck probe`: what is seen, without a judgement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import From, Python, say


def probe(
    recording: From = None,
    python: Python = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write to this file instead of stdout. One that is there is replaced."
        ),
    ] = None,
) -> None:
    """Print what is seen on this node, as JSON facts.

    `nodecheck judge` judges them, here or elsewhere.
    """
    from nodecheck.cli.run import Run, write_text

    run = Run(recording, python, None if recording else "quick")
    facts = run.measure(run.probe()).model_dump_json(indent=2) + "\n"
    if output is None:
        say(facts)
    else:
        write_text(output, facts)
    if run.interrupted:
        raise Stop(Exit.interrupted, "interrupted: what had not been asked by then is missing in these facts")
