"""What a healthy node with AMD's cards says where it says something else than one with NVIDIA's.

A guest is given virtual functions, each in a PCI domain of its own, where the product has such: of those the driver
tells neither power nor ECC nor sensors.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, Literal

from nodecheck.facts import Absent, Card, Host, Stack, Topology, Why
from nodecheck.facts.base import NVIDIA_ALONE
from nodecheck.facts.card import (
    Clocks,
    EccBlock,
    EccCounts,
    Fabric,
    Health,
    Identity,
    Link,
    Memory,
    Modes,
    Pcie,
    Power,
    Temperature,
)
from nodecheck.facts.host import DeviceFile
from nodecheck.facts.stack import ContextTest, Driver, Extension, Interpreter, Library, Torch, TorchDevice
from nodecheck.facts.topology import Pair, PciDevice
from nodecheck.probes.amdgpu import VIRTUAL_FUNCTIONS
from nodecheck.profile import CardSpec, Profile

View = Literal["bare", "vm", "container"]

MIB = 1024**2
VIRTUAL = Absent(why=Why.not_supported, detail="a virtual function is not told")
NOT_PRESENT = Absent(why=Why.not_present, detail="no such file or directory")
UNTOLD = Absent(why=Why.not_supported, detail="the driver does not say")
BINDING_UNASKED = Absent(why=Why.not_asked, detail="the sources before it told what it could")

ADDRESSES = tuple(f"0000:{bus:02x}:00.0" for bus in (0x0C, 0x15, 0x1E, 0x69, 0x9F, 0xAF, 0xBF, 0xDF))
VIRTUAL_ADDRESSES = tuple(f"{0x10 * i + 1:04x}:00:00.0" for i in range(1, 9))
ROCM = "7.2.0"
_BLOCKS = ("GFX", "HDP", "MMHUB", "PCIE_BIF", "SDMA", "UMC", "XGMI_WAFL")
_NO_COUNTERS = dict.fromkeys(
    ("version", "replay_errors", "recovery_errors", "crc_flit_errors", "crc_data_errors", "effective_errors"),
    NVIDIA_ALONE,
)


def _virtual_id(spec: CardSpec, view: View) -> str | None:
    ids = [pci_id for pci_id in spec.pci_ids if pci_id in VIRTUAL_FUNCTIONS]
    return ids[0] if ids and view == "vm" else None


def _addresses(spec: CardSpec, view: View) -> tuple[str, ...]:
    return VIRTUAL_ADDRESSES if _virtual_id(spec, view) else ADDRESSES


def uuid(position: int) -> str:
    return f"GPU-9a3b0000{0x11110000 + position:08x}"


def _nvidias(model: type[Any], **told: Any) -> Any:
    return model(**{**dict.fromkeys(model.model_fields, NVIDIA_ALONE), **told})


def card(profile: Profile, spec: CardSpec, position: int, view: View) -> Card:
    virtual = _virtual_id(spec, view)
    name = next((n for n in spec.names if n.endswith(" VF")), spec.names[0]) if virtual else spec.names[0]
    total = (spec.memory_mib - (320 if virtual else 0)) * MIB
    used = 298 * MIB
    watts = spec.power_limit_watts or 560.0
    address = _addresses(spec, view)[position]
    numa = -1 if view == "vm" else position // 4
    dies = spec.arch == "gfx90a" and spec.power_limit_watts is None

    def whole(value: Any) -> Any:
        """What belongs to the whole card, of which a virtual function is not told."""
        return VIRTUAL if virtual else value

    return Card(
        vendor="amd",
        source="sysfs",
        index=position,
        usable=True,
        lost=False,
        pci_address=address,
        uuid=uuid(position),
        other_sources=(("identity.name", "amd_smi"),),
        identity=_nvidias(
            Identity,
            name=name,
            pci_id=virtual or spec.pci_ids[0],
            pci_subsystem=f"1002:{spec.pci_ids[0][5:]}",
            serial=whole(f"69232500{position + 1:04d}"),
            board_part=whole("102-G30211-00"),
            vbios="113-MI3SRIOV-001" if virtual else "113-M3000100-102",
            architecture=spec.architecture,
            compute_capability=spec.compute_capability,
            module_id=position,
            gfx=spec.arch,
            compute_units=spec.compute_units,
            ifwi_version=whole("022.040.003.041.000001"),
            firmware_bundle=whole("01.25.03.12"),
            render_minor=128 + position,
        ),
        memory=_nvidias(
            Memory,
            total_bytes=total,
            used_bytes=used,
            free_bytes=total - used,
            bar1_total_bytes=total,
            bus_width_bits=spec.memory_bus_bits or UNTOLD,
            unexplained_bytes=used,
            kind="HBM3",
        ),
        health=_health(virtual is not None),
        power=Power(
            limit_watts=whole(watts),
            requested_limit_watts=NVIDIA_ALONE,
            default_limit_watts=whole(watts),
            min_limit_watts=whole(0.0),
            max_limit_watts=whole(watts),
            draw_watts=whole(round(watts * 0.16, 1)),
            energy_joules=whole(2371546.0),
        ),
        clocks=_nvidias(
            Clocks,
            sm_mhz=whole(132),
            memory_mhz=whole(900),
            max_sm_mhz=spec.max_sm_clock_mhz or 2100,
            max_memory_mhz=whole(1300),
            event_reasons=whole(()),
            limited_percent=whole(()),
            performance_level=whole("auto"),
        ),
        temperature=_nvidias(
            Temperature,
            gpu_celsius=whole(38 + position),
            memory_celsius=whole(34 + position),
            slowdown_celsius=whole(100),
            shutdown_celsius=whole(110),
        ),
        pcie=_nvidias(
            Pcie,
            generation=spec.pcie_generation or 5,
            width=16,
            max_generation=spec.pcie_generation or 5,
            max_width=16,
            **dict.fromkeys(
                ("replays", "rollovers", "recoveries", "naks_sent", "naks_received"), whole(position)
            ),
        ),
        modes=_nvidias(
            Modes,
            virtualization="virtual_function" if virtual else "passthrough" if view == "vm" else "none",
            compute_partition=spec.compute_partition or NOT_PRESENT,
            memory_partition=spec.memory_partition or NOT_PRESENT,
        ),
        fabric=_nvidias(Fabric),
        links=_links(profile, spec, position, view),
        processes=(),
        gpu_utilization_percent=0,
        cpu_affinity="0-15" if view == "vm" else ("0-47,96-143", "48-95,144-191")[position // 4],
        memory_affinity=UNTOLD if view == "vm" else str(numa),
        numa_node=numa,
        package=ADDRESSES[position - position % 2] if dies else address,
        partition=0,
        hive=_hive(profile, position),
    )


def _health(virtual: bool) -> Health:
    none = EccCounts(
        **{
            **dict.fromkeys(EccCounts.model_fields, 0),
            **dict.fromkeys(("sram_corrected", "sram_uncorrected"), NVIDIA_ALONE),
        }
    )
    told: dict[str, Any] = {
        "ecc_enabled": True,
        "ecc_volatile": none,
        "ecc_blocks": tuple(EccBlock(name=name, corrected=0, uncorrected=0, deferred=0) for name in _BLOCKS),
        "bad_pages_retired": 0,
        "bad_pages_pending": 0,
        "bad_pages_unreservable": 0,
        "bad_page_threshold": 256,
        "bad_page_threshold_exceeded": UNTOLD,
    }
    health: Health = _nvidias(Health, **(dict.fromkeys(told, VIRTUAL) if virtual else told))
    return health


def _hive(profile: Profile, position: int) -> str:
    links = profile.links
    if links is None or links.interconnect != "xgmi":
        return "0x0"
    return f"0x{0x5C9F2A1B + position // (links.hive_cards or profile.count):x}"


def _joined(profile: Profile, i: int, j: int) -> bool:
    links = profile.links
    if links is None or links.interconnect != "xgmi":
        return False
    hive = links.hive_cards or profile.count
    return i // hive == j // hive


def _weight(profile: Profile, i: int, j: int) -> int:
    direct = profile.links is None or profile.links.direct or i // 2 == j // 2 or i % 2 == j % 2
    return 15 if direct else 30


def _links(profile: Profile, spec: CardSpec, position: int, view: View) -> tuple[Link, ...]:
    addresses = _addresses(spec, view)
    others = [
        other for other in range(profile.count) if other != position and _joined(profile, position, other)
    ]
    return tuple(
        Link(
            index=i,
            active=VIRTUAL if _virtual_id(spec, view) else True,
            speed_mb_per_s=(profile.links.link_speed_mb_per_s if profile.links else None) or 50_000,
            remote_kind="gpu",
            remote_pci_address=addresses[other],
            **_NO_COUNTERS,
        )
        for i, other in enumerate(others)
    )


def topology(profile: Profile, spec: CardSpec, cards: tuple[Card, ...], view: View, board: int) -> Topology:
    addresses = _addresses(spec, view)
    no_library = Absent(why=Why.not_present, detail="libnvidia-ml.so.1 was not found")
    speed = {4: 16.0, 5: 32.0}[spec.pcie_generation or 5]
    shown = board if view != "vm" else len(cards)
    return Topology(
        pci_devices=tuple(
            PciDevice(
                address=address,
                pci_id=_virtual_id(spec, view) or spec.pci_ids[0],
                pci_class="120000" if spec.pcie_generation == 5 else "038000",
                kind="card",
                numa_node=-1 if view == "vm" else i // 4,
                current_width=16,
                max_width=16,
                current_speed_gt_per_s=speed,
                max_speed_gt_per_s=speed,
                driver="amdgpu",
                aer_uncorrected=0,
                aer_corrected=0,
            )
            for i, address in enumerate(addresses[:shown])
        ),
        nvml_count=no_library,
        nvml_seconds=no_library,
        excluded=no_library,
        device_files=tuple(f"/dev/dri/renderD{128 + i}" for i in range(len(cards))),
        driver_cards=addresses[:shown],
        pairs=tuple(_pair(profile, cards, i, j) for i, j in combinations(range(len(cards)), 2)),
        nvlink_disabled_by_driver=Absent(why=Why.not_present, detail="/proc/driver/nvidia/params"),
        kfd_count=len(cards),
        kfd_hidden=shown - len(cards),
        amd_smi_count=len(cards),
        amd_smi_seconds=0.4,
        amdsmi_count=BINDING_UNASKED,
        other_sources=(
            ("amd_smi_count", "amd_smi"),
            ("amd_smi_seconds", "amd_smi"),
            ("kfd_count", "sysfs"),
            ("kfd_hidden", "sysfs"),
        ),
    )


def _pair(profile: Profile, cards: tuple[Card, ...], i: int, j: int) -> Pair:
    joined = _joined(profile, i, j)
    weight = _weight(profile, i, j) if joined else 72
    not_counted = Absent(why=Why.not_supported, detail="counted over xGMI alone, and this is pcie")
    return Pair(
        a=cards[i].key,
        b=cards[j].key,
        source="sysfs",
        distance="NODE" if i // 4 == j // 4 else "SYS",
        nvlinks=NVIDIA_ALONE,
        p2p_read=NVIDIA_ALONE,
        p2p_write=NVIDIA_ALONE,
        p2p_nvlink=NVIDIA_ALONE,
        p2p_atomics=NVIDIA_ALONE,
        link_type="xgmi" if joined else "pcie",
        weight=weight,
        hops=weight // 15 if joined else not_counted,
        min_bandwidth_mb_per_s=50_000 if joined else UNTOLD,
        max_bandwidth_mb_per_s=50_000 if joined else UNTOLD,
        accessible=True,
    )


def host(usual: Host, cards: tuple[Card, ...], view: View) -> Host:
    memory = usual.memory
    files = ("/dev/kfd", *(f"/dev/dri/renderD{128 + i}" for i in range(len(cards))))
    line = "BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro"
    return usual.model_copy(
        update={
            "boot_command_line": line if view == "vm" else f"{line} amd_iommu=on iommu=pt pci=realloc=off",
            "iommu": "off" if view == "vm" else "passthrough",
            "services": (),
            "fabric_manager_version": NOT_PRESENT,
            "memory": memory.model_copy(update={"numa_balancing": False}),
            "device_files": tuple(
                DeviceFile(path=path, allowed=True, mode="0660", group="render", group_id=992, member=True)
                for path in files
            ),
        }
    )


def stack(profile: Profile, spec: CardSpec, cards: tuple[Card, ...], view: View) -> Stack:
    site = "/opt/venv/lib/python3.12/site-packages/torch"
    rccl = Library(path=f"{site}/lib/librccl.so", version="2.27.7", origin="loaded")
    return Stack(
        driver=_nvidias(
            Driver,
            version="6.16.13",
            library_version="26.2.1",
            rocm_version=ROCM,
            rocm_installations=(("/opt/rocm", ROCM),),
            package_version="6.16.13-2278356.24.04",
            in_tree=False,
        ),
        interpreter=Interpreter(
            path="/opt/venv/bin/python", version="3.12.3", chosen="the active environment"
        ),
        torch=Torch(
            version="2.9.1+rocm7.2.0",
            path=site,
            debug=False,
            cuda=NOT_PRESENT,
            hip="7.2.26015-fc0010cf6a",
            hip_runtime="7.2.26015",
            cudnn=NVIDIA_ALONE,
            miopen="3.5.1",
            nccl="2.27.7",
            nccl_loaded=rccl,
            arch_list=("gfx90a", "gfx942", "gfx950", "gfx1100"),
            available=True,
            device_count=len(cards),
            devices=tuple(
                TorchDevice(
                    index=i,
                    name=one.identity.name,
                    uuid=one.uuid,
                    pci_address=one.pci_address,
                    capability=spec.arch,
                    total_bytes=one.memory.total_bytes,
                    multiprocessors=spec.compute_units or 304,
                )
                for i, one in enumerate(cards)
            ),
            import_seconds=3.4,
            folders=(site,),
            libraries=(f"{site}/lib/libMIOpen.so", f"{site}/lib/libamdhip64.so", f"{site}/lib/librccl.so"),
            warnings=(),
        ),
        other_torches=(),
        cuda_init=Absent(why=Why.not_present, detail="libcuda.so.1 was not found"),
        contexts=tuple(
            ContextTest(
                card=one.key,
                ok=True,
                step="done",
                signal=NOT_PRESENT,
                error=NOT_PRESENT,
                context_seconds=0.4,
                kernel_seconds=0.03,
                free_bytes=one.memory.free_bytes,
            )
            for one in cards
        ),
        extensions=(
            Extension(name="flash-attn", version="2.8.3", built_for=("hip",)),
            Extension(name="torch", version="2.9.1+rocm7.2.0", built_for=("hip",)),
            Extension(name="triton", version="3.5.1+rocm7.2.0", built_for=("hip",)),
        ),
        nccl_libraries=(rccl.model_copy(update={"origin": "wheel"}),),
        driver_libraries=(),
        preloads=(),
        nccl_settings=(),
        toolkits=(),
        environment=(("OMP_NUM_THREADS", "8"),),
        image_hints=(f"ROCM_VERSION={ROCM}",) if view == "container" else (),
    )


DOORS = ("kfd", "render", "amd_smi")
