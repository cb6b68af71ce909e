"""Is there an accepted report to hold the node against?"""

from __future__ import annotations

from collections.abc import Iterator

from nodecheck.facts import Absent, Why
from nodecheck.judge import Cause, Owner
from nodecheck.judge.finding import NODE
from nodecheck.judge.rule import Outcome, passed, unknown
from nodecheck.rental.drift.rule import Drift, drift_rule

HOW = "run `nodecheck accept --profile NAME`, or name a report with --baseline"
NO_BASELINE = Absent(why=Why.not_present, detail=f"this node has no accepted report: {HOW}")


@drift_rule(
    "drift.baseline",
    "The node was accepted before",
    reads="the last accepted report of this node, kept by `nodecheck accept`, or the one that is named",
    door="baseline",
    passes="there is one",
    cause=Cause.not_visible,
    owner=Owner.renter,
    required=True,
    meaning="Without it nobody knows what was rented: changes are told from one look to the next only, and the "
    "ordinary rules are asked with a profile that was guessed and accepts nothing.",
    next_step=f"{HOW[0].upper()}{HOW[1:]}.",
    repeat="nodecheck history",
)
def baseline(drift: Drift) -> Iterator[Outcome]:
    if drift.baseline is None:
        yield unknown(NODE, NO_BASELINE)
    else:
        yield passed(f"Held against {drift.witness(drift.baseline)}.", observed=drift.profile.name)
