"""Healthy nodes are ACCEPTED without a warning: every bundle, and every trap that a careless check falls into.

The nodes are made up at their real boundaries from facts that are stated apart from `profiles/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest

from nodecheck.facts import Node
from nodecheck.judge import Judgement, Status, Verdict, judge
from nodecheck.profile import Profile, load, names, suggest
from tests.fakes import amd, nvml
from tests.fakes.amd import amd_smi
from tests.fakes.amd import node as amd_node
from tests.fakes.faults import (
    DENIED,
    MISSING,
    Plant,
    both,
    driver,
    environment,
    field,
    file,
    files,
    limits,
    memory,
    on_every_card,
    on_every_link,
    process,
    program,
    torch,
    without,
)
from tests.fakes.node import FakeNode, healthy, output
from tests.fakes.nvml import code
from tests.fakes.nvml.products import PRODUCTS
from tests.fakes.tree import GIB, Ground, Kind, limit_cgroup

pytestmark = pytest.mark.skipif(not nvml.compiler(), reason="no C compiler here")


@cache
def bundles() -> tuple[str, ...]:
    """Every shipped profile of NVIDIA's cards or of none; nodes with AMD's are made up in `tests/fakes/amd`."""
    return tuple(name for name in names() if load(name).vendor != "amd")


KINDS: tuple[Kind, ...] = ("guest", "container", "bare")


def kind_of(bundle: str) -> Kind:
    """One kind of node for each bundle, so that every product is met as all of them."""
    return KINDS[bundles().index(bundle) % len(KINDS)]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("node"))


def check(judgement: Judgement) -> None:
    trouble = [
        f"{f.id} {f.status.value}: {f.subject.label}: {f.detail}"
        for f in judgement.findings
        if f.status in (Status.warn, Status.fail) or (f.status is Status.unknown and f.required)
    ]
    assert (judgement.verdict, trouble) == (Verdict.accepted, [])
    passed = sum(f.status is Status.passed for f in judgement.findings)
    assert passed > 25, f"only {passed} findings stand behind it"


def test_every_product_is_sold_in_a_bundle() -> None:
    assert {bundle.rpartition("x")[0] for bundle in bundles() if bundle != "cpu"} == set(PRODUCTS)


@pytest.mark.parametrize("bundle", bundles())
def test_bundle(bundle: str, ground: Ground) -> None:
    kind = kind_of(bundle)
    shared = PRODUCTS.get(bundle.rpartition("x")[0])
    on_bus = 8 if kind == "container" and shared and shared.form == "board" and not shared.arm else None
    node = healthy(bundle, kind=kind, on_bus=on_bus)
    check(judge(node.probe(ground), load(bundle)))


AMD_BUNDLES = tuple(name for name in names() if load(name).vendor == "amd")


def amd_kind_of(bundle: str) -> Kind:
    """One kind of node for each; a guest is given virtual functions, and not every product has such."""
    made = amd.PRODUCTS[bundle.rpartition("x")[0]]
    kinds = KINDS if made.device != made.virtual_device else KINDS[1:]
    return kinds[AMD_BUNDLES.index(bundle) % len(kinds)]


def test_every_product_of_amds_is_sold_in_a_bundle() -> None:
    assert {bundle.rpartition("x")[0] for bundle in AMD_BUNDLES} == set(amd.PRODUCTS)


@pytest.mark.parametrize("bundle", AMD_BUNDLES)
def test_bundle_of_amds(bundle: str, ground: Ground) -> None:
    node = amd_node.stand(amd_node.healthy(bundle, kind=amd_kind_of(bundle))).probe(ground)
    check(judge(node, load(bundle)))
    assert suggest(node) == bundle


@pytest.mark.parametrize("generation", (amd_smi.GENERATIONS[0], amd_smi.GENERATIONS[-1]))
def test_guests_of_the_first_and_the_last_amd_smi(generation: str, ground: Ground) -> None:
    made = amd_node.healthy("mi300xx8", kind="guest")
    check(judge(amd_node.stand(made, generation).probe(ground), load("mi300xx8")))


def test_four_of_eight_in_a_container(ground: Ground) -> None:
    made = amd_node.healthy("mi300xx8", kind="container")
    made.hidden = {0, 1, 2, 3}
    check(judge(amd_node.stand(made).probe(ground), load("mi300xx4")))


def test_a_node_left_split_is_suggested_by_its_packages(ground: Ground) -> None:
    made = amd.describe("mi300x", 8, compute="CPX", memory="NPS4")
    node = amd_node.stand(made).probe(ground)
    assert suggest(node) == "mi300xx8"
    judgement = judge(node, load("mi300xx8"))
    assert judgement.verdict is Verdict.rejected
    roots = {f.id for f in judgement.findings if f.status is Status.fail and f.root is None}
    assert roots == {"cards.partition.compute", "cards.partition.memory"}


@dataclass(frozen=True)
class Trap:
    name: str
    bundle: str
    plant: Plant
    kind: Kind = "bare"
    on_bus: int | None = None


def nothing(node: FakeNode) -> None:
    """The trap is in the healthy node itself."""


def other_order(node: FakeNode) -> None:
    """NVML numbers the cards otherwise than CUDA and the bus do; the UUIDs stay with the places."""
    count = int(node.nvml["nvmlDeviceGetCount_v2"])
    before = dict(node.nvml)
    for call in (
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetSerial",
    ):
        for card in range(count):
            node.nvml[f"{call} {card}"] = before[f"{call} {count - 1 - card}"]


def old_driver(node: FakeNode) -> None:
    """Driver 535 lacks the newer calls, and knows the fabric by an older struct."""
    calls = (
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetRepairStatus", "nvmlDeviceGetUnrepairableMemoryFlag_v1", "nvmlDeviceGetSramEccErrorStatus",
        "nvmlDeviceGetAddressingMode", "nvmlDeviceValidateInforom", "nvmlDeviceGetGspFirmwareVersion",
    )  # fmt: skip
    for call in calls:
        on_every_card(call, code(13))(node)
    for card in range(int(node.nvml["nvmlDeviceGetCount_v2"])):
        node.nvml[f"nvmlDeviceGetTemperatureV {card} 0"] = code(13)
        node.nvml[f"nvmlDeviceGetGpuFabricInfoV {card} 3"] = code(25)
        field(card, nvml.FIELD_RECOVERY_ACTION, code(3))(node)
        for threshold, celsius in enumerate((92, 89)):
            node.nvml[f"nvmlDeviceGetTemperatureThreshold {card} {threshold}"] = str(celsius)
    for call, version in (
        ("nvmlSystemGetDriverVersion", "535.183.01"),
        ("nvmlSystemGetNVMLVersion", "12.535.183.01"),
        ("nvmlSystemGetCudaDriverVersion_v2", "12020"),
        ("nvmlSystemGetDriverBranch", code(13)),
        ("nvmlSystemGetConfComputeState", code(13)),
    ):
        node.nvml[call] = version
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
    node.tree.files["/proc/driver/nvidia/version"] = text
    node.torch(
        version="2.4.1+cu121", cuda="12.1", arch_list=["sm_80", "sm_86", "sm_90"], libcuda_version=12020
    )
    node.torch(nccl=[2, 20, 5], nccl_wheels=[], nccl_loaded=None)
    node.commands["fabric_manager"] = output("Fabric Manager version is : 535.183.01\n")


SLICED = both(
    on_every_card("nvmlDeviceGetMigMode", "1 1"),
    on_every_card("nvmlDeviceGetMaxMigDeviceCount", "7"),
    driver("nvmlDeviceGetMigDeviceHandleByIndex 0 0", "64"),
    on_every_card("nvmlDeviceGetRemappedRows", code(3)),
    on_every_card("nvmlDeviceGetRowRemapperHistogram", code(3)),
    on_every_card("nvmlDeviceGetUtilizationRates", code(3)),
)
"""MIG on: what there is of whole cards alone is not supported."""

TRAPS = [
    Trap("links of PCIe cards lead nowhere", "h100-pciex4", nothing),
    Trap("links of a bridge card rented alone lead nowhere", "h200-nvlx1", nothing),
    Trap("one card alone belongs to no fabric", "h200x1", nothing),
    Trap("one card alone, NvLinkDisable", "h200x1", nothing, kind="guest"),
    Trap("one card of a board, all its links up", "h100x1", nothing, kind="container", on_bus=8),
    Trap("four of the eight cards on the bus", "h200x4", nothing, kind="container", on_bus=8),
    Trap("four of eight cards, driver's files hidden", "h200x4",
         both(without("/proc/driver"), files("list /sys/bus/pci/devices", DENIED)), kind="container", on_bus=8),
    Trap("switches out of sight", "h200x8", nothing, kind="guest"),
    Trap("another order than CUDA's", "h200x4", other_order),
    Trap("eight lanes by shape", "l40sx4", on_every_card("nvmlDeviceGetCurrPcieLinkWidth", "8")),
    Trap("PCIe replays", "h100x4",
         both(*(driver(f"nvmlDeviceGetPcieReplayCounter {i}", str(90 + 40 * i)) for i in range(4)))),
    Trap("replays soon after boot", "h100x2",
         both(file("/proc/uptime", "700.00 1.0\n"), on_every_card("nvmlDeviceGetPcieReplayCounter", "120"))),
    Trap("CRC errors on every link", "h200x2",
         both(*(on_every_link(i, "nvmlDeviceGetNvLinkErrorCounter", "25") for i in range(2)))),
    Trap("links said to be of version 5.0", "h100x4",
         both(*(on_every_link(i, "nvmlDeviceGetNvLinkVersion", "7") for i in range(4)))),
    Trap("a variant with less memory", "a100x1", memory(0, 80994)),
    Trap("some corrected errors", "h200x2",
         both(driver("nvmlDeviceGetTotalEccErrors 0 0 0", "3"), driver("nvmlDeviceGetTotalEccErrors 0 0 1", "512"),
              driver("nvmlDeviceGetRemappedRows 0", "2 0 0 0"))),
    Trap("process lists that the container does not get", "h200x4",
         both(on_every_card("nvmlDeviceGetGraphicsRunningProcesses_v3", code(3)),
              on_every_card("nvmlDeviceGetMPSComputeRunningProcesses_v3", code(3))), kind="container", on_bus=8),
    Trap("a little memory in use by the driver's own", "h200x2",
         lambda node: nvml.occupy(node.nvml, 0, 4 << 20)),
    Trap("clocks as set, power limit reached", "h200x2", on_every_card("nvmlDeviceGetCurrentClocksEventReasons", "6")),
    Trap("a senseless number of excluded cards", "h200x1", driver("nvmlGetExcludedDeviceCount", str(2**32 - 1))),
    Trap("an older driver", "h100x8", old_driver),
    Trap("no persistence mode", "h200x4", on_every_card("nvmlDeviceGetPersistenceMode", "0"), kind="guest"),
    Trap("no peer access over PCIe", "l40sx2",
         both(driver("nvmlDeviceGetP2PStatus 0 1 0", "1"), driver("nvmlDeviceGetP2PStatus 0 1 1", "1")),
         kind="container"),
    Trap("an NVL card with a lower limit that is sold so", "h100-nvlx2",
         on_every_card("nvmlDeviceGetEnforcedPowerLimit", "310000")),
    Trap("all cards named in CUDA_VISIBLE_DEVICES", "h200x4",
         environment(CUDA_VISIBLE_DEVICES="0,1,2,3", NVIDIA_VISIBLE_DEVICES="all")),
    Trap("cards chosen for the container by UUID", "h200x2",
         environment(NVIDIA_VISIBLE_DEVICES=",".join(map(nvml.uuid, range(2)))), kind="container", on_bus=8),
    Trap("settings of NCCL that cost nothing", "h200x8", environment(NCCL_DEBUG="WARN", NCCL_SOCKET_IFNAME="eth0")),
    Trap("torch with code for the generation, not the card", "l40sx1", torch(arch_list=["sm_80", "sm_86", "sm_90"])),
    Trap("torch older than the driver", "h200x4", torch(version="2.6.0+cu124", cuda="12.4")),
    Trap("limits of a container, control groups version 1", "h200x1",
         lambda node: limit_cgroup(node.tree, cpus=24, memory_bytes=200 * GIB, version=1), kind="container", on_bus=8),
    Trap("settings of the machine that are a matter of taste", "h200x4",
         both(file("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
              file("/proc/sys/kernel/numa_balancing", "1\n"), limits(memlock=8 << 20))),
    Trap("a guest whose memory grows", "h200x1",
         lambda node: node.tree.files.update({"/proc/meminfo": "MemTotal: 131980288 kB\nMemAvailable: 131480288 kB\n"}),
         kind="guest"),
    Trap("a guest with an IOMMU", "h200x2", file("/proc/cmdline", "root=/dev/vda iommu=nopt\n"), kind="guest"),
    Trap("a sandbox without control groups and firmware tables", "h200x1",
         both(without("/sys/fs/cgroup"), process("clock_synchronized", False)), kind="container", on_bus=8),
    Trap("no kernel log, no fabric manager", "h200x8",
         both(files("kmsg", DENIED), program("fabric_manager", MISSING)), kind="container"),
]  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_trap(trap: Trap, ground: Ground) -> None:
    node = healthy(trap.bundle, kind=trap.kind, on_bus=trap.on_bus)
    trap.plant(node)
    check(judge(node.probe(ground), load(trap.bundle)))


def rented_sliced(bundle: str) -> Profile:
    profile = load(bundle)
    assert profile.card is not None
    return profile.model_copy(update={"card": profile.card.model_copy(update={"mig": True})})


def test_cards_rented_with_mig_on(ground: Ground) -> None:
    node = healthy("h100x1", kind="guest")
    SLICED(node)
    check(judge(node.probe(ground), rented_sliced("h100x1")))


def test_generation_and_links_are_as_on_idle_cards(ground: Ground) -> None:
    """The nodes above do hold the traps: idle cards at PCIe generation 1, dead links, an empty process list."""
    seen: Node = healthy("h100-pciex2").probe(ground)
    for card in seen.known_cards:
        assert card.pcie.generation == 1
        assert card.active_links == 0
        assert card.processes == ()
