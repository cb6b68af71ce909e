"""Records the made-up nodes of this folder: `python -m tests.nodes.record [NAME…]`.

Needs a C compiler for the stand-in of NVML. `h200x1` and `h200x2` are not made here: see README.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from nodecheck.facts import Level
from nodecheck.profile import load
from nodecheck.sources import recorders, recording
from tests.fakes import faults
from tests.fakes.amd import node as amds
from tests.fakes.amd.faults import changed, errors, way
from tests.fakes.node import FakeNode, healthy, probe
from tests.fakes.tree import Ground
from tests.fakes.workers import FakeWorkers

HERE = Path(__file__).parent
TAKEN_AT = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
NO_TORCH = {
    "type": "ModuleNotFoundError",
    "message": "No module named 'torch'",
    "code": None,
    "missing": True,
}


def accepted() -> FakeNode:
    """Half of an eight-card board in a container: all eight stand on the PCI bus, four are handed out."""
    return healthy("h200x4", kind="container", on_bus=8)


def rejected() -> FakeNode:
    """A card with two NVLinks down and memory that has begun to fail, and a card that is capped."""
    node = healthy("h200x4")
    for link in (4, 5):
        node.nvml[f"nvmlDeviceGetNvLinkState 2 {link}"] = "0"
    node.nvml["nvmlDeviceGetRemappedRows 2"] = "0 1 1 0"
    node.nvml["nvmlDeviceGetEnforcedPowerLimit 3"] = "500000"
    node.log("NVRM: Xid (PCI:0000:3a:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error "
             "(DBE) has been detected on GPU in the framebuffer at partition 4, subpartition 1.")  # fmt: skip
    return node


def incomplete() -> FakeNode:
    """A container in which no interpreter has PyTorch, so that no card can be put to work."""
    node = healthy("h200x4", kind="container")
    faults.no_torch(NO_TORCH)(node)
    return node


def of_amd() -> FakeNode:
    """Eight of AMD's cards on bare metal, measured: every figure is the profile's typical one."""
    node = amds.healthy("mi300xx8")
    made = amds.stand(node)
    made.crew = FakeWorkers(load("mi300xx8"), tuple(map(amds.key, node.cards)))
    return made


def of_amd_rejected() -> FakeNode:
    """PCI Express in the place of xGMI between two cards, and memory of another that has begun to fail."""
    node = amds.healthy("mi300xx8")
    changed(way(1, 3, "pcie", 40), errors(5, "UMC", uncorrected=2))(node)
    made = amds.stand(node)
    made.log(
        "amdgpu 0000:af:00.0: amdgpu: socket: 5, die: 0 2 uncorrectable hardware errors detected in umc block"
    )
    return made


NODES: dict[str, Callable[[], FakeNode]] = {
    "h200x4-accepted": accepted,
    "h200x4-rejected": rejected,
    "h200x4-incomplete": incomplete,
    "h200x8": lambda: healthy("h200x8"),
    "mi300xx8": of_amd,
    "mi300xx8-rejected": of_amd_rejected,
}

MEASURED = ("mi300xx8",)
"""Recorded at level standard; the others at quick."""


def record(node: FakeNode, level: Level, folder: Path) -> None:
    """Write the recording of `node`, as it is read at `level`, as plain files, so that a change can be read."""
    with tempfile.TemporaryDirectory() as ground:
        channels = recorders(node.channels(Ground(Path(ground))))
        probe(dict(channels), level)
    answers = {name: recorder.answers for name, recorder in channels.items()}
    folder.mkdir(exist_ok=True)
    for name, content in recording.members(answers, taken_at=TAKEN_AT).items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    for name in sys.argv[1:] or NODES:
        record(NODES[name](), "standard" if name in MEASURED else "quick", HERE / name)
