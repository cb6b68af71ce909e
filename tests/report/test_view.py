from __future__ import annotations

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.judge import Cause, Status
from nodecheck.report import view
from nodecheck.report.drawing import MOST_CARDS, drawing
from nodecheck.report.html import render
from tests import healthy
from tests.report import samples


def test_findings_stand_by_cause_the_gravest_first_and_consequences_last() -> None:
    sections = view.sections(samples.rejected().judgement)
    assert [section.cause for section in sections] == [
        Cause.not_as_rented,
        Cause.faulty,
        Cause.misconfigured,
        Cause.not_visible,
    ]
    roots, follower = sections[0].groups
    assert roots.first.id == "topology.nvlink.active_links"
    assert follower.first.id == "topology.pairs.nvlink"
    assert follower.follows
    assert len(follower.findings) == 7
    assert [row.subjects for row in follower.rows] == [
        ", ".join(f"GPU 2 – GPU {i}" for i in (0, 1, 3, 4, 5, 6, 7))
    ]


def test_waived_and_merely_wanted_findings_stand_apart() -> None:
    judgement = samples.rejected().judgement
    assert [group.first.id for group in view.waived(judgement)] == ["cards.persistence"]
    assert [group.first.id for group in view.missed(judgement)] == ["kernel_log.xid"]
    open_ids = {g.first.id for section in view.sections(judgement) for g in section.groups}
    assert not open_ids & {"cards.persistence", "kernel_log.xid"}


def test_passed_findings_of_like_cards_are_one_row() -> None:
    groups = view.with_status(samples.accepted(8).judgement, Status.passed)
    assert [(g.first.id, g.scope) for g in groups][:2] == [
        ("cards.count", "node"),
        ("cards.model", "8 cards"),
    ]


def test_a_card_is_not_blamed_for_the_other_card_of_its_pair() -> None:
    report = samples.rejected(4)
    states = [view.card_status(report.judgement, card.key) for card in report.facts.known_cards]
    assert states == [Status.unknown, Status.passed, Status.fail, Status.fail]


def test_the_matrix_of_pairs() -> None:
    table = view.matrix(samples.rejected(8).facts)
    assert not isinstance(table, Absent)
    texts = [[cell.text for cell in row] for row in table.rows]
    assert texts[0] == ["X", "NV18", "NODE", "NV18", "NV18", "NV18", "NV18", "NV18"]
    assert texts[2] == ["NODE", "NODE", "X", "NODE", "SYS", "SYS", "SYS", "SYS"]
    assert table.uniform is None
    assert [sign for sign, _ in view.legend(table)] == ["NV", "NODE", "SYS"]


@pytest.mark.parametrize("path", ["topology.pairs.0.nvlinks", "topology.pairs.0.distance"])
def test_a_pair_that_was_not_seen_is_a_question_mark(path: str) -> None:
    denied = Absent(why=Why.no_permission)
    node = healthy.change(samples.accepted(2).facts, "topology.pairs.0.nvlinks", 0)
    table = view.matrix(healthy.change(node, path, denied))
    assert not isinstance(table, Absent)
    assert table.rows[0][1].text == "?"
    assert "not seen (no permission)" in table.rows[0][1].note


def test_no_topology_is_no_matrix() -> None:
    node = healthy.change(samples.accepted(2).facts, "topology", Absent(why=Why.timed_out))
    table = view.matrix(node)
    assert isinstance(table, Absent)
    assert table.why is Why.timed_out


def test_every_fact_stands_in_the_record() -> None:
    node = samples.accepted(8).facts
    lines = [line for _, lines in view.facts(node) for line in lines]
    assert "cards.7.identity.serial = 1650000000008" in lines
    assert "host.kernel = 6.8.0-60-generic" in lines
    assert "topology.pairs.27.nvlinks = 18" in lines
    assert "stack.environment.0.0 = OMP_NUM_THREADS" in lines
    assert len(lines) > 3000


def test_the_drawing_of_a_switched_board_is_a_bar() -> None:
    made = drawing(samples.accepted(8))
    assert made is not None
    assert made.bar is not None
    assert made.bar.title == "NVSwitch (4 devices): every pair NV18"
    assert [frame.title for frame in made.frames] == ["NUMA node 0", "NUMA node 1"]
    assert [(line.kind, line.label) for line in made.lines] == [("nvlink", "18")] * 8
    assert all(box.x >= 0 and box.x + box.width <= made.width for box in made.boxes)


def test_a_guest_does_not_see_the_switches_nor_the_numa_nodes() -> None:
    made = drawing(samples.accepted(4, "vm"))
    assert made is not None
    assert made.bar is not None
    assert made.bar.title == "NVSwitch (hidden from here): every pair NV18"
    assert [frame.title for frame in made.frames] == ["NUMA node not known"]


def test_a_card_off_the_links_shows_in_the_drawing() -> None:
    made = drawing(samples.rejected(8))
    assert made is not None
    assert made.bar is None
    assert sorted(line.kind for line in made.lines) == ["bad"] * 7 + ["nvlink"] * 21
    assert [line.kind for line in made.lines][-7:] == ["bad"] * 7  # on top
    assert made.boxes[2].lines == ("3a:00.0", "0 links")
    assert made.boxes[2].status is Status.fail


def test_one_card_none_and_too_many() -> None:
    alone = drawing(samples.accepted(1))
    assert alone is not None
    assert len(alone.boxes) == 1
    assert alone.lines == ()
    assert drawing(samples.without_cards()) is None
    report = samples.accepted(2)
    many = healthy.change(report.facts, "cards", report.facts.known_cards * (MOST_CARDS // 2 + 1))
    crowded = report.model_copy(update={"facts": many})
    assert drawing(crowded) is None
    assert "<svg" not in render(crowded)
