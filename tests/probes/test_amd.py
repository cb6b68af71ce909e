"""AMD's cards as facts: whole made-up nodes through the real sources, as each of them tells them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from nodecheck.facts import Absent, Card, Fact, Node, Why
from nodecheck.facts.base import AMD_ALONE, NVIDIA_ALONE
from nodecheck.facts.stack import Driver
from nodecheck.facts.topology import Pair
from nodecheck.probes import Probing, Stage
from nodecheck.sources import Sources, commands
from nodecheck.sources.channel import Channel, Recorder, encode
from tests.fakes import nvml
from tests.fakes.amd import GIB, AmdNode, Way, amd_smi, describe, tree
from tests.fakes.amd import amdsmi as binding
from tests.fakes.amd.node import NO_BINDING, stand
from tests.fakes.node import FakeNode
from tests.fakes.node import healthy as nvidia_node
from tests.fakes.tree import Ground
from tests.surveys import needs_compiler

STAGES: tuple[Stage, ...] = ("host", "cards", "topology", "stack")


def probed(made: FakeNode, folder: Path) -> Node:
    return Probing(Sources.over(made.channels(Ground(folder / "node"))), "quick").run(STAGES)


def seen(node: AmdNode, folder: Path, generation: str = "7.2", **answers: Any) -> Node:
    """The facts; `answers` go before the sources' own, by question to amd-smi (`static=…`)."""
    made = stand(node, generation)
    made.commands |= {f"amd_smi_{name}": answer for name, answer in answers.items()}
    return probed(made, folder)


def cards(node: Node) -> tuple[Card, ...]:
    assert not isinstance(node.cards, Absent), node.cards
    return node.cards


def pairs(node: Node) -> tuple[Pair, ...]:
    assert not isinstance(node.topology, Absent), node.topology
    assert not isinstance(node.topology.pairs, Absent), node.topology.pairs
    return node.topology.pairs


def driver(node: Node) -> Driver:
    assert not isinstance(node.stack, Absent), node.stack
    return node.stack.driver


def why(value: object) -> Why | None:
    return value.why if isinstance(value, Absent) else None


def detail(value: object) -> str:
    assert isinstance(value, Absent), value
    return value.detail


def absents(fact: Fact, path: str = "") -> Iterator[tuple[str, Absent]]:
    for name in type(fact).model_fields:
        value, here = getattr(fact, name), f"{path}.{name}" if path else name
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Absent):
                yield here, one
            elif isinstance(one, Fact):
                yield from absents(one, here)


# Healthy nodes


@pytest.mark.parametrize(
    ("product", "generation"),
    [
        *(("mi300x", generation) for generation in amd_smi.GENERATIONS),
        *((product, "7.2") for product in ("mi325x", "mi355x", "mi300a", "mi210")),
    ],
)
def test_a_healthy_node_is_told_alike_by_every_release(product: str, generation: str, tmp_path: Path) -> None:
    made = describe(product, 2)
    node = seen(made, tmp_path, generation)
    found = cards(node)
    assert [card.pci_address for card in found] == [card.address for card in made.cards]
    for card, said in zip(found, made.cards, strict=True):
        assert (card.vendor, card.usable, card.lost, card.uuid) == (
            "amd",
            True,
            False,
            f"GPU-{said.unique_id:016x}",
        )
        identity = card.identity
        assert (identity.name, identity.gfx, identity.compute_units) == (said.name, said.gfx, said.units)
        assert identity.pci_id == f"1002:{said.device:04x}"
        assert (identity.vbios, identity.serial) == ("113-M3000100-102", said.serial)
        assert identity.firmware_bundle == "01.25.03.12"
        assert card.memory.total_bytes == said.memory_bytes
        assert (card.power.limit_watts, card.power.default_limit_watts) == (said.cap_watts, said.cap_watts)
        assert (card.modes.compute_partition, card.modes.memory_partition) == ("SPX", "NPS1")
        assert card.modes.virtualization == "none"
        health = card.health
        assert not isinstance(health.ecc_volatile, Absent)
        assert (health.ecc_volatile.uncorrected, health.ecc_volatile.corrected, health.ecc_enabled) == (
            0,
            0,
            True,
        )
        assert not isinstance(health.ecc_blocks, Absent)
        assert "XGMI_WAFL" in [block.name for block in health.ecc_blocks]
        assert (health.bad_pages_retired, health.bad_pages_pending, health.bad_pages_unreservable) == (
            0,
            0,
            0,
        )
        assert (card.pcie.width, card.pcie.replays, card.processes) == (16, 0, ())
        assert card.pcie.generation == (5 if made.product.pcie == 32.0 else 4)
    (pair,) = pairs(node)
    assert (pair.a, pair.b) == (found[0].key, found[1].key)
    assert (pair.link_type, pair.weight, pair.hops, pair.max_bandwidth_mb_per_s) == ("xgmi", 15, 1, 50_000)
    assert pair.accessible is True
    assert driver(node).version == "6.16.13"


def test_every_fact_of_a_healthy_card_is_seen_or_says_why(tmp_path: Path) -> None:
    (first, *_) = cards(seen(describe("mi300x", 8), tmp_path))
    missing = {path: value for path, value in absents(first) if value != NVIDIA_ALONE}
    assert AMD_ALONE not in missing.values()
    assert set(missing) <= {"health.bad_page_threshold_exceeded"}


def test_each_fact_names_the_source_it_was_read_from(tmp_path: Path) -> None:
    (first, *_) = cards(seen(describe("mi300x", 2), tmp_path))
    assert first.source == "sysfs"
    assert first.source_of("power.limit_watts", first.source) == "sysfs"
    assert first.source_of("identity.name", first.source) == "amd_smi"
    assert first.source_of("pcie.naks_sent", first.source) == "amd_smi"


def test_architectures_are_named(tmp_path: Path) -> None:
    for product, name, capability in (
        ("mi300x", "cdna3", "9.4"),
        ("mi355x", "cdna4", "9.5"),
        ("mi210", "cdna2", "9.0"),
    ):
        (card,) = cards(seen(describe(product, 1), tmp_path / product))
        assert (card.identity.architecture, card.identity.compute_capability) == (name, capability)


# Virtual functions


@pytest.mark.parametrize("generation", amd_smi.GENERATIONS)
def test_virtual_functions_each_in_a_domain_of_its_own(generation: str, tmp_path: Path) -> None:
    node = seen(describe("mi300x", 8, kind="guest"), tmp_path, generation)
    found = cards(node)
    assert [card.pci_address for card in found] == [f"{0x10 * i + 1:04x}:00:00.0" for i in range(1, 9)]
    assert len({card.key for card in found}) == 8
    for card in found:
        assert card.identity.pci_id == "1002:74b5"
        assert card.modes.virtualization == "virtual_function"
        assert why(card.power.limit_watts) is why(card.power.default_limit_watts) is Why.not_supported
        assert why(card.health.ecc_volatile) is why(card.health.bad_pages_retired) is Why.not_supported
        assert why(card.identity.serial) is why(card.pcie.naks_sent) is Why.not_supported
        assert not isinstance(card.links, Absent)
        assert all(
            why(link.active) is Why.not_supported for link in card.links
        )  # not down, as amd-smi has it
    assert {(pair.link_type, pair.weight) for pair in pairs(node)} == {("xgmi", 15)}
    assert len(pairs(node)) == 28


# Containers


def test_a_container_is_given_some_of_the_cards(tmp_path: Path) -> None:
    made = describe("mi300x", 8, kind="container")
    made.hidden = {0, 1, 2, 3}
    node = seen(made, tmp_path)
    assert [card.pci_address for card in cards(node)] == [card.address for card in made.cards[4:]]
    assert not isinstance(node.topology, Absent)
    assert (node.topology.kfd_count, node.topology.kfd_hidden, node.topology.amd_smi_count) == (4, 4, 4)
    assert {(pair.link_type, pair.weight) for pair in pairs(node)} == {("xgmi", 15)}
    for card in cards(node):
        assert not isinstance(card.links, Absent)
        hidden = [link for link in card.links if isinstance(link.remote_pci_address, Absent)]
        assert len(hidden) == 4
        assert all(why(link.remote_pci_address) is Why.no_permission for link in hidden)
    doors = {door.name: door for door in node.doors}
    assert "keeps 4 more from this container" in doors["kfd"].detail


def test_device_files_that_may_not_be_opened(tmp_path: Path) -> None:
    made = stand(describe("mi300x", 2))
    made.files |= {
        f"access {path}": False for path in ("/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD129")
    }
    made.process["groups"] = [1000]
    node = probed(made, tmp_path)
    for card in cards(node):
        assert why(card.usable) is Why.no_permission
        assert "/dev/kfd" in detail(card.usable)
        assert card.identity.gfx == "gfx942"  # sysfs tells it all the same
    assert not isinstance(node.host, Absent) and not isinstance(node.host.device_files, Absent)
    (kfd, *nodes) = node.host.device_files
    assert (kfd.path, kfd.mode, kfd.group, kfd.member, kfd.allowed) == (
        "/dev/kfd",
        "0660",
        "render",
        False,
        False,
    )
    assert len(nodes) == 2
    door = next(door for door in node.doors if door.name == "render")
    assert door.open is False and "usermod -aG render" in door.detail and "--group-add 992" in door.detail


def test_amd_smi_that_misses_groups_says_nothing_and_why(tmp_path: Path) -> None:
    made = describe("mi300x", 2)
    made.groups_missing = ("render", "video")
    (first, _) = cards(seen(made, tmp_path))
    assert why(first.identity.name) is Why.no_permission
    assert "render, video" in detail(first.identity.name)
    assert (first.identity.gfx, first.power.limit_watts) == ("gfx942", 750)


def test_without_kfd_in_the_container(tmp_path: Path) -> None:
    made = stand(describe("mi300x", 2, kind="container"))
    made.tree.remove("/dev/kfd")
    node = probed(made, tmp_path)
    assert {why(card.usable) for card in cards(node)} == {Why.not_present}
    assert next(door for door in node.doors if door.name == "render").open is False


# Partitions and packages


def test_partitions_are_cards_of_one_package(tmp_path: Path) -> None:
    node = seen(describe("mi300x", 2, compute="CPX", memory="NPS4"), tmp_path)
    found = cards(node)
    assert len(found) == 16
    assert len({card.key for card in found}) == 16
    assert {card.package for card in found} == {"0000:0c:00.0", "0000:15:00.0"}
    assert [card.partition for card in found] == [*range(8), *range(8)]
    assert {card.modes.compute_partition for card in found} == {"CPX"}
    assert {card.modes.memory_partition for card in found} == {"NPS4"}
    assert {card.identity.compute_units for card in found} == {38}
    assert all(why(card.uuid) is Why.not_supported for card in found)
    assert all(why(card.memory.used_bytes) is Why.not_supported for card in found)


def test_memory_is_split_and_the_card_is_not(tmp_path: Path) -> None:
    for card in cards(seen(describe("mi300x", 2, memory="NPS4"), tmp_path)):
        assert (card.modes.compute_partition, card.modes.memory_partition) == ("SPX", "NPS4")


def test_the_two_dies_of_a_package_are_two_cards(tmp_path: Path) -> None:
    node = seen(describe("mi250x", 4), tmp_path)
    found = cards(node)
    assert len(found) == 8
    packages = [card.package for card in found]
    assert packages == [found[i // 2 * 2].pci_address for i in range(8)]
    assert len({card.uuid for card in found}) == 8
    assert {pair.hops for pair in pairs(node)} == {1, 2}


def test_two_hives(tmp_path: Path) -> None:
    node = seen(describe("mi210", 8), tmp_path)
    hives = [card.hive for card in cards(node)]
    assert hives[:4] == [hives[0]] * 4 and hives[4:] == [hives[4]] * 4 and hives[0] != hives[4]
    kinds = [pair.link_type for pair in pairs(node)]
    assert (kinds.count("xgmi"), kinds.count("pcie")) == (12, 16)
    assert all(pair.weight == 72 for pair in pairs(node) if pair.link_type == "pcie")  # told by amd-smi alone


# Faults


def test_errors_and_bad_pages_by_block(tmp_path: Path) -> None:
    made = describe("mi300x", 2)
    made.cards[1].ecc["XGMI_WAFL"] = [3, 7, 1]
    made.cards[1].bad_pages = "RRPF"
    (first, second) = cards(seen(made, tmp_path))
    assert not isinstance(first.health.ecc_volatile, Absent) and not isinstance(
        second.health.ecc_volatile, Absent
    )
    assert first.health.ecc_volatile.uncorrected == 0
    volatile = second.health.ecc_volatile
    assert (volatile.corrected, volatile.uncorrected, volatile.deferred) == (3, 7, 1)
    assert (volatile.dram_corrected, volatile.dram_uncorrected) == (0, 0)
    assert not isinstance(second.health.ecc_blocks, Absent)
    assert [block.name for block in second.health.ecc_blocks if block.uncorrected] == ["XGMI_WAFL"]
    health = second.health
    assert (health.bad_pages_retired, health.bad_pages_pending, health.bad_pages_unreservable) == (2, 1, 1)


def test_a_power_cap_below_the_default(tmp_path: Path) -> None:
    made = describe("mi300x", 2)
    made.cards[0].cap_watts = 550
    (first, _) = cards(seen(made, tmp_path))
    assert (first.power.limit_watts, first.power.default_limit_watts) == (550, 750)


def test_sources_that_disagree_are_shown_side_by_side(tmp_path: Path) -> None:
    made, other = describe("mi300x", 2), describe("mi300x", 2)
    other.cards[0].cap_watts = 550
    (first, second) = cards(seen(made, tmp_path, static=amd_smi.output(other, "static", "7.2")))
    assert why(first.power.limit_watts) is Why.failed
    assert detail(first.power.limit_watts) == "the sources disagree: sysfs says 750.0; amd_smi says 550.0"
    assert second.power.limit_watts == 750


def test_link_types_that_disagree(tmp_path: Path) -> None:
    made, other = describe("mi300x", 2), describe("mi300x", 2)
    other.set_way(0, 1, Way("pcie", 40, 0))
    (pair,) = pairs(seen(made, tmp_path, topology=amd_smi.output(other, "topology", "7.2")))
    assert why(pair.link_type) is Why.failed
    assert "sysfs says xgmi" in detail(pair.link_type) and "amd_smi says pcie" in detail(pair.link_type)


def test_pcie_in_the_place_of_xgmi(tmp_path: Path) -> None:
    made = describe("mi300x", 8)
    made.set_way(2, 5, Way("pcie", 40, 0))
    kinds = {(pair.a, pair.b): pair.link_type for pair in pairs(seen(made, tmp_path))}
    uuids = [f"GPU-{card.unique_id:016x}" for card in made.cards]
    assert {ends for ends, kind in kinds.items() if kind == "pcie"} == {(uuids[2], uuids[5])}


def test_how_far_cards_are_apart_on_the_bus(tmp_path: Path) -> None:
    apart = [pair.distance for pair in pairs(seen(describe("mi300x", 8), tmp_path / "bare"))]
    assert (apart.count("NODE"), apart.count("SYS")) == (12, 16)
    (of_guest,) = pairs(seen(describe("mi300x", 2, kind="guest"), tmp_path / "guest"))
    assert why(of_guest.distance) is Why.not_supported  # a domain of its own each, and no NUMA node
    within = [pair.distance for pair in pairs(seen(describe("mi300x", 2, compute="CPX"), tmp_path / "cpx"))]
    assert (within.count("internal"), within.count("NODE")) == (56, 64)


def test_a_path_of_two_hops_is_not_taken_for_one(tmp_path: Path) -> None:
    made = describe("mi300x", 2)
    made.set_way(0, 1, Way("xgmi", 30, 50_000))
    (pair,) = pairs(seen(made, tmp_path))
    assert (pair.weight, pair.hops) == (30, 2)


def test_a_link_that_is_down(tmp_path: Path) -> None:
    made = describe("mi300x", 8)
    made.ways[0, 3].down = made.ways[3, 0].down = True
    (first, *_) = cards(seen(made, tmp_path))
    assert first.active_links == 6
    assert not isinstance(first.links, Absent)
    (down,) = [link for link in first.links if link.active is False]
    assert down.remote_pci_address == made.cards[3].address


def test_a_card_that_the_driver_has_not_brought_up_is_listed(tmp_path: Path) -> None:
    made = stand(describe("mi300x", 8))
    made.tree.remove(f"{tree.NODES}/5")
    node = probed(made, tmp_path)
    assert [card.usable for card in cards(node)] == [True, True, True, False, True, True, True, True]


def test_without_the_driver_every_card_says_so(tmp_path: Path) -> None:
    made = describe("mi300x", 8)
    made.loaded = False
    node = seen(made, tmp_path)
    assert len(cards(node)) == 8
    for card in cards(node):
        assert card.identity.pci_id == "1002:74a1"
        assert why(card.usable) is Why.not_present
        assert "amdgpu has not started the cards" in detail(card.usable)
    assert "not loaded" in detail(driver(node).version)
    door = next(door for door in node.doors if door.name == "kfd")
    assert door.open is False and "amdgpu is not loaded" in door.detail


def test_a_card_that_has_fallen_off_the_bus(tmp_path: Path) -> None:
    made = stand(describe("mi300x", 2))
    made.tree.files[f"{made.tree.place('0000:15:00.0')}/config"] = b"\xff" * 4096
    (_, second) = cards(probed(made, tmp_path))
    assert (second.usable, second.lost) == (False, True)


def test_processes_and_memory_that_nobody_holds(tmp_path: Path) -> None:
    made = describe("mi300x", 2)
    made.cards[0].processes = {4711: 40 * GIB}
    (first, second) = cards(seen(made, tmp_path))
    assert not isinstance(first.processes, Absent)
    assert [(process.pid, process.used_bytes) for process in first.processes] == [(4711, 40 * GIB)]
    assert first.memory.unexplained_bytes == second.memory.unexplained_bytes == made.cards[0].used_bytes


@pytest.mark.parametrize("version", ["6.16.13", ""])
def test_a_module_of_its_own_and_the_kernels_own(version: str, tmp_path: Path) -> None:
    made = describe("mi300x", 1)
    made.module = version
    said = driver(seen(made, tmp_path))
    assert said.in_tree is (version == "")
    assert said.version == version or "the kernel's own" in detail(said.version)
    assert said.rocm_version == "7.2.0"
    assert said.package_version == "6.16.13-2278356.24.04" or why(said.package_version) is Why.not_present


# Where amd-smi does not help


@pytest.mark.parametrize("release", binding.RELEASES)
def test_the_binding_of_every_release_tells_the_same(release: str, tmp_path: Path) -> None:
    described = describe("mi300x", 2)
    described.cards[1].cap_watts, described.cards[1].ecc["UMC"] = 700, [1, 2, 0]
    made = stand(described)
    made.commands = {name: NO_BINDING if "smi" in name else said for name, said in made.commands.items()}
    made.amdsmi["survey"] = binding.survey(described, tmp_path / "rocm", release)
    for gone in ("hwmon", "ras", "vbios_version"):  # as though this kernel did not show them
        for card in described.cards:
            made.tree.remove(f"{made.tree.place(card.address)}/{gone}")
    node = probed(made, tmp_path)
    (_, second) = cards(node)
    assert second.identity.name == "AMD Instinct MI300X"
    assert second.identity.vbios == "113-M3000100-102"
    assert second.power.limit_watts == 700  # in watts until 6.1, in microwatts since
    assert second.source_of("power.limit_watts", second.source) == "amdsmi"
    assert not isinstance(second.health.ecc_volatile, Absent)
    assert (second.health.ecc_volatile.corrected, second.health.ecc_volatile.uncorrected) == (1, 2)
    assert (second.health.bad_pages_retired, second.processes) == (0, ())
    (pair,) = pairs(node)
    assert (pair.link_type, pair.weight, pair.accessible) == ("xgmi", 15, True)
    assert not isinstance(node.topology, Absent)
    assert node.topology.amdsmi_count == 2


@pytest.mark.parametrize("generation", amd_smi.GENERATIONS)
def test_the_program_itself(generation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = describe("mi300x", 2)
    amd_smi.install(made, tmp_path / "bin", generation)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    stood = stand(made)
    live = commands.live()
    stood.commands |= {name: live.ask(name) for name in stood.commands if name.startswith("amd_smi")}
    assert {card.identity.name for card in cards(probed(stood, tmp_path))} == {"AMD Instinct MI300X"}


def test_after_a_command_that_hung_none_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = describe("mi300x", 2)
    amd_smi.install(made, tmp_path / "bin", "7.2", hang="metric")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(commands, "AMD_SMI_DEADLINE_SECONDS", 0.5)
    stood = stand(made)
    live = commands.live()
    asked: list[str] = []

    class Counting(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            if name.startswith("amd_smi"):
                asked.append(name)
                return live.ask(name)
            return super().__getitem__(name)

    stood.commands = Counting(stood.commands)
    (first, _) = cards(probed(stood, tmp_path))
    assert asked == ["amd_smi_version", "amd_smi_list", "amd_smi_static", "amd_smi_metric"]
    assert first.identity.name == "AMD Instinct MI300X"
    assert why(first.pcie.naks_sent) is why(first.identity.firmware_bundle) is Why.timed_out


def test_rocm_smi_is_the_last_that_is_asked(tmp_path: Path) -> None:
    described = describe("mi300x", 1)
    made = stand(described)
    made.commands = {name: NO_BINDING if "smi" in name else said for name, said in made.commands.items()}
    said = {
        "card0": {"Card series": "AMD Instinct MI300X", "PCI Bus": "0000:0C:00.0", "VBIOS version": "113-A"}
    }
    text = "WARNING: AMD GPU device(s) is/are in a low-power state\n" + json.dumps(said)
    made.commands["rocm_smi"] = {"returncode": 0, "stdout": text, "stderr": "", "seconds": 0.3}
    (card,) = cards(probed(made, tmp_path))
    assert card.identity.name == "AMD Instinct MI300X"
    assert card.source_of("identity.name", card.source) == "rocm_smi"
    assert card.identity.vbios == "113-M3000100-102"  # sysfs goes before it


def test_a_sandbox_without_sysfs_is_told_by_amd_smi(tmp_path: Path) -> None:
    described = describe("mi300x", 2)
    made = stand(described)
    made.tree.remove("/sys/class/kfd")
    made.tree.remove("/sys/bus/pci")
    node = probed(made, tmp_path)
    assert [card.identity.name for card in cards(node)] == ["AMD Instinct MI300X"] * 2
    assert {pair.link_type for pair in pairs(node)} == {"xgmi"}


# Beside other makers' cards, and without any


@needs_compiler
def test_both_makers_in_one_node(tmp_path: Path) -> None:
    made = nvidia_node("h200x2")
    other = stand(describe("mi300x", 2))
    for path, content in other.tree.files.items():
        made.tree.files.setdefault(path, content)
    for path, target in other.tree.links.items():
        made.tree.links.setdefault(path, target)
    made.tree.folders |= other.tree.folders
    made.files |= other.files
    made.commands |= {name: said for name, said in other.commands.items() if "smi" in name}
    made.process["groups"], made.amdsmi = [0], other.amdsmi
    made.interpreter |= {name: said for name, said in other.interpreter.items() if name.startswith("context")}
    node = probed(made, tmp_path)
    assert sorted(card.vendor for card in cards(node)) == ["amd", "amd", "nvidia", "nvidia"]
    assert {(pair.a[:10], pair.source) for pair in pairs(node)} == {
        ("GPU-000000", "nvml"),
        ("GPU-9a3b00", "sysfs"),
    } or [pair.source for pair in pairs(node)] == ["nvml", "sysfs"]
    assert driver(node).version == nvml.DRIVER
    assert driver(node).rocm_version == "7.2.0"
    assert not isinstance(node.topology, Absent)
    assert (node.topology.nvml_count, node.topology.kfd_count) == (2, 2)


@needs_compiler
def test_graphics_built_into_the_cpu_are_no_card(tmp_path: Path) -> None:
    made = nvidia_node("h200x2")
    folder = "/sys/devices/pci0000:00/0000:c5:00.0"
    made.tree.links["/sys/bus/pci/devices/0000:c5:00.0"] = folder
    for name, value in {
        "vendor": "0x1002",
        "device": "0x164e",
        "class": "0x030000",
        "numa_node": "0",
    }.items():
        made.tree.files[f"{folder}/{name}"] = f"{value}\n"
    made.tree.files["/dev/kfd"] = ""
    made.files["owner /dev/kfd"] = [0o660, 0, 992]
    made.process["groups"] = [0]
    node = probed(made, tmp_path)
    assert [card.vendor for card in cards(node)] == ["nvidia", "nvidia"]
    assert not isinstance(node.topology, Absent) and not isinstance(node.topology.pci_devices, Absent)
    assert [d.kind for d in node.topology.pci_devices if d.address == "0000:c5:00.0"] == ["display"]


@needs_compiler
def test_a_node_without_anything_of_amds_is_asked_nothing(tmp_path: Path) -> None:
    made = nvidia_node("h200x2")
    recorders = {
        name: Recorder(channel) for name, channel in made.channels(Ground(tmp_path / "node")).items()
    }
    node = Probing(Sources.over({**recorders}), "quick").run(STAGES)
    assert recorders["amdsmi"].answers == {}
    assert not [name for name in recorders["commands"].answers if "smi" in name]
    assert not [name for name in recorders["files"].answers if "/dev/dri" in name or "hwmon" in name]
    assert not isinstance(node.topology, Absent)
    assert node.topology.kfd_count == AMD_ALONE


def test_no_card_at_all(tmp_path: Path) -> None:
    node = probed(nvidia_node("cpu"), tmp_path)
    assert why(node.cards) is Why.not_present


# Recordings


def test_a_recording_is_read_as_the_node_was(tmp_path: Path) -> None:
    made = stand(describe("mi300x", 8))
    recorders = {
        name: Recorder(channel) for name, channel in made.channels(Ground(tmp_path / "node")).items()
    }
    channels: Mapping[str, Channel] = recorders
    live = Probing(Sources.over(dict(channels)), "quick").run(STAGES)
    kept = {name: dict(recorder.answers) for name, recorder in recorders.items()}
    again = Probing(Sources.recorded(json.loads(json.dumps(kept))), "quick", taken_at=live.taken_at).run(
        STAGES
    )
    assert (again.cards, again.topology, again.host, again.stack) == (
        live.cards,
        live.topology,
        live.host,
        live.stack,
    )
    assert again.doors == live.doors


def test_an_empty_recording_asks_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    empty = {"nvml": {"survey": encode(Absent(why=Why.not_present, detail="no library"))}}
    node = Probing(Sources.recorded(empty), "quick").run(STAGES)
    assert why(node.cards) is Why.not_present


def test_damaged_files_leave_facts_that_failed(tmp_path: Path) -> None:
    described = describe("mi300x", 2)
    made = stand(described)
    place = made.tree.place("0000:0c:00.0")
    for path in made.tree.files:
        if path.startswith(place) and not path.endswith(("/vendor", "/class", "/config")):
            made.tree.files[path] = "\x00 damaged 99999999999999999999999999"
    (first, second) = cards(probed(made, tmp_path))
    assert why(first.memory.used_bytes) is Why.failed or isinstance(first.memory.used_bytes, int)
    assert second.memory.total_bytes == described.cards[1].memory_bytes
