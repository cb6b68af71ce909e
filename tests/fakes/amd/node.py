"""A whole node with AMD's cards, at its real boundaries.

made = healthy("mi300xx8", kind="guest")
made.cards[1].cap_watts = 550                    # plant a fault: every source tells it
node = stand(made, "6.4")                        # with the amd-smi of that generation
facts = node.probe(Ground(tmp_path / "node"))
"""

from __future__ import annotations

from typing import Any

from nodecheck.facts import Absent, Why
from tests.fakes import node as nodes
from tests.fakes.amd import PRODUCTS, AmdCard, AmdNode, Kind, amd_smi, describe, tree

NO_BINDING = Absent(why=Why.not_present, detail="no /opt/rocm/share/amd_smi/amdsmi")
SUCCESS = {"code": 0, "name": "hipSuccess", "message": "no error"}
TARGETS = ("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
RCCL = f"{nodes.SITE}/torch/lib/librccl.so"


def healthy(bundle: str, *, kind: Kind = "bare") -> AmdNode:
    """What a shipped profile promises. An MI250X counts as the two dies that programs see."""
    product, count = nodes.split(bundle)
    each = 2 if PRODUCTS[product].links == "pairs" else 1
    return describe(product, count // each, kind=kind)


def stand(node: AmdNode, generation: str = "7.2") -> nodes.FakeNode:
    """The node, with the `amd-smi` of a generation. Without a binding, which `made.amdsmi` may hold an answer of."""
    made = nodes.healthy("cpu", kind=node.kind)
    made.tree = tree.plant(node)
    made.files |= tree.denied(node) | tree.owners(node)
    made.commands |= amd_smi.outputs(node, generation) | {"rocm_smi": nodes.NOT_INSTALLED}
    made.process["groups"] = [0, tree.VIDEO, tree.RENDER]
    made.process["processes"] = [[1, "systemd", "S"], [9120, "bash", "S"]]
    made.amdsmi = {"survey": NO_BINDING}
    _with_torch(made, node)
    return made


def key(card: AmdCard) -> str:
    """`Card.key`: partitions of a package share its unique id, and go by their addresses; so does who has none."""
    return card.address if card.compute != "SPX" else uuid(card) or card.address


def uuid(card: AmdCard) -> str | None:
    """As HIP tells it."""
    return f"GPU-{card.unique_id:016x}" if card.unique_id else None


def _with_torch(made: nodes.FakeNode, node: AmdNode) -> None:
    """torch built for ROCm, which sees the cards that the container is given."""
    made.tree.files[f"{nodes.SITE}/torch/version.py"] = (
        "from typing import Optional\n\n__version__ = '2.9.1+rocm7.2.0'\n"
        "debug = False\ncuda: Optional[str] = None\nhip: Optional[str] = '7.2.26015-fc0010cf6a'\n"
    )
    made.tree.files[RCCL] = ""
    seen = [_device(i, card) for i, card in enumerate(node.given)] if node.loaded else []
    made.torch(
        version="2.9.1+rocm7.2.0",
        hip="7.2.26015-fc0010cf6a",
        arch_list=list(TARGETS),
        cudnn=3005001,
        nccl=[2, 27, 7],
        nccl_loaded={"path": RCCL, "version": 22707},
        libraries=[f"{nodes.SITE}/torch/lib/lib{name}.so" for name in ("MIOpen", "amdhip64", "rccl")],
        hip_init=SUCCESS,
        hip_runtime=70_226_015,
        available=node.loaded,
        device_count=len(seen),
        runtime_count=len(seen),
        driver_devices=[{"uuid": one["uuid"], "pci_address": one["pci_address"]} for one in seen],
        devices=seen,
    )
    built = [
        ("torch", "2.9.1+rocm7.2.0", ["hip"]),
        ("triton", "3.5.1+rocm7.2.0", ["hip"]),
        ("apex", "1.9.0", ["hip"]),
    ]
    made.interpreter["extensions"] = nodes.said(
        {"extensions": [{"name": n, "version": v, "built_for": p, "files": 9} for n, v, p in built]}, "done"
    )
    for card in node.cards:
        made.interpreter[f"context {key(card)}"] = nodes.said(_context(card), "done")


def _device(index: int, card: AmdCard) -> dict[str, Any]:
    return {
        "index": index,
        "name": card.name,
        "uuid": uuid(card),
        "pci_address": card.address,
        "capability": card.gfx,
        "total_bytes": card.memory_bytes,
        "multiprocessors": card.units,
    }


def _context(card: AmdCard) -> dict[str, Any]:
    return {
        "init": SUCCESS,
        "device": {"uuid": uuid(card), "pci_address": card.address},
        "context": SUCCESS,
        "context_seconds": 0.42,
        "sum": {"got": nodes.ELEMENTS_SUM, "expected": nodes.ELEMENTS_SUM},
        "kernel_seconds": 0.09,
        "free_bytes": card.memory_bytes - card.used_bytes - 200 * 1024**2,
    }
