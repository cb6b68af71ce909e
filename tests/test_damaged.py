"""Whatever a source answers, no probe and no rule breaks; and what may not be seen is neither good nor bad."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.facts import OWN_FAULT, Absent, Why
from nodecheck.judge import BROKEN_RULE, Status, Verdict, judge
from nodecheck.probes import STAGES, Probing, nvidia
from nodecheck.profile import load
from nodecheck.sources import Sources, recorders
from nodecheck.sources.channel import decode
from tests.fakes import nvml
from tests.fakes.node import healthy
from tests.fakes.tree import Ground

pytestmark = pytest.mark.skipif(not nvml.compiler(), reason="no C compiler here")

Recording = dict[str, dict[str, Any]]

NONSENSE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)
ANSWERS = st.one_of(
    st.builds(lambda value: {"value": value}, NONSENSE),
    st.builds(
        lambda why, detail: {"absent": why, "detail": detail},
        st.sampled_from(
            ["not_supported", "no_permission", "not_present", "failed", "timed_out", "not_asked"]
        ),
        st.text(max_size=20),
    ),
    NONSENSE,
)


@cache
def recording() -> Recording:
    """What a healthy node's sources answer, question by question."""
    with TemporaryDirectory() as folder:
        recorded = recorders(healthy("h200x2").channels(Ground(Path(folder) / "node")))
        Probing(Sources.over(dict(recorded)), "quick").run()
    return {name: recorder.answers for name, recorder in recorded.items()}


def places() -> list[tuple[str, str]]:
    """Every question to every source, and every call of the survey of NVML."""
    answers = recording()
    calls = [("call", call) for call in answers["nvml"]["survey"]["value"]]
    return calls + [(source, question) for source, some in answers.items() for question in some]


def damaged(damage: Mapping[tuple[str, str], Any]) -> Recording:
    answers = {source: dict(some) for source, some in recording().items()}
    calls = dict(answers["nvml"]["survey"]["value"])
    for (source, question), answer in damage.items():
        if source == "call":
            calls[question] = answer
    answers["nvml"]["survey"] = {"value": calls}
    for (source, question), answer in damage.items():
        if source != "call":
            answers[source][question] = answer
    return answers


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_no_answer_breaks_a_probe_or_a_rule(data: st.DataObject) -> None:
    damage = data.draw(st.dictionaries(st.sampled_from(places()), ANSWERS, min_size=1, max_size=12))
    node = Probing(Sources.recorded(damaged(damage)), "quick").run()
    for stage in STAGES:
        seen = getattr(node, stage)
        assert not (isinstance(seen, Absent) and "probe broke" in seen.detail), seen
    findings = judge(node, load("h200x2")).findings
    assert not {f.id: f.detail for f in findings if f.door == BROKEN_RULE}


REFUSED = {"absent": "no_permission", "detail": "Permission denied"}
DOORSTEPS = ("nvmlInit()", "nvmlDeviceGetCount()", "nvmlDeviceGetHandleByIndex")
"""Who is refused here cannot use the cards: that is a finding of its own."""


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_a_closed_door_is_no_fault(data: st.DataObject) -> None:
    doors = [place for place in places() if not place[1].startswith((*DOORSTEPS, "survey"))]
    closed = data.draw(st.sets(st.sampled_from(doors), min_size=1, max_size=40))
    node = Probing(Sources.recorded(damaged(dict.fromkeys(closed, REFUSED))), "quick").run()
    judgement = judge(node, load("h200x2"))
    assert not {f.id: f.detail for f in judgement.findings if f.status in (Status.warn, Status.fail)}
    assert judgement.verdict in (Verdict.accepted, Verdict.incomplete)


def test_a_probe_that_breaks_is_no_fault_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(nvidia, "probe", broken)
    node = Probing(Sources.recorded(damaged({})), "quick").run()
    assert isinstance(node.cards, Absent) and node.cards.detail.startswith(OWN_FAULT)
    judgement = judge(node, load("h200x2"))
    assert judgement.verdict is Verdict.incomplete
    (listed,) = (finding for finding in judgement.findings if finding.id == "cards.listed")
    assert listed.status is Status.unknown and "KeyError" in listed.detail


@pytest.mark.parametrize(
    "stored", [{"absent": []}, {"absent": {}}, {"absent": 3}, {"absent": "why"}, {}, [], None]
)
def test_what_is_no_answer_is_one_that_failed(stored: Any) -> None:
    assert decode(stored) == Absent(why=Why.failed, detail="the recording is damaged here")
