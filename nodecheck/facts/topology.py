"""How cards, switches, CPUs and adapters hang together."""

from __future__ import annotations

from typing import Literal

from nodecheck.facts.base import Fact, Gathered, Maybe, seen, seen_on_amd

Distance = Literal["internal", "PIX", "PXB", "PHB", "NODE", "SYS"]
"""The nearest common ancestor on PCIe, in nvidia-smi's names, from nearest to farthest."""


class PciDevice(Fact):
    """A device of the PCI tree as sysfs shows it, whether or not a driver hands it out."""

    address: str
    """`0000:1b:00.0`, lower case."""
    pci_id: str
    """`10de:2335`, lower case."""
    pci_class: str
    """Six hexadecimal digits, `030200`."""
    kind: Literal["card", "display", "nvswitch", "other"]
    """`card`: a 3D controller or display controller of a GPU vendor. `nvswitch`: NVIDIA bridge, class 0680."""
    numa_node: Maybe[int] = seen("-1 there means: not known", linux="/sys/bus/pci/devices/*/numa_node")
    current_width: Maybe[int] = seen("lanes", linux="/sys/bus/pci/devices/*/current_link_width")
    max_width: Maybe[int] = seen("lanes", linux="/sys/bus/pci/devices/*/max_link_width")
    current_speed_gt_per_s: Maybe[float] = seen("rate now", linux="/sys/bus/pci/devices/*/current_link_speed")
    max_speed_gt_per_s: Maybe[float] = seen("highest rate", linux="/sys/bus/pci/devices/*/max_link_speed")
    driver: Maybe[str] = seen("kernel driver bound to it", linux="/sys/bus/pci/devices/*/driver")
    aer_uncorrected: Maybe[int] = seen("AER, fatal and non-fatal", linux="aer_dev_fatal + aer_dev_nonfatal")
    aer_corrected: Maybe[int] = seen("AER, corrected", linux="aer_dev_correctable")


class Pair(Fact):
    """Two cards, named by `Card.key`, `a` before `b` in the order of `Node.cards`."""

    a: str
    b: str
    distance: Maybe[Distance] = seen(
        "common PCIe ancestor", nvml="nvmlDeviceGetTopologyCommonAncestor", sysfs="/sys/bus/pci/devices"
    )
    nvlinks: Maybe[int] = seen(
        "NVLinks that join the two, directly or through NVSwitch",
        nvml="nvmlDeviceGetNvLinkRemotePciInfo_v2 / nvmlDeviceGetP2PStatus NVLINK",
    )
    p2p_read: Maybe[str] = seen("`ok`, or the reason against", nvml="nvmlDeviceGetP2PStatus, READ")
    p2p_write: Maybe[str] = seen("`ok`, or the reason against", nvml="nvmlDeviceGetP2PStatus, WRITE")
    p2p_nvlink: Maybe[str] = seen("`ok`, or the reason against", nvml="nvmlDeviceGetP2PStatus, NVLINK")
    p2p_atomics: Maybe[str] = seen("`ok`, or the reason against", nvml="nvmlDeviceGetP2PStatus, ATOMICS")
    source: str = "nvml"
    """Which source the pair was read from: `nvml`, `sysfs`, `amd_smi` or `amdsmi`."""
    link_type: Maybe[str] = seen_on_amd(
        "what joins the two: `xgmi` or `pcie`",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties, type",
        amd_smi="topology, link_type",
        amdsmi="amdsmi_topo_get_link_type, type",
    )
    weight: Maybe[int] = seen_on_amd(
        "15 for a direct xGMI link and for each further hop, 13 within a package, 20 and more over PCIe",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties, weight",
        amd_smi="topology, weight",
        amdsmi="amdsmi_topo_get_link_weight",
    )
    hops: Maybe[int] = seen_on_amd(
        "xGMI hops by the weight: what amd-smi itself calls hops is 1 for every xGMI path",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties, weight / 15",
        amd_smi="topology, weight / 15",
        amdsmi="amdsmi_topo_get_link_weight / 15",
    )
    min_bandwidth_mb_per_s: Maybe[int] = seen_on_amd(
        "least rate one way, 10^6 bytes/s",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties, min_bandwidth",
        amd_smi="topology, bandwidth",
        amdsmi="amdsmi_get_minmax_bandwidth_between_processors",
    )
    max_bandwidth_mb_per_s: Maybe[int] = seen_on_amd(
        "highest rate one way, 10^6 bytes/s",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties, max_bandwidth",
        amd_smi="topology, bandwidth",
        amdsmi="amdsmi_get_minmax_bandwidth_between_processors",
    )
    accessible: Maybe[bool] = seen_on_amd(
        "the driver lets the one reach into the other's memory",
        amd_smi="topology, link_status",
        amdsmi="amdsmi_is_P2P_accessible",
    )


class Adapter(Fact):
    """One port of a network or InfiniBand adapter."""

    name: str
    """`mlx5_0` or `eth0`."""
    port: int
    pci_address: Maybe[str] = seen(
        "device", linux="/sys/class/infiniband/*/device or /sys/class/net/*/device"
    )
    link_layer: Maybe[str] = seen(
        "`InfiniBand` or `Ethernet`", linux="/sys/class/infiniband/*/ports/*/link_layer"
    )
    state: Maybe[str] = seen("`ACTIVE`, `DOWN`, `up`", linux="ports/*/state, or operstate")
    rate_gbit_per_s: Maybe[float] = seen("rate", linux="ports/*/rate, or speed")
    link_downed: Maybe[int] = seen("how often the link went down", linux="ports/*/counters/link_downed")
    numa_node: Maybe[int] = seen("NUMA node", linux="device/numa_node")
    distances: tuple[tuple[str, Distance], ...] = ()
    """(`Card.key`, common PCIe ancestor) for every card whose place in the tree is known."""


class Topology(Gathered):
    pci_devices: Maybe[tuple[PciDevice, ...]] = seen(
        "GPUs and NVSwitches on the PCI bus", linux="/sys/bus/pci/devices"
    )
    nvml_count: Maybe[int] = seen("cards that NVML counts", nvml="nvmlDeviceGetCount_v2")
    nvml_seconds: Maybe[float] = seen("how long all questions to NVML took", nvml="the whole survey")
    excluded: Maybe[tuple[str, ...]] = seen(
        "cards that the driver was told to leave out (PCI addresses)", nvml="nvmlGetExcludedDeviceInfoByIndex"
    )
    device_files: Maybe[tuple[str, ...]] = seen("device files of cards: /dev/nvidia0 …", linux="/dev")
    driver_cards: Maybe[tuple[str, ...]] = seen(
        "PCI addresses that the kernel driver knows", linux="/proc/driver/nvidia/gpus"
    )
    pairs: Maybe[tuple[Pair, ...]] = seen("every pair of usable cards", nvml="pairwise calls")
    adapters: Maybe[tuple[Adapter, ...]] = seen(
        "network ports", linux="/sys/class/infiniband, /sys/class/net"
    )
    nvlink_disabled_by_driver: Maybe[bool] = seen(
        "the driver was loaded with NvLinkDisable=1", linux="/proc/driver/nvidia/params"
    )
    kfd_count: Maybe[int] = seen_on_amd(
        "cards that KFD's topology shows and lets be read", sysfs="/sys/class/kfd/kfd/topology/nodes"
    )
    kfd_hidden: Maybe[int] = seen_on_amd(
        "nodes of KFD's topology that are there and may not be read: cards that this container is not given",
        sysfs="/sys/class/kfd/kfd/topology/nodes/*/gpu_id",
    )
    amd_smi_count: Maybe[int] = seen_on_amd("cards that amd-smi lists", amd_smi="list")
    amd_smi_seconds: Maybe[float] = seen_on_amd(
        "the slowest of the questions to amd-smi", amd_smi="list, static, metric, topology, xgmi, process"
    )
    amdsmi_count: Maybe[int] = seen_on_amd(
        "cards that ROCm's own binding lists", amdsmi="amdsmi_get_processor_handles"
    )
