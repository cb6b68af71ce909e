"""`nodecheck schedule`: checks by the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import complain, say, seconds

if TYPE_CHECKING:
    from nodecheck.rental.schedule import Way

app = typer.Typer(help="Check this node by the clock, with cron or systemd.", no_args_is_help=True)


@app.callback(invoke_without_command=True)
def _recipes(
    slurm_prolog: Annotated[
        bool, typer.Option("--slurm-prolog", help="Print a Prolog for Slurm, and do nothing else.")
    ] = False,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Print a DaemonSet for Kubernetes, and do nothing else.")
    ] = False,
) -> None:
    from nodecheck.rental import recipes
    from nodecheck.rental.schedule import program

    if slurm_prolog or kubernetes:
        say(recipes.slurm_prolog(program()) if slurm_prolog else recipes.kubernetes())
        raise typer.Exit


@app.command("install")
def install(
    every: Annotated[
        float,
        typer.Option(
            "--every", parser=lambda text: seconds(text), metavar="TIME", help="How often (`15m`, `1h`)."
        ),
    ] = "15m",  # type: ignore[assignment]  # typer gives the text to the parser
    active_daily: Annotated[
        str | None,
        typer.Option(
            "--active-daily",
            metavar="HH:MM",
            help="Also measure once a day, at this local time, if nobody computes.",
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- OPTIONS", help="Options of `nodecheck check`.", show_default=False),
    ] = None,
) -> None:
    """Put the checks into your crontab, or your systemd's timers.

    They take the place of checks that are there.
    """
    from nodecheck.rental.schedule import WAYS, ScheduleError, by_hand, plan, rehearse

    _refuse_what_check_refuses(options or [])
    try:
        wanted = plan(every, active_daily, options or ())
    except ScheduleError as error:
        raise Stop(Exit.usage, str(error)) from None
    troubles = {way.name: way.trouble() for way in WAYS}
    chosen = next((way for way in WAYS if not troubles[way.name]), None)
    try:
        rehearse()
        if chosen is None:
            say(by_hand(wanted))
            told = "; ".join(f"{name}: {trouble}" for name, trouble in troubles.items())
            raise Stop(Exit.cannot_write, f"nothing was scheduled: neither works here ({told})")
        for way in WAYS:
            if way is not chosen and not troubles[way.name]:
                way.remove()  # or it would be checked twice
        note = chosen.install(wanted)
        _show(chosen, note)
    except ScheduleError as error:
        raise Stop(Exit.cannot_write, str(error)) from None


@app.command("remove")
def remove() -> None:
    """Take the checks out again; everything else stays as it is."""
    from nodecheck.rental.schedule import WAYS, ScheduleError

    try:
        removed = [way.name for way in WAYS if way.entries() and way.remove()]
    except ScheduleError as error:
        raise Stop(Exit.cannot_write, str(error)) from None
    say(f"removed from {', '.join(removed)}\n" if removed else "nothing was scheduled\n")


@app.command("status")
def status() -> None:
    """Show what is scheduled.

    Exits with 3 where nothing is, or where what starts it does not work.
    """
    from nodecheck.rental.schedule import WAYS

    running = [_runs(way) for way in WAYS]
    if not any(running):
        raise Stop(Exit.incomplete, "no check is scheduled that would run")


def _runs(way: Way) -> bool:
    """Show its entries; whether there are any, and it starts them."""
    from nodecheck.rental.schedule import ScheduleError

    try:
        if not way.entries():
            return False
        trouble = way.trouble()
        _show(way, f"{way.name} does not start it: {trouble}" if trouble else "")
        return not trouble
    except ScheduleError as error:
        complain(str(error))
        return False


def _show(way: Way, note: str) -> None:
    say("".join(f"{way.name}: {entry}\n" for entry in way.entries()))
    if note:
        complain(note)


def _refuse_what_check_refuses(options: list[str]) -> None:
    """What `check` itself does not take is an error now, and not in a mail every 15 minutes."""
    from nodecheck.cli import app as commands

    if not options:
        return
    check = typer.main.get_command(commands).commands["check"]  # type: ignore[attr-defined]
    check.make_context("nodecheck check", [*options])  # it takes its list apart
