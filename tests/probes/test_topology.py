"""Pairs, PCI devices and adapters as facts, from the stand-in's survey and a made-up sysfs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Card, Maybe, Topology, Why
from nodecheck.facts.topology import Adapter, Pair, PciDevice
from nodecheck.probes import nvidia, topology
from nodecheck.sources import Files
from nodecheck.sources import files as live_files
from nodecheck.sources.channel import Recorded
from nodecheck.sources.nvml import Survey
from tests.fakes import nvml
from tests.fakes.tree import Ground, Kind, Tree, plant, plant_cpu, set_parameters
from tests.surveys import answers, needs_compiler, survey

NO_FILES = Files(Recorded({}))
NO_NVML = Absent(why=Why.not_present, detail="no library")

Planted = Callable[[Tree], Files]


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    """Writes a tree and reads it live."""

    def write(tree: Tree) -> Files:
        ground = Ground(tmp_path)
        ground.hold(tree)
        return Files(live_files.live(str(ground.root)))

    return write


def seen(said: Maybe[Survey], files: Files = NO_FILES) -> Topology:
    return topology.probe(said, files, nvidia.probe(said, files))


def pairs(found: Topology) -> dict[tuple[str, str], Pair]:
    assert isinstance(found.pairs, tuple), found.pairs
    return {(pair.a, pair.b): pair for pair in found.pairs}


def uuids(a: int, b: int) -> tuple[str, str]:
    return nvml.uuid(a), nvml.uuid(b)


def why(value: object) -> Why | None:
    return value.why if isinstance(value, Absent) else None


# Pairs


@needs_compiler
def test_every_pair_of_a_board_is_joined_through_its_switches() -> None:
    found = pairs(seen(Survey(answers("h200", 8))))
    assert list(found) == [uuids(a, b) for a, b in combinations(range(8), 2)]
    for (a, b), pair in zip(combinations(range(8), 2), found.values(), strict=True):
        assert pair.distance == ("NODE" if a // 4 == b // 4 else "SYS")
        assert pair.nvlinks == 18
        assert (pair.p2p_read, pair.p2p_write, pair.p2p_nvlink, pair.p2p_atomics) == ("ok",) * 4


@needs_compiler
def test_switches_outside_of_the_guest_join_the_cards_as_well() -> None:
    (pair,) = pairs(seen(Survey(answers("h200", 2, virtual=True)))).values()
    assert (pair.nvlinks, pair.distance) == (18, "PHB")


@needs_compiler
def test_bridges_join_only_their_own_cards() -> None:
    found = pairs(seen(Survey(answers("h100-nvl", 4))))
    joined = {names for names, pair in found.items() if pair.nvlinks}
    assert joined == {uuids(0, 1), uuids(2, 3)}
    assert found[uuids(0, 1)].nvlinks == len(_links(answers("h100-nvl", 4)))
    assert found[uuids(1, 2)].nvlinks == 0
    assert found[uuids(1, 2)].p2p_nvlink == "not_supported"


def _links(calls: dict[str, object]) -> list[str]:
    return [q for q in calls if q.startswith("nvmlDeviceGetNvLinkState(0,")]


@needs_compiler
def test_cards_without_links_are_joined_by_none_and_may_not_reach_each_other() -> None:
    (pair,) = pairs(seen(Survey(answers("rtx4090", 2)))).values()
    assert (pair.nvlinks, pair.p2p_read, pair.p2p_nvlink) == (0, "chipset_not_supported", "not_supported")


@needs_compiler
def test_a_pair_has_as_many_links_as_the_lesser_of_the_two() -> None:
    description = nvml.describe("h200", 4)
    description |= {f"nvmlDeviceGetNvLinkState 1 {link}": "0" for link in (3, 4)}
    found = pairs(seen(survey(description)))
    assert {names: pair.nvlinks for names, pair in found.items()} == {
        names: 16 if nvml.uuid(1) in names else 18 for names in found
    }


@needs_compiler
def test_a_pair_of_the_board_that_nvlink_does_not_join() -> None:
    description = nvml.describe("h200", 4)
    description["nvmlDeviceGetP2PStatus 0 2 2"] = "3"
    description["nvmlDeviceGetTopologyCommonAncestor 0 2"] = "50"
    found = pairs(seen(survey(description)))[uuids(0, 2)]
    assert (found.nvlinks, found.p2p_nvlink, found.distance) == (0, "topology_not_supported", "SYS")


@needs_compiler
@pytest.mark.parametrize(
    ("status", "name"),
    [(0, "ok"), (1, "chipset_not_supported"), (2, "gpu_not_supported"), (3, "topology_not_supported"),
     (4, "disabled_by_regkey"), (5, "not_supported"), (6, "unknown")],
)  # fmt: skip
def test_peer_to_peer_by_name(status: int, name: str) -> None:
    calls = answers("h200", 2)
    calls["nvmlDeviceGetP2PStatus(0,1,NVML_P2P_CAPS_INDEX_READ)"] = {"value": status}
    (pair,) = pairs(seen(Survey(calls))).values()
    assert pair.p2p_read == name


@needs_compiler
@pytest.mark.parametrize(
    ("question", "field"),
    [
        ("nvmlDeviceGetP2PStatus(0,1,NVML_P2P_CAPS_INDEX_NVLINK)", "nvlinks"),
        ("nvmlDeviceGetP2PStatus(0,1,NVML_P2P_CAPS_INDEX_NVLINK)", "p2p_nvlink"),
        ("nvmlDeviceGetP2PStatus(0,1,NVML_P2P_CAPS_INDEX_ATOMICS)", "p2p_atomics"),
        ("nvmlDeviceGetTopologyCommonAncestor(0,1)", "distance"),
        ("nvmlDeviceGetNvLinkState(1,9)", "nvlinks"),
        ("nvmlDeviceGetFieldValues(1,91)", ""),
    ],
)
def test_what_is_not_known_of_a_pair_is_not_zero(question: str, field: str) -> None:
    calls = answers("h200", 2) | {question: {"absent": "timed_out", "detail": "x"}}
    (pair,) = pairs(seen(Survey(calls))).values()
    assert {name for name in Pair.model_fields if why(getattr(pair, name)) is Why.timed_out} >= {field} - {""}
    if not field:
        assert pair.nvlinks == 18  # the links answer one by one


@needs_compiler
def test_links_to_a_card_whose_address_is_hidden_are_not_counted_as_none() -> None:
    calls = answers("h100-nvl", 2)
    for question in list(calls):
        if question.startswith("nvmlDeviceGetNvLinkRemotePciInfo"):
            calls[question] = {"value": {"busId": "FFFFFFFF:FF:FF.0"}}
    (pair,) = pairs(seen(Survey(calls))).values()
    assert why(pair.nvlinks) is Why.not_present


@needs_compiler
def test_pairs_go_by_address_and_are_asked_by_index() -> None:
    description = nvml.describe("h200", 2, at=["0000:9a:00.0", "0000:18:00.0"])
    description["nvmlDeviceGetTopologyCommonAncestor 0 1"] = "20"
    found = pairs(seen(survey(description)))
    assert {names: pair.distance for names, pair in found.items()} == {uuids(1, 0): "PXB"}


@needs_compiler
def test_cards_that_cannot_be_used_make_no_pairs() -> None:
    description = nvml.describe("h200", 3)
    description["nvmlDeviceGetHandleByIndex_v2 1"] = nvml.code(4)
    assert list(pairs(seen(survey(description)))) == [uuids(0, 2)]


def test_without_nvml_the_reason_stands_where_nvml_is_asked() -> None:
    found = topology.probe(NO_NVML, NO_FILES, NO_NVML)
    assert found.pairs == found.nvml_count == found.nvml_seconds == found.excluded == NO_NVML
    assert topology.probe(Survey({}), NO_FILES, NO_NVML).pairs == NO_NVML


@needs_compiler
def test_the_count_the_time_and_the_excluded_cards() -> None:
    description = nvml.describe("h200", 2)
    description["nvmlGetExcludedDeviceCount"] = "1"
    description["nvmlGetExcludedDeviceInfoByIndex 0"] = f"{nvml.pci_info('0000:DB:00.0')} GPU-1"
    found = seen(survey(description))
    assert (found.nvml_count, found.excluded) == (2, ("0000:db:00.0",))
    assert isinstance(found.nvml_seconds, float)
    description["nvmlGetExcludedDeviceInfoByIndex 0"] = nvml.code(999)
    assert why(seen(survey(description)).excluded) is Why.failed


@needs_compiler
def test_a_count_that_cannot_be_is_not_counted_to() -> None:
    description = nvml.describe("h200", 1)
    description["nvmlGetExcludedDeviceCount"] = "4000000000"
    asked = survey(description)
    assert not isinstance(asked, Absent)
    assert isinstance(asked.seconds, float) and asked.seconds < 20
    assert why(asked.get("nvmlGetExcludedDeviceInfoByIndex", 64)) is Why.not_asked


# The PCI bus and the driver


def devices(found: Topology) -> tuple[PciDevice, ...]:
    assert isinstance(found.pci_devices, tuple), found.pci_devices
    return found.pci_devices


def on_bus(files: Files) -> Topology:
    return topology.probe(NO_NVML, files, NO_NVML)


def test_cards_and_switches_on_the_bus(planted: Planted) -> None:
    found = devices(on_bus(planted(plant("h200", 8))))
    cards = [d for d in found if d.kind == "card"]
    switches = [d for d in found if d.kind == "nvswitch"]
    assert [d.address for d in cards] == list(nvml.SOCKET_ADDRESSES)
    assert [d.address for d in switches] == list(nvml.SWITCH_ADDRESSES[: len(switches)])
    assert len(found) == 8 + 4
    assert cards[5] == PciDevice(
        address="0000:ab:00.0",
        pci_id="10de:2335",
        pci_class="030200",
        kind="card",
        numa_node=1,
        current_width=16,
        max_width=16,
        current_speed_gt_per_s=2.5,
        max_speed_gt_per_s=32.0,
        driver="nvidia",
        aer_uncorrected=0,
        aer_corrected=0,
    )
    assert switches[0].driver == "nvidia-nvswitch"


def test_a_guest_without_aer_and_numa(planted: Planted) -> None:
    (card,) = devices(on_bus(planted(plant("h200", 1, kind="guest"))))
    assert (card.numa_node, card.kind) == (-1, "card")
    assert why(card.aer_uncorrected) is why(card.aer_corrected) is Why.not_present


def test_error_counters_of_the_bus(planted: Planted) -> None:
    tree = plant("h200", 1)
    folder = tree.place("0000:18:00.0")
    tree.files[f"{folder}/aer_dev_fatal"] = "Undefined 0\nDLP 1\nTOTAL_ERR_FATAL 1\n"
    tree.files[f"{folder}/aer_dev_nonfatal"] = "Undefined 0\nTLP 2\nTOTAL_ERR_NONFATAL 2\n"
    tree.files[f"{folder}/aer_dev_correctable"] = "RxErr 40\nBadTLP 2\nTOTAL_ERR_COR 42\n"
    tree.files[f"{folder}/current_link_width"] = "8\n"
    tree.files[f"{folder}/current_link_speed"] = "Unknown\n"
    card = devices(on_bus(planted(tree)))[0]
    assert (card.aer_uncorrected, card.aer_corrected, card.current_width) == (3, 42, 8)
    assert why(card.current_speed_gt_per_s) is Why.failed


@pytest.mark.parametrize(
    ("lanes", "reason"), [("0", Why.not_supported), ("255", Why.failed), ("x", Why.failed)]
)
def test_lanes_that_are_none(planted: Planted, lanes: str, reason: Why) -> None:
    tree = plant("h200", 1)
    tree.files[f"{tree.place('0000:18:00.0')}/current_link_width"] = f"{lanes}\n"
    assert why(devices(on_bus(planted(tree)))[0].current_width) is reason


def test_a_card_without_a_driver_and_other_makers_displays(planted: Planted) -> None:
    tree = plant("h200", 2)
    del tree.links[f"{tree.place('0000:2a:00.0')}/driver"]
    for address, vendor, pci_class in (
        ("0000:03:00.0", "0x1a03", "0x030000"),  # the board's own VGA
        ("0000:04:00.0", "0x1002", "0x120000"),  # an AMD accelerator
        ("0000:05:00.0", "0x8086", "0x068000"),
        ("0000:06:00.0", "0x10de", "0x040300"),  # the sound of a graphics card
    ):
        folder = f"/sys/devices/pci0000:00/{address}"
        tree.links[f"/sys/bus/pci/devices/{address}"] = folder
        tree.files |= {f"{folder}/vendor": vendor, f"{folder}/class": pci_class, f"{folder}/device": "0x1234"}
    found = {d.address: d for d in devices(on_bus(planted(tree)))}
    assert found["0000:04:00.0"].pci_id == "1002:1234"
    assert not found.keys() & {"0000:03:00.0", "0000:05:00.0", "0000:06:00.0"}
    assert why(found["0000:2a:00.0"].driver) is Why.not_present


def test_a_machine_without_cards_and_one_without_a_bus(planted: Planted) -> None:
    assert on_bus(planted(plant_cpu())).pci_devices == ()
    assert why(on_bus(Files(live_files.live("/nonexistent"))).pci_devices) is Why.not_present


def test_what_the_driver_and_dev_have(planted: Planted) -> None:
    tree = plant("h200", 8)
    tree.files["/dev/nvidia10"] = ""
    found = on_bus(planted(tree))
    assert found.device_files == (*(f"/dev/nvidia{i}" for i in range(8)), "/dev/nvidia10")
    assert found.driver_cards == nvml.SOCKET_ADDRESSES
    assert found.nvlink_disabled_by_driver is False


def test_a_driver_that_leaves_nvlink_off(planted: Planted) -> None:
    tree = plant("h200", 1)
    set_parameters(tree, NvLinkDisable=1)
    assert on_bus(planted(tree)).nvlink_disabled_by_driver is True


def test_a_machine_without_the_driver(planted: Planted) -> None:
    tree = plant("h200", 1)
    tree.remove("/proc/driver/nvidia")
    found = on_bus(planted(tree))
    assert why(found.driver_cards) is why(found.nvlink_disabled_by_driver) is Why.not_present


def test_parameters_without_the_one(planted: Planted) -> None:
    tree = plant("h200", 1)
    tree.files["/proc/driver/nvidia/params"] = "EnableMSI: 1\n"
    assert why(on_bus(planted(tree)).nvlink_disabled_by_driver) is Why.failed


# Adapters


def with_cards(files: Files, count: int, kind: Kind = "bare") -> Topology:
    """The topology with cards known by no more than their places."""
    made = nvml.addresses(nvml.PRODUCTS["h200"], count, virtual=kind == "guest")
    cards = tuple(
        Card(
            vendor="nvidia", source="nvml", index=i, uuid=nvml.uuid(i), pci_address=address, usable=True,
            numa_node=-1 if kind == "guest" else i // 4,
        )
        for i, address in enumerate(made)
    )  # fmt: skip
    return topology.probe(Survey({}), files, cards)


def adapters(found: Topology) -> dict[str, Adapter]:
    assert isinstance(found.adapters, tuple), found.adapters
    return {adapter.name: adapter for adapter in found.adapters}


def test_an_infiniband_port_beside_its_card(planted: Planted) -> None:
    found = adapters(with_cards(planted(plant("h200", 8)), 8))
    port = found["mlx5_5"]
    assert (port.port, port.link_layer, port.state, port.rate_gbit_per_s) == (
        1,
        "InfiniBand",
        "ACTIVE",
        400.0,
    )
    assert (port.link_downed, port.numa_node, port.pci_address) == (0, 1, "0000:ac:00.0")
    assert dict(port.distances) == {
        nvml.uuid(i): "PIX" if i == 5 else "NODE" if i >= 4 else "SYS" for i in range(8)
    }


def test_a_network_interface(planted: Planted) -> None:
    found = adapters(with_cards(planted(plant("h200", 2)), 2))
    assert set(found) == {"mlx5_0", "mlx5_1", "eth0"}
    eth = found["eth0"]
    assert (eth.link_layer, eth.state, eth.rate_gbit_per_s) == ("Ethernet", "up", 25.0)
    assert (eth.pci_address, eth.numa_node) == ("0000:01:00.0", 0)
    assert dict(eth.distances) == {nvml.uuid(0): "NODE", nvml.uuid(1): "NODE"}


def test_a_guests_flat_bus(planted: Planted) -> None:
    found = adapters(with_cards(planted(plant("h200", 2, kind="guest")), 2, "guest"))
    assert dict(found["eth0"].distances) == {nvml.uuid(0): "PHB", nvml.uuid(1): "PHB"}


def test_a_virtio_interface_sits_where_its_pci_device_does(planted: Planted) -> None:
    tree = plant("h200", 1, kind="guest")
    folder = tree.place("0000:00:02.0")
    tree.links["/sys/class/net/eth0/device"] = f"{folder}/virtio0"
    del tree.links["/sys/class/net/eth0"]
    tree.files["/sys/class/net/eth0/operstate"] = "up\n"
    tree.files["/sys/class/net/eth0/speed"] = "-1\n"
    tree.folders.add(f"{folder}/virtio0")
    eth = adapters(with_cards(planted(tree), 1, "guest"))["eth0"]
    assert eth.pci_address == "0000:00:02.0"
    assert dict(eth.distances) == {nvml.uuid(0): "PHB"}
    assert why(eth.rate_gbit_per_s) is Why.failed


def test_a_port_that_is_down_and_roce_is_listed_once(planted: Planted) -> None:
    tree = plant("h200", 1)
    folder = tree.links["/sys/class/infiniband/mlx5_0"]
    tree.files |= {
        f"{folder}/ports/1/state": "1: DOWN\n",
        f"{folder}/ports/1/link_layer": "Ethernet\n",
        f"{folder}/ports/1/rate": "garbage\n",
        f"{folder}/ports/1/counters/link_downed": "3\n",
    }
    device = folder.rsplit("/infiniband", 1)[0]
    tree.links["/sys/class/net/ens1"] = f"{device}/net/ens1"
    tree.links[f"{device}/net/ens1/device"] = device
    found = adapters(with_cards(planted(tree), 1))
    assert "ens1" not in found
    port = found["mlx5_0"]
    assert (port.state, port.link_layer, port.link_downed) == ("DOWN", "Ethernet", 3)
    assert why(port.rate_gbit_per_s) is Why.failed


def test_no_network_at_all_and_none_to_be_seen(planted: Planted) -> None:
    tree = plant_cpu()
    tree.remove("/sys/class/net")
    assert on_bus(planted(tree)).adapters == ()
    assert why(on_bus(NO_FILES).adapters) is Why.not_asked


def test_cards_whose_place_is_not_known_have_no_distance(planted: Planted) -> None:
    files = planted(plant("h200", 2))
    lost = Card(vendor="nvidia", source="nvml", index=0, pci_address=NO_NVML)
    gone = Card(vendor="nvidia", source="nvml", index=1, pci_address="0000:77:00.0")
    found = topology.probe(Survey({}), files, (lost, gone))
    assert adapters(found)["mlx5_0"].distances == ()


BRIDGE = "/sys/devices/pci0000:15"


@pytest.mark.parametrize(
    ("card", "adapter", "numa", "distance"),
    [
        (f"{BRIDGE}/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
         f"{BRIDGE}/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:19:00.0", (0, 0), "PIX"),
        (f"{BRIDGE}/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
         f"{BRIDGE}/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1a:00.0/0000:1b:00.0/0000:1c:00.0", (0, 0), "PXB"),
        (f"{BRIDGE}/0000:15:01.0/0000:18:00.0", f"{BRIDGE}/0000:15:05.0/0000:19:00.0", (0, 0), "PHB"),
        (f"{BRIDGE}/0000:15:01.0/0000:18:00.0", "/sys/devices/pci0000:26/0000:26:01.0/0000:27:00.0", (0, 0), "NODE"),
        (f"{BRIDGE}/0000:15:01.0/0000:18:00.0", "/sys/devices/pci0000:26/0000:26:01.0/0000:27:00.0", (0, 1), "SYS"),
        (f"{BRIDGE}/0000:15:01.0/0000:18:00.0", "/sys/devices/pci0000:26/0000:26:01.0/0000:27:00.0", (-1, 0), None),
        (f"{BRIDGE}/0000:15:01.0/0000:18:00.0", "/sys/devices/platform/soc/net", (0, 0), None),
    ],
)  # fmt: skip
def test_the_nearest_common_ancestor(
    planted: Planted, card: str, adapter: str, numa: tuple[int, int], distance: str | None
) -> None:
    tree = Tree()
    address = card.rsplit("/", 1)[1]
    for path, node in ((card, numa[0]), (adapter, numa[1])):
        name = path.rsplit("/", 1)[1]
        tree.links[f"/sys/bus/pci/devices/{name}"] = path
        tree.files[f"{path}/numa_node"] = f"{node}\n"
    tree.links["/sys/class/net/eth0"] = f"{adapter}/net/eth0"
    tree.links[f"{adapter}/net/eth0/device"] = adapter
    cards = (Card(vendor="nvidia", source="nvml", index=0, pci_address=address),)
    eth = adapters(topology.probe(Survey({}), planted(tree), cards))["eth0"]
    assert dict(eth.distances) == ({address: distance} if distance else {})


@given(st.dictionaries(st.sampled_from(["/sys/bus/pci/devices/0000:18:00.0/class", "/proc/driver/nvidia/params"]),
                       st.text(max_size=60)))  # fmt: skip
def test_no_file_whatever_breaks_the_probe(contents: dict[str, str]) -> None:
    stored = {f"read {path}": {"value": text} for path, text in contents.items()}
    stored |= {
        f"list {folder}": {"value": ["0000:18:00.0"]}
        for folder in (
            "/sys/bus/pci/devices",
            "/dev",
            "/proc/driver/nvidia/gpus",
            "/sys/class/net",
            "/sys/class/infiniband",
        )
    }
    topology.probe(NO_NVML, Files(Recorded(stored)), NO_NVML)
