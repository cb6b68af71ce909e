"""What is asked of AMD's cards alone, and what is asked of them otherwise than of NVIDIA's."""

from __future__ import annotations

from typing import Any

import pytest

from nodecheck.facts import Absent, Node, Why
from nodecheck.facts.card import EccBlock
from nodecheck.facts.host import DeviceFile
from nodecheck.facts.topology import PciDevice
from nodecheck.judge import Cause, Owner, Status, Verdict, judge
from nodecheck.profile import Profile
from tests.healthy import change
from tests.judge.cases import DENIED, HUNG, UNASKED, UNSUPPORTED, Case, check, faulty, found, healthy, profile

PASS, WARN, FAIL, UNKNOWN, SKIPPED = Status.passed, Status.warn, Status.fail, Status.unknown, Status.skipped
MISSING = Absent(why=Why.not_present, detail="no such file or directory")
DISAGREE = Absent(why=Why.failed, detail="the sources disagree: sysfs says xgmi; amd_smi says pcie")


def case(id: str, faults: dict[str, Any], status: Status, profile: str = "mi300xx8", **words: Any) -> Case:
    return Case(id, faults, status, profile=profile, **words)


def pairs(name: str, *which: int, **changes: Any) -> dict[str, Any]:
    """The pairs at these places changed; all of them where none is named."""
    topology = healthy(name).topology
    assert not isinstance(topology, Absent) and not isinstance(topology.pairs, Absent)
    changed = tuple(
        pair.model_copy(update=changes) if not which or i in which else pair
        for i, pair in enumerate(topology.pairs)
    )
    return {"topology.pairs": changed}


def blocks(name: str, **counts: Any) -> tuple[EccBlock, ...]:
    """The card's blocks, with these counts at one of them."""
    health = healthy("mi300xx8").known_cards[0].health
    assert not isinstance(health.ecc_blocks, Absent)
    return tuple(
        block.model_copy(update=counts) if block.name == name else block for block in health.ecc_blocks
    )


def files(**changes: Any) -> tuple[DeviceFile, ...]:
    host = healthy("mi300xx8").host
    assert not isinstance(host, Absent) and not isinstance(host.device_files, Absent)
    return tuple(file.model_copy(update=changes) for file in host.device_files)


def libraries(*paths: str) -> dict[str, Any]:
    return {"stack.torch.libraries": paths}


SPLIT = {"cards.*.modes.compute_partition": "CPX"}
FOUR_GIVEN = {"topology.kfd_hidden": 4}
KFD_WITHOUT_CARDS = {"cards": MISSING, "topology.kfd_count": 0}

CARDS = [
    # Are they there?
    case("cards.listed", {}, PASS, says="8 can be seen"),
    case("cards.listed", KFD_WITHOUT_CARDS | {"topology.kfd_hidden": 8}, FAIL, says="keeps all of them",
         cause=Cause.misconfigured, owner=Owner.renter),
    case("cards.listed", KFD_WITHOUT_CARDS | {"topology.kfd_hidden": 0}, FAIL, says="the PCI bus shows 8"),
    case("cards.listed", {"cards": MISSING, "topology": UNASKED}, UNKNOWN),
    case("cards.listed", {"cards": MISSING, "topology.kfd_count": HUNG, "topology.kfd_hidden": HUNG}, UNKNOWN),
    case("cards.vendor", {}, PASS),
    case("cards.count", {}, PASS, says="8 of 8"),
    case("cards.count", {"cards": healthy("mi300xx8").known_cards[:7]}, FAIL, says="The driver lists 7"),
    case("cards.count", {"cards": healthy("mi300xx8").known_cards[:4] + tuple(
        card.model_copy(update={"index": 9, "modes": card.modes.model_copy(update={"compute_partition": "CPX"})})
        for card in healthy("mi300xx8").known_cards for _ in range(8))}, FAIL, done="CPX", says="which are 8 packages"),
    case("cards.count.agreement", {}, PASS, says="KFD 8, PCI bus 8, amdgpu 8, render nodes 8, amd-smi 8"),
    case("cards.count.agreement", {"topology.kfd_count": 7}, FAIL, says="lost to the driver"),
    case("cards.count.agreement", {"stack.torch.device_count": 0}, FAIL, owner=Owner.renter, says="torch 0"),
    case("cards.count.agreement", {"topology.amd_smi_count": 6}, UNKNOWN, says="count differently"),
    case("cards.count.agreement", {"topology.kfd_count": DENIED}, UNKNOWN),
    case("cards.count.agreement", {"topology": UNASKED}, UNKNOWN),
    case("cards.count.agreement", {}, PASS, profile="mi300xx4", view="container", board=8,
         says="part of a larger board"),
    case("cards.count.agreement", {"topology.kfd_hidden": 0}, WARN, profile="mi300xx4", board=8, says="a card more"),
    case("cards.usable", {}, PASS, count=8),
    case("cards.usable", {"cards.3.usable": False}, FAIL, says="has not brought up this card"),
    case("cards.usable", {"cards.3.usable": Absent(why=Why.no_permission, detail="/dev/kfd may not be opened")}, FAIL,
         cause=Cause.misconfigured, says="/dev/kfd"),
    case("cards.usable", {"cards.3.usable": UNASKED}, UNKNOWN),
    case("cards.kfd", {}, PASS, says="8 of 8"),
    case("cards.kfd", FOUR_GIVEN, PASS, says="8 of 12"),
    case("cards.kfd", FOUR_GIVEN | {"topology.kfd_count": 4}, FAIL, says="4 of 8", owner=Owner.renter),
    case("cards.kfd", {"topology.kfd_count": DENIED}, UNKNOWN),
    case("cards.kfd", {"topology": UNASKED}, UNKNOWN),
    case("cards.kfd", {}, SKIPPED, profile="h200x4"),
    case("cards.device_files", {}, PASS, says="8 render nodes"),
    case("cards.device_files", {"host.device_files": files(allowed=False, member=False)}, FAIL, done="not in the group",
         says="not in the group render", owner=Owner.renter),
    case("cards.device_files", {"host.device_files": files(allowed=False)}, FAIL, done="denied by cgroup",
         says="its group is not what stands against it"),
    case("cards.device_files", {"host.device_files": files()[:1]}, FAIL, done="no render node", says="no render node"),
    case("cards.device_files", {"host.device_files": MISSING}, FAIL, says="no /dev/kfd"),
    case("cards.device_files", {"host.device_files": files(allowed=DENIED)}, UNKNOWN, done="not told"),
    case("cards.device_files", {"host.device_files": DENIED}, UNKNOWN),
    case("cards.device_files", {"host": UNASKED}, UNKNOWN),
    case("cards.device_files", {}, SKIPPED, profile="h200x4"),
    case("cards.duplicate", {}, PASS),
    case("cards.duplicate", {"cards.*.uuid": UNSUPPORTED}, PASS),
    case("cards.duplicate", {"cards.*.uuid": DENIED}, UNKNOWN),
    case("cards.hidden_by_environment", {"stack.environment": (("ROCR_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"),)}, PASS),
    case("cards.hidden_by_environment", {"stack.environment": (("HIP_VISIBLE_DEVICES", "0"),)}, WARN, says="1 of 8"),
    # What the one leaves, the other numbers anew: 4 is none of four.
    case("cards.hidden_by_environment",
         {"stack.environment": (("HIP_VISIBLE_DEVICES", "4,5"), ("ROCR_VISIBLE_DEVICES", "4,5,6,7"))}, WARN,
         says="0 of 8"),
    case("cards.excluded", {}, SKIPPED),
    # What are they?
    case("cards.model", {}, PASS),
    case("cards.model", {"cards.0.identity.name": "AMD Instinct MI308X"}, FAIL),
    case("cards.model", {"cards.*.identity.name": MISSING}, SKIPPED, says="1002:74a1 says what it is"),
    case("cards.model", {"cards.*.identity.name": MISSING, "cards.*.identity.pci_id": DENIED}, UNKNOWN),
    case("cards.pci_id", {"cards.*.identity.pci_id": "1002:74a0"}, FAIL, count=8),
    case("cards.gfx", {}, PASS),
    case("cards.gfx", {"cards.0.identity.gfx": "gfx90a"}, FAIL, says="gfx90a, not gfx942"),
    case("cards.gfx", {"cards.0.identity.gfx": DENIED}, UNKNOWN),
    case("cards.gfx", {}, SKIPPED, profile="h200x4"),
    case("cards.compute_units", {}, PASS),
    case("cards.compute_units", {"cards.0.identity.compute_units": 38}, FAIL, says="38, not 304"),
    case("cards.compute_units", {"cards.0.identity.compute_units": DISAGREE}, UNKNOWN),
    case("cards.cores", {}, SKIPPED),
    case("cards.memory.total", {"cards.0.memory.total_bytes": 205_571_227_648}, PASS),
    case("cards.memory.total", {"cards.0.memory.total_bytes": 274_861_129_728}, FAIL),
    case("cards.memory.total", {"cards.*.memory.total_bytes": 64289 * 2**20}, PASS, profile="mi300ax4"),
    case("cards.memory.total", {"cards.*.memory.total_bytes": 32 * 2**30}, FAIL, profile="mi300ax4"),
    case("cards.partition.compute", {}, PASS, count=8),
    case("cards.partition.compute", SPLIT, FAIL, says="The mode of the package 0000:0c:00.0 is CPX, not SPX",
         cause=Cause.misconfigured, owner=Owner.provider),
    case("cards.partition.compute", {"cards.0.modes.compute_partition": DISAGREE}, UNKNOWN),
    case("cards.partition.compute", {}, SKIPPED, profile="mi210x4"),
    case("cards.partition.memory", {}, PASS),
    case("cards.partition.memory", {"cards.*.modes.memory_partition": "NPS4"}, FAIL, says="NPS4, not NPS1"),
    case("cards.partition.memory", {"cards.0.modes.memory_partition": DENIED}, UNKNOWN),
    # How are they set?
    case("cards.power_limit", {"cards.2.power.limit_watts": 550.0}, FAIL, count=1, says="Capped at 550 W"),
    case("cards.power_limit", {"cards.2.power.limit_watts": DISAGREE}, UNKNOWN),
    case("cards.power_limit", {}, UNKNOWN, view="vm", says="virtual function"),
    case("cards.clocks.event_reasons", {"cards.0.clocks.event_reasons": ("ppt",)}, PASS),
    case("cards.clocks.event_reasons", {"cards.0.clocks.event_reasons": ("hbm_thermal",)}, WARN),
    case("cards.clocks.event_reasons", {"cards.0.clocks.event_reasons": ("prochot",)}, FAIL),
    case("cards.clocks.performance_level", {}, PASS),
    case("cards.clocks.performance_level", {"cards.0.clocks.performance_level": "low"}, WARN, says="low"),
    case("cards.clocks.performance_level", {"cards.0.clocks.performance_level": DENIED}, UNKNOWN),
    case("cards.virtualization", {}, PASS, view="vm", says="virtual function"),
    case("cards.virtualization", {"cards.0.modes.virtualization": "host"}, FAIL),
    case("cards.mig", {}, SKIPPED),
    case("cards.persistence", {}, SKIPPED),
    case("cards.memory.in_use", {}, PASS, says="298 MiB"),
    case("cards.pcie.link_events", {}, PASS),
    case("cards.pcie.link_events", {"cards.0.pcie.naks_received": 4000}, WARN, says="4000 packets of the card refused"),
    case("cards.pcie.link_events", {"cards.0.pcie.recoveries": DENIED}, UNKNOWN),
    case("cards.pcie.link_events", {}, SKIPPED, view="vm"),
    # Is their memory sound?
    case("health.responsive", {}, PASS, says="amd-smi took"),
    case("health.responsive", {"topology.amd_smi_seconds": 9.0}, WARN),
    case("health.responsive", {"cards.*.pcie.naks_sent": HUNG}, WARN, says="although the card runs a kernel"),
    case("health.responsive", {"cards.*.pcie.naks_sent": HUNG, "stack.contexts": UNASKED}, FAIL),
    case("health.responsive", {"cards.0.usable": DENIED}, UNKNOWN),
    case("health.ecc_mode", {"cards.0.health.ecc_enabled": False}, FAIL),
    case("health.ecc_uncorrected_volatile",
         {"cards.4.health.ecc_volatile.uncorrected": 7, "cards.4.health.ecc_blocks": blocks("GFX", uncorrected=7)},
         FAIL, count=1, done="7 in GFX", says="7 (GFX 7)"),
    case("health.ecc_uncorrected_volatile", {"cards.4.health.ecc_volatile.uncorrected": DISAGREE}, UNKNOWN),
    case("health.ecc_deferred", {}, PASS),
    case("health.ecc_deferred", {"cards.4.health.ecc_volatile.deferred": 2}, WARN),
    case("health.ecc_deferred", {"cards.4.health.ecc_volatile.deferred": DENIED}, UNKNOWN),
    case("health.ecc_deferred", {"cards.*.health.ecc_volatile.deferred": UNSUPPORTED}, SKIPPED),
    case("health.xgmi_errors", {}, PASS),
    case("health.xgmi_errors", {"cards.4.health.ecc_blocks": blocks("XGMI_WAFL", uncorrected=1)}, FAIL, done="UE"),
    case("health.xgmi_errors", {"cards.4.health.ecc_blocks": blocks("XGMI_WAFL", corrected=900)}, WARN, done="CE"),
    case("health.xgmi_errors", {"cards.4.health.ecc_blocks": blocks("XGMI_WAFL", uncorrected=DENIED)}, UNKNOWN,
         done="N/A"),
    case("health.xgmi_errors", {"cards.4.health.ecc_blocks": ()}, UNKNOWN, says="names no block"),
    case("health.xgmi_errors", {}, SKIPPED, profile="mi300xx1"),
    case("health.bad_pages", {}, PASS),
    case("health.bad_pages", {"cards.1.health.bad_pages_retired": 3}, WARN, says="3 retired, the driver bears 256"),
    case("health.bad_pages", {"cards.1.health.bad_pages_pending": 1}, FAIL, says="1 waiting"),
    case("health.bad_pages", {"cards.1.health.bad_pages_unreservable": 1}, FAIL),
    case("health.bad_pages", {"cards.1.health.bad_pages_retired": 256}, FAIL),
    case("health.bad_pages",
         {"cards.1.health.bad_pages_retired": 12, "cards.1.health.bad_page_threshold_exceeded": True}, FAIL),
    case("health.bad_pages", {"cards.1.health.bad_pages_pending": DENIED}, UNKNOWN),
    case("health.bad_pages", {"cards.1.health.bad_pages_retired": DISAGREE}, UNKNOWN),
    # What joins them?
    case("topology.pairs.xgmi", {}, PASS, count=28),
    case("topology.pairs.xgmi", pairs("mi300xx8", 5, link_type="pcie", weight=40), FAIL, count=1, done="PCIe at one",
         says="PCI Express, weight 40"),
    case("topology.pairs.xgmi", pairs("mi300xx8", 5, weight=30, hops=2), FAIL, count=1, done="two hops", says="2 hops"),
    case("topology.pairs.xgmi", pairs("mi300xx8", 5, link_type=DISAGREE), UNKNOWN, count=1, done="disagreement"),
    case("topology.pairs.xgmi", pairs("mi300xx8", 5, hops=DENIED), UNKNOWN, count=1, done="no weight"),
    case("topology.pairs.xgmi", {"topology.pairs": ()}, UNKNOWN, count=28),
    case("topology.pairs.xgmi", {}, PASS, profile="mi250xx8", count=28),
    case("topology.pairs.xgmi", pairs("mi250xx8", 3, link_type="pcie"), FAIL, profile="mi250xx8", done="PCIe at one"),
    case("topology.pairs.xgmi", {}, PASS, profile="mi210x8", count=8),
    case("topology.pairs.xgmi", pairs("mi210x8", 0, link_type="pcie"), FAIL, profile="mi210x8", count=2,
         done="PCIe at one", says="directly with 2 of 3"),
    case("topology.pairs.xgmi", pairs("mi210x8", 0, link_type=DENIED), UNKNOWN, profile="mi210x8", count=2,
         done="denied"),
    case("topology.pairs.xgmi", {}, SKIPPED, profile="h200x4"),
    case("topology.pairs.xgmi", {}, SKIPPED, profile="mi300xx1"),
    case("topology.pairs.nvlink", {}, SKIPPED),
    case("topology.pairs.p2p", {}, PASS, count=28),
    case("topology.pairs.p2p", pairs("mi300xx8", 5, accessible=False), FAIL, count=1, done="one closed"),
    case("topology.pairs.p2p", pairs("mi300xx8", 5, accessible=UNSUPPORTED), UNKNOWN, count=1, done="not told"),
    case("topology.xgmi.hive", {}, PASS, says="8 in 0x"),
    case("topology.xgmi.hive", {"cards.2.hive": "0x0"}, FAIL, says="1 in 0x0"),
    case("topology.xgmi.hive", {f"cards.{i}.hive": "0xab" for i in range(4)}, FAIL, says="4 in 0xab"),
    case("topology.xgmi.hive", {}, PASS, profile="mi210x8"),
    case("topology.xgmi.hive", {"cards.2.hive": DENIED}, UNKNOWN),
    case("topology.xgmi.hive", {"cards.*.hive": "0x0"}, UNKNOWN),
    case("topology.xgmi.hive", {}, SKIPPED, profile="h200x4"),
    case("topology.xgmi.links", {}, PASS, count=8),
    case("topology.xgmi.links", {"cards.0.links.3.active": False}, FAIL, count=1, says="1 of 7 are down"),
    case("topology.xgmi.links", {"cards.0.links.3.speed_mb_per_s": 25_000}, FAIL, says="link 3: 25000"),
    case("topology.xgmi.links", {}, UNKNOWN, view="vm"),
    case("topology.xgmi.links", {"cards.0.links": DENIED}, UNKNOWN, count=1),
    case("topology.fabric.state", {}, SKIPPED),
]  # fmt: skip

HOST = [
    case("host.numa_balancing", {}, PASS),
    case("host.numa_balancing", {"host.memory.numa_balancing": True}, WARN, owner=Owner.provider),
    case("host.numa_balancing", {"host.memory.numa_balancing": True}, PASS, profile="mi300xx1"),
    case("host.iommu_passthrough", {}, PASS),
    case("host.iommu_passthrough", {"host.boot_command_line": "ro", "host.iommu": "translated"}, WARN),
    case("host.iommu_passthrough", {"host.boot_command_line": "ro", "host.iommu": DENIED}, WARN),
    case("host.iommu_passthrough", {"host.boot_command_line": "ro", "host.iommu": "off"}, PASS),
    case("host.iommu_passthrough",
         {"host.boot_command_line": "ro", "host.iommu": "translated", "host.virtualization": "hyperv"}, PASS),
    case("host.iommu_passthrough",
         {"host.boot_command_line": "ro", "host.iommu": "translated", "host.kernel": "5.14.21-cray_shasta_c"}, PASS),
    case("host.iommu_passthrough", {"host.boot_command_line": DENIED}, UNKNOWN),
    case("host.iommu_passthrough", {"host.boot_command_line": "ro", "host.virtualization": DENIED}, UNKNOWN),
    case("host.iommu_passthrough", {}, SKIPPED, profile="h200x4"),
    case("host.pci_realloc", {}, PASS),
    case("host.pci_realloc", {"host.boot_command_line": "ro"}, PASS, says="reaches all"),
    case("host.pci_realloc", {"host.boot_command_line": "ro", "cards.2.memory.bar1_total_bytes": 2**28}, WARN,
         says="GPU 2"),
    case("host.pci_realloc", {"host.boot_command_line": DENIED}, UNKNOWN),
    case("host.pci_realloc", {}, SKIPPED, profile="h200x4"),
]  # fmt: skip

NO_CODE = {"stack.torch.arch_list": ("gfx90a", "gfx1100")}
NOTHING_RAN = {f"stack.contexts.{i}.ok": HUNG for i in range(8)}
TORCH = "/opt/venv/lib/python3.12/site-packages/torch/lib"
STACK = [
    case("stack.torch.gpu_build", {"stack.torch.hip": MISSING, "stack.torch.cuda": "12.8"}, FAIL,
         says="built with CUDA"),
    case("stack.torch.arch", {}, SKIPPED),
    case("stack.torch.devices", {"stack.torch.devices.*.uuid": "GPU-39613362-3030-3030-3131-313130303030"}, PASS),
    case("stack.environment.nccl", {"stack.environment": (("NCCL_MIN_NCHANNELS", "32"),)}, PASS),
    case("stack.environment.nccl", {"stack.environment": (("NCCL_MIN_NCHANNELS", "32"),)}, WARN, profile="h200x4"),
    case("stack.nccl.version", {}, PASS, says="RCCL 2.27.7"),
    case("stack.torch.devices", {"stack.torch.device_count": 7}, FAIL, says="counts wrongly", owner=Owner.renter),
    case("stack.torch.devices", {"stack.torch.device_count": 7, "stack.contexts.3.ok": False}, FAIL,
         owner=Owner.provider),
    case("stack.rocm.arch", {}, PASS, count=8),
    case("stack.rocm.arch", NO_CODE, WARN, says="and yet a kernel ran"),
    case("stack.rocm.arch", NO_CODE | NOTHING_RAN, FAIL, says="does not name gfx942"),
    case("stack.rocm.arch", {"stack.torch.arch_list": DENIED}, UNKNOWN),
    case("stack.rocm.arch", {"cards.0.identity.gfx": DENIED}, UNKNOWN),
    case("stack.rocm.arch", {"stack.torch.hip": MISSING}, SKIPPED),
    case("stack.rocm.minimum", {}, PASS),
    case("stack.rocm.minimum", {"stack.torch.hip": "5.7.31921-d1770ee1b"}, WARN),
    case("stack.rocm.minimum", {"stack.torch.hip": "6.2.41133"} | NOTHING_RAN, FAIL, profile="mi355xx8",
         but=lambda spec: published(spec)),
    case("stack.rocm.minimum", {"stack.torch.hip": DENIED}, UNKNOWN),
    case("stack.rocm.match", {}, PASS, says="Both are 7.2"),
    case("stack.rocm.match", {"stack.driver.rocm_version": "6.4.1"}, WARN, says="ROCm 6.4.1 is installed"),
    case("stack.rocm.match", libraries(f"{TORCH}/libMIOpen.so", "/opt/rocm/lib/librccl.so.1"), WARN,
         says="/opt/rocm/lib"),
    case("stack.rocm.match", {"stack.driver.rocm_version": MISSING}, PASS, says="no ROCm is installed"),
    case("stack.rocm.match", {"stack.driver.rocm_version": DENIED}, UNKNOWN),
    case("stack.driver.amdgpu", {}, PASS, says="module 6.16.13"),
    case("stack.driver.amdgpu", {"stack.driver.in_tree": MISSING}, FAIL, says="shows 8 cards"),
    case("stack.driver.amdgpu", {"stack.driver.in_tree": DENIED}, UNKNOWN),
    case("stack.environment.cuda", {"stack.environment": (("HSA_OVERRIDE_GFX_VERSION", "9.0.10"),)}, WARN),
]  # fmt: skip


def published(spec: Profile) -> Profile:
    assert spec.stack is not None
    return spec.model_copy(
        update={"stack": spec.stack.model_copy(update={"kind": "published", "inherited": {}})}
    )


@pytest.mark.parametrize("one", [*CARDS, *HOST, *STACK], ids=lambda one: one.name)
def test_case(one: Case) -> None:
    check(one)


# What follows from what


def judged(faults: dict[str, Any], name: str = "mi300xx8") -> Any:
    return judge(faulty(name, faults), profile(name))


def roots(faults: dict[str, Any], name: str = "mi300xx8") -> set[str]:
    """Ids of what holds the verdict up and follows from nothing else."""
    return {
        f.id
        for f in judged(faults, name).findings
        if f.root is None and (f.status in (FAIL, WARN) or (f.status is UNKNOWN and f.required))
    }


def test_a_driver_that_is_not_loaded_is_one_trouble() -> None:
    gone = Absent(why=Why.not_present, detail="KFD shows no topology: amdgpu has not started the cards")
    faults = {
        "stack.driver.in_tree": MISSING,
        "cards.*.usable": gone,
        "topology.kfd_count": gone,
        "topology.kfd_hidden": gone,
        "host.device_files": MISSING,
        "stack.torch.device_count": 0,
        **{f"stack.contexts.{i}.ok": gone for i in range(8)},
    }
    assert roots(faults) == {"stack.driver.amdgpu"}
    assert judged(faults).verdict is Verdict.rejected


def test_a_missing_group_is_one_trouble_of_the_renters() -> None:
    shut = Absent(why=Why.no_permission, detail="/dev/kfd may not be opened by this user")
    faults = {
        "host.device_files": files(allowed=False, member=False),
        "cards.*.usable": shut,
        **{f"stack.contexts.{i}.ok": shut for i in range(8)},
    }
    assert roots(faults) == {"cards.device_files"}
    (finding,) = found(judged(faults), "cards.device_files")
    assert finding.next_step == "`sudo usermod -aG render $USER`, then log in anew."
    inside = judge(faulty("mi300xx8", faults | {"host.container": "docker"}), profile("mi300xx8"))
    assert "--group-add 992" in found(inside, "cards.device_files")[0].next_step


def test_cards_left_split_are_eight_and_one_trouble() -> None:
    eight = healthy("mi300xx8").known_cards
    parts = tuple(
        card.model_copy(
            update={
                "index": 8 * i + part,
                "uuid": UNSUPPORTED,
                "pci_address": f"{card.pci_address[:-1]}{part}"
                if isinstance(card.pci_address, str)
                else MISSING,
                "partition": part,
                "package": card.pci_address,
                "identity": card.identity.model_copy(update={"compute_units": 38}),
                "modes": card.modes.model_copy(update={"compute_partition": "CPX"}),
            }
        )
        for i, card in enumerate(eight)
        for part in range(8)
    )
    node = change(change(healthy("mi300xx8"), "cards", parts), "topology.kfd_count", 64)
    node = change(change(node, "topology.pairs", UNASKED), "stack.contexts", UNASKED)
    findings = judge(node, profile("mi300xx8")).findings
    (count,) = [f for f in findings if f.id == "cards.count"]
    assert count.status is FAIL and count.root == "cards.partition.compute"
    assert "64 devices, which are 8 packages" in count.detail
    assert {f.root for f in findings if f.id == "cards.compute_units"} == {"cards.partition.compute"}


@pytest.mark.parametrize(
    ("name", "other"), [("mi300xx8", "h200x4"), ("h200x4", "mi300xx4"), ("h200x4", "mi300xx8")]
)
def test_a_node_of_another_maker_is_told_so_first(name: str, other: str) -> None:
    judgement = judge(healthy(other), profile(name))
    assert judgement.verdict is Verdict.rejected
    assert any(reason.startswith("cards.vendor") for reason in judgement.reasons)
    fails = [f for f in judgement.findings if f.status is FAIL and f.root is None]
    assert {f.id for f in fails} == {"cards.vendor"}


def test_both_makers_in_one_node() -> None:
    ours, theirs = healthy("mi300xx4"), healthy("h200x2").known_cards
    mixed = change(ours, "cards", (*ours.known_cards, *theirs))
    judgement = judge(mixed, profile("mi300xx4"))
    (vendor,) = found(judgement, "cards.vendor")
    assert vendor.status is FAIL
    assert "The node has 4 of amd and 2 of nvidia" in vendor.detail
    assert found(judgement, "cards.count")[0].status is PASS


def test_graphics_beside_the_cards_are_told_and_do_no_harm() -> None:
    topology = healthy("h200x4").topology
    assert not isinstance(topology, Absent) and not isinstance(topology.pci_devices, Absent)
    display = PciDevice(address="0000:c5:00.0", pci_id="1002:164e", pci_class="030000", kind="display")
    node: Node = change(healthy("h200x4"), "topology.pci_devices", (*topology.pci_devices, display))
    judgement = judge(node, profile("h200x4"))
    assert judgement.verdict is Verdict.accepted
    assert "1002:164e" in found(judgement, "cards.vendor")[0].detail


def test_commands_are_those_of_amds_tools() -> None:
    judgement = judge(healthy("mi300xx8"), profile("mi300xx8"))
    asked = [
        f
        for f in judgement.findings
        if f.status is not SKIPPED and f.id.startswith(("cards.", "health.", "topology."))
    ]
    assert not [
        f.id
        for f in asked
        if "nvidia" in f.repeat or "nvidia" in f.observed_from or "nvml" in f.observed_from
    ]
    assert not [f.id for f in asked if f.door == "nvml"]
