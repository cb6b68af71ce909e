"""`nodecheck history`: what happened on this node during the rental."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import printing, say


class Format(str, Enum):
    """The names of `nodecheck.rental.history.FORMATS`, which is too heavy to import for `--help`."""

    text = "text"
    json = "json"
    html = "html"


def history(
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            parser=lambda text: moment(text, datetime.now(timezone.utc)),
            metavar="TIME",
            help="How far back: `90m`, `12h`, `7d`, `2w`, or a time (`2026-12-01T10:00Z`; UTC where it does not say).",
            show_default="the beginning",
        ),
    ] = None,
    form: Annotated[Format, typer.Option("--format", "-f", help="What to make of it.")] = Format.text,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write to this file instead of stdout. One that is there is replaced."
        ),
    ] = None,
) -> None:
    """Show what happened on this node, and when.

    Findings with their first and last sight, acceptances, reboots, and how figures went.
    """
    from nodecheck.rental.history import gather, render, terminal
    from nodecheck.rental.place import StateError

    try:
        told = gather(datetime.now(timezone.utc), since)
    except StateError as error:
        raise Stop(Exit.cannot_write, str(error)) from None
    if output is not None:
        from nodecheck.cli.run import write_text

        write_text(output, render(told, form.value))
    elif form is Format.text:
        with printing():
            terminal.show(told)
    else:
        say(render(told, form.value))


_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str, now: datetime) -> datetime:
    """`90m`, `12h`, `7d` or `2w` before now, or an ISO time. Raises what makes it a wrong use of the option."""
    text = text.strip()
    try:
        if text[-1:] in _UNITS:
            ago = timedelta(**{_UNITS[text[-1]]: float(text[:-1])})
            if ago > timedelta(0):
                return now - ago
        else:
            # Python 3.10 reads no Z.
            at = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))
            at = at.replace(tzinfo=timezone.utc) if at.tzinfo is None else at.astimezone(timezone.utc)
            if at <= now:
                return at
            raise typer.BadParameter(f"{text!r} is still to come: it is {now:%Y-%m-%dT%H:%MZ} now")
    except (ValueError, OverflowError):
        pass
    raise typer.BadParameter(f"{text!r} is no time: write it as 90m, 12h, 7d, 2w or 2026-12-01T10:00Z")
