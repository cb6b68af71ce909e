"""A whole node with AMD's cards, at its real boundaries."""

from __future__ import annotations

from typing import Any

from nodecheck.facts import Absent, Why
from tests.fakes import node as nodes
from tests.fakes.amd import AmdNode, amd_smi, tree

NO_BINDING = Absent(why=Why.not_present, detail="no /opt/rocm/share/amd_smi/amdsmi")
NOT_TRIED = Absent(why=Why.not_asked, detail="the made-up node makes no context")


def stand(node: AmdNode, generation: str = "7.2") -> nodes.FakeNode:
    """The node, with the `amd-smi` of a generation. Without a binding, which `made.amdsmi` may hold an answer of."""
    made = nodes.healthy("cpu", kind=node.kind)
    made.tree = tree.plant(node)
    made.files |= tree.denied(node) | tree.owners(node)
    made.commands |= amd_smi.outputs(node, generation) | {"rocm_smi": nodes.NOT_INSTALLED}
    made.process["groups"] = [0, tree.VIDEO, tree.RENDER]
    made.amdsmi = {"survey": NO_BINDING}
    made.interpreter |= {f"context {key}": NOT_TRIED for card in node.cards for key in _keys(card)}
    return made


def _keys(card: Any) -> tuple[str, str]:
    return f"GPU-{card.unique_id:016x}", card.address
