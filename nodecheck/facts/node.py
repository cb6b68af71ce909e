"""The one document everything later is computed from."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from nodecheck.facts.base import Absent, Fact, Maybe, Why, known, seen
from nodecheck.facts.card import Card
from nodecheck.facts.diagnosis import Diagnosis
from nodecheck.facts.host import Host
from nodecheck.facts.kernel_log import KernelLog
from nodecheck.facts.measurements import Measurements
from nodecheck.facts.stack import Stack
from nodecheck.facts.topology import Topology

Level = Literal["quick", "standard", "full"]
"""How much is done to the node: `quick` puts no load on it, `standard` measures everything briefly, `full` adds
sustained load, longer memory passes and more sizes."""


class Door(Fact):
    """One way to see the node, and whether it was open to this user."""

    name: str
    """`nvml`, `pci`, `kernel_log`, `torch`, … : rules name the door they look through."""
    open: Maybe[bool]
    """True, False, or why even that is not known."""
    detail: str


class Node(Fact):
    """Everything seen on a node in one run."""

    format: Literal["nodecheck-facts/1"] = "nodecheck-facts/1"
    taken_at: datetime
    """UTC."""
    tool_version: str
    level: Level
    host: Maybe[Host] = seen("the machine", linux="procfs and sysfs")
    cards: Maybe[tuple[Card, ...]] = seen("cards, in the order of their PCI addresses", nvml="NVML")
    topology: Maybe[Topology] = seen("links", nvml="NVML", linux="sysfs")
    stack: Maybe[Stack] = seen("software", torch="the renter's interpreter")
    kernel_log: Maybe[KernelLog] = seen("kernel log", linux="/dev/kmsg, dmesg or journal")
    measurements: Maybe[Measurements] = seen(
        "figures under load", torch="workers in the renter's interpreter"
    )
    diagnoses: tuple[Diagnosis, ...] = ()
    """Verdicts of other tools, where somebody pasted their output; nodecheck itself asks none."""
    doors: tuple[Door, ...] = ()

    @property
    def known_cards(self) -> tuple[Card, ...]:
        """The cards, or none where they could not be listed (rules on `cards` itself tell the two apart)."""
        return self.cards if known(self.cards) else ()

    def at(self, seconds: Maybe[float]) -> Maybe[datetime]:
        """When, in UTC, it was so many seconds after boot: computed from `taken_at` and how long the machine had
        been up by then. Off by the seconds that the run took, and by any time the machine was suspended."""
        if isinstance(seconds, Absent):
            return seconds
        if isinstance(self.host, Absent):
            return self.host
        up = self.host.uptime_seconds
        if isinstance(up, Absent):
            return up
        try:
            return self.taken_at + timedelta(seconds=seconds - up)
        except OverflowError:
            return Absent(why=Why.failed, detail=f"{seconds} s after boot is no time of any calendar")
