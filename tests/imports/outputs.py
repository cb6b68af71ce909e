"""Made-up outputs of NVIDIA's tools, laid out as the tools do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodecheck.facts import Card, Node
from nodecheck.imports import Imported, read


@dataclass(frozen=True)
class Made:
    """A card as it shall appear in the outputs."""

    index: int = 0
    name: str = "NVIDIA H200"
    address: str = "00000000:1B:00.0"
    uuid: str = "GPU-11111111-2222-3333-4444-55555555"
    memory: str = "143771 MiB"
    used: str = "0 MiB"
    limit: str = "700.00 W"
    temperature: str = "30 C"
    corrected: str = "0"
    remapped: str = "0"
    mig: str = "Disabled"
    more: dict[str, str] = field(default_factory=dict)


def cards(count: int = 2, **changes: Any) -> list[Made]:
    return [
        Made(index=k, address=f"00000000:{0x1B + 16 * k:02X}:00.0", uuid=f"{Made.uuid}{k:04d}", **changes)
        for k in range(count)
    ]


def xml(made: Sequence[Made], attached: int | None = None, driver: str = "580.95.05") -> str:
    head = (
        f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
        f"\t<timestamp>Mon Nov 30 17:04:42 2026</timestamp>\n\t<driver_version>{driver}</driver_version>\n"
        f"\t<cuda_version>13.0</cuda_version>\n"
        f"\t<attached_gpus>{len(made) if attached is None else attached}</attached_gpus>\n"
    )
    return head + "".join(_xml(card) for card in made) + "</nvidia_smi_log>\n"


def _xml(card: Made) -> str:
    return f"""\t<gpu id="{card.address}">
\t\t<product_name>{card.name}</product_name>
\t\t<product_architecture>Hopper</product_architecture>
\t\t<persistence_mode>Enabled</persistence_mode>
\t\t<mig_mode><current_mig>{card.mig}</current_mig><pending_mig>{card.mig}</pending_mig></mig_mode>
\t\t<uuid>{card.uuid}</uuid>
\t\t<pci><pci_bus_id>{card.address}</pci_bus_id><pci_device_id>233510DE</pci_device_id>
\t\t\t<pci_gpu_link_info><link_widths><current_link_width>16x</current_link_width></link_widths></pci_gpu_link_info>
\t\t\t<replay_counter>0</replay_counter></pci>
\t\t<performance_state>P0</performance_state>
\t\t<clocks_event_reasons>
\t\t\t<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
\t\t\t<clocks_event_reason_sw_power_cap>Not Active</clocks_event_reason_sw_power_cap>
\t\t</clocks_event_reasons>
\t\t<fb_memory_usage><total>{card.memory}</total><reserved>600 MiB</reserved><used>{card.used}</used></fb_memory_usage>
\t\t<ecc_errors><volatile>
\t\t\t<sram_correctable>0</sram_correctable>
\t\t\t<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
\t\t\t<sram_uncorrectable_secded>0</sram_uncorrectable_secded>
\t\t\t<dram_correctable>{card.corrected}</dram_correctable><dram_uncorrectable>0</dram_uncorrectable>
\t\t</volatile></ecc_errors>
\t\t<remapped_rows><remapped_row_corr>{card.remapped}</remapped_row_corr></remapped_rows>
\t\t<temperature><gpu_temp>{card.temperature}</gpu_temp></temperature>
\t\t<gpu_power_readings><current_power_limit>{card.limit}</current_power_limit></gpu_power_readings>
\t\t<supported_clocks><supported_mem_clock><value>3201 MHz</value></supported_mem_clock></supported_clocks>
{"".join(f"		<{name}>{said}</{name}>" for name, said in card.more.items())}
\t\t<processes>\n\t\t</processes>
\t</gpu>
"""


def text(made: Sequence[Made], attached: int | None = None) -> str:
    head = (
        "==============NVSMI LOG==============\n\nTimestamp      : Mon Nov 30 17:04:42 2026\n"
        f"Driver Version : 580.95.05\nCUDA Version   : 13.0\n\n"
        f"Attached GPUs  : {len(made) if attached is None else attached}\n"
    )
    return head + "\n".join(_text(card) for card in made)


def _text(card: Made) -> str:
    return f"""GPU {card.address}
    Product Name                          : {card.name}
    Product Architecture                  : Hopper
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : {card.mig}
        Pending                           : {card.mig}
    GPU UUID                              : {card.uuid}
    PCI
        Device Id                         : 0x233510DE
        Bus Id                            : {card.address}
        GPU Link Info
            Link Width
                Current                   : 16x
        Replays Since Reset               : 0
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Active
    FB Memory Usage
        Total                             : {card.memory}
        Reserved                          : 600 MiB
        Used                              : {card.used}
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 2
            DRAM Correctable              : {card.corrected}
            DRAM Uncorrectable            : 1
    Remapped Rows
        Correctable Error                 : {card.remapped}
    Temperature
        GPU Current Temp                  : {card.temperature}
    GPU Power Readings
        Current Power Limit               : {card.limit}
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4711
            Type                          : C
            Name                          : /opt/venv/bin/python3 train.py --token=hunter2
            Used GPU Memory               : 1024 MiB
        Process ID                        : 4712
            Type                          : G
            Name                          : /usr/lib/Xorg
            Used GPU Memory               : 4 MiB
"""


_RULE = "+-----------------------------------------+------------------------+----------------------+"


def table(made: Sequence[Made], *, processes: str = "|  No running processes found" + " " * 61 + "|") -> str:
    rows = "".join(
        f"|{card.index:>4}  {card.name:<26.26} On  |   {card.address} Off |                    0 |\n"
        f"| N/A   {card.temperature.split()[0]}C    P0            132W / {card.limit.split('.')[0]:>4}W |"
        f" {card.used.split()[0]:>7}MiB / {card.memory.split()[0]:>6}MiB |      0%      Default |\n"
        f"|                                         |                        |             {card.mig:>8} |\n{_RULE}\n"
        for card in made
    )
    return (
        "Mon Nov 30 17:04:42 2026\n"
        "+-----------------------------------------------------------------------------------------+\n"
        "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |\n"
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
        "|                                         |                        |               MIG M. |\n"
        "|=========================================+========================+======================|\n"
        f"{rows}\n"
        "+-----------------------------------------------------------------------------------------+\n"
        "| Processes:                                                                              |\n"
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n"
        "|=========================================================================================|\n"
        f"{processes}\n"
        "+-----------------------------------------------------------------------------------------+\n"
    )


def listing(made: Sequence[Made]) -> str:
    return "".join(f"GPU {card.index}: {card.name} (UUID: {card.uuid})\n" for card in made)


def nvlink(made: Sequence[Made], line: Callable[[int, int], str], links: int = 4) -> str:
    """Below each card a line for each link: `line(card, link)`."""
    return "".join(
        f"{listing([card])}" + "".join(f"\t Link {link}{line(card.index, link)}\n" for link in range(links))
        for card in made
    )


def matrix(cell: Callable[[int, int], str], count: int = 4, ports: Sequence[str] = ()) -> str:
    """`nvidia-smi topo -m`: `cell(a, b)` for each two cards; a port is near card 0 and far from the others."""
    labels = [*(f"GPU{k}" for k in range(count)), *(f"NIC{k}" for k in range(len(ports)))]
    lines = ["\t" + "\t".join(labels) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for a in range(count):
        cells = [" X " if a == b else cell(a, b) for b in range(count)]
        near = ["PIX" if a == 0 else "SYS"] * len(ports)
        lines.append("\t".join([f"GPU{a}", *cells, *near, "0-31,64-95", "0", "N/A"]))
    for k, _ in enumerate(ports):
        cells = ["PIX" if b == 0 else "SYS" for b in range(count)]
        lines.append("\t".join([f"NIC{k}", *cells, *(" X " if n == k else "SYS" for n in range(len(ports)))]))
    lines += [
        "",
        "Legend:",
        "",
        "  X    = Self",
        "  NV#  = Connection traversing a bonded set of # NVLinks",
        "",
    ]
    if ports:
        lines += ["NIC Legend:", "", *(f"  NIC{k}: {name}" for k, name in enumerate(ports)), ""]
    return "\n".join(lines)


def peers(cell: Callable[[int, int], str], count: int = 4) -> str:
    """`nvidia-smi topo -p2p`."""
    lines = [" \t" + "\t".join(f"GPU{k}" for k in range(count)) + "\t"]
    lines += [
        "\t".join([f" GPU{a}", *("X" if a == b else cell(a, b) for b in range(count)), ""])
        for a in range(count)
    ]
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", "  OK   = Status Ok", ""])


def imported(*files: str | bytes) -> Imported:
    """What comes of these files, called a, b, c …"""
    return read(
        [
            (chr(ord("a") + k), file.encode("utf-8", "replace") if isinstance(file, str) else file)
            for k, file in enumerate(files)
        ]
    )


def node(*files: str | bytes) -> Node:
    return imported(*files).node


def card(found: Node, index: int = 0) -> Card:
    return found.known_cards[index]


def kinds(found: Imported) -> list[str]:
    return [one.kind for one in found.recognised]
