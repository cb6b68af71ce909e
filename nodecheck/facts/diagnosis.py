"""What another tool said of the node: its verdicts, where somebody pasted them."""

from __future__ import annotations

from typing import Literal

from nodecheck.facts.base import Fact

Outcome = Literal["pass", "warn", "fail", "skip", "unknown"]


class Diagnosis(Fact):
    """One test of another tool on one card."""

    tool: str
    """`dcgmi diag`."""
    test: str
    """As the tool names it: `memory`, `pcie`."""
    card: str
    """`Card.key`; empty where the test is about the node."""
    outcome: Outcome
    detail: str
    """What the tool says to it."""
