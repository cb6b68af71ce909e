"""The table of Xids and SXids (`xids.toml`): what each number means, how grave it is and who acts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from nodecheck.judge.finding import Cause, Owner

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Gravity = Literal["ignore", "app", "warn", "fail"]
"""`app`: as a rule the fault of the program that held the card, not of the card."""

XID_SOURCE = "NVIDIA Xid catalogue, docs.nvidia.com/deploy/xid-errors (published, 2025-10-29)"
SXID_SOURCE = "NVIDIA Fabric Manager user guide, DU-09883-001 v1.3, appendix D (published, 2023-10)"


@dataclass(frozen=True)
class Entry:
    """What one number means."""

    name: str
    meaning: str
    gravity: Gravity
    next_step: str

    @property
    def cause(self) -> Cause:
        return Cause.misconfigured if self.gravity == "app" else Cause.faulty

    @property
    def owner(self) -> Owner:
        return Owner.renter if self.gravity == "app" else Owner.provider


@cache
def xids() -> Mapping[int, Entry]:
    """The Xids of cards by number."""
    return _table("xid")


@cache
def sxids() -> Mapping[int, Entry]:
    """The SXids of NVSwitches by number."""
    return _table("sxid")


def _table(kind: Literal["xid", "sxid"]) -> dict[int, Entry]:
    document = _document()
    table: dict[int, Entry] = {}
    for row in document[kind]:
        entry = Entry(row["name"], row["meaning"], row["gravity"], document["steps"][row["step"]])
        for number in row["numbers"]:
            if number in table:
                raise ValueError(f"xids.toml: {kind} {number} stands there twice")
            table[number] = entry
    return table


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(files("nodecheck.judge").joinpath("xids.toml").read_text(encoding="utf-8"))
