"""Healthy nodes of AMD's are ACCEPTED without a warning: every bundle, each amd-smi, and the traps of this maker.

The nodes are made up at their real boundaries from facts that are stated apart from `profiles/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.judge import judge
from nodecheck.profile import load, names
from tests.fakes.amd import GIB, PRODUCTS, AmdNode, amd_smi, describe
from tests.fakes.amd import amdsmi as rocm_binding
from tests.fakes.amd.faults import (
    Change,
    amd_smi_prints,
    binding,
    boot,
    card,
    changed,
    errors,
    every_attribute,
    every_card,
    hidden,
    no_amd_smi,
    nothing,
    of_node,
)
from tests.fakes.amd.node import healthy, key, stand
from tests.fakes.faults import DENIED, Plant, both, environment, file, files, torch, without
from tests.fakes.node import FakeNode
from tests.fakes.tree import Ground, Kind, configuration
from tests.fakes.workers import FakeWorkers
from tests.surveys import needs_compiler
from tests.test_healthy import check

pytestmark = needs_compiler

BUNDLES = tuple(name for name in names() if not (profile := load(name)).abstract and profile.vendor == "amd")
VIRTUAL = ("mi300x", "mi325x", "mi355x", "mi210")
"""What clouds rent as virtual functions."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("node"))


def kind_of(bundle: str) -> Kind:
    """One kind of node for each bundle, so that every product is met as all that it is sold as."""
    kinds: tuple[Kind, ...] = ("guest", "container", "bare")
    kind = kinds[BUNDLES.index(bundle) % len(kinds)]
    return "bare" if kind == "guest" and bundle.rpartition("x")[0] not in VIRTUAL else kind


def test_every_product_is_sold_in_a_bundle() -> None:
    assert {bundle.rpartition("x")[0] for bundle in BUNDLES} == set(PRODUCTS)


@pytest.mark.parametrize("bundle", BUNDLES)
def test_bundle(bundle: str, ground: Ground) -> None:
    check(judge(stand(healthy(bundle, kind=kind_of(bundle))).probe(ground), load(bundle)))


@pytest.mark.parametrize("kind", ["bare", "guest", "container"])
@pytest.mark.parametrize("generation", amd_smi.GENERATIONS)
def test_amd_smi_of_every_generation(generation: str, kind: Kind, ground: Ground) -> None:
    check(judge(stand(healthy("mi300xx2", kind=kind), generation).probe(ground), load("mi300xx2")))


@dataclass(frozen=True)
class Trap:
    name: str
    bundle: str
    to: Change = nothing
    plant: Plant = nothing
    kind: Kind = "bare"
    machine: int = 0
    """How many cards the machine has, where that is more than were rented."""


def graphics_of_the_cpu(made: FakeNode) -> None:
    """A CPU with graphics of AMD's built in: a display on the bus, a device of KFD's, a render node."""
    folder = "/sys/devices/pci0000:e0/0000:e1:00.0"
    made.tree.links["/sys/bus/pci/devices/0000:e1:00.0"] = folder
    made.tree.links[f"{folder}/driver"] = "/sys/bus/pci/drivers/amdgpu"
    for name, value in {
        "vendor": "0x1002", "device": "0x164e", "class": "0x030000", "numa_node": "0", "current_link_width": "16",
        "subsystem_vendor": "0x1002", "subsystem_device": "0x164e", "mem_info_vram_total": str(GIB // 2),
    }.items():  # fmt: skip
        made.tree.files[f"{folder}/{name}"] = f"{value}\n"
    made.tree.files[f"{folder}/config"] = configuration("1002:164e")
    node = "/sys/class/kfd/kfd/topology/nodes/10"
    made.tree.files[f"{node}/gpu_id"] = "40000\n"
    made.tree.files[f"{node}/properties"] = (
        "simd_count 4\nsimd_per_cu 2\ngfx_target_version 100306\nvendor_id 4098\ndevice_id 5710\n"
        "location_id 57600\ndomain 0\ndrm_render_minor 160\nhive_id 0\nunique_id 0\n"
    )
    made.tree.files["/dev/dri/renderD160"] = ""
    made.files["owner /dev/dri/renderD160"] = [0o660, 0, 992]


def noise(printed: str) -> str:
    """What ROCm's tools have put before their JSON."""
    return (
        "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n\n"
        "/usr/lib/python3/dist-packages/amdsmi/amdsmi_wrapper.py:12: UserWarning: the library is newer\n"
        + printed
    )


TRAPS = [
    Trap("one card of the machine's eight", "mi300xx1", to=hidden(*range(1, 8)), kind="container", machine=8),
    Trap("four of the machine's eight", "mi300xx4", to=hidden(0, 2, 4, 6), kind="container", machine=8),
    Trap("a node without NUMA numbers", "mi300xx8", kind="guest"),
    Trap("a little memory in use by the driver's own", "mi300xx2", to=every_card(used_bytes=310 * 1024**2)),
    Trap("the kernel's own driver", "mi300xx2", to=of_node(module="")),
    Trap("no ROCm beside torch's own", "mi300xx2", plant=without("/opt/rocm")),
    Trap("torch for ROCm of the same release, another patch", "mi300xx2",
         plant=torch(version="2.9.1+rocm7.2.1", hip="7.2.53211-e1a6bc5663")),
    Trap("a tool that prints more than JSON", "mi300xx2", plant=amd_smi_prints(noise)),
    Trap("a tool that prints its document twice", "mi300xx2", plant=amd_smi_prints(lambda text: text + text)),
    Trap("a tool that wants groups that nothing else wants", "mi300xx2",
         to=of_node(groups_missing=("render", "video"))),
    Trap("no tool at all", "mi300xx2", plant=no_amd_smi),
    Trap("no tool, and a binding that breaks", "mi300xx2",
         plant=both(no_amd_smi, binding(Absent(why=Why.failed, detail="ended with status 3")))),
    Trap("graphics built into the CPU", "mi300xx4", plant=graphics_of_the_cpu),
    Trap("all cards named in HIP_VISIBLE_DEVICES", "mi300xx4", plant=environment(HIP_VISIBLE_DEVICES="0,1,2,3")),
    Trap("cards chosen at two levels", "mi300xx2",
         plant=environment(ROCR_VISIBLE_DEVICES="0,1", HIP_VISIBLE_DEVICES="0,1")),
    Trap("settings that cost nothing", "mi300xx4",
         plant=environment(NCCL_DEBUG="VERSION", HIP_FORCE_DEV_KERNARG="1", NCCL_MIN_NCHANNELS="32")),
    Trap("at the power limit", "mi300xx2", to=card(0, limits={"ppt": 100})),
    Trap("virtual functions without a unique id", "mi300xx2", to=every_card(unique_id=0), kind="guest"),
    Trap("some corrected errors", "mi300xx2",
         to=changed(errors(0, "UMC", corrected=12), errors(1, "XGMI_WAFL", corrected=3))),
    Trap("some replays and recoveries", "mi300xx2", to=card(1, replays=40, recoveries=20, naks=3)),
    Trap("NUMA balancing beside one card", "mi300xx1", plant=file("/proc/sys/kernel/numa_balancing", "1\n")),
    Trap("no word of the IOMMU in a guest", "mi300xx4", plant=boot(""), kind="guest"),
    Trap("idle PCIe links at a lower speed", "mi300xx2",
         plant=every_attribute("current_link_speed", "2.5 GT/s PCIe\n")),
    Trap("the kernel's log is closed", "mi300xx2", plant=files("kmsg", DENIED)),
    Trap("a module of the tools alone", "mi300xx2", plant=without("/usr/src/amdgpu-6.16.13-2278356.24.04")),
    Trap("clocks fixed for even results", "mi300xx2",
         plant=every_attribute("power_dpm_force_performance_level", "perf_determinism\n")),
]  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_trap(trap: Trap, ground: Ground) -> None:
    node = healthy(
        f"{trap.bundle.rpartition('x')[0]}x{trap.machine}" if trap.machine else trap.bundle, kind=trap.kind
    )
    trap.to(node)
    made = stand(node)
    trap.plant(made)
    check(judge(made.probe(ground), load(trap.bundle)))


@pytest.mark.parametrize(
    ("kind", "changes"), [("bare", {}), ("container", {}), ("guest", {}), ("guest", {"unique_id": 0})]
)
def test_measured_at_level_standard(kind: Kind, changes: dict[str, int], ground: Ground) -> None:
    """Also of virtual functions without a unique id, which go by their addresses."""
    node = healthy("mi300xx4", kind=kind)
    every_card(**changes)(node)
    made = stand(node)
    made.crew = FakeWorkers(load("mi300xx4"), tuple(map(key, node.cards)))
    check(judge(made.probe(ground, "standard"), load("mi300xx4")))


@pytest.mark.parametrize("release", rocm_binding.RELEASES)
def test_the_binding_of_every_release_alone(release: str, ground: Ground, tmp_path: Path) -> None:
    node = healthy("mi300xx2")
    made = stand(node)
    no_amd_smi(made)
    made.amdsmi["survey"] = rocm_binding.survey(node, tmp_path, release)
    check(judge(made.probe(ground), load("mi300xx2")))


def test_the_traps_are_there() -> None:
    """The nodes above do hold them: memory in use on an idle card, each virtual function in a domain of its own."""
    node: AmdNode = describe("mi300x", 8, kind="guest")
    assert len({one.address.split(":")[0] for one in node.cards}) == 8
    assert all(one.used_bytes > 200 * 1024**2 for one in node.cards)
