from __future__ import annotations

from datetime import timedelta

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.judge import Cause, Finding, Judgement, Status
from nodecheck.profile import NO_PROFILE
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
        Cause.not_visible,
        Cause.misconfigured,
    ]
    roots, follower = sections[0].groups
    assert roots.first.id == "topology.nvlink.active_links"
    assert follower.first.id == "topology.pairs.nvlink"
    assert follower.follows
    assert len(follower.findings) == 7
    assert [row.subjects for row in follower.rows] == [
        ", ".join(f"GPU 2 – GPU {i}" for i in (0, 1, 3, 4, 5, 6, 7))
    ]


def judged(*findings: Finding) -> Judgement:
    report = samples.accepted(2)
    return samples.judgement(report.facts, report.profile, findings)


def test_the_cause_with_the_gravest_finding_comes_first() -> None:
    sections = view.sections(
        judged(
            samples.finding("cards.model", Status.warn, cause=Cause.not_as_rented),
            samples.finding("health.ecc_mode", Status.fail, cause=Cause.faulty),
            samples.finding("cards.count", Status.unknown),
        )
    )
    assert [section.cause for section in sections] == [Cause.faulty, Cause.not_visible, Cause.not_as_rented]


def test_what_follows_stands_behind_its_root_whatever_its_own_cause() -> None:
    (section,) = view.sections(
        judged(
            samples.finding("c", Status.fail, cause=Cause.not_as_rented, root="b"),
            samples.finding("b", Status.fail, cause=Cause.misconfigured, root="a"),
            samples.finding("a", Status.fail, cause=Cause.faulty),
        )
    )
    assert section.cause is Cause.faulty
    assert [group.first.id for group in section.groups] == ["a", "b", "c"]


def test_unknowns_that_follow_are_counted_once_and_have_no_block() -> None:
    judgement = judged(
        samples.finding("cards.listed", Status.fail),
        *(samples.finding(f"health.{i}", Status.unknown, root="cards.listed") for i in range(9)),
        samples.finding("cards.wanted", Status.unknown, root="cards.listed", required=False),
        samples.finding("cards.further", Status.unknown, root="health.3"),
        samples.finding("kernel_log.xid", Status.unknown, required=False),
    )
    (section,) = view.sections(judgement)
    assert [group.first.id for group in section.groups] == ["cards.listed"]
    (behind,) = section.behind
    assert behind.sentence == "11 findings follow from cards.listed and could not be seen"
    assert view.named(behind.ids).endswith("health.5 and 5 more")
    assert [group.first.id for group in view.missed(judgement)] == ["kernel_log.xid"]


def test_roots_that_are_not_there_or_go_in_a_circle_hide_nothing() -> None:
    judgement = judged(
        samples.finding("a", Status.unknown, root="b"),
        samples.finding("b", Status.unknown, root="a"),
        samples.finding("c", Status.unknown, root="nobody"),
        samples.finding("d", Status.fail, root="d"),
    )
    told = {group.first.id for section in view.sections(judgement) for group in section.groups}
    told |= {id for section in view.sections(judgement) for behind in section.behind for id in behind.ids}
    assert told == {"a", "b", "c", "d"}


def test_a_card_with_waived_trouble_alone_is_called_waived() -> None:
    report = samples.accepted(2)
    subject = samples.of_card(report.facts, 0)
    aside = samples.finding("cards.power_limit", Status.fail, subject, waived="agreed")
    passing = samples.finding("cards.model", Status.passed, subject)
    assert view.card_state(judged(passing, aside), subject.key).word == "WAIVED"
    broken = samples.finding("health.inforom", Status.fail, subject)
    assert view.card_state(judged(passing, aside, broken), subject.key).word == "FAIL"
    assert view.card_state(judged(passing), subject.key).word == "PASS"


def test_what_the_node_was_held_against_is_never_guessed() -> None:
    report = samples.accepted(2)
    assert view.rented(report).startswith("Held against the profile h200x2: 2 × NVIDIA H200")
    suggested = report.model_copy(update={"judgement": report.judgement.model_copy(update={"named": False})})
    assert "only suggested" in view.rented(suggested)
    assert "No profile was named" in view.rented(suggested.model_copy(update={"profile": NO_PROFILE}))


@pytest.mark.parametrize("argv", [("accept", "--from", "node.tar.gz"), ("accept", "--from=node.tar.gz")])
def test_a_recording_is_said_to_be_one(argv: tuple[str, ...]) -> None:
    report = samples.accepted(2)
    assert view.recording(report) == ""
    assert "(node.tar.gz)" in view.recording(report.model_copy(update={"argv": argv}))


def test_the_time_of_day_is_computed_where_it_can_be() -> None:
    node = healthy.change(samples.accepted(1).facts, "host.uptime_seconds", 7200.0)
    computed = node.at(3600.0)
    assert computed == node.taken_at - timedelta(hours=1)
    assert view.wall_clock(node, 3600.0) == f"{computed:%Y-%m-%d %H:%M:%S} UTC"
    denied = Absent(why=Why.no_permission)
    for blind in (
        healthy.change(node, "host.uptime_seconds", denied),
        healthy.change(node, "host", denied),
    ):
        assert view.wall_clock(blind, 3600.0) == ""
    assert view.wall_clock(node, denied) == view.wall_clock(node, 1e300) == ""


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
    states = [view.card_state(report.judgement, card.key).status for card in report.facts.known_cards]
    assert states == [Status.unknown, Status.passed, Status.fail, Status.fail]


def test_the_matrix_of_pairs() -> None:
    report = samples.rejected(8)
    table = view.matrix(report.facts, report.profile)
    assert not isinstance(table, Absent)
    texts = [[cell.text for cell in row] for row in table.rows]
    assert texts[0] == ["X", "NV18", "NODE", "NV18", "NV18", "NV18", "NV18", "NV18"]
    assert texts[2] == ["NODE", "NODE", "X", "NODE", "SYS", "SYS", "SYS", "SYS"]
    assert table.uniform is None
    assert [sign for sign, _ in view.legend(table)] == ["NV", "NODE", "SYS", "!"]
    assert [cell.marked for cell in table.rows[2]][:4] == ["NODE!", "NODE!", "X", "NODE!"]
    assert not table.rows[0][1].bad


@pytest.mark.parametrize("path", ["topology.pairs.0.nvlinks", "topology.pairs.0.distance"])
def test_a_pair_that_was_not_seen_is_a_question_mark(path: str) -> None:
    denied = Absent(why=Why.no_permission)
    node = healthy.change(samples.accepted(2).facts, "topology.pairs.0.nvlinks", 0)
    table = view.matrix(healthy.change(node, path, denied), samples.profile(2))
    assert not isinstance(table, Absent)
    assert table.rows[0][1].text == "?"
    assert "not seen (no permission)" in table.rows[0][1].note


def test_no_topology_is_no_matrix() -> None:
    node = healthy.change(samples.accepted(2).facts, "topology", Absent(why=Why.timed_out))
    table = view.matrix(node, samples.profile(2))
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
    assert [(line.kind, line.label) for line in made.lines] == [("link", "18")] * 8
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
    assert sorted(line.kind for line in made.lines) == ["bad"] * 7 + ["link"] * 21
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
