"""What was seen. No I/O happens here; see `docs/` and `nodecheck report schema` for the JSON form."""

from nodecheck.facts.base import (
    BROKE_DOWN,
    GIVEN_UP,
    NOT_ASKED,
    OWN_FAULT,
    Absent,
    Fact,
    Gathered,
    Maybe,
    Why,
    known,
    or_none,
    origin,
    seen,
)
from nodecheck.facts.card import Card
from nodecheck.facts.host import Host
from nodecheck.facts.kernel_log import KernelLog, LogEvent
from nodecheck.facts.measurements import Measurements
from nodecheck.facts.node import Door, Level, Node
from nodecheck.facts.stack import Stack
from nodecheck.facts.topology import Topology

__all__ = [
    "BROKE_DOWN",
    "GIVEN_UP",
    "NOT_ASKED",
    "OWN_FAULT",
    "Absent",
    "Card",
    "Door",
    "Fact",
    "Gathered",
    "Host",
    "KernelLog",
    "Level",
    "LogEvent",
    "Maybe",
    "Measurements",
    "Node",
    "Stack",
    "Topology",
    "Why",
    "known",
    "or_none",
    "origin",
    "seen",
]
