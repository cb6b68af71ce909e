"""`nodecheck check`: during the rental, what has changed."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import Python, Strict, choose_profile, complain, say

if TYPE_CHECKING:
    from nodecheck.cli.run import Run
    from nodecheck.facts import Maybe, Node, Stack
    from nodecheck.rental.check import Memory
    from nodecheck.rental.result import CheckResult
    from nodecheck.rental.state import Acceptance

Form = Literal["text", "json", "nagios", "openmetrics", "junit"]
"""The same words as `nodecheck.rental.output.FORMATS`, which is too heavy to import for `--help`."""

NICENESS = 10
"""Also of reading from disks: the kernel derives that from it where nobody has said otherwise (ioprio_set(2))."""


def check(
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="REPORT",
            help="The accepted report to hold the node against; else the last that `nodecheck accept` kept.",
        ),
    ] = None,
    active: Annotated[
        bool,
        typer.Option(
            "--active", help="Measure briefly as well, if every card is idle and stays so for some seconds."
        ),
    ] = False,
    python: Python = None,
    form: Annotated[
        Form,
        typer.Option(
            "--format", help="`text` says nothing where nothing changed; `nagios` exits as plugins do."
        ),
    ] = "text",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write to this file, as a whole, instead of stdout."),
    ] = None,
    on_change: Annotated[
        str | None,
        typer.Option(
            "--on-change",
            metavar="COMMAND",
            help="Start this program where something changed, with the check as JSON on its stdin. No shell.",
        ),
    ] = None,
    strict: Strict = False,
) -> None:
    """Say what has changed on this node, beside a running job.

    It is held against its last acceptance and against the check before. Without --active nothing is put on a card
    and no interpreter is started; nothing is changed but nodecheck's own state.
    """
    from nodecheck.cli.run import Run, ends_like_ctrl_c, undisturbed
    from nodecheck.rental.lock import Busy, lock
    from nodecheck.rental.place import StateError
    from nodecheck.sources import child

    began = time.monotonic()
    if not active:
        with suppress(OSError):
            os.nice(NICENESS)
    with ends_like_ctrl_c(), ExitStack() as held:
        unlocked = ""
        try:
            held.enter_context(lock())
        except Busy as busy:
            raise Stop(Exit.busy, str(busy)) from None
        except StateError as error:
            unlocked = f"Nothing keeps a second check from running beside this one: {error}."
        held.callback(child.end_all)
        run = Run(None, None, "quick")
        # The driver takes about as long as the imports below.
        run.begin_glance()

        from nodecheck.rental import onchange
        from nodecheck.rental.check import Memory

        command = _command(on_change)
        memory = Memory()
        held.callback(memory.close)
        accepted = _accepted(baseline, memory)
        result, node = _look(run, accepted, memory, active, python, began)
        with undisturbed():
            memory.record(result, node)
        notes = (*result.notes, *([unlocked] if unlocked else ()), *memory.notes)
        result = result.model_copy(update={"notes": notes})
        for note in notes:  # also where nothing changed, and whatever the form
            complain(note)
        try:
            _put(result, form, output)
        finally:
            if command and (trouble := onchange.tell(command, result)):
                complain(trouble)
    raise typer.Exit(_code(result, form, strict))


def _command(text: str | None) -> tuple[str, ...]:
    from nodecheck.rental import onchange

    try:
        return onchange.command(text) if text is not None else ()
    except ValueError as error:
        raise Stop(Exit.usage, f"--on-change: {error}") from None


def _accepted(baseline: Path | None, memory: Memory) -> Acceptance | None:
    from nodecheck.report.document import ReportError

    try:
        return memory.acceptance(baseline)
    except ReportError as error:
        raise Stop(Exit.unreadable, str(error)) from None


def _look(
    run: Run, accepted: Acceptance | None, memory: Memory, active: bool, python: Path | None, began: float
) -> tuple[CheckResult, Node]:
    from nodecheck.facts import NOT_ASKED
    from nodecheck.profile import NO_PROFILE
    from nodecheck.rental import keeping
    from nodecheck.rental.check import check as held_against
    from nodecheck.rental.state import Terms
    from nodecheck.sources import Files
    from nodecheck.sources.files import live

    node = _glance(run, accepted.report.facts.stack if accepted else NOT_ASKED)
    why, measured = _measured(accepted, node, python) if active else ("", None)
    terms = accepted.terms if accepted else Terms()
    result = held_against(
        node,
        accepted,
        memory.last_look(),
        suggested=choose_profile(node, None) if accepted is None else NO_PROFILE,
        measured=measured,
        further=keeping.findings(terms, node.taken_at, Files(live())),
        seconds=time.monotonic() - began,
        notes=(f"Nothing was measured: {why}.",) if why else (),
        compare=memory.changes,
    )
    return result, node


def _glance(run: Run, stack: Maybe[Stack]) -> Node:
    node = run.glance(stack)
    if run.interrupted:
        raise Stop(Exit.interrupted, "interrupted: nothing was checked")
    return node


def _measured(accepted: Acceptance | None, node: Node, python: Path | None) -> tuple[str, Node | None]:
    """The node measured, if every card stays idle; else why it was not."""
    from functools import partial

    from nodecheck.cli.run import Run
    from nodecheck.rental import active

    if accepted is None:
        return "there is no accepted report to hold figures against", None
    report = accepted.report
    if why := active.watch(node, lambda: _glance(Run(None, None, "quick"), report.facts.stack)):
        return why, None
    run = Run(None, python or active.interpreter(report), "standard")
    measured = run.measure(run.probe(), stages=active.STAGES, budget_seconds=active.BUDGET_SECONDS)
    measured = run.settle(measured, partial(active.doubtful, accepted=report))
    run.close()
    if run.interrupted:
        raise Stop(Exit.interrupted, "interrupted: what was measured by then is not kept")
    return "", measured


def _put(result: CheckResult, form: Form, output: Path | None) -> None:
    from nodecheck.rental.output import render, write
    from nodecheck.report.folder import WriteError

    if output is None:
        say(render(result, form))
        return
    try:
        write(result, form, output)
    except WriteError as error:
        raise Stop(Exit.cannot_write, str(error)) from None


def _code(result: CheckResult, form: Form, strict: bool) -> Exit:
    from nodecheck.judge import Status

    if result.status is Status.warn:
        return Exit.warnings if strict or form == "nagios" else Exit.accepted
    return {Status.fail: Exit.rejected, Status.unknown: Exit.incomplete}.get(result.status, Exit.accepted)
