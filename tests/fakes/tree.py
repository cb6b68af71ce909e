"""A node's procfs, sysfs, /dev and /etc, made up below a folder, for `Files` to read.

`plant` lays out a healthy node as a `Tree`: paths and what stands there. A fault is a change to it:

    t = plant("h200", 4)
    t.files["/proc/driver/nvidia/params"] = "NvLinkDisable: 1\\n"
    t.remove("/sys/bus/pci/devices/0000:18:00.0")

Device nodes are regular files here: nothing but their names and their permissions is ever looked at.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from tests.fakes import nvml
from tests.fakes.nvml.products import PRODUCTS, Product

Kind = Literal["bare", "guest", "container"]
"""`bare`: root on the machine itself. `guest`: root in a virtual machine. `container`: on it, not root."""

GIB = 1024**3
KERNEL = "6.8.0-60-generic"
BOOT_ID = "11111111-2222-4333-8444-555555555555"
SPEEDS = {
    1: "2.5 GT/s PCIe",
    2: "5.0 GT/s PCIe",
    3: "8.0 GT/s PCIe",
    4: "16.0 GT/s PCIe",
    5: "32.0 GT/s PCIe",
}

_EXPRESS, _EXTENDED = 0x40, 0x100
"""Where PCI Express and the first extended capability stand in the configuration space below."""


@dataclass
class Tree:
    """Files with their contents, symbolic links with their targets, empty folders; all by absolute path.

    A link whose target is no absolute path says just that, as those in /proc/self/ns do.
    """

    files: dict[str, str | bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def remove(self, path: str) -> None:
        """Take away `path` and everything below it; KeyError where there is nothing."""
        gone = [p for p in (*self.files, *self.links, *self.folders) if p == path or p.startswith(f"{path}/")]
        if not gone:
            raise KeyError(path)
        for p in gone:
            self.files.pop(p, None)
            self.links.pop(p, None)
            self.folders.discard(p)

    def place(self, address: str) -> str:
        """The folder in /sys/devices of the PCI device at `address`."""
        return self.links[f"/sys/bus/pci/devices/{address}"]

    def all_folders(self) -> set[str]:
        """Every folder that there must be, without the root."""
        named = (PurePosixPath(p) for p in self.folders)
        parents = (PurePosixPath(p).parent for p in (*self.files, *self.links))
        return {str(f) for folder in (*named, *parents) for f in (folder, *folder.parents)} - {"/"}


class Ground:
    """A folder that holds one tree after another. Trees are much alike: only what differs is touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        self._now = Tree()

    def hold(self, tree: Tree) -> None:
        """Make what stands below `root` be `tree`."""
        now, folders = self._now, tree.all_folders()
        for path, target in now.links.items():
            if tree.links.get(path) != target:
                self._at(path).unlink()
        for path in now.files.keys() - tree.files.keys():
            self._at(path).unlink()
        for folder in sorted(now.all_folders() - folders, reverse=True):
            self._at(folder).rmdir()
        for folder in sorted(folders - now.all_folders()):
            self._at(folder).mkdir()
        for path, content in tree.files.items():
            if now.files.get(path) != content:
                self._at(path).write_bytes(content.encode() if isinstance(content, str) else content)
        for path, target in tree.links.items():
            if now.links.get(path) != target:
                up = "../" * (path.count("/") - 1) if target.startswith("/") else ""
                self._at(path).symlink_to(up + target.lstrip("/"))
        self._now = copy.deepcopy(tree)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def plant(
    product: str | Product,
    count: int,
    *,
    kind: Kind = "bare",
    on_bus: int | None = None,
    memory_gib: int = 2048,
) -> Tree:
    """A healthy node whose user may open `count` cards.

    `on_bus`: how many cards the PCI bus shows, where the rest is somebody else's. `memory_gib`: of the host.
    """
    card = PRODUCTS[product] if isinstance(product, str) else product
    tree = Tree()
    _cpus(tree, card, kind)
    _memory(tree, kind, memory_gib)
    _system(tree, kind)
    _mounts(tree, kind)
    _cgroups(tree, kind)
    _pci(tree, card, on_bus or count, kind)
    _driver(tree, card, count, kind)
    _adapters(tree, card, on_bus or count, kind)
    _libraries(tree, card)
    if kind == "container":  # without root the kernel shows the header alone
        for path, content in tree.files.items():
            if path.endswith("/config"):
                tree.files[path] = content[:64]
    return tree


def plant_cpu(*, memory_gib: int = 64, kind: Kind = "bare") -> Tree:
    """A healthy machine without any card."""
    card = PRODUCTS["l40s"]
    tree = Tree()
    _cpus(tree, card, kind)
    _memory(tree, kind, memory_gib)
    _system(tree, kind)
    _mounts(tree, kind)
    _cgroups(tree, kind)
    tree.folders |= {"/sys/bus/pci/devices", "/sys/class/infiniband", "/dev/shm"}
    _ethernet(tree, kind)
    return tree


def _cpus(tree: Tree, card: Product, kind: Kind) -> None:
    nodes = (
        [nvml.near_cpus(card, 0, virtual=True)]
        if kind == "guest"
        else [nvml.near_cpus(card, n) for n in (0, 1)]
    )
    count = sum(map(len, nodes))
    tree.files["/sys/devices/system/cpu/online"] = f"0-{count - 1}\n"
    tree.files["/sys/devices/system/cpu/present"] = f"0-{count - 1}\n"
    tree.files["/sys/devices/system/cpu/possible"] = f"0-{count - 1}\n"
    tree.files["/sys/devices/system/node/online"] = f"0-{len(nodes) - 1}\n" if len(nodes) > 1 else "0\n"
    records = []
    for node, cpus in enumerate(nodes):
        tree.files[f"/sys/devices/system/node/node{node}/cpulist"] = ranges(cpus) + "\n"
        for position, cpu in enumerate(cpus):
            core = position % 16 if kind != "guest" and not card.arm else position
            where = f"/sys/devices/system/cpu/cpu{cpu}"
            tree.files[f"{where}/topology/physical_package_id"] = f"{node}\n"
            tree.files[f"{where}/topology/core_id"] = f"{core}\n"
            if kind != "guest":
                tree.files[f"{where}/cpufreq/scaling_governor"] = "performance\n"
            if card.arm:
                records.append((cpu, f"processor\t: {cpu}\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"))
                continue
            flags = "fpu msr pae sse2 avx2 avx512f" + (" hypervisor" if kind == "guest" else "")
            model = "Intel(R) Xeon(R) Processor" if kind == "guest" else "Intel(R) Xeon(R) Platinum 8480C"
            records.append(
                (
                    cpu,
                    f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: {model}\n"
                    f"physical id\t: {node}\ncore id\t\t: {core}\nflags\t\t: {flags}\n",
                )
            )
    tree.files["/proc/cpuinfo"] = "\n".join(text for _cpu, text in sorted(records)) + "\n"


def ranges(numbers: list[int]) -> str:
    """Numbers as the kernel lists CPUs: `0-47,96-143`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" if first != last else str(first) for first, last in parts)


def _memory(tree: Tree, kind: Kind, gib: int) -> None:
    total = gib * GIB // 1024
    tree.files["/proc/meminfo"] = (
        f"MemTotal:       {total} kB\nMemFree:        {total * 9 // 10} kB\n"
        f"MemAvailable:   {total * 95 // 100} kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n"
        "HugePages_Total:       0\nHugepagesize:       2048 kB\n"
    )
    tree.files["/sys/kernel/mm/transparent_hugepage/enabled"] = "always [madvise] never\n"
    tree.files["/proc/sys/kernel/numa_balancing"] = "0\n"


def _system(tree: Tree, kind: Kind) -> None:
    tree.files["/etc/os-release"] = (
        'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nID=ubuntu\n'
    )
    tree.files["/proc/cmdline"] = f"BOOT_IMAGE=/boot/vmlinuz-{KERNEL} root=/dev/nvme0n1p2 ro iommu=pt\n"
    tree.files["/proc/version"] = f"Linux version {KERNEL} (buildd@lcy02) (gcc 13.3.0) #63-Ubuntu SMP\n"
    tree.files["/proc/uptime"] = "86400.00 16588800.00\n"
    tree.files["/proc/loadavg"] = "0.42 0.31 0.28 2/1742 9120\n"
    tree.files["/proc/sys/kernel/random/boot_id"] = f"{BOOT_ID}\n"
    tree.files["/proc/sys/kernel/osrelease"] = f"{KERNEL}\n"
    tree.files["/proc/sys/kernel/hostname"] = "node\n"
    tree.files["/proc/1/comm"] = "bash\n" if kind == "container" else "systemd\n"
    rights = "0000000000000000" if kind == "container" else "000001ffffffffff"
    tree.files["/proc/self/status"] = f"Name:\tpython\nCapEff:\t{rights}\nSeccomp:\t0\n"
    tree.files["/proc/self/uid_map"] = "         0          0 4294967295\n"
    for name, number in (
        ("pid", 4026531836),
        ("ipc", 4026531839),
        ("uts", 4026531838),
        ("cgroup", 4026531835),
    ):
        apart = number + 1000 if kind == "container" else number
        tree.links[f"/proc/self/ns/{name}"] = f"{name}:[{apart}]"
    if kind != "container":
        tree.files["/proc/1/environ"] = "HOME=/\0TERM=linux\0"
        vendor, name = ("QEMU", "Standard PC (Q35)") if kind == "guest" else ("Supermicro", "SYS-821GE-TNHR")
        tree.files["/sys/class/dmi/id/sys_vendor"] = f"{vendor}\n"
        tree.files["/sys/class/dmi/id/product_name"] = f"{name}\n"
        tree.files["/sys/class/dmi/id/bios_vendor"] = (
            "SeaBIOS\n" if kind == "guest" else "American Megatrends\n"
        )
        # The records of /dev/kmsg: priority and facility, number, microseconds since boot, flags.
        tree.files["/dev/kmsg"] = (
            f"5,0,0,-;Linux version {KERNEL} (buildd@lcy02) (gcc 13.3.0) #63-Ubuntu SMP\n"
            f"6,1,12,-;Command line: BOOT_IMAGE=/boot/vmlinuz-{KERNEL} root=/dev/nvme0n1p2 ro iommu=pt\n"
            f"4,2,9120034,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {nvml.DRIVER}\n"
            "6,3,9260001,-;nvidia-nvlink: Nvlink Core is being initialized, major device number 240\n"
        )
    else:
        tree.files["/.dockerenv"] = ""
    if kind == "guest":
        tree.folders.add("/sys/class/iommu")
        tree.files["/sys/devices/system/clocksource/clocksource0/available_clocksource"] = "kvm-clock tsc\n"
    else:
        tree.files["/sys/devices/system/clocksource/clocksource0/available_clocksource"] = (
            "tsc hpet acpi_pm\n"
        )
        tree.links["/sys/class/iommu/dmar0"] = "/sys/devices/virtual/iommu/dmar0"
        tree.files["/sys/devices/virtual/iommu/dmar0/intel-iommu/version"] = "4:0\n"


def _mounts(tree: Tree, kind: Kind) -> None:
    first = {"bare": "/dev/nvme0n1p2 / ext4 rw,relatime", "guest": "/dev/vda1 / ext4 rw,relatime"}.get(
        kind, "overlay / overlay rw,relatime,lowerdir=/var/lib/docker/overlay2/l/AA,upperdir=/u,workdir=/w"
    )
    tree.files["/proc/self/mounts"] = tree.files["/proc/mounts"] = (
        f"{first} 0 0\nproc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\nsysfs /sys sysfs rw,nosuid 0 0\n"
        "tmpfs /dev/shm tmpfs rw,nosuid,nodev,inode64 0 0\n"
        "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev 0 0\n"
        "/dev/nvme1n1 /data ext4 rw,relatime 0 0\n"
    )
    tree.folders |= {"/dev/shm", "/data"}
    for drive in ("nvme0n1", "nvme1n1") if kind != "guest" else ("nvme1n1",):
        tree.files[f"/sys/block/{drive}/device/model"] = "SAMSUNG MZQL23T8HCLS-00A07\n"
        tree.files[f"/sys/block/{drive}/queue/rotational"] = "0\n"
    if kind == "guest":
        tree.files["/sys/block/vda/queue/rotational"] = "1\n"


def _cgroups(tree: Tree, kind: Kind) -> None:
    if kind == "container":
        tree.files["/proc/self/cgroup"] = tree.files["/proc/1/cgroup"] = "0::/\n"
        limit_cgroup(tree)
    else:
        tree.files["/proc/self/cgroup"] = "0::/user.slice/user-0.slice/session-1.scope\n"
        tree.files["/proc/1/cgroup"] = "0::/init.scope\n"
        tree.files["/sys/fs/cgroup/cgroup.controllers"] = "cpuset cpu io memory hugetlb pids rdma misc\n"


def limit_cgroup(
    tree: Tree, *, cpus: float | None = None, memory_bytes: int | None = None, version: int = 2
) -> None:
    """Let the container's cgroup allow so many CPUs and so much memory; None is no limit."""
    quota = "max" if cpus is None else str(round(cpus * 100000))
    if version == 2:
        tree.files["/sys/fs/cgroup/cgroup.controllers"] = "cpuset cpu io memory hugetlb pids rdma misc\n"
        tree.files["/sys/fs/cgroup/cpu.max"] = f"{quota} 100000\n"
        tree.files["/sys/fs/cgroup/memory.max"] = f"{memory_bytes or 'max'}\n"
        return
    tree.remove("/sys/fs/cgroup")
    tree.files["/proc/self/cgroup"] = "8:memory:/docker/0aff\n4:cpu,cpuacct:/docker/0aff\n"
    mounts = tree.files["/proc/self/mounts"]
    assert isinstance(mounts, str)
    kept = [line for line in mounts.splitlines() if " cgroup2 " not in line]
    kept += [
        f"cgroup /sys/fs/cgroup/{name} cgroup rw,nosuid,{name} 0 0" for name in ("cpu,cpuacct", "memory")
    ]
    tree.files["/proc/self/mounts"] = tree.files["/proc/mounts"] = "\n".join(kept) + "\n"
    for folder in ("cpu,cpuacct", "cpu"):
        tree.files[f"/sys/fs/cgroup/{folder}/cpu.cfs_quota_us"] = "-1\n" if cpus is None else f"{quota}\n"
        tree.files[f"/sys/fs/cgroup/{folder}/cpu.cfs_period_us"] = "100000\n"
    tree.files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = f"{memory_bytes or 9223372036854771712}\n"


def _device(
    tree: Tree,
    folder: str,
    pci_id: str,
    pci_class: str,
    *,
    numa: int,
    speed: str = "",
    top_speed: str = "",
    width: int = 16,
    driver: str = "",
    subsystem: str = "0000:0000",
    cpus: str = "",
    bridge: bool = False,
) -> None:
    """A PCI device at `folder` of /sys/devices, and its link in /sys/bus/pci/devices."""
    vendor, device = pci_id.split(":")
    address = folder.rsplit("/", 1)[1]
    tree.links[f"/sys/bus/pci/devices/{address}"] = folder
    values = {
        "vendor": f"0x{vendor}",
        "device": f"0x{device}",
        "subsystem_vendor": f"0x{subsystem.split(':')[0]}",
        "subsystem_device": f"0x{subsystem.split(':')[1]}",
        "class": f"0x{pci_class}",
        "numa_node": str(numa),
        "local_cpulist": cpus,
    }
    if speed:
        values |= {
            "current_link_speed": speed,
            "max_link_speed": top_speed or speed,
            "current_link_width": str(width),
            "max_link_width": str(width),
        }
    for name, value in values.items():
        tree.files[f"{folder}/{name}"] = f"{value}\n"
    tree.files[f"{folder}/config"] = configuration(pci_id, bridge=bridge)
    if driver:
        tree.links[f"{folder}/driver"] = f"/sys/bus/pci/drivers/{driver}"
        tree.folders.add(f"/sys/bus/pci/drivers/{driver}")


def configuration(pci_id: str, *, bridge: bool = False, acs_control: int = 0) -> bytes:
    """4096 bytes of configuration space: the header, PCI Express, and for a bridge ACS with `acs_control`."""
    space = bytearray(4096)
    vendor, device = (int(part, 16) for part in pci_id.split(":"))
    space[0:2], space[2:4] = vendor.to_bytes(2, "little"), device.to_bytes(2, "little")
    space[6] = 0x10  # status: there is a list of capabilities
    space[0x0E] = 1 if bridge else 0  # header type
    space[0x34] = _EXPRESS
    space[_EXPRESS] = 0x10  # PCI Express; 0: the last one
    if bridge:
        space[_EXTENDED : _EXTENDED + 4] = (0x0001_000D).to_bytes(4, "little")  # ACS, version 1, the last one
        space[_EXTENDED + 4 : _EXTENDED + 6] = (0x005F).to_bytes(2, "little")
        space[_EXTENDED + 6 : _EXTENDED + 8] = acs_control.to_bytes(2, "little")
    return bytes(space)


def _pci(tree: Tree, card: Product, count: int, kind: Kind) -> None:
    pci_id, subsystem = f"10de:{card.device_id:04x}", f"10de:{card.subsystem_id:04x}"
    top = SPEEDS[card.pcie_generation]
    for i, address in enumerate(nvml.addresses(card, count, virtual=kind == "guest")):
        numa = -1 if kind == "guest" else nvml.socket(card, i)
        cpus = ranges(nvml.near_cpus(card, max(numa, 0), kind == "guest"))
        folder = (
            f"/sys/devices/pci0000:00/{address}"
            if kind == "guest"
            else _under_switch(tree, card, address, numa, top)
        )
        _device(
            tree, folder, pci_id, "030200" if card.data_centre else "030000", numa=numa, speed=SPEEDS[1],
            top_speed=top, driver="nvidia", subsystem=subsystem, cpus=cpus,
        )  # fmt: skip
        if kind != "guest":
            errors = "Undefined 0\nDLP 0\nTLP 0\nTOTAL_ERR_{0} 0\n"
            for name in ("fatal", "nonfatal"):
                tree.files[f"{folder}/aer_dev_{name}"] = errors.format(name.upper())
            tree.files[f"{folder}/aer_dev_correctable"] = "RxErr 0\nBadTLP 0\nBadDLLP 0\nTOTAL_ERR_COR 0\n"
    if card.form == "board" and card.switch_ids and kind != "guest" and count > 1:
        for switch in nvml.SWITCH_ADDRESSES[: card.switch_ids[1]]:
            port = f"/sys/devices/pci0000:80/0000:80:{int(switch[5:7], 16) - 0x82:02x}.0"
            _device(tree, port, "8086:352a", "060400", numa=1, bridge=True)
            _device(
                tree, f"{port}/{switch}", card.switch_ids[0], "068000", numa=1, speed="16.0 GT/s PCIe",
                width=2, driver="nvidia-nvswitch",
            )  # fmt: skip


def _under_switch(tree: Tree, card: Product, address: str, numa: int, speed: str) -> str:
    """The card's place: root port, and on a board a PCIe switch that it shares with its network adapter."""
    domain, bus = address.split(":")[0], int(address.split(":")[1], 16)
    if card.arm:
        port = f"/sys/devices/pci{domain}:00/{domain}:00:00.0"
        _device(tree, port, "10de:22b1", "060400", numa=numa, bridge=True)
        return f"{port}/{address}"
    root = f"{domain}:{bus - 3:02x}"
    port = f"/sys/devices/pci{root}/{root}:01.0"
    _device(tree, port, "8086:352a", "060400", numa=numa, speed=speed, bridge=True)
    if card.form != "board":
        return f"{port}/{address}"
    up = f"{port}/{domain}:{bus - 2:02x}:00.0"
    _device(tree, up, "1000:c030", "060400", numa=numa, speed=speed, bridge=True)
    for slot in (0, 1):
        _device(
            tree,
            f"{up}/{domain}:{bus - 1:02x}:{slot:02x}.0",
            "1000:c030",
            "060400",
            numa=numa,
            speed=speed,
            bridge=True,
        )
    return f"{up}/{domain}:{bus - 1:02x}:00.0/{address}"


def _driver(tree: Tree, card: Product, count: int, kind: Kind) -> None:
    machine = "aarch64" if card.arm else "x86_64"
    tree.files["/proc/driver/nvidia/version"] = (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for {machine}  {nvml.DRIVER}"
        "  Release Build  (builder@)  \n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04) \n"
    )
    tree.files["/sys/module/nvidia/version"] = f"{nvml.DRIVER}\n"
    set_parameters(tree)
    for i, address in enumerate(nvml.addresses(card, count, virtual=kind == "guest")):
        tree.files[f"/proc/driver/nvidia/gpus/{address}/information"] = (
            f"Model: \t\t {card.name}\nIRQ:   \t\t {41 + i}\nGPU UUID: \t {nvml.uuid(i)}\n"
            f"Video BIOS: \t {card.vbios.lower()}\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n"
            f"Bus Location: \t {address}\nDevice Minor: \t {i}\nGPU Firmware: \t {nvml.DRIVER}\n"
            "GPU Excluded:\t No\n"
        )
        tree.files[f"/dev/nvidia{i}"] = ""
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        tree.files[f"/dev/{name}"] = ""
    if card.form == "board" and card.switch_ids and kind == "bare" and count > 1:
        tree.files["/dev/nvidia-nvswitchctl"] = ""
        for i in range(card.switch_ids[1]):
            tree.files[f"/dev/nvidia-nvswitch{i}"] = ""


def set_parameters(tree: Tree, **parameters: str | int) -> None:
    """/proc/driver/nvidia/params with some of its values changed: `set_parameters(tree, NvLinkDisable=1)`."""
    values: dict[str, str | int] = {
        "ResmanDebugLevel": 4294967295,
        "DeviceFileMode": 438,
        "EnableStreamMemOPs": 0,
        "NvLinkDisable": 0,
        "RmProfilingAdminOnly": 1,
        "EnableResizableBar": 0,
        "EnableGpuFirmware": 18,
        "GpuBlacklist": '""',
        "ExcludedGpus": '""',
        "RegistryDwords": '""',
    }
    tree.files["/proc/driver/nvidia/params"] = "".join(
        f"{k}: {v}\n" for k, v in (values | parameters).items()
    )


def _adapters(tree: Tree, card: Product, count: int, kind: Kind) -> None:
    _ethernet(tree, kind)
    tree.folders.add("/sys/class/infiniband")
    if card.form != "board" or card.arm or kind == "guest":
        return
    for i, address in enumerate(nvml.addresses(card, count)):
        switch = str(PurePosixPath(tree.place(address)).parent.parent)
        bus = int(address.split(":")[1], 16)
        folder = f"{switch}/0000:{bus - 1:02x}:01.0/0000:{bus + 1:02x}:00.0"
        _device(
            tree,
            folder,
            "15b3:1021",
            "020700",
            numa=nvml.socket(card, i),
            speed="32.0 GT/s PCIe",
            driver="mlx5_core",
        )
        tree.files[f"/dev/infiniband/uverbs{i}"] = ""
        verbs = f"{folder}/infiniband/mlx5_{i}"
        tree.links[f"/sys/class/infiniband/mlx5_{i}"] = verbs
        tree.links[f"{verbs}/device"] = folder
        for name, value in {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand",
            "counters/link_downed": "0",
            "counters/symbol_error": "0",
        }.items():
            tree.files[f"{verbs}/ports/1/{name}"] = f"{value}\n"


def _ethernet(tree: Tree, kind: Kind) -> None:
    folder = (
        "/sys/devices/pci0000:00/0000:00:02.0"
        if kind == "guest"
        else "/sys/devices/pci0000:00/0000:00:1c.0/0000:01:00.0"
    )
    _device(tree, folder, "8086:1592", "020000", numa=-1 if kind == "guest" else 0, driver="ice")
    tree.links["/sys/class/net/eth0"] = f"{folder}/net/eth0"
    tree.links[f"{folder}/net/eth0/device"] = folder
    tree.files[f"{folder}/net/eth0/operstate"] = "up\n"
    tree.files[f"{folder}/net/eth0/speed"] = "25000\n"
    tree.files[f"{folder}/net/eth0/type"] = "1\n"
    tree.files["/sys/devices/virtual/net/lo/operstate"] = "unknown\n"
    tree.links["/sys/class/net/lo"] = "/sys/devices/virtual/net/lo"


def _libraries(tree: Tree, card: Product) -> None:
    folder = f"/usr/lib/{'aarch64' if card.arm else 'x86_64'}-linux-gnu"
    for name in ("libcuda.so", "libnvidia-ml.so"):
        tree.files[f"{folder}/{name}.{nvml.DRIVER}"] = ""
        tree.links[f"{folder}/{name}.1"] = f"{folder}/{name}.{nvml.DRIVER}"
    tree.files["/usr/local/cuda-13.0/version.json"] = '{"cuda": {"name": "CUDA SDK", "version": "13.0.2"}}\n'
    tree.links["/usr/local/cuda"] = "/usr/local/cuda-13.0"
