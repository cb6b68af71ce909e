"""What changes from one check to the next, against a model that only knows the rules in words."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.judge import Finding, Status, Subject
from nodecheck.judge.finding import NODE
from nodecheck.rental.state import State
from tests.judge.cases import healthy
from tests.rental.looks import card, check, minutes
from tests.report.samples import finding

_NODE = healthy("h200x1")
PASS, WARN, FAIL, UNKNOWN, SKIPPED = (
    finding("a", Status.passed),
    finding("a", Status.warn),
    finding("a", Status.fail),
    finding("a", Status.unknown),
    finding("a", Status.skipped),
)
WANTED = finding("a", Status.unknown, required=False)
WAIVED = finding("a", Status.fail, waived="agreed")

NAMES: dict[str, Finding | None] = {
    "pass": PASS,
    "warn": WARN,
    "fail": FAIL,
    "unknown": UNKNOWN,
    "wanted": WANTED,
    "skipped": SKIPPED,
    "waived": WAIVED,
    "-": None,
}


@pytest.mark.parametrize(
    ("checks", "told"),
    [
        ("pass pass", "- -"),
        ("fail fail fail", "new - -"),
        ("pass warn fail warn pass", "- new worse better gone"),
        ("fail -", "new gone"),
        ("fail pass fail", "new gone new"),
        ("unknown fail", "new worse"),
        ("warn unknown warn", "new worse better"),
        ("unknown pass", "new gone"),
        # A failure that cannot be seen is neither gone nor better, and no news when it is seen again.
        ("fail unknown fail", "new - -"),
        ("fail unknown unknown warn", "new - - better"),
        ("fail wanted fail", "new - -"),
        ("fail wanted pass", "new - gone"),
        ("fail skipped warn", "new - better"),
        ("wanted skipped pass", "- - -"),
        ("fail waived fail", "new gone new"),
        ("waived pass", "- -"),
    ],
)
def test_each_change_is_told_once(tmp_path: Path, checks: str, told: str) -> None:
    state, found = State(tmp_path), []
    for number, name in enumerate(checks.split()):
        seen = NAMES[name]
        findings = () if seen is None else (seen,)
        changes = state.changes(findings, minutes(number))
        found.append(changes[0].what if changes else "-")
        state.record(check(minutes(number), findings), _NODE)
    assert " ".join(found) == told


def test_a_node_that_cannot_be_looked_at_mends_no_card(tmp_path: Path) -> None:
    state = State(tmp_path)
    sick = finding("health.ecc", Status.fail, card(3))
    state.record(check(minutes(0), (sick,)), _NODE)
    blind = finding("health.ecc", Status.unknown, NODE, required=False)
    assert state.changes((blind,), minutes(1)) == ()
    state.record(check(minutes(1), (blind,)), _NODE)
    (episode,) = state.episodes()
    assert (episode.over, episode.last_seen) == (False, minutes(0))
    assert [change.what for change in state.changes((), minutes(2))] == ["gone"]


def test_a_change_names_when_it_was_seen(tmp_path: Path) -> None:
    state = State(tmp_path)
    for number in range(3):
        state.record(check(minutes(number), (WARN,)), _NODE)
    (worse,) = state.changes((FAIL,), minutes(3))
    assert (worse.finding, worse.first_seen, worse.last_seen) == (FAIL, minutes(0), minutes(3))
    (gone,) = state.changes((PASS,), minutes(3))
    assert (gone.finding, gone.first_seen, gone.last_seen) == (WARN, minutes(0), minutes(2))


@dataclass
class Model:
    """One finding's life in the words of the rules; times are the numbers of checks."""

    gravity: int = 0
    """0: right or gone; 1 warns; 2 required and not seen; 3 fails."""
    first: int = 0
    last: int = 0

    def see(self, now: str, number: int) -> str:
        if now in ("wanted", "skipped"):
            return "-"
        gravity = {"warn": 1, "unknown": 2, "fail": 3}.get(now, 0)
        if now == "unknown" and self.gravity == 3:
            gravity = 3
        before, self.gravity = self.gravity, gravity
        if not gravity:
            return "gone" if before else "-"
        self.last = number
        if not before:
            self.first = number
            return "new"
        return "worse" if gravity > before else "better" if gravity < before else "-"


SUBJECTS = (card(0), card(1))
_looks = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([0, 1])),
    st.sampled_from([n for n in NAMES if n != "-"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_looks, max_size=8))
def test_changes_and_episodes_are_the_models(looks: list[dict[tuple[str, int], str]]) -> None:
    models: dict[tuple[str, int], Model] = {}
    over: list[tuple[str, str, int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        state = State(Path(folder))
        for number, look in enumerate(looks):
            findings = [_named(id, SUBJECTS[place], name) for (id, place), name in look.items()]
            expected = []
            for key in sorted({*models, *look}):
                model = models.setdefault(key, Model())
                what = model.see(look.get(key, "-"), number)
                if what != "-":
                    expected.append(
                        (what, key[0], SUBJECTS[key[1]].key, minutes(model.first), minutes(model.last))
                    )
                if what == "gone":
                    over.append((key[0], SUBJECTS[key[1]].key, model.first, model.last))
            changes = state.changes(findings, minutes(number))
            state.record(check(minutes(number), findings), _NODE)
            assert sorted(
                (c.what, c.finding.id, c.finding.subject.key, c.first_seen, c.last_seen) for c in changes
            ) == sorted(expected)
        episodes = state.episodes()
        state.close()
    lasting = [
        (id, SUBJECTS[place].key, model.first, model.last)
        for (id, place), model in models.items()
        if model.gravity
    ]
    for wanted, ended in ((over, True), (lasting, False)):
        assert sorted(
            (e.finding.id, e.finding.subject.key, e.first_seen, e.last_seen)
            for e in episodes
            if e.over is ended
        ) == sorted((id, key, minutes(first), minutes(last)) for id, key, first, last in wanted)
    assert list(episodes) == sorted(episodes, key=lambda e: e.first_seen)


def _named(id: str, subject: Subject, name: str) -> Finding:
    template = NAMES[name]
    assert template is not None
    return template.model_copy(update={"id": id, "subject": subject})


def test_the_graver_of_two_findings_with_one_name_counts(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.record(check(minutes(0), (PASS, FAIL, WARN)), _NODE)
    (episode,) = state.episodes()
    assert episode.finding == FAIL
    assert state.changes((FAIL, PASS), minutes(1)) == ()
