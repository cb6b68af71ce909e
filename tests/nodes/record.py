"""Records the made-up nodes of this folder: `python -m tests.nodes.record [NAME…]`.

Needs a C compiler for the stand-in of NVML. `h200x1` and `h200x2` are not made here: see README.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from nodecheck.probes import Probing
from nodecheck.sources import Sources, recorders, recording
from tests.fakes import faults
from tests.fakes.node import FakeNode, healthy
from tests.fakes.tree import Ground

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


NODES: dict[str, Callable[[], FakeNode]] = {
    "h200x4-accepted": accepted,
    "h200x4-rejected": rejected,
    "h200x4-incomplete": incomplete,
    "h200x8": lambda: healthy("h200x8"),
}


def record(node: FakeNode, folder: Path) -> None:
    """Write the recording of `node` as plain files, so that a change can be read."""
    with tempfile.TemporaryDirectory() as ground:
        channels = recorders(node.channels(Ground(Path(ground))))
        Probing(Sources.over(dict(channels)), "quick").run()
    answers = {name: recorder.answers for name, recorder in channels.items()}
    folder.mkdir(exist_ok=True)
    for name, content in recording.members(answers, taken_at=TAKEN_AT).items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    for name in sys.argv[1:] or NODES:
        record(NODES[name](), HERE / name)
