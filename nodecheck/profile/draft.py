"""A profile drafted from a node that is known to be good, with every choice explained in a comment."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from nodecheck.facts import Absent, Card, Host, Maybe, Node, Stack, Topology, known, or_none
from nodecheck.facts.topology import Pair
from nodecheck.profile.check import shown
from nodecheck.profile.loading import parse
from nodecheck.profile.model import Kind, ProfileError

MIB = 2**20
T = TypeVar("T")


def draft(node: Node, name: str, origin: str, standing: str = "") -> str:
    """The TOML text of a profile called `name` that promises what `node` has.

    `origin` says in words where the facts come from, for the file's comments, and `standing` what a report
    says of the node (its verdict and date); without, nobody has judged it. Raises ProfileError where the node
    cannot be a model: no cards were seen, or they differ, or do not say what they are.
    """
    cards = node.known_cards
    if isinstance(node.cards, Absent):
        raise ProfileError(f"No profile can be drafted: the cards were not seen ({node.cards}).")
    if not cards:
        raise ProfileError(
            "No profile can be drafted: the node has no cards (`--profile cpu` is there for that)."
        )
    model = _alike(cards, lambda card: card.identity.name, "name") or "unknown card"
    lines = [
        f"# Drafted by nodecheck from {_comment(origin)}: {_comment(_named(node))}, read on "
        f"{node.taken_at:%Y-%m-%d %H:%M} UTC.",
        f"# The node was {_comment(standing)}."
        if standing
        else "# Nobody has judged this node: whether it is a good one, only you can say.",
        "# Read it through before you sign it: it asks for what this one node has.",
        "",
        "schema = 1",
        f"name = {_quoted(name)}",
        f"title = {_quoted(f'{len(cards)} × {model}'[:200])}",
        "",
        "[cards]",
        f"count = {len(cards)}",
        "",
        *_card(cards, node, standing),
        "",
        *_links(cards, node.topology, node, standing),
    ]
    if not isinstance(node.host, Absent):
        lines += ["", *_host(cards, node.host, node, standing)]
    if not isinstance(node.stack, Absent):
        lines += ["", *_stack(node.stack, node, standing)]
    lines += [
        "",
        "# No performance figures: one node does not say how far good ones lie apart. Add [[figures]] of your own,",
        "# each with unit, typical, warn_below, fail_below, source, date and kind (see docs/profiles.md).",
    ]
    text = "\n".join(lines) + "\n"
    parse(text, "draft")  # odd names and broken readings are found here, not by the one who signs it
    return text


def _card(cards: tuple[Card, ...], node: Node, standing: str) -> list[str]:
    def same(read: Callable[[Card], Maybe[T]], words: str) -> T | None:
        return _alike(cards, read, words)

    names = _values(cards, lambda card: card.identity.name)
    pci_ids = _values(cards, lambda card: card.identity.pci_id)
    capability = same(lambda card: card.identity.compute_capability, "compute capability")
    architecture = same(lambda card: card.identity.architecture, "architecture")
    totals = _values(cards, lambda card: card.memory.total_bytes)
    vendor = same(lambda card: card.vendor, "vendor")
    amd = vendor == "amd"
    arch = (
        same(lambda card: card.identity.gfx, "target") if amd else f"sm_{(capability or '').replace('.', '')}"
    )
    for value, words in (
        (names, "name"),
        (pci_ids, "PCI id"),
        (capability, "compute capability"),
        (architecture, "architecture"),
        (totals, "memory"),
        (arch, "target"),
    ):
        if not value:
            raise ProfileError(f"No profile can be drafted: no card tells its {words}.")
    memory_mib = max(totals) // MIB
    tolerance = max(256, memory_mib // 128)
    power = same(lambda card: card.power.default_limit_watts, "default power limit")
    limits = _values(cards, lambda card: card.power.limit_watts)
    widths = _values(cards, lambda card: card.pcie.max_width)
    lines = [
        "[card]",
        f"vendor = {_quoted(vendor or '')}",
        f"names = [{', '.join(map(_quoted, names))}]",
        f"pci_ids = [{', '.join(map(_quoted, pci_ids))}]",
        f"architecture = {_quoted(architecture or '')}",
        f"compute_capability = {_quoted(capability or '')}",
        f"arch = {_quoted(arch or '')}",
        *(
            _optional("compute_units", same(lambda card: card.identity.compute_units, "compute units"))
            if amd
            else _optional("cores", same(lambda card: card.identity.cores, "cores"))
        ),
        f"memory_mib = {memory_mib}",
        "# Drivers keep more or less for themselves: under 1 %, so that no smaller card passes for this one.",
        f"memory_tolerance_mib = {tolerance}",
        *_optional("memory_bus_bits", same(lambda card: card.memory.bus_width_bits, "bus width")),
    ]
    if power is not None and limits:
        lines += [
            "# What the board ships with; a limit set below power_limit_min_watts is a capped card.",
            f"power_limit_watts = {power:g}",
            f"power_limit_min_watts = {min(*limits, power):g}",
        ]
    lines += [
        *_optional("max_sm_clock_mhz", same(lambda card: card.clocks.max_sm_mhz, "highest SM clock")),
        *_optional(
            "max_memory_clock_mhz", same(lambda card: card.clocks.max_memory_mhz, "highest memory clock")
        ),
        *_optional("ecc", same(lambda card: card.health.ecc_enabled, "ECC mode")),
        f"row_remap = {_toml(any(not isinstance(c.health.row_remap_pending, Absent) for c in cards))}",
        *(
            [
                *_optional("compute_partition", same(lambda card: card.modes.compute_partition, "partition")),
                *_optional("memory_partition", same(lambda card: card.modes.memory_partition, "partition")),
            ]
            if amd
            else [f"mig = {_toml(any(card.modes.mig_enabled is True for card in cards))}"]
        ),
        *_optional("pcie_generation", same(lambda card: card.pcie.max_generation, "PCIe generation")),
    ]
    if widths:
        lines += ["# The widths seen; a narrower link is a fault.", f"pcie_widths = {_toml(widths)}"]
    return [*lines, *_witness(node, standing)]


def _links(cards: tuple[Card, ...], topology: Maybe[Topology], node: Node, standing: str) -> list[str]:
    if len(cards) == 1:
        return ["[links]", "# One card has no peer.", 'interconnect = "none"', *_witness(node, standing)]
    pairs: tuple[Pair, ...] = ()
    if not isinstance(topology, Absent):
        pairs = or_none(topology.pairs) or ()
    if cards[0].vendor == "amd":
        return [*_xgmi(cards, pairs), *_witness(node, standing)]
    counts = [or_none(pair.nvlinks) for pair in pairs]
    every = bool(counts) and all(counts)
    some = any(counts)
    kind = "nvlink" if every else "nvlink_pairs" if some else "pcie"
    lines = ["[links]"]
    if not counts or None in counts:
        lines.append("# Not every pair of cards could be seen: check this line.")
    lines.append(f"interconnect = {_quoted(kind)}")
    links = [link for card in cards for link in (or_none(card.links) or ()) if link.active is True]
    if kind != "pcie":
        active = _values(cards, lambda card: card.active_links)
        lines += [
            *_optional("version", _only(_values(links, lambda link: link.version))),
            "# The fewest active links of a card here.",
            *_optional("links_per_card", min(active, default=None) or None),
            *_optional("link_speed_mb_per_s", _only(_values(links, lambda link: link.speed_mb_per_s))),
        ]
    if kind == "nvlink":
        fabric = all(card.fabric.state == "completed" for card in cards)
        lines += [
            *_optional("links_per_pair", min((count for count in counts if count), default=None)),
            f"fabric = {_toml(fabric)}",
        ]
    if kind == "nvlink_pairs":
        lines += [
            "# How many cards one bridge joins: groups of more than two must be written here.",
            "bridged_group = 2",
        ]
    if kind == "pcie":
        reach = bool(pairs) and all(pair.p2p_read == "ok" and pair.p2p_write == "ok" for pair in pairs)
        lines += [
            "# Over PCIe the platform decides whether cards reach each other's memory; here they "
            + ("all do." if reach else "do not all."),
            f"peer_to_peer = {_toml(reach)}",
        ]
    return [*lines, *_witness(node, standing)]


def _xgmi(cards: tuple[Card, ...], pairs: tuple[Pair, ...]) -> list[str]:
    """How AMD's cards are joined: hives are of equal size, or nothing is said of them."""
    joined = [pair for pair in pairs if pair.link_type == "xgmi"]
    lines = ["[links]"]
    if not pairs or any(isinstance(pair.link_type, Absent) for pair in pairs):
        lines.append("# Not every pair of cards could be seen: check this line.")
    if not joined:
        reach = bool(pairs) and all(pair.accessible is True for pair in pairs)
        return [*lines, 'interconnect = "pcie"', f"peer_to_peer = {_toml(reach)}"]
    sizes = {1 + sum(card.key in (pair.a, pair.b) for pair in joined) for card in cards}
    lines.append('interconnect = "xgmi"')
    if len(sizes) == 1 and (size := sizes.pop()) < len(cards):
        lines.append(f"hive_cards = {size}")
    return [
        *lines,
        "# Whether each two cards of a hive have a link of their own.",
        f"direct = {_toml(all(pair.hops == 1 for pair in joined))}",
    ]


def _host(cards: tuple[Card, ...], host: Host, node: Node, standing: str) -> list[str]:
    lines = ["[host]", "# Half of what this node gives: a much smaller machine around the same cards warns."]
    allowed = (or_none(host.cpu.affinity), or_none(host.cpu.quota_cpus))
    cpus = [float(value) for value in allowed if isinstance(value, (int, float)) and value > 0]
    if cpus:
        lines.append(f"cpus_per_card = {max(0.5, round(min(cpus) / len(cards) / 2, 1)):g}")
    limit = or_none(host.memory.limit_bytes)
    memory = [
        value for value in (or_none(host.memory.total_bytes), limit) if isinstance(value, int) and value > 0
    ]
    totals = [or_none(card.memory.total_bytes) or 0 for card in cards]
    if memory and sum(totals):
        lines.append(f"memory_per_card_memory = {max(0.05, round(min(memory) / sum(totals) / 2, 2)):g}")
    shm = or_none(host.memory.shm_total_bytes)
    if len(cards) > 1 and shm and shm >= 2**30:
        lines += ["# NCCL needs about 1 GiB where cards cannot reach each other.", f"shm_bytes = {2**30}"]
    if len(lines) == 2:
        return ["# The machine around the cards was not seen: nothing is asked of it."]
    return [*lines, *_witness(node, standing, "derived")]


def _stack(stack: Stack, node: Node, standing: str) -> list[str]:
    lines = ["[stack]"]
    driver = or_none(stack.driver.version)
    hip = None if isinstance(stack.torch, Absent) else or_none(stack.torch.hip)
    if hip:
        release = ".".join(hip.split(".")[:2])
        lines += [
            f"# The torch of this node is built for ROCm {_comment(release)}.",
            f"rocm_min = {_quoted(release)}",
        ]
    elif driver:
        lines += [
            f"# This node has {_comment(driver)}; any driver of its branch, or a newer one, will do.",
            f"driver_min = {_quoted(driver.split('.')[0] + '.0')}",
        ]
    lines += [
        "# Whether a PyTorch must be there on delivery: it was here, or was not.",
        f"torch_required = {_toml(not isinstance(stack.torch, Absent))}",
    ]
    return [*lines, *_witness(node, standing)]


def _named(node: Node) -> str:
    """What the node is called; recordings leave that out."""
    name = or_none(node.host.name) if known(node.host) else None
    return f"node {name}" if name else "a node whose name is not told"


def _witness(node: Node, standing: str, kind: Kind = "measured") -> list[str]:
    judged = standing or "judged by nobody"
    source = f"read by nodecheck {node.tool_version} on {_comment(_named(node))}, {_comment(judged)}"
    return [
        f"source = {_quoted(source)}",
        f"date = {node.taken_at:%Y-%m-%d}",
        f"kind = {_quoted(kind)}",
    ]


def _values(items: Iterable[Any], read: Callable[[Any], Maybe[T]]) -> list[T]:
    """The distinct values that were seen, in order."""
    return list(dict.fromkeys(value for item in items if not isinstance(value := read(item), Absent)))


def _only(values: list[T]) -> T | None:
    return values[0] if len(values) == 1 else None


def _alike(cards: tuple[Card, ...], read: Callable[[Card], Maybe[T]], words: str) -> T | None:
    """The value that all cards share; None where none tells it."""
    values = _values(cards, read)
    if len(values) > 1:
        differing = " and ".join(shown(value) for value in values[:3])
        raise ProfileError(f"No profile can be drafted: the cards differ in {words} ({differing}).")
    return values[0] if values else None


def _optional(key: str, value: Any) -> list[str]:
    if value is None:
        return [f"# {key}: not seen on this node, so not asked."]
    return [f"{key} = {_toml(value)}"]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value)


def _quoted(text: str) -> str:
    """A TOML basic string. JSON escapes alike, but for the one control character that it leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    """Text of unknown origin on one line of a comment."""
    return shown(text, 200, quote=False)
