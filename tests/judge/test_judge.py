from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodecheck.facts import Absent, Fact, Node, Why
from nodecheck.judge import BROKEN_RULE, REGISTRY, Judgement, Status, Verdict, judge
from nodecheck.judge.docs import page
from nodecheck.judge.finding import Cause, Owner
from nodecheck.judge.roots import ROOTS, with_roots
from nodecheck.judge.rule import Outcome, fail, passed, rule, warn
from nodecheck.profile import names
from tests.healthy import VIEWS, View, change
from tests.judge.cases import DENIED, HUNG, UNASKED, Case, faulty, found, healthy, profile
from tests.judge.rules import (
    test_amd,
    test_cards,
    test_diagnoses,
    test_health,
    test_measurements,
    test_operators,
    test_topology,
)

ROOT = Path(__file__).parents[2]
BUNDLES = [name for name in names() if not profile(name).abstract]
CASES = [
    *test_cards.CASES,
    *test_health.CASES,
    *test_topology.CASES,
    *test_measurements.CASES,
    *test_operators.CASES,
    *test_amd.CARDS,
    *test_diagnoses.CASES,
]
SUBJECTS = ("cards.", "health.", "topology.", "measurements.")


# Healthy nodes


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", BUNDLES)
def test_a_healthy_node_is_accepted_without_a_warning(name: str, view: View) -> None:
    judgement = judge(healthy(name, view), profile(name))
    troubled = [f"{f.id} {f.status.value}: {f.detail}" for f in judgement.findings if f.status in _TROUBLE]
    assert troubled == []
    assert judgement.verdict is Verdict.accepted, judgement.reasons
    assert judgement.reasons == ()


def test_a_bundle_on_a_larger_board_is_accepted() -> None:
    assert judge(healthy("h200x4", "container", 8), profile("h200x4")).verdict is Verdict.accepted


_TROUBLE = (Status.warn, Status.fail)


# The verdict


@pytest.mark.parametrize(
    ("faults", "verdict"),
    [
        ({}, Verdict.accepted),
        ({"cards.0.modes.compute": "exclusive_process"}, Verdict.accepted_with_warnings),
        ({"cards.0.memory.total_bytes": DENIED}, Verdict.incomplete),
        ({"cards.0.memory.total_bytes": DENIED, "cards.0.modes.compute": "prohibited"}, Verdict.rejected),
        (
            {"cards.0.memory.total_bytes": DENIED, "cards.0.modes.compute": "exclusive_process"},
            Verdict.incomplete,
        ),
        ({"cards.0.pcie.replays": DENIED}, Verdict.accepted),
        ({"cards": UNASKED}, Verdict.incomplete),
        ({"cards": HUNG}, Verdict.rejected),
    ],
)
def test_fail_goes_before_required_unknown_before_warn_before_pass(
    faults: dict[str, Any], verdict: Verdict
) -> None:
    assert judge(faulty("h200x4", faults), profile("h200x4")).verdict is verdict


@pytest.mark.parametrize(
    "path",
    [
        "cards",
        "cards.0.usable",
        "cards.0.identity.name",
        "cards.0.identity.pci_id",
        "cards.0.memory.total_bytes",
        "cards.0.links",
        "cards.0.fabric.state",
        "topology",
        "topology.pairs",
    ],
)
def test_what_makes_the_bundle_must_be_seen(path: str) -> None:
    judgement = judge(faulty("h200x4", {path: UNASKED}), profile("h200x4"))
    assert judgement.verdict is Verdict.incomplete
    assert judgement.reasons


def test_a_profile_may_move_a_finding_between_required_and_wanted() -> None:
    node, spec = faulty("h200x4", {"cards.0.pcie.replays": DENIED}), profile("h200x4")
    stricter = spec.model_copy(update={"required": ("cards.pcie.replays",)})
    assert judge(node, stricter).verdict is Verdict.incomplete
    node = faulty("h200x4", {"cards.0.memory.total_bytes": DENIED})
    laxer = spec.model_copy(update={"wanted": ("cards.memory.total",)})
    assert judge(node, laxer).verdict is Verdict.accepted


def test_a_suggested_profile_accepts_nothing() -> None:
    judgement = judge(healthy("h200x4"), profile("h200x4"), named=False)
    assert judgement.verdict is Verdict.incomplete
    assert judgement.named is False
    assert "only suggested" in judgement.reasons[0]
    broken = faulty("h200x4", {"cards.0.health.row_remap_failed": True})
    assert judge(broken, profile("h200x4"), named=False).verdict is Verdict.incomplete


def test_nothing_seen_is_nothing_accepted() -> None:
    healthy_node = healthy("h200x4")
    blind = Node(taken_at=healthy_node.taken_at, tool_version="0", level="quick")
    for name in BUNDLES:
        assert judge(blind, profile(name)).verdict is Verdict.incomplete


# Waivers


def test_a_waived_failure_is_shown_and_does_not_count() -> None:
    node = faulty("h200x4", {"cards.0.health.row_remap_pending": True})
    judgement = judge(node, profile("h200x4"), {"health.row_remap_pending": "reset is booked for Monday"})
    assert judgement.verdict is Verdict.accepted_with_warnings
    assert "1 set aside by waiver" in judgement.summary
    assert "problem" not in judgement.summary
    (reason,) = judgement.reasons
    assert reason.startswith("health.row_remap_pending (GPU 0 (0000:18:00.0)): set aside by waiver (reset is")
    (failed,) = [f for f in judgement.findings if f.status is Status.fail]
    assert failed.waived == "reset is booked for Monday"
    assert all(f.waived is None for f in judgement.findings if f.status is not Status.fail)


def test_a_waiver_lifts_no_other_trouble() -> None:
    faults = {"cards.0.health.row_remap_pending": True, "cards.1.power.limit_watts": 300.0}
    judgement = judge(faulty("h200x4", faults), profile("h200x4"), {"health.row_remap_pending": "booked"})
    assert judgement.verdict is Verdict.rejected
    assert "1 problem, 1 set aside by waiver" in judgement.summary
    unmet = judge(healthy("h200x4"), profile("h200x4"), {"health.row_remap_pending": "booked"})
    assert unmet.verdict is Verdict.accepted


def test_a_waiver_never_makes_the_unseen_seen() -> None:
    node = faulty("h200x4", {"cards.0.memory.total_bytes": DENIED})
    assert judge(node, profile("h200x4"), {"cards.memory.total": "?"}).verdict is Verdict.incomplete


def test_a_waiver_of_an_unknown_finding_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no finding has the id cards\.colour"):
        judge(healthy("h200x4"), profile("h200x4"), {"cards.colour": "?"})


# Rules that break


@pytest.fixture
def register() -> Iterator[Callable[..., None]]:
    """Registers further rules, for one test."""
    before = dict(REGISTRY)

    def add(id: str, judge: Callable[..., Any], *, required: bool = True) -> None:
        rule(
            id,
            "A rule for a test",
            reads="nothing",
            door="nvml",
            passes="never",
            cause=Cause.faulty,
            owner=Owner.provider,
            required=required,
            meaning="",
            next_step="",
            repeat="",
        )(judge)

    yield add
    REGISTRY.clear()
    REGISTRY.update(before)


def broken(node: Node, profile: Any) -> Iterator[Outcome]:
    yield passed("The first card was well.")
    raise ZeroDivisionError("division by zero")


def test_a_rule_that_breaks_is_unknown_and_stops_nothing(register: Callable[..., None]) -> None:
    register("test.broken", broken)
    judgement = judge(healthy("h200x4"), profile("h200x4"))
    first, last = found(judgement, "test.broken")
    assert (first.status, last.status) == (Status.passed, Status.unknown)
    assert "ZeroDivisionError: division by zero" in last.detail
    assert judgement.verdict is Verdict.incomplete
    (entry,) = [entry for entry in judgement.ledger if entry.door == BROKEN_RULE]
    assert entry.unknown_findings == ("test.broken",)


def test_a_rule_that_says_nothing_is_unknown(register: Callable[..., None]) -> None:
    register("test.silent", lambda node, profile: [])
    judgement = judge(healthy("h200x4"), profile("h200x4"))
    assert [f.status for f in found(judgement, "test.silent")] == [Status.unknown]
    assert judgement.verdict is Verdict.incomplete


def test_two_rules_with_one_id_are_refused(register: Callable[..., None]) -> None:
    with pytest.raises(ValueError, match=r"two rules have the id cards\.count"):
        register("cards.count", broken)


# Reasons, roots, ledger


def test_the_gravest_reasons_come_first_and_the_same_is_said_once(register: Callable[..., None]) -> None:
    register("test.slow", lambda node, profile: [fail("Slow.", cause=Cause.slow)])
    register("test.warned", lambda node, profile: [warn("Odd.", cause=Cause.not_as_rented)])
    faults = {
        "cards.*.health.row_remap_pending": True,
        "cards.1.power.limit_watts": 300.0,
        "cards.0.memory.total_bytes": DENIED,
    }
    reasons = judge(faulty("h200x4", faults), profile("h200x4")).reasons
    assert [reason.partition(" ")[0] for reason in reasons] == [
        "cards.power_limit",
        "health.row_remap_pending",
        "test.slow",
        "cards.memory.total",
        "test.warned",
    ]
    assert reasons[1].startswith("health.row_remap_pending (4 cards): ")
    assert reasons[0].startswith("cards.power_limit (GPU 1 (0000:2a:00.0)): ")


@pytest.mark.parametrize(
    ("cap", "product", "root"),
    [
        (Status.fail, Status.warn, "cards.power_limit"),
        (Status.warn, Status.fail, None),
        (Status.unknown, Status.warn, None),
        (Status.unknown, Status.unknown, "cards.power_limit"),
    ],
)
def test_what_was_not_seen_explains_no_trouble_that_was(
    cap: Status, product: Status, root: str | None
) -> None:
    judgement = judge(healthy("h200x1", level="standard"), profile("h200x1"))
    limit, gemm = (found(judgement, id)[0] for id in ("cards.power_limit", "measurements.gemm"))
    told = [
        limit.model_copy(update={"status": cap, "required": True}),
        gemm.model_copy(update={"status": product}),
    ]
    assert with_roots(told)[1].root == root


def test_every_root_and_what_it_causes_is_a_finding_or_belongs_to_the_stack() -> None:
    mentioned = {id for root in ROOTS for id in (root.id, *root.causes)}
    assert {id for id in mentioned if not id.startswith("stack.")} <= set(REGISTRY)
    if any(id.startswith("stack.") for id in REGISTRY):
        assert mentioned <= set(REGISTRY)


def test_a_closed_door_names_the_findings_that_it_cost() -> None:
    judgement = judge(healthy("h200x4", "container"), profile("h200x4"))
    unknown = {f.id for f in judgement.findings if f.status is Status.unknown}
    told = {id for entry in judgement.ledger for id in entry.unknown_findings}
    assert told == unknown
    assert {door.name for door in healthy("h200x4", "container").doors} <= {e.door for e in judgement.ledger}


def test_a_door_that_nobody_tried_stands_in_the_ledger_too() -> None:
    node = faulty("h200x4", {"doors": (), "cards.0.pcie.replays": DENIED})
    (entry,) = judge(node, profile("h200x4")).ledger
    assert (entry.door, entry.unknown_findings) == ("nvml", ("cards.pcie.replays",))
    assert isinstance(entry.open, Absent)


def test_the_summary_names_profile_level_and_counts() -> None:
    summary = judge(faulty("h200x4", {"cards.0.memory.total_bytes": DENIED}), profile("h200x4")).summary
    assert summary.startswith("INCOMPLETE h200x4 at level quick: ")
    assert "3 unknown" in summary and "nothing was measured under load" in summary


def test_what_shows_on_several_cards_is_one_problem() -> None:
    faults = {"cards.*.health.row_remap_pending": True, "cards.1.power.limit_watts": 300.0}
    assert ", 2 problems (5 findings), " in judge(faulty("h200x4", faults), profile("h200x4")).summary
    faults = {"cards.*.modes.compute": "exclusive_process"}
    assert ", 1 warning (4 findings), " in judge(faulty("h200x4", faults), profile("h200x4")).summary


# Purity


def test_judging_is_a_function_of_facts_and_profile() -> None:
    node = faulty("h200x8", {"cards.2.links.3.active": False, "cards.5.memory.used_bytes": 2**33})
    again = Node.model_validate_json(node.model_dump_json())
    assert again == node
    first, second = judge(node, profile("h200x8")), judge(again, profile("h200x8"))
    assert first == second
    assert Judgement.model_validate_json(first.model_dump_json()) == first


def paths(fact: Fact, prefix: str = "") -> Iterator[str]:
    """Every path below `fact`; of tuples the first item stands for all."""
    for name in type(fact).model_fields:
        path, value = f"{prefix}{name}", getattr(fact, name)
        yield path
        if isinstance(value, tuple) and value and isinstance(value[0], Fact):
            path, value = f"{path}.0", value[0]
        if isinstance(value, Fact) and not isinstance(value, Absent):
            yield from paths(value, f"{path}.")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("h200x2", Why.no_permission),
        ("h200x2", Why.not_supported),
        ("h200x2", Why.failed),
        ("h100-nvlx2", Why.not_supported),
        ("cpu", Why.not_present),
    ],
)
def test_no_rule_breaks_or_cheers_over_a_fact_that_is_missing(name: str, why: Why) -> None:
    node, spec = healthy(name), profile(name)
    passes = sum(f.status is Status.passed for f in judge(node, spec).findings)
    for path in paths(node):
        try:
            without = change(node, path, Absent(why=why, detail="taken away by the test"))
        except ValueError:
            continue  # a fact that is always there
        judgement = judge(without, spec)
        assert BROKEN_RULE not in {entry.door for entry in judgement.ledger}, path
        assert sum(f.status is Status.passed for f in judgement.findings) <= passes, path


# Completeness


def test_every_rule_has_a_case_for_each_thing_that_it_can_say() -> None:
    said: dict[str, set[Status]] = defaultdict(set)
    for case in CASES:
        said[case.id].add(case.status)
    for entry in REGISTRY.values():
        if not entry.id.startswith(SUBJECTS) or entry.id == "measurements.performed":
            continue
        wanted = {Status.passed, Status.unknown}
        wanted |= {Status.warn} if entry.warns else set()
        wanted |= {Status.fail} if entry.fails else set()
        assert wanted <= said[entry.id], entry.id


def test_cases_are_of_rules() -> None:
    assert {case.id for case in CASES} <= set(REGISTRY)
    assert all(isinstance(case, Case) for case in CASES)


def test_texts_are_whole() -> None:
    for entry in REGISTRY.values():
        assert entry.title and not entry.title.endswith("."), entry.id
        assert entry.reads and entry.passes and entry.door, entry.id
        if entry.warns or entry.fails:
            assert entry.meaning and entry.next_step and entry.repeat, entry.id


def test_what_no_card_is_asked_is_said_once() -> None:
    (skip,) = found(judge(healthy("h200x8"), profile("h200x8")), "cards.partition.compute")
    assert (skip.subject.kind, skip.status, skip.detail) == (
        "node",
        Status.skipped,
        "Asked of AMD's cards alone.",
    )


def test_the_page_of_findings_is_up_to_date() -> None:
    written = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
    assert written == page(), "run `make docs`"
    for id in REGISTRY:
        assert f"### `{id}`" in written
