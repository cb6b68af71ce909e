"""Facts of healthy nodes, built from a profile, and a way to plant faults in them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import combinations
from typing import Any, Literal, TypeVar, cast

from nodecheck import __version__
from nodecheck.facts import (
    NOT_ASKED,
    Absent,
    Card,
    Door,
    Fact,
    Host,
    KernelLog,
    Level,
    Maybe,
    Node,
    Stack,
    Topology,
    Why,
)
from nodecheck.facts.card import (
    BankHistogram,
    Clocks,
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
    Violations,
)
from nodecheck.facts.host import Cpu, Disk, HostMemory, Limits
from nodecheck.facts.stack import (
    ContextTest,
    CudaError,
    Driver,
    Extension,
    Interpreter,
    Library,
    Toolkit,
    Torch,
    TorchDevice,
)
from nodecheck.facts.topology import Adapter, Distance, Pair, PciDevice
from nodecheck.profile import CardSpec, Profile
from tests import healthy_amd
from tests.measured import measurements

View = Literal["bare", "vm", "container"]
VIEWS: tuple[View, ...] = ("bare", "vm", "container")
"""`bare`: root on bare metal. `vm`: root in a guest with pass-through. `container`: no root, closed doors."""

GIB = 1024**3
MIB = 1024**2
ADDRESSES = (
    "0000:18:00.0",
    "0000:2a:00.0",
    "0000:3a:00.0",
    "0000:5d:00.0",
    "0000:9a:00.0",
    "0000:ab:00.0",
    "0000:ba:00.0",
    "0000:db:00.0",
)
"""Where the eight cards of an HGX board sit; cards 0-3 belong to the first socket."""

NOT_SUPPORTED = Absent(why=Why.not_supported, detail="NVMLError_NotSupported")
NO_PERMISSION = Absent(why=Why.no_permission, detail="Permission denied")
NOT_PRESENT = Absent(why=Why.not_present, detail="no such file or directory")

_SWITCHES = {"ampere": ("10de:1af1", 6), "hopper": ("10de:22a3", 4)}
"""NVSwitches of an eight-card board that show as PCI bridges of their own; Blackwell's do not."""
_CORES_PER_SM = {"ampere": 64, "ada": 128, "hopper": 128, "blackwell": 128}
_NVIDIA_DRIVER = "580.159.04"


def node(profile: Profile, *, view: View = "bare", board: int | None = None, level: Level = "quick") -> Node:
    """A node that is all that `profile` promises; above level quick with everything measured.

    `board`: how many cards the PCI tree shows, where the bundle is part of a larger board (h200x4 of eight).
    The order of the cards is the order of their PCI addresses; NVML's indices follow it here.
    """
    spec = profile.card
    amd = spec is not None and spec.vendor == "amd"
    made = healthy_amd.card if amd else _card
    cards = tuple(made(profile, spec, i, view) for i in range(profile.count)) if spec else ()
    host, topology = _host(profile, view), _topology(profile, cards, view, board or len(cards))
    stack = _stack(profile, cards, view)
    if amd:
        host = healthy_amd.host(host, cards, view)
        topology = healthy_amd.topology(profile, spec, cards, view, board or len(cards))
        topology = topology.model_copy(update={"adapters": (_ethernet(),)})
        stack = healthy_amd.stack(profile, spec, cards, view)
    listed: Maybe[tuple[Card, ...]] = cards
    if not cards:
        listed = Absent(why=Why.not_present, detail="libnvidia-ml.so.1 was not found")
    return Node(
        taken_at=datetime(2026, 12, 1, 9, 30, tzinfo=timezone.utc),
        tool_version=__version__,
        level=level,
        host=host,
        cards=listed,
        topology=topology,
        stack=stack,
        kernel_log=_kernel_log(view),
        measurements=NOT_ASKED
        if level == "quick"
        else measurements(profile, tuple(card.key for card in cards), level=level),
        doors=_doors(view, bool(cards) and not amd) + (_open(healthy_amd.DOORS) if amd else ()),
    )


F = TypeVar("F", bound=Fact)


def change(root: F, path: str, value: Any) -> F:
    """`root` with the fact at the dotted `path` replaced: `change(n, "cards.0.memory.total_bytes", 5)`.

    A number picks one item of a tuple, `*` every item. The value is checked against the model, so a fault
    that no probe could report raises pydantic's ValidationError; a path that does not exist raises KeyError.
    """
    return cast(F, _changed(root, path.split("."), value, path))


def _changed(here: Any, names: Sequence[str], value: Any, path: str) -> Any:
    if not names:
        return value
    name, rest = names[0], names[1:]
    if isinstance(here, tuple):
        picked = range(len(here)) if name == "*" else (range(len(here))[int(name)],)
        return tuple(
            _changed(item, rest, value, path) if i in picked else item for i, item in enumerate(here)
        )
    if not isinstance(here, Fact) or name not in type(here).model_fields:
        raise KeyError(f"{path}: no {name!r} in {type(here).__name__}")
    fields = {key: getattr(here, key) for key in type(here).model_fields}
    fields[name] = _changed(fields[name], rest, value, path)
    return type(here).model_validate(fields)


def uuid(position: int) -> str:
    """The UUID of the card at this position on the PCI bus."""
    return f"GPU-00000000-0000-4000-8000-{position + 1:012d}"


def _card(profile: Profile, spec: CardSpec, position: int, view: View) -> Card:
    links = profile.links
    data_centre = spec.ecc is not None
    power = spec.power_limit_watts or 300.0
    sm_clock = spec.max_sm_clock_mhz or 1755
    memory_clock = spec.max_memory_clock_mhz or 1593
    total = spec.memory_mib * MIB
    reserved = 616 * MIB
    none = EccCounts(
        corrected=0, uncorrected=0, sram_corrected=0, sram_uncorrected=0, dram_corrected=0, dram_uncorrected=0
    )
    if data_centre:
        health = Health(
            ecc_enabled=spec.ecc is True,
            ecc_enabled_after_reset=spec.ecc is True,
            ecc_volatile=none,
            ecc_aggregate=none,
            sram_threshold_exceeded=False,
            retired_pages_single_bit=NOT_SUPPORTED,
            retired_pages_double_bit=NOT_SUPPORTED,
            retired_pages_pending=NOT_SUPPORTED,
            channel_repair_pending=False,
            tpc_repair_pending=False,
            unrepairable_memory=False,
            recovery_action="none",
        )
    else:
        health = Health(
            ecc_enabled=NOT_SUPPORTED,
            ecc_enabled_after_reset=NOT_SUPPORTED,
            ecc_volatile=NOT_SUPPORTED,
            ecc_aggregate=NOT_SUPPORTED,
            sram_threshold_exceeded=NOT_SUPPORTED,
            retired_pages_single_bit=NOT_SUPPORTED,
            retired_pages_double_bit=NOT_SUPPORTED,
            retired_pages_pending=NOT_SUPPORTED,
            channel_repair_pending=NOT_SUPPORTED,
            tpc_repair_pending=NOT_SUPPORTED,
            unrepairable_memory=NOT_SUPPORTED,
            recovery_action="none",
        )
    remap: dict[str, Any] = {
        "remapped_rows_corrected": 0,
        "remapped_rows_uncorrected": 0,
        "row_remap_pending": False,
        "row_remap_failed": False,
        "bank_histogram": BankHistogram(max=3072, high=0, partial=0, low=0, none=0),
    }
    timing = {
        "start_seconds": 0.02,
        "slowest_call": "nvmlDeviceValidateInforom",
        "slowest_call_seconds": 0.03,
    }
    remap = remap if spec.row_remap else dict.fromkeys(remap, NOT_SUPPORTED)
    health = health.model_copy(update={**remap, **timing})
    fabric = Fabric(
        state="not_supported",
        **dict.fromkeys(("status", "health", "health_problems", "clique_id", "cluster_uuid"), NOT_SUPPORTED),
    )
    if links and links.fabric:
        fabric = Fabric(
            state="completed",
            status="success",
            health="healthy",
            health_problems=(),
            clique_id=0,
            cluster_uuid="00000000-0000-0000-0000-000000000000",
        )
    socket = position // 4
    return Card(
        vendor=spec.vendor,
        source="nvml",
        index=position,
        usable=True,
        lost=False,
        pci_address=ADDRESSES[position],
        uuid=uuid(position),
        identity=Identity(
            name=spec.names[0],
            pci_id=spec.pci_ids[0],
            pci_subsystem="10de:18be",
            serial=f"165000000000{position + 1}" if data_centre else NOT_SUPPORTED,
            board_part="692-2G520-0282-001" if data_centre else NOT_SUPPORTED,
            vbios="96.00.A5.00.1A",
            inforom_image="G520.0282.02.02" if data_centre else NOT_SUPPORTED,
            inforom_valid=True if data_centre else NOT_SUPPORTED,
            gsp_firmware=_NVIDIA_DRIVER,
            architecture=spec.architecture,
            compute_capability=spec.compute_capability,
            cores=spec.cores or 16896,
            module_id=position + 1 if data_centre else NOT_SUPPORTED,
            minor=position,
        ),
        memory=Memory(
            total_bytes=total,
            reserved_bytes=reserved,
            used_bytes=0,
            free_bytes=total - reserved,
            bar1_total_bytes=256 * GIB,
            bus_width_bits=spec.memory_bus_bits or 5120,
            unexplained_bytes=0,
        ),
        health=health,
        power=Power(
            limit_watts=power,
            requested_limit_watts=power,
            default_limit_watts=power,
            min_limit_watts=round(power * 0.3),
            max_limit_watts=power,
            draw_watts=round(power * 0.12, 1),
            energy_joules=2371546.0,
        ),
        clocks=Clocks(
            sm_mhz=345,
            memory_mhz=memory_clock,
            max_sm_mhz=sm_clock,
            max_memory_mhz=memory_clock,
            application_sm_mhz=sm_clock if data_centre else NOT_SUPPORTED,
            application_memory_mhz=memory_clock if data_centre else NOT_SUPPORTED,
            default_application_sm_mhz=sm_clock if data_centre else NOT_SUPPORTED,
            default_application_memory_mhz=memory_clock if data_centre else NOT_SUPPORTED,
            event_reasons=("gpu_idle",),
            violations=Violations(
                power_seconds=0.0, thermal_seconds=0.0, board_limit_seconds=0.0, reliability_seconds=0.0
            ),
            performance_state=0,
        ),
        temperature=Temperature(
            gpu_celsius=31 + position,
            memory_celsius=36 + position if data_centre else NOT_SUPPORTED,
            margin_celsius=52 - position,
            slowdown_celsius=87,
            shutdown_celsius=92,
        ),
        pcie=Pcie(
            generation=1,
            width=max(spec.pcie_widths),
            max_generation=spec.pcie_generation or 4,
            max_width=max(spec.pcie_widths),
            card_max_generation=spec.pcie_generation or 4,
            replays=position,
        ),
        modes=Modes(
            mig_enabled=spec.mig if data_centre else NOT_SUPPORTED,
            mig_enabled_after_reset=spec.mig if data_centre else NOT_SUPPORTED,
            mig_instances=0,
            compute="default",
            persistence=view != "vm",
            virtualization="passthrough" if view == "vm" else "none",
            addressing="none",
        ),
        fabric=fabric,
        links=_links(profile, position),
        processes=(),
        gpu_utilization_percent=0,
        cpu_affinity="0-15" if view == "vm" else ("0-47,96-143", "48-95,144-191")[socket],
        memory_affinity="0" if view == "vm" else str(socket),
        numa_node=-1 if view == "vm" else socket,
    )


def _links(profile: Profile, position: int) -> Maybe[tuple[Link, ...]]:
    links = profile.links
    if links is None or links.interconnect not in ("nvlink", "nvlink_pairs") or profile.count < 2:
        return NOT_SUPPORTED
    bridged = links.interconnect == "nvlink_pairs"
    peer = ADDRESSES[_bridge_peer(position, links.bridged_group, profile.count)] if bridged else None
    return tuple(
        Link(
            index=i,
            active=True,
            version=links.version or "4.0",
            speed_mb_per_s=links.link_speed_mb_per_s or 26562,
            remote_kind="gpu" if bridged else "switch",
            remote_pci_address=peer or "0000:%02x:00.0" % (0x05 + i % 4),
            replay_errors=0,
            recovery_errors=0,
            crc_flit_errors=0,
            crc_data_errors=0,
            effective_errors=0 if links.version == "5.0" else NOT_SUPPORTED,
        )
        for i in range(links.links_per_card or 18)
    )


def _bridge_peer(position: int, group: int, count: int) -> int:
    first = position - position % group
    return position + 1 if position + 1 < min(first + group, count) else first


def _distance(i: int, j: int) -> Distance:
    return "NODE" if i // 4 == j // 4 else "SYS"


def _topology(profile: Profile, cards: tuple[Card, ...], view: View, board: int) -> Topology:
    if not cards:
        return Topology(
            pci_devices=(),
            nvml_count=Absent(why=Why.not_present, detail="libnvidia-ml.so.1 was not found"),
            nvml_seconds=Absent(why=Why.not_present, detail="libnvidia-ml.so.1 was not found"),
            excluded=Absent(why=Why.not_present, detail="libnvidia-ml.so.1 was not found"),
            device_files=(),
            driver_cards=Absent(why=Why.not_present, detail="/proc/driver/nvidia/gpus"),
            pairs=(),
            adapters=(_ethernet(),),
            nvlink_disabled_by_driver=Absent(why=Why.not_present, detail="/proc/driver/nvidia/params"),
        )
    spec = profile.card
    assert spec is not None
    generation = spec.pcie_generation or 4
    devices = [
        PciDevice(
            address=ADDRESSES[i],
            pci_id=spec.pci_ids[0],
            pci_class="030200" if spec.ecc is not None else "030000",
            kind="card",
            numa_node=-1 if view == "vm" else i // 4,
            current_width=max(spec.pcie_widths),
            max_width=max(spec.pcie_widths),
            current_speed_gt_per_s=2.5,
            max_speed_gt_per_s={3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}[generation],
            driver="nvidia",
            aer_uncorrected=0,
            aer_corrected=0,
        )
        for i in range(board)
    ]
    links = profile.links
    if view == "bare" and links and links.interconnect == "nvlink" and spec.architecture in _SWITCHES:
        switch_id, switches = _SWITCHES[spec.architecture]
        devices += [
            PciDevice(
                address="0000:%02x:00.0" % (0x05 + i),
                pci_id=switch_id,
                pci_class="068000",
                kind="nvswitch",
                numa_node=0,
                current_width=2,
                max_width=2,
                current_speed_gt_per_s=16.0,
                max_speed_gt_per_s=16.0,
                driver="nvidia-nvswitch",
                aer_uncorrected=0,
                aer_corrected=0,
            )
            for i in range(switches)
        ]
    adapters = (_ethernet(), *(_infiniband(i, cards, view) for i in range(len(cards))))
    return Topology(
        pci_devices=tuple(sorted(devices, key=lambda d: d.address)),
        nvml_count=len(cards),
        nvml_seconds=0.4,
        excluded=(),
        device_files=tuple(f"/dev/nvidia{i}" for i in range(len(cards))),
        driver_cards=tuple(ADDRESSES[: len(cards)]),
        pairs=tuple(_pair(profile, i, j) for i, j in combinations(range(len(cards)), 2)),
        adapters=adapters if links and links.fabric and view == "bare" else (_ethernet(),),
        nvlink_disabled_by_driver=not links or links.interconnect == "none",
    )


def _pair(profile: Profile, i: int, j: int) -> Pair:
    links = profile.links
    joined = links is not None and (
        links.interconnect == "nvlink"
        or (links.interconnect == "nvlink_pairs" and i // links.bridged_group == j // links.bridged_group)
    )
    reachable = links is None or links.peer_to_peer
    p2p = "ok" if reachable else "gpu_not_supported"
    per_pair = (links.links_per_pair or links.links_per_card or 18) if links else 0
    return Pair(
        a=uuid(i),
        b=uuid(j),
        distance=_distance(i, j),
        nvlinks=per_pair if joined else 0,
        p2p_read=p2p,
        p2p_write=p2p,
        p2p_nvlink="ok" if joined else "not_supported",
        p2p_atomics="ok" if joined else "not_supported",
    )


def _ethernet() -> Adapter:
    return Adapter(
        name="eth0",
        port=1,
        pci_address="0000:01:00.0",
        link_layer="Ethernet",
        state="up",
        rate_gbit_per_s=25.0,
        link_downed=0,
        numa_node=0,
    )


def _infiniband(i: int, cards: tuple[Card, ...], view: View) -> Adapter:
    near: list[tuple[str, Distance]] = [
        (card.key, "PXB" if card.index == i else _distance(i, card.index)) for card in cards
    ]
    return Adapter(
        name=f"mlx5_{i}",
        port=1,
        pci_address=ADDRESSES[i].replace(":00.0", ":01.0"),
        link_layer="InfiniBand",
        state="ACTIVE",
        rate_gbit_per_s=400.0,
        link_downed=0,
        numa_node=-1 if view == "vm" else i // 4,
        distances=tuple(near),
    )


def _host(profile: Profile, view: View) -> Host:
    return Host(
        name="node",
        os="Ubuntu 24.04.3 LTS",
        kernel="6.8.0-60-generic",
        boot_command_line="BOOT_IMAGE=/boot/vmlinuz root=/dev/sda1 ro iommu=pt",
        boot_id="11111111-2222-4333-8444-555555555555",
        uptime_seconds=86400.0,
        is_root=view != "container",
        container="docker" if view == "container" else "none",
        virtualization="kvm" if view == "vm" else "none",
        clock_synchronized=True,
        iommu="passthrough",
        acs_bridges=NO_PERMISSION if view == "container" else (),
        services=()
        if view == "container"
        else (
            "nvidia-persistenced",
            *(("nv-fabricmanager",) if profile.links and profile.links.fabric else ()),
        ),
        fabric_manager_version=_NVIDIA_DRIVER
        if view == "bare" and profile.links and profile.links.fabric
        else Absent(why=Why.not_present, detail="nv-fabricmanager is not installed here"),
        stuck_processes=0,
        cpu=Cpu(
            model="Intel(R) Xeon(R) Platinum 8480C",
            architecture="x86_64",
            sockets=1 if view == "vm" else 2,
            cores=192 if view == "vm" else 96,
            present=192,
            offline=0,
            affinity=192,
            quota_cpus="unlimited",
            numa_nodes=1 if view == "vm" else 2,
            governor=NOT_PRESENT if view == "vm" else "performance",
        ),
        memory=HostMemory(
            total_bytes=2048 * GIB,
            available_bytes=2000 * GIB,
            limit_bytes="unlimited",
            swap_bytes=0,
            shm_total_bytes=1024 * GIB,
            shm_free_bytes=1024 * GIB,
            transparent_huge_pages="madvise",
            numa_balancing=False,
        ),
        limits=Limits(
            memlock_bytes="unlimited",
            open_files=1048576,
            processes="unlimited",
            cgroup_processes="unlimited",
        ),
        disks=(
            Disk(
                mount="/",
                device="overlay" if view == "container" else "/dev/nvme0n1p2",
                filesystem="overlay" if view == "container" else "ext4",
                kind="overlay" if view == "container" else "local",
                size_bytes=3500 * GIB,
                free_bytes=3000 * GIB,
                read_only=False,
                model=NOT_PRESENT if view == "container" else "SAMSUNG MZQL23T8HCLS-00A07",
            ),
        ),
    )


def _stack(profile: Profile, cards: tuple[Card, ...], view: View) -> Stack:
    spec = profile.card
    success = CudaError(code=0, name="CUDA_SUCCESS", message="no error")
    no_driver = Absent(why=Why.not_present, detail="no NVIDIA driver on this machine")
    devices = tuple(
        TorchDevice(
            index=i,
            name=spec.names[0],
            uuid=uuid(i),
            pci_address=ADDRESSES[i],
            capability=spec.compute_capability,
            total_bytes=(spec.memory_mib - 616) * MIB,
            multiprocessors=(spec.cores or 16896) // _CORES_PER_SM.get(spec.architecture, 128),
        )
        for i in range(len(cards))
        if spec
    )
    arches = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
    site = "/opt/venv/lib/python3.12/site-packages"
    return Stack(
        driver=Driver(
            version=_NVIDIA_DRIVER,
            library_version=_NVIDIA_DRIVER,
            cuda_version="13.0",
            libcuda_version="13.0",
            module="open",
            branch="r580_00",
            confidential_computing=False,
        )
        if cards
        else Driver(**dict.fromkeys(Driver.model_fields, no_driver)),
        interpreter=Interpreter(
            path="/opt/venv/bin/python", version="3.12.3", chosen="the active environment"
        ),
        torch=Torch(
            version="2.11.0+cu130" if cards else "2.11.0+cpu",
            path=f"{site}/torch",
            debug=False,
            cuda="13.0" if cards else NOT_PRESENT,
            hip=NOT_PRESENT,
            cudnn="9.19.0" if cards else NOT_PRESENT,
            nccl="2.28.9" if cards else NOT_PRESENT,
            nccl_loaded=Library(
                path=f"{site}/nvidia/nccl/lib/libnccl.so.2", version="2.28.9", origin="loaded"
            )
            if cards
            else NOT_PRESENT,
            arch_list=(*arches, spec.arch) if spec and spec.arch not in arches else (arches if cards else ()),
            available=bool(cards),
            device_count=len(cards),
            devices=devices,
            import_seconds=2.9,
            folders=(f"{site}/torch",),
            libraries=(
                f"{site}/nvidia/cudnn/lib/libcudnn.so.9",
                f"{site}/nvidia/nccl/lib/libnccl.so.2",
                f"/usr/lib/x86_64-linux-gnu/libcuda.so.{_NVIDIA_DRIVER}",
            )
            if cards
            else (),
            warnings=(),
        ),
        extensions=(
            Extension(name="flash-attn", version="2.8.3", built_for=("cuda",)),
            Extension(name="torch", version="2.11.0+cu130", built_for=("cuda",)),
            Extension(name="triton", version="3.6.0", built_for=("cuda", "hip")),
        )
        if cards
        else (),
        other_torches=(),
        cuda_init=success if cards else Absent(why=Why.not_present, detail="libcuda.so.1 was not found"),
        contexts=tuple(
            ContextTest(
                card=key,
                ok=True,
                step="done",
                signal=NOT_PRESENT,
                error=NOT_PRESENT,
                context_seconds=0.3 if cards else NOT_PRESENT,
                kernel_seconds=0.02,
                free_bytes=(spec.memory_mib - 1200) * MIB if spec and cards else NOT_SUPPORTED,
            )
            for key in ([card.key for card in cards] or ["cpu"])
        ),
        nccl_libraries=(
            Library(path=f"{site}/nvidia/nccl/lib/libnccl.so.2", version="2.28.9", origin="wheel"),
        )
        if cards
        else (),
        driver_libraries=tuple(
            Library(
                path=f"/usr/lib/x86_64-linux-gnu/{name}.{_NVIDIA_DRIVER}",
                version=_NVIDIA_DRIVER,
                origin="ld.so.cache",
            )
            for name in ("libcuda.so", "libnvidia-ml.so")
        )
        if cards
        else (),
        preloads=(),
        nccl_settings=(),
        toolkits=(Toolkit(path="/usr/local/cuda-13.0", version="13.0.2"),) if cards else (),
        environment=(("OMP_NUM_THREADS", "8"),),
        image_hints=("NVIDIA_PRODUCT_NAME=CUDA",) if view == "container" else (),
    )


def _open(names: Sequence[str]) -> tuple[Door, ...]:
    return tuple(Door(name=name, open=True, detail="open") for name in names)


def _kernel_log(view: View) -> KernelLog:
    if view == "container":
        return KernelLog(source=NO_PERMISSION, lines=0, complete=NO_PERMISSION, events=NO_PERMISSION)
    return KernelLog(source="/dev/kmsg", lines=2210, complete=True, events=())


def _doors(view: View, cards: bool) -> tuple[Door, ...]:
    closed = {"kernel_log", "root", "dmi", "processes"} if view == "container" else set()
    if view == "vm":
        closed |= {"infiniband"}
    if not cards:
        closed |= {"nvml", "device_files", "driver_proc", "libcuda"}
    names = (
        "nvml",
        "device_files",
        "pci",
        "driver_proc",
        "kernel_log",
        "torch",
        "libcuda",
        "host",
        "cgroup",
        "dmi",
        "infiniband",
        "processes",
        "root",
    )
    return tuple(
        Door(name=name, open=name not in closed, detail="closed to this user" if name in closed else "open")
        for name in names
    )
