"""A kind of output that somebody pasted: how it is known, and what is read out of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from nodecheck.facts import (
    NOT_ASKED,
    Card,
    Host,
    KernelLog,
    Maybe,
    Measurements,
    Stack,
    Topology,
)
from nodecheck.facts.diagnosis import Diagnosis


class Unreadable(Exception):
    """An output of a kind that is known, and nothing can be made of this one; the reason in one sentence."""


@dataclass(frozen=True)
class Section:
    """One pasted output, from its first line to its last."""

    text: str
    """Without colours, quoting and carriage returns."""
    heading: str = ""
    """The command at the prompt before it, or the title that a bug report gives it."""
    whole: bool = True
    """False where the file was longer than it was read, so that the end may be missing."""


@dataclass(frozen=True)
class Piece:
    """What one output says of the node; what it does not speak of is `not_asked`, as everywhere.

    Cards that the output tells apart by their number alone are named by it (`Card.key` is then `card 3`), and so
    are they in pairs and figures: the merging puts the right names in.
    """

    cards: Maybe[tuple[Card, ...]] = NOT_ASKED
    host: Maybe[Host] = NOT_ASKED
    topology: Maybe[Topology] = NOT_ASKED
    stack: Maybe[Stack] = NOT_ASKED
    kernel_log: Maybe[KernelLog] = NOT_ASKED
    measurements: Maybe[Measurements] = NOT_ASKED
    diagnoses: tuple[Diagnosis, ...] = ()
    taken_at: datetime | None = None
    numbered: bool = True
    """Whether `Card.index` is the tool's own number for the card, and not only its place in the output."""
    remarks: tuple[str, ...] = ()
    """What of the output could not be understood, a sentence each."""


@dataclass(frozen=True)
class Kind:
    """A kind of output, known by its content, never by its file's name."""

    name: str
    """The command that prints it, `nvidia-smi -q -x`: findings name it as their source."""
    read: Callable[[Section], Piece]
    """What the section says. Raises `Unreadable` where it says nothing that can be understood."""
    begins: re.Pattern[str] | None = None
    """What the first line of every such output looks like, matched at the line's beginning: a new section starts
    there."""
    goes_on: re.Pattern[str] | None = None
    """What a line within such an output looks like: a new section starts there unless it is in one already. For
    outputs without a first line of their own, and for those whose beginning was not pasted."""
    command: re.Pattern[str] | None = None
    """What the command looks like at a prompt, or in a bug report's title: what follows it is of this kind."""
    recognises: Callable[[str], bool] = lambda _text: True
    """Whether a section that starts so is of this kind indeed; the first kind that says so reads it."""
    vendor_numbers: str = "nvidia"
    """Tools with the same word here number the cards of one vendor alike, so that their cards can be joined on the
    number: amd-smi and rocm-smi do (`amd`); HIP's programs and ROCm's runtime (`hsa`) have orders of their own."""
