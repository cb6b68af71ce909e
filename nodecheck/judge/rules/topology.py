"""Are the cards joined as the bundle promises, and are the links sound?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from nodecheck.facts import Absent, Card, Host, Maybe, Node, Topology, Why, known, or_none
from nodecheck.facts.card import Link
from nodecheck.facts.topology import Adapter, Distance, Pair, PciDevice
from nodecheck.judge.finding import NODE, Cause, Owner, Status, Subject
from nodecheck.judge.rule import (
    Look,
    OnAmd,
    Outcome,
    card_rule,
    fail,
    observe,
    of_card,
    passed,
    rule,
    skipped,
    smi,
    unknown,
    warn,
)
from nodecheck.profile import LinksSpec, Profile

SPEED_SHARE = 0.95
"""A link below this share of its raw rate has trained to a lower one; the rates lie much further apart."""
MANY_LINK_ERRORS = 100
"""Replays, or CRC errors, of one link. They are repaired on the link; DCGM minds CRC errors only from 100 a
second on (DCGM_LIMIT_MAX_NVLINK_CRC_ERROR), and any recovery."""
AER_PER_DAY = 480
"""Corrected PCIe errors; DCGM's PCIe test bears that many."""

NO_NVLINK = "The profile promises no NVLink."
NO_XGMI = "The profile promises no xGMI between cards."


def _nvlink(profile: Profile) -> LinksSpec | None:
    """What the profile says of the links, where it promises NVLink between cards."""
    links = profile.links
    if links is None or links.interconnect not in ("nvlink", "nvlink_pairs") or profile.count < 2:
        return None
    return links


# The links of a card


@card_rule(
    "topology.nvlink.active_links",
    "All NVLinks of the card are up",
    reads="number of NVLinks and the state of each (field NVML_FI_DEV_NVLINK_LINK_COUNT, "
    "nvmlDeviceGetNvLinkState)",
    passes="as many are up as the profile says",
    fails="fewer are up, or the card has none",
    cause=Cause.faulty,
    owner=Owner.provider,
    required=True,
    meaning="Every missing link takes its share of the bandwidth between the cards; a card without any "
    "exchanges data over PCIe, many times more slowly.",
    next_step="Send this report to the provider. If all links of a card are down, a reboot of the node may "
    "bring them back; if one is, the board or bridge wants a look.",
    repeat="nvidia-smi nvlink -s",
)
def active_links(look: Look) -> Outcome:
    links = _nvlink(look.profile)
    if links is None:
        return skipped(NO_NVLINK)
    card, promised = look.card, links.links_per_card
    words: dict[str, Any] = {
        "expected": promised if promised is not None else "at least 1",
        "expected_from": links.stated_by("links_per_card" if promised else "interconnect").witness,
        "observed_from": observe(card, "links", card.source).source,
        "unit": "links",
    }
    active = card.active_links
    if isinstance(active, Absent):
        if active.why is Why.not_supported:
            return fail(f"The card has no NVLink in use ({active}).", observed=0, **words)
        return unknown(NODE, active, **words)
    words["observed"] = active
    if active >= (promised or 1):
        return passed(f"{active} are up.", **words)
    total = len(card.links) if known(card.links) else 0
    if active == 0:
        return fail("None is up.", **words)
    if promised and total < promised:
        return fail(f"{active} are up; the card has {total} and the product {promised}.", **words)
    down = [str(link.index) for link in card.links if link.active is False] if known(card.links) else []
    return fail(f"{active} of {promised} are up; down: {', '.join(down)}.", **words)


def _of_links(look: Look, judged: Callable[[tuple[Link, ...], LinksSpec], Outcome]) -> Outcome:
    """What `judged` says of the active links, where the profile promises links and some are up."""
    spec, links = _nvlink(look.profile), look.card.links
    if spec is None:
        return skipped(NO_NVLINK)
    if isinstance(links, Absent) and links.why is not Why.not_supported:
        return unknown(NODE, links)
    active = () if isinstance(links, Absent) else tuple(link for link in links if link.active is True)
    if not active:
        return skipped("No NVLink is up; see topology.nvlink.active_links.")
    return judged(active, spec)


@card_rule(
    "topology.nvlink.speed",
    "The NVLinks run at full rate",
    unit="MB/s",
    reads="raw rate of every active link, one way (field NVML_FI_DEV_NVLINK_GET_SPEED or "
    "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON)",
    passes="every active link has the rate of its generation",
    fails="a link has a lower rate, or none",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A link that has trained to a lower rate slows every exchange between the cards to its pace.",
    next_step="Ask the provider to reset the links (reboot of the node), and for another node if it stays "
    "so.",
    repeat="nvidia-smi nvlink -s",
)
def nvlink_speed(look: Look) -> Outcome:
    return _of_links(look, _speed)


def _speed(links: tuple[Link, ...], spec: LinksSpec) -> Outcome:
    full = spec.link_speed_mb_per_s
    if full is None:
        return skipped("The profile gives no rate.")
    words: dict[str, Any] = {"expected": full, "expected_from": spec.stated_by("link_speed_mb_per_s").witness}
    slow: list[str] = []
    speeds: Counter[int] = Counter()
    for link in links:
        if isinstance(link.speed_mb_per_s, Absent):
            return unknown(NODE, link.speed_mb_per_s, **words)
        speeds[link.speed_mb_per_s] += 1
        if link.speed_mb_per_s < SPEED_SHARE * full:
            slow.append(f"link {link.index}: {link.speed_mb_per_s}")
    words["observed"] = ", ".join(f"{n} × {speed}" for speed, n in sorted(speeds.items()))
    return fail(f"Below {full} MB/s: {', '.join(slow)}.", **words) if slow else passed("", **words)


@card_rule(
    "topology.nvlink.version",
    "The NVLinks are of the product's generation",
    reads="version of every active link (nvmlDeviceGetNvLinkVersion)",
    passes="every active link has the version that the profile says, or a later one",
    fails="a link has an earlier one",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="An earlier generation has less bandwidth a link.",
    next_step="Send this report to the provider: this is another board than the one rented.",
    repeat="nvidia-smi nvlink -s",
)
def nvlink_version(look: Look) -> Outcome:
    return _of_links(look, _version)


def _version(links: tuple[Link, ...], spec: LinksSpec) -> Outcome:
    if spec.version is None:
        return skipped("The profile gives no version.")
    words: dict[str, Any] = {"expected": spec.version, "expected_from": spec.stated_by("version").witness}
    versions: set[str] = set()
    for link in links:
        if isinstance(link.version, Absent):
            return unknown(NODE, link.version, **words)
        versions.add(link.version)
    words["observed"] = ", ".join(sorted(versions))
    try:
        earlier = sorted(v for v in versions if float(v) < float(spec.version))
    except ValueError:
        return Outcome(Status.unknown, detail=f"Not a version: {words['observed']}.", **words)
    return fail(f"Version {', '.join(earlier)}.", **words) if earlier else passed("", **words)


@card_rule(
    "topology.nvlink.errors",
    "The NVLinks carry data without trouble",
    reads="replay, recovery and CRC counters of every active link (nvmlDeviceGetNvLinkErrorCounter), and "
    "errors left after correction on NVLink 5",
    passes=f"no recovery, and at most {MANY_LINK_ERRORS} replays or flit CRC errors a link; the numbers are "
    "stated, those of CRC errors in data too, which every healthy link has",
    warns="a link has had to recover, or has counted more",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The link loses data on the way and sends it again; a link that recovers stands still "
    "meanwhile, and may go down next.",
    next_step="Read the counters again under load. If they grow, tell the provider which links it is.",
    repeat="nvidia-smi nvlink -e",
)
def nvlink_errors(look: Look) -> Outcome:
    return _of_links(look, _errors)


# CRC errors of data are stated and never held against a link: they are sent again at once, and a healthy pair of
# H200s counts several a minute on every link while it idles (own reading, 2026-11-30).
_COUNTERS: tuple[tuple[str, str, int | None], ...] = (
    ("recoveries", "recovery_errors", 0),
    ("replays", "replay_errors", MANY_LINK_ERRORS),
    ("CRC errors (flit)", "crc_flit_errors", MANY_LINK_ERRORS),
    ("CRC errors (data)", "crc_data_errors", None),
    ("errors after correction", "effective_errors", 0),
)


def _errors(links: tuple[Link, ...], spec: LinksSpec) -> Outcome:
    bad: list[str] = []
    totals: dict[str, int] = {}
    unseen: Absent | None = None
    for link in links:
        for name, field, bearable in _COUNTERS:
            value: Maybe[int] = getattr(link, field)
            if isinstance(value, Absent):
                unseen = value
                continue
            totals[name] = totals.get(name, 0) + value
            if bearable is not None and value > bearable:
                bad.append(f"link {link.index}: {value} {name}")
    if not totals:
        return unknown(NODE, unseen or Absent(why=Why.not_asked))
    told = ", ".join(f"{n} {name}" for name, n in totals.items() if n) or "none"
    if bad:
        return warn(f"{'; '.join(bad)}.", observed=told)
    return passed(f"{told.capitalize()}.", observed=told)


@rule(
    "topology.nvlink.disabled_by_driver",
    "The driver has not switched NVLink off",
    reads="the driver's parameter NvLinkDisable (/proc/driver/nvidia/params)",
    door="driver_proc",
    passes="it is not set, or the profile promises no NVLink",
    fails="it is set on a node whose cards are to be joined by NVLink",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="The driver was told to do without NVLink, so that all exchange between the cards goes over "
    "PCIe.",
    next_step="Ask the provider to take NVreg_NvLinkDisable=1 out of the driver's options and load the "
    "driver anew.",
    repeat="grep NvLinkDisable /proc/driver/nvidia/params",
)
def disabled_by_driver(node: Node, profile: Profile) -> Iterator[Outcome]:
    if profile.count == 0:
        yield skipped(f"The profile {profile.name} has no cards.")
        return
    topology = node.topology
    disabled = topology if isinstance(topology, Absent) else topology.nvlink_disabled_by_driver
    wanted = _nvlink(profile)
    if isinstance(disabled, Absent):
        yield unknown(NODE, disabled) if wanted else skipped(NO_NVLINK)
    elif not disabled:
        yield passed("Not set.", observed=False)
    elif wanted:
        yield fail(
            "NvLinkDisable is set.",
            observed=True,
            expected=False,
            expected_from=wanted.stated_by("interconnect").witness,
        )
    else:
        yield passed("NvLinkDisable is set; the profile promises no NVLink.", observed=True)


# The pairs


def _pairs(node: Node, profile: Profile) -> tuple[Pair, ...] | Outcome:
    """Every pair of the node's cards, or the one outcome that stands for them."""
    if profile.count < 2 or profile.links is None:
        return skipped("The profile has no two cards.")
    if isinstance(node.cards, Absent):
        return unknown(NODE, node.cards)
    if isinstance(node.topology, Absent):
        return unknown(NODE, node.topology)
    pairs = node.topology.pairs
    if isinstance(pairs, Absent):
        return unknown(NODE, pairs)
    cards = [card for card in node.cards if card.vendor == profile.vendor]
    keys = {card.key for card in cards}
    pairs = tuple(pair for pair in pairs if pair.a in keys and pair.b in keys)
    if len(cards) < 2:
        return skipped("Fewer than two cards are listed; see cards.count.")
    if sum(card.usable is not False for card in cards) < 2:
        return skipped("Fewer than two cards can be used; see cards.usable.")
    return pairs


def _missing(node: Node, profile: Profile, pairs: tuple[Pair, ...]) -> Iterator[Outcome]:
    """An unknown for each pair of usable cards that was not looked at: a matrix cut short is no pass."""
    looked_at = {frozenset((pair.a, pair.b)) for pair in pairs}
    usable = [card for card in node.known_cards if card.usable is True and card.vendor == profile.vendor]
    for a, b in combinations(usable, 2):
        if frozenset((a.key, b.key)) not in looked_at:
            yield Outcome(Status.unknown, _of_two(a, b), detail="This pair was not looked at.")


def _of_two(a: Card, b: Card) -> Subject:
    return Subject(kind="pair", key=f"{a.key}+{b.key}", label=f"{a.short_name} – {b.short_name}")


def _of_pair(node: Node, pair: Pair) -> Subject:
    cards = {card.key: card for card in node.known_cards}
    if pair.a in cards and pair.b in cards:
        return _of_two(cards[pair.a], cards[pair.b])
    return Subject(kind="pair", key=f"{pair.a}+{pair.b}", label=f"{pair.a} – {pair.b}")


@rule(
    "topology.pairs.nvlink",
    "NVLink joins the cards that it should join",
    reads="number of NVLinks between each two cards (nvmlDeviceGetNvLinkRemotePciInfo_v2, "
    "nvmlDeviceGetP2PStatus NVLINK)",
    door="nvml",
    passes="every pair, or for bridged cards every group, is joined by as many links as the profile says",
    fails="a pair is joined by fewer links, or by none",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    required=True,
    meaning="Cards that are not joined exchange data over PCIe and the CPUs; work spread over all cards "
    "goes at that pace.",
    next_step="Send the pair matrix of this report to the provider: this is not the link shape that was "
    "rented, or a card has lost its links.",
    repeat="nvidia-smi topo -m",
)
def pairs_nvlink(node: Node, profile: Profile) -> Iterator[Outcome]:
    spec = _nvlink(profile)
    if spec is None:
        yield skipped(NO_NVLINK)
        return
    pairs = _pairs(node, profile)
    if isinstance(pairs, Outcome):
        yield pairs
    elif spec.interconnect == "nvlink":
        for pair in pairs:
            yield _joined(pair, _of_pair(node, pair), spec)
        yield from _missing(node, profile, pairs)
    else:
        for card in node.known_cards:
            yield _bridged(card, pairs, spec, profile)


_WAYS: dict[Distance, str] = {
    "internal": "over one board",
    "PIX": "through one bridge (PIX)",
    "PXB": "through several bridges (PXB)",
    "PHB": "through the CPU's host bridge (PHB)",
    "NODE": "from one host bridge to another of the same NUMA node (NODE)",
    "SYS": "from one NUMA node to another (SYS)",
}


def _joined(pair: Pair, subject: Subject, spec: LinksSpec) -> Outcome:
    least = spec.links_per_pair or 1
    words: dict[str, Any] = {
        "expected": spec.links_per_pair or "at least 1",
        "expected_from": spec.stated_by("links_per_pair" if spec.links_per_pair else "interconnect").witness,
        "unit": "links",
    }
    if isinstance(pair.nvlinks, Absent):
        return unknown(subject, pair.nvlinks, **words)
    words["observed"] = pair.nvlinks
    if pair.nvlinks < least:
        said = "No NVLink joins them" if not pair.nvlinks else f"{pair.nvlinks} NVLinks join them"
        way = (
            "" if isinstance(pair.distance, Absent) else f"; over PCIe their data goes {_WAYS[pair.distance]}"
        )
        return fail(f"{said}{way}.", subject=subject, **words)
    if known(pair.p2p_nvlink) and pair.p2p_nvlink != "ok":
        return fail(f"The links are there and cannot be used: {pair.p2p_nvlink}.", subject=subject, **words)
    return passed("", subject=subject, **words)


def _bridged(card: Card, pairs: tuple[Pair, ...], spec: LinksSpec, profile: Profile) -> Outcome:
    subject = of_card(card)
    partners = min(spec.bridged_group, profile.count) - 1
    words: dict[str, Any] = {
        "expected": f"{partners} × {spec.links_per_pair or 'at least 1'}",
        "expected_from": spec.stated_by("bridged_group").witness,
        "unit": "links",
    }
    counts: list[int] = []
    unseen: Absent | None = None
    for pair in pairs:
        if card.key in (pair.a, pair.b):
            if isinstance(pair.nvlinks, Absent):
                unseen = pair.nvlinks
            elif pair.nvlinks:
                counts.append(pair.nvlinks)
    words["observed"] = f"{len(counts)} × {', '.join(str(n) for n in sorted(set(counts)))}" if counts else 0
    good = sum(n >= (spec.links_per_pair or 1) for n in counts)
    if good >= partners:
        return passed(f"Joined with {len(counts)} of the other cards.", subject=subject, **words)
    if unseen:
        return unknown(subject, unseen, **words)
    if not counts:
        return fail("No bridge joins this card with another.", subject=subject, **words)
    return fail(f"Joined with {len(counts)} of {partners} cards, {counts} links.", subject=subject, **words)


@rule(
    "topology.pairs.distance",
    "How far the cards are apart on PCIe (stated)",
    reads="nearest common ancestor of each two cards (nvmlDeviceGetTopologyCommonAncestor)",
    door="nvml",
    passes="always; the distances are stated: PIX (one switch), PXB, PHB (one root), NODE (one socket), SYS",
    cause=Cause.slow,
    owner=Owner.provider,
    meaning="",
    next_step="",
    repeat="nvidia-smi topo -m",
    on_amd=OnAmd(
        reads="nearest common ancestor of each two cards, by their places on the PCI bus (/sys/bus/pci/devices)",
        door="pci",
        repeat="lspci -tv",
    ),
)
def pairs_distance(node: Node, profile: Profile) -> Iterator[Outcome]:
    pairs = _pairs(node, profile)
    if isinstance(pairs, Outcome):
        yield pairs
        return
    counts: Counter[str] = Counter()
    for pair in pairs:
        if isinstance(pair.distance, Absent):
            yield unknown(NODE, pair.distance)
            return
        counts[pair.distance] += 1
    told = ", ".join(f"{n} × {distance}" for distance, n in counts.most_common())
    virtual = (
        isinstance(node.host, Host) and known(node.host.virtualization) and node.host.virtualization != "none"
    )
    yield passed(
        f"{told}{' (a virtual machine may not show the real tree)' if virtual else ''}.", observed=told
    )


@rule(
    "topology.pairs.p2p",
    "The cards reach each other's memory",
    reads="peer status of each two cards, to read and to write (nvmlDeviceGetP2PStatus)",
    door="nvml",
    passes="each can read and write the other's memory, or the product does not do so",
    warns="they cannot, and only PCIe joins them",
    fails="they cannot, although NVLink is to join them",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Every exchange between the two goes through the host's memory, at half the speed or less.",
    next_step="Ask the provider for peer access between the cards: in a virtual machine the switch above "
    "them must be passed through as well, on bare metal ACS must let peers through.",
    repeat="nvidia-smi topo -p2p r; nvidia-smi topo -p2p w",
    on_amd=OnAmd(
        reads="whether the driver lets each of two cards into the other's memory (amd-smi topology, link_status)",
        door="amd_smi",
        next_step="Ask the provider for peer access between the cards: the kernel needs large BARs for it and, over "
        "PCI Express, ACS must let peers through.",
        repeat="amd-smi topology",
    ),
)
def pairs_p2p(node: Node, profile: Profile) -> Iterator[Outcome]:
    pairs = _pairs(node, profile)
    if isinstance(pairs, Outcome):
        yield pairs
        return
    assert profile.links is not None  # noqa: S101  (_pairs has seen to it)
    reached = _reached_on_amd if profile.vendor == "amd" else _reached
    for pair in pairs:
        yield reached(pair, _of_pair(node, pair), profile.links)
    yield from _missing(node, profile, pairs)


def _reached_on_amd(pair: Pair, subject: Subject, spec: LinksSpec) -> Outcome:
    if isinstance(pair.accessible, Absent):
        return unknown(subject, pair.accessible)
    words: dict[str, Any] = {
        "subject": subject,
        "observed": pair.accessible,
        "expected": spec.peer_to_peer,
        "expected_from": spec.stated_by("peer_to_peer").witness,
    }
    if pair.accessible:
        return passed("", **words)
    if not spec.peer_to_peer:
        return passed("They do not, as the product is.", **words)
    return (fail if pair.link_type == "xgmi" else warn)("The driver does not let them.", **words)


def _reached(pair: Pair, subject: Subject, spec: LinksSpec) -> Outcome:
    for way in (pair.p2p_read, pair.p2p_write):
        if isinstance(way, Absent):
            return unknown(subject, way)
    told = f"read {pair.p2p_read}, write {pair.p2p_write}"
    if known(pair.p2p_atomics):
        told += f", atomics {pair.p2p_atomics}"
    words: dict[str, Any] = {
        "subject": subject,
        "observed": told,
        "expected_from": spec.stated_by("peer_to_peer").witness,
    }
    if pair.p2p_read == pair.p2p_write == "ok":
        return passed("", expected="ok", **words)
    if not spec.peer_to_peer:
        return passed(f"{told}: as the product is.", expected="not promised", **words)
    if spec.interconnect == "pcie":
        return warn(f"{told}.", expected="ok", **words)
    if spec.interconnect == "nvlink_pairs" and pair.nvlinks == 0:
        return passed(f"{told}: no bridge joins these two.", expected="not promised", **words)
    return fail(f"{told}.", expected="ok", **words)


# AMD's links


def _xgmi(profile: Profile) -> LinksSpec | None:
    """What the profile says of the links, where it promises xGMI between cards."""
    links = profile.links
    return links if links is not None and links.interconnect == "xgmi" and profile.count > 1 else None


@rule(
    "topology.pairs.xgmi",
    "xGMI joins the cards that it should join",
    reads="type and weight of what joins each two cards: KFD's io_links (type 11 is xGMI, 2 PCI Express), amd-smi, "
    "ROCm's "
    "binding. A direct link has the weight 15, and each further hop adds 15; what the tools call hops is 1 for "
    "every path",
    door="kfd",
    passes="each two cards of a hive are joined by xGMI, directly where the product has it so",
    fails="two of them are joined by PCI Express, or only through others",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    required=True,
    meaning="Cards that xGMI does not join exchange data over PCI Express and the CPUs; work spread over all cards "
    "goes at "
    "that pace.",
    next_step="Send the pair matrix of this report to the provider: a link has not trained, or this is not the "
    "board that "
    "was rented. A cold restart of the machine trains the links anew.",
    repeat="grep -HE '^(type|weight|node_to) ' /sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties; amd-smi "
    "topology",
)
def pairs_xgmi(node: Node, profile: Profile) -> Iterator[Outcome]:
    spec = _xgmi(profile)
    if spec is None:
        yield skipped(NO_XGMI)
        return
    pairs = _pairs(node, profile)
    if isinstance(pairs, Outcome):
        yield pairs
    elif spec.hive_cards is None:
        for pair in pairs:
            yield _joined_by_xgmi(pair, _of_pair(node, pair), spec)
        yield from _missing(node, profile, pairs)
    else:
        for card in node.known_cards:
            if card.vendor == "amd":
                yield _in_its_hive(card, pairs, spec, spec.hive_cards)


def _joined_by_xgmi(pair: Pair, subject: Subject, spec: LinksSpec) -> Outcome:
    said: dict[str, Any] = {
        "observed_from": observe(pair, "link_type", pair.source).source,
        "expected": "xgmi, 1 hop" if spec.direct else "xgmi",
        "expected_from": spec.stated_by("interconnect").witness,
    }
    if isinstance(pair.link_type, Absent):
        return unknown(subject, pair.link_type, **said)
    said["subject"] = subject
    weight = f", weight {pair.weight}" if known(pair.weight) else ""
    said["observed"] = f"{pair.link_type}{weight}"
    if pair.link_type != "xgmi":
        return fail(f"They are joined by {_LINK_NAMES.get(pair.link_type, pair.link_type)}{weight}.", **said)
    if not spec.direct:
        return passed("", **said)
    if isinstance(pair.hops, Absent):
        return unknown(absent=pair.hops, **said)
    if pair.hops > 1:
        return fail(
            f"xGMI reaches the one from the other over {pair.hops} hops{weight}: their own link is missing.",
            **said,
        )
    return passed("", **said)


_LINK_NAMES = {"pcie": "PCI Express", "xgmi": "xGMI"}


def _in_its_hive(card: Card, pairs: tuple[Pair, ...], spec: LinksSpec, hive: int) -> Outcome:
    subject = of_card(card)
    own = [pair for pair in pairs if card.key in (pair.a, pair.b)]
    joined = [pair for pair in own if pair.link_type == "xgmi" and (not spec.direct or pair.hops == 1)]
    words: dict[str, Any] = {
        "observed": len(joined),
        "expected": hive - 1,
        "expected_from": spec.stated_by("hive_cards").witness,
        "unit": "cards",
    }
    if len(joined) >= hive - 1:
        return passed(f"Joined with {len(joined)} others.", subject=subject, **words)
    for pair in own:
        for value in (pair.link_type, pair.hops if pair.link_type == "xgmi" else None):
            if isinstance(value, Absent):
                return unknown(subject, value, **words)
    return fail(f"xGMI joins it directly with {len(joined)} of {hive - 1} others.", subject=subject, **words)


@rule(
    "topology.xgmi.hive",
    "The cards are in as many hives as they should be",
    reads="the hive that each card is in (KFD's hive_id, or ROCm's binding)",
    door="kfd",
    passes="all cards are in one hive, or in hives of the product's size",
    fails="a card is in a hive of its own, or the hives are smaller",
    cause=Cause.not_as_rented,
    owner=Owner.provider,
    meaning="Cards of different hives have no xGMI to each other.",
    next_step="Send this report to the provider: the links of a card have not trained. A cold restart of the "
    "machine trains "
    "them anew.",
    repeat="grep -H hive_id /sys/class/kfd/kfd/topology/nodes/*/properties",
)
def xgmi_hive(node: Node, profile: Profile) -> Iterator[Outcome]:
    spec = _xgmi(profile)
    if spec is None:
        yield skipped(NO_XGMI)
        return
    if isinstance(node.cards, Absent):
        yield unknown(NODE, node.cards)
        return
    hives: Counter[str] = Counter()
    for card in node.cards:
        if card.vendor != "amd" or card.usable is False:
            continue
        if isinstance(card.hive, Absent):
            yield unknown(NODE, card.hive)
            return
        hives[card.hive] += 1
    observed = ", ".join(f"{n} in {hive}" for hive, n in hives.most_common()) or "no card"
    size = min(spec.hive_cards or profile.count, sum(hives.values()))
    words: dict[str, Any] = {
        "observed": observed,
        "expected": f"{size} in each",
        "expected_from": spec.stated_by("hive_cards" if spec.hive_cards else "interconnect").witness,
    }
    if not hives:
        yield skipped("There is no card to look at; see cards.listed.")
    elif set(hives) == {"0x0"}:
        told = Absent(why=Why.not_supported, detail="the driver names no hive for any card")
        yield unknown(NODE, told, **words)
    elif "0x0" in hives or any(n < size for n in hives.values()):
        yield fail(f"{observed}.", **words)
    else:
        yield passed(f"{observed}.", **words)


@card_rule(
    "topology.xgmi.links",
    "All xGMI links of the card are up",
    of="amd",
    door="kfd",
    reads="state of each xGMI link (amd-smi xgmi -l, ROCm's binding) and its rate as KFD counts it",
    passes="each is up, at the rate of the product where the profile gives one",
    fails="one is down, or has a lower rate",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="A link that is down sends its cards' data over others or over PCI Express; one that has trained to a "
    "lower rate slows every exchange to its pace.",
    next_step="Send this report to the provider. A cold restart of the machine trains the links anew; the board "
    "wants a "
    "look if it comes back.",
    repeat="amd-smi xgmi -l",
)
def xgmi_links(look: Look) -> Outcome:
    spec, links = _xgmi(look.profile), look.card.links
    if spec is None:
        return skipped(NO_XGMI)
    seen = observe(look.card, "links", look.card.source)
    words: dict[str, Any] = {"observed_from": seen.source, "unit": "links"}
    if isinstance(links, Absent):
        return unknown(NODE, links, **words)
    if not links:
        return skipped("The card has no xGMI link here; see topology.pairs.xgmi.")
    down = [link for link in links if link.active is False]
    rate = spec.link_speed_mb_per_s
    slow = [
        link
        for link in links
        if rate and known(link.speed_mb_per_s) and link.speed_mb_per_s < SPEED_SHARE * rate
    ]
    words |= {
        "observed": len(links) - len(down),
        "expected": len(links),
        "expected_from": spec.stated_by("interconnect").witness,
    }
    if down:
        ends = ", ".join(str(or_none(link.remote_pci_address) or f"port {link.index}") for link in down)
        return fail(f"{len(down)} of {len(links)} are down, to: {ends}.", **words)
    if slow:
        told = ", ".join(f"link {link.index}: {link.speed_mb_per_s}" for link in slow)
        words |= {
            "expected": rate,
            "expected_from": spec.stated_by("link_speed_mb_per_s").witness,
            "unit": "MB/s",
        }
        return fail(f"Below {rate} MB/s: {told}.", **words | {"observed": told})
    unseen = next((link.active for link in links if isinstance(link.active, Absent)), None)
    if unseen is not None:
        return unknown(NODE, unseen, **words)
    return passed(f"{len(links)} are up.", **words)


# The fabric


CUDA_802 = (
    "CUDA programs end with error 802 (system not yet initialized) while nvidia-smi lists the cards as if "
    "all were well."
)


@card_rule(
    "topology.fabric.state",
    "The card has joined the NVSwitch fabric",
    of="nvidia",
    reads="the card's fabric state and status (nvmlDeviceGetGpuFabricInfoV)",
    passes="the card has joined with success, or belongs to no fabric and need not",
    warns="the card waits for a fabric that the profile does not have",
    fails="it is still being set up, was never started, ended with an error, or is missing where the "
    "profile has one",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    required=True,
    meaning=CUDA_802,
    next_step="Ask the provider to start the fabric manager, in the driver's own version, on the machine "
    "that owns the NVSwitches (`systemctl status nvidia-fabricmanager`), and to activate this node's "
    "partition.",
    repeat=smi("fabric.state", "fabric.status"),
)
def fabric_state(look: Look) -> Outcome:
    links, fabric = look.profile.links, look.card.fabric
    promised = links is not None and links.fabric
    seen = observe(look.card, "fabric.state", look.card.source)
    state, status = seen.value, fabric.status
    words: dict[str, Any] = {
        "observed_from": seen.source,
        "expected": "completed, success" if promised else "not_supported, or completed",
        "expected_from": links.stated_by("fabric").witness if links else "",
    }
    if isinstance(state, Absent) and state.why is not Why.not_supported:
        if not promised:
            return skipped(f"The profile promises no fabric, and the card does not tell ({state}).")
        return unknown(NODE, state, **words)
    if isinstance(state, Absent) or state == "not_supported":
        words["observed"] = "not_supported"
        if not promised:
            return passed("The card belongs to no fabric, and need not.", **words)
        return fail("The card belongs to no fabric.", **words)
    words["observed"] = f"{state}, {status}" if known(status) else state
    if state == "in_progress":
        return fail(f"The fabric is still being set up for this card. {CUDA_802}", **words)
    if state == "not_started":
        said = "The card waits for the fabric manager, which has not begun."
        return fail(f"{said} {CUDA_802}", **words) if promised else warn(said, **words)
    if state != "completed":
        return Outcome(Status.unknown, detail=f"A state that this version does not know: {state}.", **words)
    if isinstance(status, Absent):
        return unknown(NODE, status, **words) if promised else passed("", **words)
    if status != "success":
        return fail(f"The fabric manager has finished with an error for this card: {status}.", **words)
    return passed("", **words)


@card_rule(
    "topology.fabric.health",
    "The fabric serves the card in full",
    path="fabric.health",
    reads="health summary and mask of the card's fabric (nvmlDeviceGetGpuFabricInfoV)",
    not_supported="This card or driver does not tell the fabric's health.",
    passes="the fabric says that it is healthy",
    fails="it is unhealthy, or works at part of its capacity",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Routes through the NVSwitches are lost or slow: exchange between the cards is slower than it "
    "should be, or hangs.",
    next_step="Send this report to the provider: the NVSwitches, their links and the fabric manager's log "
    "want a look.",
    repeat="nvidia-smi -q | grep -A12 -i '  Fabric'",
)
def fabric_health(look: Look) -> Outcome:
    problems = look.card.fabric.health_problems
    told = ", ".join(p.replace("_", " ") for p in problems) if known(problems) and problems else ""
    observed = f"{look.value}{': ' if told else ''}{told}"
    if look.value == "healthy" and not told:
        return passed("", observed=observed, expected="healthy")
    if look.value in ("healthy", "unhealthy", "limited_capacity"):
        return fail(f"The fabric is {observed.replace('_', ' ')}.", observed=observed, expected="healthy")
    said = f"A health that this version does not know: {look.value}."
    return fail(said, observed=observed, expected="healthy")


@rule(
    "topology.fabric.clique",
    "All cards are in one part of the fabric",
    reads="cluster and clique of every card (nvmlDeviceGetGpuFabricInfoV)",
    door="nvml",
    passes="all cards have the same",
    fails="they have different ones",
    cause=Cause.misconfigured,
    owner=Owner.provider,
    meaning="Cards in different cliques have no NVLink to each other.",
    next_step="Ask the provider to put all cards of the node into one partition of the fabric.",
    repeat="nvidia-smi -q | grep -iE 'CliqueId|ClusterUUID'",
)
def fabric_clique(node: Node, profile: Profile) -> Iterator[Outcome]:
    links = _nvlink(profile)
    if links is None or not links.fabric:
        yield skipped("The profile promises no fabric.")
        return
    if isinstance(node.cards, Absent):
        yield unknown(NODE, node.cards)
        return
    seen: Counter[str] = Counter()
    for card in node.cards:
        for value in (card.fabric.cluster_uuid, card.fabric.clique_id):
            if isinstance(value, Absent):
                told = (
                    skipped("The cards do not tell.")
                    if value.why is Why.not_supported
                    else unknown(NODE, value)
                )
                yield told
                return
        seen[f"{card.fabric.cluster_uuid} clique {card.fabric.clique_id}"] += 1
    observed = ", ".join(f"{n} in {name}" for name, n in seen.most_common())
    yield (fail if len(seen) > 1 else passed)(f"{observed}.", observed=observed)


@rule(
    "topology.nvswitch",
    "NVSwitches (stated)",
    reads="NVSwitch bridges on the PCI bus, and what the cards' links end at",
    door="pci",
    passes="always; whether the switches can be seen from here or belong to the host is stated",
    cause=Cause.not_visible,
    owner=Owner.provider,
    meaning="",
    next_step="",
    repeat="grep -l 0x068000 /sys/bus/pci/devices/*/class",
)
def nvswitch(node: Node, profile: Profile) -> Iterator[Outcome]:
    links = _nvlink(profile)
    if links is None or links.interconnect != "nvlink":
        yield skipped("The profile promises no NVSwitches.")
        return
    devices = node.topology if isinstance(node.topology, Absent) else node.topology.pci_devices
    ends = {
        link.remote_kind
        for card in node.known_cards
        if known(card.links)
        for link in card.links
        if known(link.remote_kind)
    }
    end = f"; the cards' links end at: {', '.join(sorted(ends))}" if ends else ""
    if isinstance(devices, Absent):
        yield unknown(NODE, devices)
        return
    switches = sum(device.kind == "nvswitch" for device in devices)
    if switches:
        yield passed(f"{switches} can be seen on the PCI bus{end}.", observed=switches)
    else:
        yield passed(f"None can be seen: they belong to the host, or need no PCI function{end}.", observed=0)


# Around the cards


@card_rule(
    "topology.numa",
    "It is known which CPUs are near the card (stated)",
    path="numa_node",
    reads="NUMA node of the card's slot (/sys/bus/pci/devices/*/numa_node) and its near CPUs "
    "(nvmlDeviceGetCpuAffinity)",
    door="pci",
    passes="the node is told and stated, or the machine has only one",
    cause=Cause.not_visible,
    owner=Owner.provider,
    meaning="",
    next_step="",
    repeat="nvidia-smi topo -m; cat /sys/bus/pci/devices/*/numa_node",
    on_amd=OnAmd(
        repeat="grep -H . /sys/class/drm/card*/device/numa_node /sys/class/drm/card*/device/local_cpulist"
    ),
)
def numa(look: Look) -> Outcome:
    host = look.node.host
    near = look.card.cpu_affinity
    cpus = f", CPUs {near}" if known(near) else ""
    if look.value >= 0:
        return passed(f"NUMA node {look.value}{cpus}.")
    if isinstance(host, Host) and host.cpu.numa_nodes == 1:
        return passed(f"The machine has one NUMA node{cpus}.")
    return Outcome(Status.unknown, detail=f"The machine does not tell which of its NUMA nodes it is{cpus}.")


@rule(
    "topology.adapters",
    "The InfiniBand ports are up",
    reads="ports of network and InfiniBand adapters (/sys/class/infiniband, /sys/class/net)",
    door="infiniband",
    passes="no InfiniBand port is down beside ports that are up; all ports are stated",
    warns="some InfiniBand ports are up and some are not",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="Work over several nodes loses the bandwidth of the ports that are down, and may hang on them.",
    next_step="Ask the provider whether these ports belong to the bundle, and to bring them up if so.",
    repeat="grep -H . /sys/class/infiniband/*/ports/*/state",
)
def adapters(node: Node, profile: Profile) -> Iterator[Outcome]:
    ports = node.topology if isinstance(node.topology, Absent) else node.topology.adapters
    if isinstance(ports, Absent):
        yield unknown(NODE, ports)
        return
    observed = ", ".join(_port(port) for port in ports) or "none"
    infiniband = [port for port in ports if port.link_layer == "InfiniBand"]
    down = [port for port in infiniband if known(port.state) and port.state != "ACTIVE"]
    unseen = [
        *(port.link_layer for port in ports if isinstance(port.link_layer, Absent)),
        *(port.state for port in infiniband if isinstance(port.state, Absent)),
    ]
    if down and len(down) < len(infiniband):
        names = ", ".join(f"{port.name}/{port.port}" for port in down)
        yield warn(
            f"{len(down)} of {len(infiniband)} InfiniBand ports are not up: {names}.", observed=observed
        )
    elif unseen:
        yield unknown(NODE, unseen[0], observed=observed)
    else:
        yield passed(f"{observed}.", observed=observed)


def _port(port: Adapter) -> str:
    rate = f" {port.rate_gbit_per_s:g} Gb/s" if known(port.rate_gbit_per_s) else ""
    state = port.state if known(port.state) else "state unknown"
    flaps = f", down {port.link_downed} times" if known(port.link_downed) and port.link_downed else ""
    return f"{port.name}/{port.port} {state}{rate}{flaps}"


@card_rule(
    "topology.pci.aer",
    "PCIe reports no errors of the card's link",
    reads="AER counters of the card's slot (/sys/bus/pci/devices/*/aer_dev_*)",
    door="pci",
    passes=f"no uncorrected error, and corrected ones of less than {AER_PER_DAY} a day",
    warns="an uncorrected error, or more corrected ones",
    cause=Cause.faulty,
    owner=Owner.provider,
    meaning="The link between host and card loses packets: a slot, riser or cable with bad contact.",
    next_step="Read the counters again under load; if they grow, tell the provider.",
    repeat="grep -H TOTAL /sys/bus/pci/devices/*/aer_dev_*",
)
def pci_aer(look: Look) -> Outcome:
    device = _pci_device(look.node.topology, look.card)
    if isinstance(device, Absent):
        return unknown(NODE, device)
    for count in (device.aer_uncorrected, device.aer_corrected):
        if isinstance(count, Absent):
            return unknown(NODE, count)
    uncorrected, corrected = device.aer_uncorrected, device.aer_corrected
    told = f"{uncorrected} uncorrected, {corrected} corrected"
    if known(uncorrected) and uncorrected:
        return warn(f"{told}.", observed=told, expected="0 uncorrected")
    host = look.node.host
    uptime = host.uptime_seconds if isinstance(host, Host) else host
    if isinstance(uptime, Absent) and corrected:
        return Outcome(Status.unknown, detail=f"{told}, over an unknown time ({uptime}).", observed=told)
    days = max(uptime / 86400, 1) if known(uptime) else 1
    if known(corrected) and corrected / days > AER_PER_DAY:
        expected = f"at most {AER_PER_DAY} corrected a day"
        return warn(f"{told}.", observed=told, expected=expected, expected_from="DCGM's PCIe test")
    return passed(f"{told}.", observed=told)


def _pci_device(topology: Maybe[Topology], card: Card) -> Maybe[PciDevice]:
    if isinstance(topology, Absent):
        return topology
    if isinstance(topology.pci_devices, Absent):
        return topology.pci_devices
    if isinstance(card.pci_address, Absent):
        return card.pci_address
    for device in topology.pci_devices:
        if device.address == card.pci_address:
            return device
    return Absent(why=Why.not_present, detail=f"{card.pci_address} on the PCI bus")
