"""Does the node do what the bundle's figures say?"""

from __future__ import annotations

from collections.abc import Iterator

from nodecheck.facts import Node
from nodecheck.judge.finding import Cause, Owner
from nodecheck.judge.rule import Outcome, rule, skipped
from nodecheck.profile import Profile


@rule(
    "measurements.performed",
    "The profile's figures were measured",
    reads="the level of the run, and the figures of the profile",
    door="torch",
    passes="never at level quick, which puts no load on the node",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="",
    next_step="",
    repeat="nodecheck profiles show PROFILE",
)
def performed(node: Node, profile: Profile) -> Iterator[Outcome]:
    figures = len(profile.figures)
    if not figures:
        yield skipped(f"The profile {profile.name} has no figures.")
    else:
        names = ", ".join(dict.fromkeys(figure.measure for figure in profile.figures))
        yield skipped(
            f"Level {node.level} measures nothing: {figures} figures of the profile were not held against "
            f"this node ({names})."
        )
