"""Reports on AMD's cards: their own words and columns, and none that only NVIDIA's have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from nodecheck.facts import Absent, Door, Node, Why
from nodecheck.judge import judge
from nodecheck.profile import load
from nodecheck.report import document, html, markdown, render, terminal, view
from nodecheck.report.document import Report
from nodecheck.report.drawing import drawing
from tests import healthy
from tests.report.hostile import ATTACKS, plant

UNSEEN = Absent(why=Why.failed, detail="the sources disagree")


def told(bundle: str, **changes: Any) -> Report:
    """The bundle with facts changed (`topology__pairs__0__weight`), judged and reported."""
    profile = load(bundle)
    node: Node = healthy.node(profile)
    for path, value in changes.items():
        node = healthy.change(node, path.replace("__", "."), value)
    return document.build(node, profile, judge(node, profile))


def first_pair(report: Report) -> view.Cell:
    table = view.matrix(report.facts, report.profile)
    assert not isinstance(table, Absent)
    return table.rows[0][1]


@pytest.mark.parametrize(
    ("changes", "marked", "kind"),
    [
        ({}, "xGMI", "link"),
        ({"weight": 30, "hops": 2}, "2 hops!", "link"),
        ({"hops": UNSEEN}, "xGMI", "link"),
        ({"link_type": "pcie", "distance": "NODE"}, "NODE!", "pcie"),
        ({"link_type": "pcie", "distance": UNSEEN}, "PCIe!", "pcie"),
        ({"link_type": UNSEEN}, "?", "unknown"),
    ],
)
def test_how_two_cards_are_joined(changes: dict[str, Any], marked: str, kind: str) -> None:
    report = told("mi300xx8", **{f"topology__pairs__0__{name}": value for name, value in changes.items()})
    cell = first_pair(report)
    assert (cell.marked, cell.kind) == (marked, kind)
    table = view.matrix(report.facts, report.profile)
    assert not isinstance(table, Absent)
    signs = {sign for sign, _ in view.legend(table)}
    assert "xGMI" in signs and ("!" in signs) is cell.bad


def test_two_hives_and_hops_are_as_the_product_is() -> None:
    for bundle, texts in (("mi210x8", {"X", "xGMI", "SYS"}), ("mi250xx8", {"X", "xGMI", "2 hops"})):
        report = told(bundle)
        table = view.matrix(report.facts, report.profile)
        assert not isinstance(table, Absent)
        cells = [cell for row in table.rows for cell in row]
        assert not any(cell.bad for cell in cells)
        assert {cell.text for cell in cells} <= texts | {"PCIe", "NODE", "PHB", "PIX"}


def test_the_drawing_names_the_links() -> None:
    made = drawing(told("mi300xx8"))
    assert made is not None and made.bar is not None
    assert made.bar.title == "xGMI links: every pair xGMI"


FOREIGN = re.compile(r"nvlink|nvidia-smi|\bnvml\b|nvswitch|cuinit|cudnn|built with cuda", re.IGNORECASE)


def test_no_form_speaks_of_what_other_cards_have() -> None:
    report = told("mi300xx8")
    page = html.render(report)
    shown = page.partition("<h2>Cards</h2>")[2].partition("<h2>Findings")[0]
    for text in (terminal.render(report), markdown.render(report), shown):
        assert "xGMI" in text
        assert not FOREIGN.findall(text)
    assert "CUs" in terminal.render(report)
    assert "SPX, NPS1" in markdown.render(report) and "SPX, NPS1" in shown
    assert "Built with HIP" in page and "cuInit" not in page


def test_the_terminal_keeps_to_its_width() -> None:
    for bundle in ("mi300xx8", "mi250xx8"):
        table = terminal.render(told(bundle)).partition("Doors to the node")[0]
        assert max(map(len, table.splitlines())) <= 80


def test_doors_to_other_cards_are_told_where_a_finding_misses_them() -> None:
    closed = tuple(
        Door(name=name, open=False, detail="There is no driver of NVIDIA's.")
        for name in ("nvml", "driver_proc", "libcuda")
    )
    node = healthy.node(load("mi300xx8"))
    node = node.model_copy(update={"doors": (*node.doors, *closed)})
    of_amd = {entry.door for entry in judge(node, load("mi300xx8")).ledger}
    assert "kfd" in of_amd and not of_amd & {"nvml", "driver_proc", "libcuda"}
    assert "nvml" in {entry.door for entry in judge(node, load("h200x8")).ledger}


def test_nothing_that_amd_cards_say_becomes_markup() -> None:
    sample = document.load(Path(__file__).parents[2] / "reports" / "mi300xx8")
    for attack in (ATTACKS[0], ATTACKS[4], ATTACKS[10], ATTACKS[13]):
        planted = sample.model_copy(update={"facts": plant(sample.facts, lambda text, a=attack: a)})
        text = render(planted, "md")
        page = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
        assert not re.search(r'<(?:script|svg|h1>planted)|href="javascript', page)
        assert not re.search(r"^# planted", text, re.MULTILINE)
        assert "\x1b" not in text + render(planted, "terminal")
        assert "<script" not in render(planted, "html") and "<svg/" not in render(planted, "html")
