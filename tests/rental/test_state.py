from __future__ import annotations

from pathlib import Path

from nodecheck.judge import Status
from nodecheck.rental.state import State, Terms
from nodecheck.report import document
from tests.judge.cases import healthy
from tests.rental.checks import START, card, check, minutes
from tests.report.samples import accepted, finding

NODE = healthy("h200x8")
WARN, FAIL, PASS, UNKNOWN, SKIPPED = (
    Status.warn,
    Status.fail,
    Status.passed,
    Status.unknown,
    Status.skipped,
)


def test_an_acceptance_comes_back_as_it_was(tmp_path: Path) -> None:
    report, terms = accepted(), Terms(ends_at=minutes(600), keep=("/data",))
    with_state(tmp_path).accept(report, terms)

    kept = with_state(tmp_path).acceptance()

    assert kept is not None
    assert (kept.report, kept.terms) == (report, terms)
    written = tmp_path / "report.json"
    written.write_text(document.dump(report))
    assert document.load(written) == kept.report


def test_a_check_comes_back_as_it_was(tmp_path: Path) -> None:
    findings = (finding("cards.count", PASS), finding("health.ecc", FAIL, card(3)))
    with_state(tmp_path).record(check(START, findings), NODE)

    look = with_state(tmp_path).last_look()

    assert look is not None
    assert (look.node, look.findings) == (NODE, findings)


def test_a_new_state_is_empty(tmp_path: Path) -> None:
    state = with_state(tmp_path)
    assert state.acceptance() is None
    assert state.last_look() is None
    assert state.checks() is None
    assert (state.episodes(), state.series(), state.acceptances(), state.reboots()) == ((), (), (), ())
    assert state.notes == []


def with_state(folder: Path, host: str = "node-1") -> State:
    return State(folder, host)
