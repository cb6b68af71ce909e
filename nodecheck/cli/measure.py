"""`nodecheck measure`: figures without a judgement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import Force, From, LoadName, Python, TimeBudget, printing

if TYPE_CHECKING:
    from nodecheck.facts import Measurements
    from nodecheck.facts.measurements import StageName


def measure(
    stages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STAGE",
            help="context, memory, hbm, gemm, agreement, operators, host, pairs, collectives, storage; else all.",
            show_default=False,
        ),
    ] = None,
    level: LoadName = None,
    time_budget: TimeBudget = None,
    force: Force = False,
    recording: From = None,
    python: Python = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with everything there is.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not tell how it gets on.")] = False,
) -> None:
    """Measure this node and print tables. Exits with 2 where data came back wrong, with 3 where a stage did not run."""
    from nodecheck.cli.run import Run
    from nodecheck.facts import Absent
    from nodecheck.measure import STAGES
    from nodecheck.report import live, measured

    strange = [stage for stage in stages or () if stage not in STAGES]
    if strange:
        raise Stop(Exit.usage, f"no such stage: {', '.join(strange)}; there are {', '.join(STAGES)}")
    run = Run(recording, python, level, force=force)
    with live.display(quiet=quiet) as notice:
        node = run.probe(notice, stages=("host", "cards", "topology", "stack"))
        node = run.measure(
            node,
            stages=cast("list[StageName]", stages) if stages else None,
            budget_seconds=time_budget,
        )
        run.close()
    found = node.measurements
    if isinstance(found, Absent):
        raise Stop(
            Exit.interrupted if run.interrupted else Exit.incomplete, f"nothing was measured ({found})"
        )
    with printing():
        if as_json:
            print(found.model_dump_json(indent=1))
        else:
            measured.show(node, found)
    raise typer.Exit(Exit.interrupted if run.interrupted else _code(found))


def _code(found: Measurements) -> Exit:
    if any(check.wrong for check in found.checks):
        return Exit.rejected
    whole = bool(found.stages) and all(run.status == "done" for run in found.stages) and not found.dropped
    whole = whole and all(check.compared for check in found.checks)
    return Exit.accepted if whole else Exit.incomplete
