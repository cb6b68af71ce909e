"""Topologies that RCCL wrote down on real nodes, laid out as KFD shows them and judged as their index says.

The recordings hold ids, compute units, NUMA nodes and links; what else a node has is made up. They lie beside the
repository, and where they do not these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from defusedxml.ElementTree import parse

from nodecheck.judge import Judgement, Status, Verdict, judge
from nodecheck.profile import load
from tests.fakes.amd import AmdNode, Way, describe
from tests.fakes.amd.node import stand
from tests.fakes.tree import Ground
from tests.surveys import needs_compiler

CORPUS = Path("../shared/corpus/amd")
LINK_MB_PER_S = 50_000

pytestmark = [needs_compiler, pytest.mark.skipif(not CORPUS.is_dir(), reason="the recordings are not here")]


def cards(system: Element) -> Iterator[tuple[Element, Element, str]]:
    """Device, card and NUMA node of each."""
    for cpu in system.iter("cpu"):
        for device in cpu.iter("pci"):
            card = device.find("gpu")
            if card is not None:
                yield device, card, cpu.attrib["numaid"]


def recorded(name: str, product: str, packages: int) -> AmdNode:
    """The recorded node. Cards without a link of their own are as far apart as `describe` has them."""
    node = describe(product, packages)
    places: dict[str, int] = {}
    system = parse(CORPUS / name / "nccl-topo.xml").getroot()
    assert system is not None
    seen = sorted(cards(system), key=lambda one: one[0].attrib["busid"])
    assert len(seen) == len(node.cards)
    for position, ((device, card, numa), made) in enumerate(zip(seen, node.cards, strict=True)):
        made.address = device.attrib["busid"]
        made.units = int(card.attrib["sm"])
        made.numa = int(numa)
        if "device" in device.attrib:
            made.device = int(device.attrib["device"], 16)
        places[made.address] = position
    for device, card, _ in seen:
        for link in card.iter("xgmi"):
            here, there = places[device.attrib["busid"]], places[link.attrib["target"]]
            node.ways[here, there] = Way("xgmi", 15, LINK_MB_PER_S * int(link.attrib["count"]))
    return node


def judged(node: AmdNode, bundle: str, folder: Path) -> Judgement:
    return judge(stand(node).probe(Ground(folder / "node")), load(bundle))


@pytest.mark.parametrize(
    ("name", "bundle", "product", "packages"),
    [
        ("rccl-topo-mi300x-x8", "mi300xx8", "mi300x", 8),
        ("rccl-topo-mi300a-x4", "mi300ax4", "mi300a", 4),
        ("rccl-topo-mi250-8gcd", "mi210x8", "mi210", 8),  # without ids, and two hives of four
    ],
)
def test_recorded_topology(name: str, bundle: str, product: str, packages: int, tmp_path: Path) -> None:
    judgement = judged(recorded(name, product, packages), bundle, tmp_path)
    assert judgement.verdict is Verdict.accepted, judgement.reasons


def test_a_partial_mesh_by_design_is_no_fault(tmp_path: Path) -> None:
    """Eight packages of MI250: twice the dies that were rented, of the lesser product, and not a link amiss."""
    judgement = judged(recorded("rccl-topo-mi250x-16gcd", "mi250x", 8), "mi250xx8", tmp_path)
    assert judgement.verdict is Verdict.rejected
    failed = {f.id for f in judgement.findings if f.status is Status.fail}
    assert {"cards.count", "cards.compute_units"} <= failed
    assert not [id for id in failed if id.startswith(("topology.", "health."))]
