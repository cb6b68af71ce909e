"""A profile drafted from a good node is valid, promises what the node has, and cannot be led astray by it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import Absent, Why
from nodecheck.judge import Status, judge
from nodecheck.profile import ProfileError, load, names
from nodecheck.profile.draft import draft
from nodecheck.profile.loading import parse
from tests import healthy

NO_PERMISSION = Absent(why=Why.no_permission, detail="NVMLError_NoPermission")
CARDS = [name for name in names() if load(name).count]


@pytest.mark.parametrize("name", CARDS)
def test_a_draft_of_a_healthy_node_asks_what_the_bundle_has(name: str) -> None:
    bundle = load(name)
    node = healthy.node(bundle)
    profile = parse(draft(node, "mine", "report.json"), "mine.toml")
    assert profile.count == bundle.count
    assert profile.card and bundle.card and profile.links and bundle.links
    kept = ("architecture", "compute_capability", "arch", "memory_mib", "row_remap", "compute_units")
    for key in (*kept, "compute_partition", "memory_partition"):
        assert getattr(profile.card, key) == getattr(bundle.card, key), key
    assert set(profile.card.names) <= set(bundle.card.names)
    assert set(profile.card.pci_ids) <= set(bundle.card.pci_ids)
    pair = bundle.links.interconnect == "nvlink_pairs" and bundle.count == 2
    assert profile.links.interconnect == ("nvlink" if pair else bundle.links.interconnect)
    assert profile.links.fabric == bundle.links.fabric
    assert profile.links.links_per_card == bundle.links.links_per_card
    assert profile.links.direct == bundle.links.direct
    assert (profile.links.hive_cards or profile.count) == (bundle.links.hive_cards or bundle.count)
    assert profile.links.peer_to_peer == bundle.links.peer_to_peer
    assert not profile.figures
    assert [f.id for f in judge(node, profile).findings if f.status in (Status.fail, Status.warn)] == []


def test_a_smaller_card_does_not_pass_for_the_drafted_one() -> None:
    profile = parse(draft(healthy.node(load("a100x1")), "mine", "report.json"), "mine.toml")
    assert profile.card and profile.card.memory_tolerance_mib < 0.01 * profile.card.memory_mib


def drafted(name: str, **facts: Any) -> str:
    node = healthy.node(load(name))
    for path, value in facts.items():
        node = healthy.change(node, path.replace("__", "."), value)
    return draft(node, "mine", "report.json")


def test_what_was_not_seen_is_not_asked_and_said_so() -> None:
    text = drafted(
        "h200x1",
        cards__0__identity__cores=NO_PERMISSION,
        cards__0__clocks__max_sm_mhz=NO_PERMISSION,
        cards__0__power__default_limit_watts=NO_PERMISSION,
        host=NO_PERMISSION,
        stack=NO_PERMISSION,
    )
    profile = parse(text, "mine.toml")
    assert profile.card and profile.card.cores is None and profile.card.power_limit_watts is None
    assert profile.host is None and profile.stack is None
    assert "# cores: not seen on this node, so not asked." in text


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"cards__0__identity__name": NO_PERMISSION}, "no card tells its name"),
        ({"cards__0__memory__total_bytes": NO_PERMISSION}, "no card tells its memory"),
        ({"cards": NO_PERMISSION}, "the cards were not seen (no permission: NVMLError_NoPermission)"),
        ({"cards": ()}, "the node has no cards"),
        ({"cards__0__vendor": "amd"}, "no card tells its target"),
        ({"cards__0__memory__total_bytes": 5}, "draft, line 20: card.memory_mib: 0 is not plausible"),
    ],
)
def test_a_node_that_cannot_be_a_model_is_refused(facts: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProfileError) as error:
        drafted("h200x1", **facts)
    assert sentence in str(error.value)


def test_cards_that_differ_are_refused() -> None:
    with pytest.raises(ProfileError, match=r'the cards differ in name \("NVIDIA H200" and "NVIDIA H20"\)'):
        drafted("h200x2", cards__1__identity__name="NVIDIA H20")


@given(st.text(max_size=60), st.text(max_size=60))
def test_odd_names_make_a_valid_profile_or_an_error_and_add_no_key(name: str, origin: str) -> None:
    node = healthy.change(healthy.node(load("h200x1")), "cards.0.identity.name", name)
    try:
        text = draft(node, "mine", origin)
    except ProfileError as error:
        assert error.problems
        return
    profile = parse(text, "mine.toml")
    assert profile.card and profile.card.names == (name,)
    assert profile.name == "mine" and profile.count == 1


def test_a_name_cannot_smuggle_lines_into_the_file() -> None:
    hostile = 'x"\nrequired = ["cards.count"]\n#'
    with pytest.raises(ProfileError, match="control characters"):
        drafted("h200x1", cards__0__identity__name=hostile)
    text = draft(healthy.node(load("h200x1")), "mine", "a.json\n[host]\ncpus = 9999\n")
    assert parse(text, "mine.toml").host is not None and "cpus = 9999\n" not in text
