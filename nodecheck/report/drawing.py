"""Where everything stands in the drawing of the topology; the HTML template turns it into SVG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nodecheck.facts import Absent, Card, Maybe, Node, known
from nodecheck.judge import Status
from nodecheck.profile import Profile
from nodecheck.report import view
from nodecheck.report.document import Report
from nodecheck.report.text import plural, shown

MOST_CARDS = 16
"""More are not drawn; the matrix of pairs has them all."""

Kind = Literal["link", "pcie", "unknown", "bad"]
"""`bad`: not what the profile promises for every pair."""

_WIDTH = 920.0
_BOX_HEIGHT = 62.0
_TOP = 12.0
_GAP = 10.0
_GROUP_TITLE = 22.0
_BAR_DROP = 56.0
_BAR_HEIGHT = 30.0


@dataclass(frozen=True)
class Box:
    """A card. Lengths are in the drawing's own units, here and below."""

    x: float
    y: float
    width: float
    height: float
    title: str
    lines: tuple[str, ...]
    status: Status

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def foot(self) -> float:
        return self.y + self.height


@dataclass(frozen=True)
class Frame:
    """Cards of one NUMA node."""

    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True)
class Line:
    """What joins two cards, or a card and the bar."""

    path: str
    kind: Kind
    thickness: float
    label: str
    label_x: float
    label_y: float
    note: str


@dataclass(frozen=True)
class Bar:
    """NVSwitch, or PCIe, where all pairs are joined alike."""

    x: float
    y: float
    width: float
    height: float
    title: str
    kind: Kind


@dataclass(frozen=True)
class Drawing:
    width: float
    height: float
    frames: tuple[Frame, ...]
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    bar: Bar | None


def drawing(report: Report) -> Drawing | None:
    """The topology as far as it is known; None where there is no card, or more than can be drawn."""
    cards = report.facts.known_cards
    if not 0 < len(cards) <= MOST_CARDS:
        return None
    frames, boxes = _stand(report, cards)
    foot = frames[0].y + frames[0].height
    table = view.matrix(report.facts, report.profile)
    if isinstance(table, Absent) or len(cards) == 1:
        return Drawing(_WIDTH, foot + _TOP, frames, boxes, (), None)
    alike = table.uniform
    if alike is not None and alike.kind != "unknown" and len(cards) > 2:
        bar = Bar(
            boxes[0].x,
            foot + _BAR_DROP,
            boxes[-1].x + boxes[-1].width - boxes[0].x,
            _BAR_HEIGHT,
            _bar_title(report.facts, alike),
            _pair_kind(alike),
        )
        stubs = tuple(
            _stub(report.profile, card, box, bar, alike) for card, box in zip(cards, boxes, strict=True)
        )
        return Drawing(_WIDTH, bar.y + bar.height + _TOP, frames, boxes, stubs, bar)
    arcs = [
        _arc(table.rows[i][j], boxes[i], boxes[j], j - i, named=len(cards) <= 4)
        for i in range(len(cards))
        for j in range(i + 1, len(cards))
    ]
    # What is wrong is drawn last, on top.
    arcs.sort(key=lambda line: ("pcie", "unknown", "link", "bad").index(line.kind))
    return Drawing(_WIDTH, foot + _depth(len(cards) - 1) + 2 * _TOP, frames, boxes, tuple(arcs), None)


def _stand(report: Report, cards: tuple[Card, ...]) -> tuple[tuple[Frame, ...], tuple[Box, ...]]:
    groups: list[list[Card]] = []
    for card in cards:
        if groups and _numa(groups[-1][0]) == _numa(card):
            groups[-1].append(card)
        else:
            groups.append([card])
    margins = 2 * _GAP * len(groups) + _GAP * (len(groups) - 1)
    width = min((_WIDTH - margins - _GAP * (len(cards) - len(groups))) / len(cards), 150.0)
    used = margins + _GAP * (len(cards) - len(groups)) + width * len(cards)
    x = (_WIDTH - used) / 2
    frames, boxes = [], []
    for group in groups:
        inner = len(group) * width + (len(group) - 1) * _GAP
        frames.append(
            Frame(x, _TOP, inner + 2 * _GAP, _BOX_HEIGHT + _GROUP_TITLE + _GAP, _numa_title(group[0]))
        )
        for i, card in enumerate(group):
            boxes.append(
                Box(
                    x + _GAP + i * (width + _GAP),
                    _TOP + _GROUP_TITLE,
                    width,
                    _BOX_HEIGHT,
                    card.short_name,
                    (_address(card), _links_up(card)),
                    view.card_state(report.judgement, card.key).status,
                )
            )
        x += inner + 3 * _GAP
    return tuple(frames), tuple(boxes)


def _numa(card: Card) -> int | None:
    # -1 is the kernel's way of saying that it does not know.
    return card.numa_node if known(card.numa_node) and card.numa_node >= 0 else None


def _numa_title(card: Card) -> str:
    node = _numa(card)
    return "NUMA node not known" if node is None else f"NUMA node {node}"


def _address(card: Card) -> str:
    return (
        "address ?" if isinstance(card.pci_address, Absent) else card.pci_address.removeprefix("0000:")[:13]
    )


def _links_up(card: Card) -> str:
    links: Maybe[int] = card.active_links
    return "links ?" if isinstance(links, Absent) else plural(links, "link")


def _bar_title(node: Node, alike: view.Cell) -> str:
    if alike.kind != "link":
        return f"PCIe only: every pair {alike.text}"
    remotes = {link.remote_kind for card in node.known_cards if known(card.links) for link in card.links}
    title = f"every pair {alike.text}"
    if "switch" not in remotes:
        return f"{view.links_name(node)}: {title}"
    devices = node.topology.pci_devices if known(node.topology) else ()
    switches = sum(device.kind == "nvswitch" for device in devices) if known(devices) else 0
    return f"NVSwitch ({plural(switches, 'device') if switches else 'hidden from here'}): {title}"


def _pair_kind(cell: view.Cell) -> Kind:
    if cell.bad:
        return "bad"
    return "pcie" if cell.kind == "self" else cell.kind


def _stub(profile: Profile, card: Card, box: Box, bar: Bar, alike: view.Cell) -> Line:
    links = card.active_links
    promised = profile.links.links_per_card if profile.links else None
    kind = bar.kind
    if alike.kind == "link" and known(links) and promised is not None and links < promised:
        kind = "bad"
    return Line(
        f"M {box.middle:.1f} {box.foot:.1f} V {bar.y:.1f}",
        kind,
        _thickness(alike.links),
        shown(links) if alike.kind == "link" and known(links) else "",
        box.middle + 8,
        bar.y - 16,
        f"{card.label}: {shown(links)} active links",
    )


def _arc(cell: view.Cell, a: Box, b: Box, span: int, *, named: bool) -> Line:
    depth, reach, y = _depth(span), (b.middle - a.middle) / 2, a.foot
    return Line(
        f"M {a.middle:.1f} {y:.1f} A {reach:.1f} {depth:.1f} 0 0 0 {b.middle:.1f} {y:.1f}",
        _pair_kind(cell),
        _thickness(cell.links),
        cell.text if named else "",
        (a.middle + b.middle) / 2,
        y + depth - 5,
        cell.note,
    )


def _depth(span: int) -> float:
    return 26.0 + 24.0 * span


def _thickness(links: int) -> float:
    return 1.2 + min(links, 18) / 7
