from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.probes import pci
from nodecheck.sources import Files, files
from nodecheck.sources.channel import Live
from tests.fakes.tree import Ground, Tree, configuration, plant

LINE = "BOOT_IMAGE=/vmlinuz ro iommu=pt quiet"


def files_of(tree: Tree, root: Path) -> Files:
    ground = Ground(root)
    ground.hold(tree)
    return Files(files.live(str(ground.root)))


def in_group(tree: Tree, kind: str) -> None:
    """Put every card into an IOMMU group of this kind."""
    for number, (path, place) in enumerate(list(tree.links.items())):
        if path.startswith("/sys/bus/pci/devices/"):
            tree.links[f"{place}/iommu_group"] = f"/sys/kernel/iommu_groups/{number}"
            tree.files[f"/sys/kernel/iommu_groups/{number}/type"] = f"{kind}\n"


def test_cards_are_the_gpus_alone(tmp_path: Path) -> None:
    found = pci.cards(files_of(plant("h200", 4), tmp_path))
    assert isinstance(found, tuple)
    assert len(found) == 4


def test_no_bus_is_no_list() -> None:
    f = Files(Live(lambda question: Absent(why=Why.not_present)))
    assert isinstance(pci.cards(f), Absent)
    assert isinstance(pci.iommu(f, pci.cards(f), LINE), Absent)
    assert isinstance(pci.acs_bridges(f, pci.cards(f)), Absent)


@pytest.mark.parametrize(
    ("kind", "line", "mode"),
    [
        ("identity", "ro", "passthrough"),
        ("DMA", "ro", "translated"),
        ("DMA-FQ", LINE, "translated"),  # what is so goes before what was asked for
        ("", LINE, "passthrough"),
        ("", "ro iommu.passthrough=1", "passthrough"),
        ("", "ro intel_iommu=off", "off"),
        ("", "ro iommu.passthrough=0", "translated"),
        ("auto", LINE, "passthrough"),
    ],
)
def test_the_iommu_s_mode(tmp_path: Path, kind: str, line: str, mode: str) -> None:
    tree = plant("h200", 2)
    if kind:
        in_group(tree, kind)
    f = files_of(tree, tmp_path)
    assert pci.iommu(f, pci.cards(f), line) == mode


def test_without_units_it_is_off(tmp_path: Path) -> None:
    f = files_of(plant("h200", 2, kind="guest"), tmp_path)
    assert pci.iommu(f, pci.cards(f), "ro") == "off"


def test_units_whose_mode_nobody_tells(tmp_path: Path) -> None:
    f = files_of(plant("h200", 2), tmp_path)
    for line in ("ro quiet", Absent(why=Why.no_permission)):
        answer = pci.iommu(f, pci.cards(f), line)
        assert isinstance(answer, Absent)
        assert answer.why is Why.failed


def bridges_of(tree: Tree) -> list[str]:
    return [
        path for path in tree.links if path.startswith("/sys/bus/pci/devices/") and _is_bridge(tree, path)
    ]


def _is_bridge(tree: Tree, path: str) -> bool:
    text = tree.files[f"{tree.links[path]}/class"]
    assert isinstance(text, str)
    return text.startswith("0x0604")


def test_bridges_that_do_not_redirect(tmp_path: Path) -> None:
    f = files_of(plant("h200", 4), tmp_path)
    assert pci.acs_bridges(f, pci.cards(f)) == ()


@pytest.mark.parametrize(("control", "redirects"), [(0x1D, True), (0x04, True), (0x08, True), (0x11, False)])
def test_a_bridge_that_redirects_is_named(tmp_path: Path, control: int, redirects: bool) -> None:
    tree = plant("h200", 4)
    bridge = bridges_of(tree)[0]
    tree.files[f"{tree.links[bridge]}/config"] = configuration("1000:c030", bridge=True, acs_control=control)
    f = files_of(tree, tmp_path)
    named = (bridge.rpartition("/")[2],) if redirects else ()
    assert pci.acs_bridges(f, pci.cards(f)) == named


def test_without_root_only_the_header_can_be_read(tmp_path: Path) -> None:
    f = files_of(plant("h200", 4, kind="container"), tmp_path)
    answer = pci.acs_bridges(f, pci.cards(f))
    assert isinstance(answer, Absent)
    assert answer.why is Why.no_permission


def acs(space: bytes) -> Maybe[tuple[str, ...]]:
    def answer(question: str) -> object:
        verb = question.partition(" ")[0]
        if verb == "resolve":
            return "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
        return space.hex() if verb == "hex" else Absent(why=Why.not_present)

    return pci.acs_bridges(Files(Live(answer)), ("0000:01:00.0",))


def capability(space: bytearray, at: int, id_: int, next_: int, control: int = 0) -> None:
    space[at : at + 4] = (id_ | 1 << 16 | next_ << 20).to_bytes(4, "little")
    space[at + 6 : at + 8] = control.to_bytes(2, "little")


def test_the_capability_is_found_behind_others() -> None:
    space = bytearray(4096)
    capability(space, 0x100, 0x0001, 0x148)
    capability(space, 0x148, 0x000D, 0, control=0x0C)
    assert acs(bytes(space)) == ("0000:00:01.0",)


@pytest.mark.parametrize("next_", [0x100, 0x148, 0xFFC, 0x004, 0xFF8])
def test_a_ring_or_a_wild_pointer_ends(next_: int) -> None:
    space = bytearray(4096)
    capability(space, 0x100, 0x0001, 0x148)
    capability(space, 0x148, 0x0003, next_)
    assert acs(bytes(space)) == ()


def test_a_dead_bridge_and_one_without_extended_space_have_no_acs() -> None:
    assert acs(b"\xff" * 4096) == ()
    assert acs(bytes(256)) == ()


@given(st.binary(max_size=600), st.binary(min_size=0, max_size=64))
def test_no_configuration_space_raises(space: bytes, tail: bytes) -> None:
    acs((space + bytes(4096))[: 4096 - 64] + tail)
    acs(space)
