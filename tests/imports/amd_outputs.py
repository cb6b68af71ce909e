"""Made-up outputs of AMD's tools, laid out as the tools do it, of the same nodes as their stand-ins."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.amd import AmdNode, amd_smi

GENERATIONS = amd_smi.GENERATIONS
NAMED = ("list", "static", "metric", "topology", "xgmi", "process", "bad-pages", "firmware")


def document(node: AmdNode, command: str, generation: str = "7.2") -> list[dict[str, Any]]:
    """What amd-smi says of each card, without what stands around it."""
    made = json.JSONDecoder().raw_decode(amd_smi.answer(node, command, generation))[0]
    return list(made["gpu_data"] if isinstance(made, dict) else made)


def text(node: AmdNode, command: str, generation: str = "7.2") -> str:
    """`amd-smi` without `--json`: names indented, with lists as names that come again."""
    return "\n".join(_block(entry) for entry in document(node, command, generation)) + "\n"


def _block(entry: dict[str, Any]) -> str:
    entry = dict(entry)
    if "process_list" in entry:
        processes = [item["process_info"] for item in entry.pop("process_list")]
        return f"GPU: {entry['gpu']}\n" + "".join(_lines("process_info", said, 4) for said in processes)
    if "fw_list" in entry:
        entry["fw_list"] = {f"fw {n}": item for n, item in enumerate(entry["fw_list"])}
    return f"GPU: {entry.pop('gpu')}\n" + "".join(_lines(key, said, 4) for key, said in entry.items())


def _lines(key: str, said: Any, indent: int) -> str:
    blanks = " " * indent
    if isinstance(said, dict) and set(said) == {"value", "unit"}:
        said = f"{said['value']} {said['unit']}"
    if isinstance(said, dict):
        inside = "".join(_lines(name, value, indent + 4) for name, value in said.items())
        return f"{blanks}{key.upper()}:\n{inside}"
    if isinstance(said, list):
        items = "".join(_lines(name, value, indent + 4) for item in said for name, value in item.items())
        return f"{blanks}{key.upper()}:\n{items}"
    return f"{blanks}{key.upper()}: {said}\n"


def topology_tables(node: AmdNode, generation: str = "7.2") -> str:
    """The tables of `amd-smi topology`."""
    entries = document(node, "topology", generation)
    places = [card.address for card in node.given]
    tables = (
        ("ACCESS TABLE", "link_status"), ("WEIGHT TABLE", "weight"), ("HOPS TABLE", "num_hops"),
        ("LINK TYPE TABLE", "link_type"), ("NUMA BW TABLE", "bandwidth"),
    )  # fmt: skip
    made = []
    for title, name in tables:
        rows = [
            f"{place} " + " ".join(f"{link[name]!s:<12}" for link in entry["links"])
            for place, entry in zip(places, entries, strict=True)
        ]
        made.append("\n".join([f"{title}:", " " * 13 + " ".join(places), *rows]))
    return "\n\n".join(made) + "\n"


def xgmi_tables(node: AmdNode, generation: str = "7.2") -> str:
    """`amd-smi xgmi -l`, as 6.4 and later print it."""
    entries = document(node, "xgmi", generation)
    columns = "          ".join(f"GPU{entry['gpu']}" for entry in entries)
    rows = [
        f"GPU{entry['gpu']}\t{entry['bdf']}   " + "          ".join(entry["link_status"]) for entry in entries
    ]
    return "\n".join(["XGMI LINK STATUS:", f"        bdf            {columns}", *rows]) + "\n"


NO_PROCESS = "|  No running processes found                                                  |\n"


def dashboard(node: AmdNode, platform: str = "Linux Baremetal") -> str:
    """`amd-smi` alone, from 7.0 on."""
    rule = "|-------------------------------------+----------------------------------------|\n"
    rows = rule.join(
        f"| {card.address} {card.name[:22]:>22} | 0 %      34 °C   {sum(c[1] for c in card.ecc.values()):<11}"
        f"{'125/' + str(round(card.cap_watts)):>9} W |\n"
        f"|{i:>4}{7 - i:>8}{i:>8}{card.compute + '/' + card.memory:>16} | 0 %        N/A"
        f"{str(card.used_bytes // 2**20) + '/' + str(card.memory_bytes // 2**20):>22} MB |\n"
        for i, card in enumerate(node.given)
    )
    processes = "".join(
        f"| {i:>4} {pid:>10}  python3.12             2.0 MB    9.3 GB     9.5 GB  N/A     |\n"
        for i, card in enumerate(node.given)
        for pid in card.processes
    )
    line = "+-------------------------------------+----------------------------------------+\n"
    return (
        f"{line}| AMD-SMI 26.2.0+021c61fc      amdgpu version: 6.16.6   ROCm version: 7.1.1    |\n"
        f"| Platform: {platform:<67}|\n{rule}"
        "| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |\n"
        "| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |\n"
        "|=====================================+========================================|\n"
        f"{rows}{line}{line}| Processes:                                                                   |\n"
        "|  GPU        PID  Process Name          GTT_MEM  VRAM_MEM  MEM_USAGE     CU % |\n"
        "|==============================================================================|\n"
        f"{processes or NO_PROCESS}{line}"
    )


RULE = "=" * 114
HEAD = "=" * 40 + " ROCm System Management Interface " + "=" * 40
END = "=" * 48 + " End of ROCm SMI Log " + "=" * 48


def rocm_table(node: AmdNode) -> str:
    """`rocm-smi` alone, as ROCm 6.2 and later print it."""
    rows = [
        f"{i:<8}{card.node:<6}{f'0x{card.device:04x},':<10}{card.gpu_id:<7}41.0°C      121.0W    "
        f"{card.memory}, {card.compute}, 0        131Mhz  900Mhz  0%   auto  {card.cap_watts:.1f}W  0%     0%"
        for i, card in enumerate(node.given)
    ]
    columns = (
        "Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  "
        "PwrCap  VRAM%  GPU%"
    )
    return "\n".join([HEAD, "=" * 40 + " Concise Info " + "=" * 40, columns, RULE, *rows, RULE, END]) + "\n"


def rocm_matrices(node: AmdNode) -> str:
    """`rocm-smi --showtopo`."""
    count = len(node.given)
    made = [HEAD]
    for title, name in (("Weight", "weight"), ("Hops", "hops"), ("Link Type", "kind")):
        made.append(f"{'=' * 30} {title} between two GPUs {'=' * 30}")
        made.append("       " + "         ".join(f"GPU{i}" for i in range(count)))
        for a in range(count):
            cells = []
            for b in range(count):
                way = node.ways.get((a, b))
                said = {"weight": way.weight, "hops": 1, "kind": way.kind.upper()}[name] if way else 0
                cells.append(f"{said!s:<13}")
            made.append(f"GPU{a}   {''.join(cells)}")
        made.append("")
    made.append(f"{'=' * 30} Numa Nodes {'=' * 30}")
    made += [f"GPU[{i}]\t\t: (Topology) Numa Node: {card.numa}" for i, card in enumerate(node.given)]
    return "\n".join([*made, END]) + "\n"


def rocm_answers(node: AmdNode) -> list[dict[str, str]]:
    return [
        {
            "Card Series": card.name,
            "Device ID": f"0x{card.device:04x}",
            "Unique ID": f"0x{card.unique_id:x}",
            "VBIOS version": "113-M3000100-102",
            "PCI Bus": card.address.upper(),
            "Max Graphics Package Power (W)": f"{card.cap_watts:.1f}",
            "pcie clock level": f"1 (32.0GT/s x{card.width})",
            "PCIe Replay Count": str(card.replays),
            "VRAM Total Memory (B)": str(card.memory_bytes),
        }
        for card in node.given
    ]


def rocm_json(node: AmdNode, *without: str) -> str:
    """`rocm-smi -a --json`."""
    cards = {
        f"card{i}": {key: said for key, said in told.items() if key not in without}
        for i, told in enumerate(rocm_answers(node))
    }
    ways = {
        f"(Topology) {name} between DRM devices {a} and {b}": said
        for (a, b), way in node.ways.items()
        if a < b
        for name, said in (("Weight", str(way.weight)), ("Link type", way.kind.upper()))
    }
    return json.dumps(cards | {"system": {"Driver version": node.module} | ways}) + "\n"


def rocm_lines(node: AmdNode) -> str:
    """`rocm-smi -a`."""
    keys = rocm_answers(node)[0]
    made = [
        f"GPU[{i}]\t\t: {key}: \t\t{told[key]}" for key in keys for i, told in enumerate(rocm_answers(node))
    ]
    return "\n".join([HEAD, *made, END]) + "\n"


def rocminfo(node: AmdNode) -> str:
    """Every agent, the cards in KFD's order."""
    agents = [_agent(1, {"Name": "AMD EPYC 9654", "Uuid": "CPU-XX", "Device Type": "CPU"})]
    for i, card in enumerate(sorted(node.given, key=lambda card: card.node)):
        bus, rest = card.address.split(":")[1:]
        place = int(bus, 16) << 8 | int(rest[:2], 16) << 3 | int(rest[-1])
        said = {
            "Name": card.gfx, "Uuid": f"GPU-{card.unique_id:016x}", "Marketing Name": card.name, "Vendor Name": "AMD",
            "Device Type": "GPU", "Chip ID": f"{card.device}(0x{card.device:x})", "Max Clock Freq. (MHz)": "2100",
            "BDFID": str(place), "Compute Unit": str(card.units),
        }  # fmt: skip
        agents.append(_agent(i + 2, said))
    return (
        "ROCk module version 6.16.13 is loaded\n=====================\nHSA System Attributes\n=====================\n"
        "Runtime Version:         1.18\n==========\nHSA Agents\n==========\n"
        + "".join(agents)
        + "*** Done ***\n"
    )


def _agent(number: int, said: dict[str, str]) -> str:
    lines = "".join(f"  {key + ':':<25}{value:<35}\n" for key, value in said.items())
    pool = (
        "  Pool Info:\n    Pool 1\n      Segment:                 GLOBAL; FLAGS: COARSE GRAINED\n"
        "      Size:                    201310208(0xbffc000) KB\n  ISA Info:\n    ISA 1\n"
        "      Name:                    amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-\n"
    )
    return f"*******\nAgent {number}\n*******\n{lines}{pool}"


def rccl(node: AmdNode, busbw: float = 313.0, *, size: int = 2**33, address: bool = True) -> str:
    """rccl-tests; HIP has the cards in another order than amd-smi."""
    ranks = [*node.given[1::2], *node.given[::2]]
    count = len(ranks)
    devices = "".join(
        f"#  Rank {r:>2} Group  0 Pid {4000 + r:>6} on  somewhere device {r:>2} "
        f"[{card.address.rpartition('.')[0] if address else '0x0c'}] {card.name}\n"
        for r, card in enumerate(ranks)
    )
    algbw = busbw * count / (2 * (count - 1))
    side = f"{size / algbw / 1000:>9.1f} {algbw:>7.2f} {busbw:>7.2f}      0"
    return (
        "# Collective test starting: all_reduce_perf\n"
        f"# nThread 1 nGpus {count} minBytes 8 maxBytes {size} step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 "
        "validation: 1 graph: 0\n#\nrccl-tests: Version develop:a7809b3\n# Using devices\n"
        f"{devices}#\n#                                                              out-of-place            in-place\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
        f"#wrong\n{size:>12} {size // 4:>13}     float     sum      -1 {side} {side}\n"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 313.0\n#\n"
    )
