"""Pasted outputs of AMD's tools."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.facts import Absent, Node, Why, known
from nodecheck.facts.topology import Pair
from nodecheck.imports import Imported
from nodecheck.judge import Judgement, Status, Verdict, judge
from nodecheck.profile import load
from tests.fakes.amd import AmdNode, Way, amd_smi, describe
from tests.imports import amd_outputs as made
from tests.imports.outputs import imported, kinds, node

MI300X = describe("mi300x", 8)


def everything(described: AmdNode, generation: str) -> list[str]:
    return [amd_smi.answer(described, command, generation) for command in ("version", *made.NAMED)]


def pairs(found: Node) -> tuple[Pair, ...]:
    assert known(found.topology) and known(found.topology.pairs)
    return found.topology.pairs


def count(found: Node) -> object:
    assert known(found.topology)
    return found.topology.amd_smi_count


def judged(found: Imported | Node, profile: str = "mi300xx8") -> Judgement:
    return judge(found if isinstance(found, Node) else found.node, load(profile))


def gravest(judgement: Judgement) -> dict[str, str]:
    order = [
        status.value for status in (Status.skipped, Status.passed, Status.warn, Status.unknown, Status.fail)
    ]
    told: dict[str, str] = {}
    for finding in judgement.findings:
        told[finding.id] = max(told.get(finding.id, "skipped"), finding.status.value, key=order.index)
    return told


def trouble(judgement: Judgement) -> set[str]:
    return {f.id for f in judgement.findings if f.status in (Status.fail, Status.warn)}


# amd-smi


@pytest.mark.parametrize("generation", made.GENERATIONS)
def test_a_healthy_node_by_every_release(generation: str) -> None:
    found = imported(*everything(MI300X, generation))
    assert (found.conflicts, found.not_understood) == ((), ())
    assert len(found.node.known_cards) == 8 and count(found.node) == 8
    for card, described in zip(found.node.known_cards, MI300X.cards, strict=True):
        assert card.pci_address == described.address
        assert card.identity.name == described.name
        assert card.memory.total_bytes == described.memory_bytes
        assert card.power.limit_watts == 750
        assert card.health.bad_pages_retired == 0
        assert card.health.ecc_blocks != () and card.health.ecc_volatile == card.health.ecc_volatile
        assert card.processes == ()
    assert len(pairs(found.node)) == 28
    assert {(pair.link_type, pair.weight, pair.hops) for pair in pairs(found.node)} == {("xgmi", 15, 1)}
    judgement = judged(found)
    assert judgement.verdict is Verdict.incomplete and not trouble(judgement)
    assert gravest(judgement)["cards.count"] == "pass"


@pytest.mark.parametrize("generation", made.GENERATIONS)
@pytest.mark.parametrize("command", made.NAMED)
def test_text_says_what_the_json_says(command: str, generation: str) -> None:
    in_json = imported(amd_smi.answer(MI300X, command, generation))
    in_text = imported(made.text(MI300X, command, generation) if command != "xgmi" else _xgmi(generation))
    assert kinds(in_text) == kinds(in_json) == [f"amd-smi {command}"]
    assert in_text.node.cards == in_json.node.cards
    if command != "topology":  # whose text has tables
        assert in_text.node.topology == in_json.node.topology


def _xgmi(generation: str) -> str:
    if "link_status" in made.document(MI300X, "xgmi", generation)[0]:
        return made.xgmi_tables(MI300X, generation)
    return amd_smi.answer(MI300X, "xgmi", generation)


@pytest.mark.parametrize("generation", made.GENERATIONS)
def test_tables_of_links(generation: str) -> None:
    in_json, in_text = (
        imported(amd_smi.answer(MI300X, "topology", generation)),
        imported(made.topology_tables(MI300X)),
    )
    assert len(pairs(in_text.node)) == 28 and count(in_text.node) == 8
    if generation != "6.0":  # which tells no addresses
        assert pairs(in_text.node) == pairs(in_json.node)


def planted(change: Callable[[AmdNode], object]) -> AmdNode:
    described = describe("mi300x", 8)
    change(described)
    return described


def _cap(described: AmdNode) -> None:
    described.cards[3].cap_watts = 500


def _errors(described: AmdNode) -> None:
    described.cards[3].ecc["UMC"] = [0, 2, 0]


def _link_errors(described: AmdNode) -> None:
    described.cards[3].ecc["XGMI_WAFL"] = [0, 2, 0]


def _page(described: AmdNode) -> None:
    described.cards[3].bad_pages = "P"


def _width(described: AmdNode) -> None:
    described.cards[3].width = 8


def _by_pcie(described: AmdNode) -> None:
    described.set_way(2, 3, Way("pcie", 72, 0))


def _process(described: AmdNode) -> None:
    described.cards[3].processes = {4711: 2**34}


FAULTS: dict[str, tuple[Callable[[AmdNode], object], str, str]] = {
    "a power cap": (_cap, "static", "cards.power_limit"),
    "errors": (_errors, "metric", "health.ecc_uncorrected_volatile"),
    "errors of a link": (_link_errors, "metric", "health.xgmi_errors"),
    "a bad page": (_page, "bad-pages", "health.bad_pages"),
    "a narrow link": (_width, "metric", "cards.pcie.width"),
    "a pair over PCIe": (_by_pcie, "topology", "topology.pairs.xgmi"),
    "a process": (_process, "process", "cards.processes"),
}


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_of_its_card_alone(fault: str, form: str) -> None:
    change, command, finding = FAULTS[fault]
    described = planted(change)
    tables = made.topology_tables if command == "topology" else None
    shown = tables(described) if tables else made.text(described, command)
    found = imported(
        amd_smi.answer(described, "list", "7.2"),
        amd_smi.answer(described, command, "7.2") if form == "json" else shown,
    )
    told = [f for f in judged(found).findings if f.id == finding]
    assert [f for f in told if f.status in (Status.fail, Status.warn)], gravest(judged(found))
    assert len([f for f in told if f.status in (Status.fail, Status.warn)]) == 1
    clean = imported(amd_smi.answer(MI300X, "list", "7.2"), amd_smi.answer(MI300X, command, "7.2"))
    assert finding not in trouble(judged(clean))


def test_a_link_that_is_down() -> None:
    described = describe("mi300x", 8)
    described.ways[0, 1].down = described.ways[1, 0].down = True
    for text in (made.xgmi_tables(described), amd_smi.answer(described, "xgmi", "7.2")):
        links = node(text).known_cards[0].links
        assert known(links)
        assert [link.active for link in links] == [False, *[True] * 6]
        assert links[0].remote_pci_address == described.cards[1].address


def test_a_guest_is_not_accused_of_what_it_is_not_told() -> None:
    guest = describe("mi300x", 8, kind="guest")
    found = imported(*everything(guest, "7.0"))
    card = found.node.known_cards[0]
    assert card.modes.virtualization == "virtual_function"
    for value in (card.links, card.health.bad_pages_retired, card.power.limit_watts):
        assert isinstance(value, Absent) and value.why is Why.not_supported
    assert len({card.pci_address for card in found.node.known_cards}) == 8
    assert not trouble(judged(found))


def test_partitions_are_no_cards_and_have_no_memory_of_their_own() -> None:
    split = describe("mi300x", 2, compute="CPX")
    found = imported(*everything(split, "6.4"))
    assert len(found.node.known_cards) == 16
    assert {isinstance(card.memory.total_bytes, Absent) for card in found.node.known_cards} == {True}
    detail = next(f.detail for f in judged(found).findings if f.id == "cards.count")
    assert "16 devices, which are 2 packages" in detail


def test_one_page_is_a_page_though_it_stands_in_no_list() -> None:
    described = describe("mi300x", 1)
    document = made.document(described, "bad-pages")
    document[0]["retired"] = {"page_address": "0x1", "page_size": 4096, "status": "RESERVED"}
    assert node(json.dumps(document)).known_cards[0].health.bad_pages_retired == 1


def test_groups_that_are_missing_stand_before_the_document() -> None:
    described = describe("mi300x", 2)
    described.groups_missing = ("render", "video")
    found = imported(amd_smi.answer(described, "static", "7.2"))
    assert isinstance(found.node.known_cards[0].identity.name, Absent)
    assert gravest(judged(found, "mi300xx2"))["cards.model"] == "unknown"


def test_without_a_driver_it_says_so() -> None:
    described = describe("mi300x", 2)
    described.loaded = False
    found = imported(amd_smi.answer(described, "static", "7.2"))
    assert "it sees no card: Unable to detect any GPU devices, check amdgpu" in found.not_understood[0]
    assert judged(found, "mi300xx2").verdict is Verdict.incomplete


def test_sockets_may_stand_before_the_cards() -> None:
    socket = (
        "CPU: 0\n    SMU:\n        FW_VERSION: 85.90.0\n    INTERFACE_VERSION:\n        PROTO VERSION: 6\n\n"
    )
    found = imported(socket * 2 + made.text(MI300X, "static"))
    assert len(found.node.known_cards) == 8 and found.not_understood == ()


# The table, rocm-smi, rocminfo


def test_the_table_that_amd_smi_prints() -> None:
    described = planted(_errors)
    described.cards[2].processes = {4711: 2**30}
    found = imported(made.dashboard(described))
    assert kinds(found) == ["amd-smi"] and found.not_understood == ()
    cards = found.node.known_cards
    assert count(found.node) == 8
    assert [card.pci_address for card in cards] == [card.address for card in described.cards]
    assert {(card.memory.total_bytes, card.power.limit_watts) for card in cards} == {(206_141_652_992, 750.0)}
    assert [len(card.processes) if known(card.processes) else -1 for card in cards] == [
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
    ]
    errors = [card.health.ecc_volatile for card in cards]
    assert [known(count) and count.uncorrected for count in errors] == [False] * 3 + [2] + [False] * 4
    driver = found.node.stack.driver if known(found.node.stack) else None
    assert driver and (driver.rocm_version, driver.amdsmi_version) == ("7.1.1", "26.2.0")


@pytest.mark.parametrize(
    "text",
    [made.rocm_table(MI300X), made.rocm_json(MI300X), made.rocm_lines(MI300X)],
    ids=["table", "json", "lines"],
)
def test_rocm_smi(text: str) -> None:
    found = imported(text)
    assert found.not_understood == () and count(found.node) == 8
    assert {card.identity.pci_id for card in found.node.known_cards} == {"1002:74a1"}
    assert {card.power.limit_watts for card in found.node.known_cards} == {750.0}
    assert not trouble(judged(found))
    less = describe("mi300x", 7)
    assert "cards.count" in trouble(judged(imported(text.replace("74a1", "74a0")), "mi300xx4"))
    assert "cards.count" in trouble(judged(imported(made.rocm_table(less))))


def test_the_matrices_of_rocm_smi() -> None:
    found = imported(made.rocm_matrices(MI300X))
    assert {(pair.link_type, pair.weight, pair.hops) for pair in pairs(found.node)} == {("xgmi", 15, 1)}
    assert len(pairs(found.node)) == 28
    assert {card.numa_node for card in found.node.known_cards} == {0, 1}
    told = [(p.link_type, p.weight) for p in pairs(imported(made.rocm_json(MI300X)).node)]
    assert told == [("xgmi", 15)] * 28


def test_amd_smi_and_rocm_smi_number_the_cards_alike() -> None:
    found = imported(
        amd_smi.answer(MI300X, "list", "6.4"), made.rocm_table(MI300X), made.rocm_json(MI300X, "PCI Bus")
    )
    assert len(found.node.known_cards) == 8 and found.conflicts == ()
    assert [card.uuid for card in found.node.known_cards] == [f"GPU-{c.unique_id:016x}" for c in MI300X.cards]


def test_a_name_that_tools_spell_otherwise_is_no_contradiction_and_a_cap_is() -> None:
    other = made.rocm_json(MI300X).replace("AMD Instinct MI300X", "AMD Instinct MI300X OAM")
    found = imported(amd_smi.answer(MI300X, "static", "7.2"), other)
    assert found.conflicts == () and found.node.known_cards[0].identity.name == "AMD Instinct MI300X"
    found = imported(amd_smi.answer(MI300X, "static", "7.2"), other.replace('"750.0"', '"650.0"'))
    assert (
        len(found.conflicts) == 8
        and "amd-smi static says 750.0, rocm-smi --json says 650.0" in found.conflicts[0]
    )


def test_rocminfo_is_joined_on_the_uuid_alone() -> None:
    described = describe("mi300x", 8)
    for place, own in enumerate(described.cards):  # KFD has them in another order
        own.node = 9 - place
    found = imported(made.rocm_json(described), made.rocminfo(described))
    assert len(found.node.known_cards) == 8 and found.not_understood == ()
    for card, own in zip(found.node.known_cards, described.cards, strict=True):
        assert (card.uuid, card.pci_address) == (f"GPU-{own.unique_id:016x}", own.address)
        assert (card.identity.gfx, card.identity.compute_units) == ("gfx942", 304)


def test_rocminfos_bdfid_names_no_card() -> None:
    guest = describe("mi300x", 8, kind="guest")  # each in a domain of its own, and all of them with BDFID 0
    found = imported(made.rocminfo(guest))
    assert len({card.uuid for card in found.node.known_cards}) == 8
    assert {isinstance(card.pci_address, Absent) for card in found.node.known_cards} == {True}
    assert gravest(judged(found))["cards.count"] == "unknown"


def test_what_nothing_places_is_no_further_card() -> None:
    found = imported(amd_smi.answer(MI300X, "static", "6.4"), made.rocminfo(MI300X))
    assert len(found.node.known_cards) == 8
    assert "nothing says which of the node's cards 8 of rocminfo are" in found.not_understood[0]
    assert gravest(judged(found))["cards.count"] == "pass"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "ROCk module is loaded\nUnable to open /dev/kfd read-write: Permission denied\n",
            "Permission denied",
        ),
        ("ROCk module is NOT loaded, possibly no GPU devices\n", "NOT loaded"),
        ("HSA Agents\n==========\n", "none of its agents is a card"),
    ],
)
def test_rocminfo_that_sees_no_card_says_why(said: str, reason: str) -> None:
    assert reason in imported(said).not_understood[0]


def test_rccl_tests_are_of_amds_cards() -> None:
    found = imported(amd_smi.answer(MI300X, "static", "7.2"), made.rccl(MI300X))
    assert len(found.node.known_cards) == 8 and found.conflicts == ()
    found = imported(made.rccl(MI300X).replace("AMD Instinct MI300X", ""))
    assert {card.vendor for card in found.node.known_cards} == {"amd"}
    assert gravest(judged(found))["cards.count"] == "unknown"


def test_cards_of_a_prompt_that_asked_for_one_are_no_count() -> None:
    one = describe("mi300x", 1)
    assert count(node("$ amd-smi static -g 0 --json\n" + amd_smi.answer(one, "static", "7.2"))) != 1
    assert count(node("$ amd-smi static --json\n" + amd_smi.answer(one, "static", "7.2"))) == 1


# Cut short, damaged, anything


def test_a_text_that_is_cut_short_is_no_count() -> None:
    whole = made.text(MI300X, "static")
    for end in (whole.index("GPU: 7") + 40, whole.index("GPU: 5") + 900):
        found = imported(whole[:end])
        assert "cut short" in found.not_understood[0]
        assert gravest(judged(found))["cards.count"] == "unknown"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"bdf": "0000:15:00.0",', '"bdf": "0000:15:00.0",\n ...'),
        lambda text: text.replace("}\n", "},\n"),
    ],
    ids=["cut", "elided", "commas"],
)
def test_json_that_is_none_is_said(damage: Callable[[str], str]) -> None:
    found = imported(damage(amd_smi.answer(MI300X, "topology", "7.2")))
    assert kinds(found) == ["amd-smi topology"]
    assert "its JSON is cut short or damaged" in found.not_understood[0]
    assert isinstance(found.node.cards, Absent)
    found = imported(damage(made.rocm_json(MI300X).replace("}, ", "}\n, ")))
    assert isinstance(found.node.cards, Absent) or len(found.node.known_cards) == 8


@pytest.mark.parametrize("depth", [100, 700, 5000])
def test_a_document_deeper_than_any_is_refused(depth: int) -> None:
    found = imported('[{"gpu": 0, "asic": ' + "[" * depth + "]" * depth + "}]\n")
    assert not [said for said in found.not_understood if "own fault" in said]


TWO = describe("mi300x", 2)
OUTPUTS = [
    *(amd_smi.answer(TWO, command, "7.2") for command in made.NAMED),
    *(made.text(TWO, command) for command in ("static", "metric", "process", "bad-pages")),
    made.topology_tables(TWO),
    made.xgmi_tables(TWO),
    made.dashboard(TWO),
    made.rocm_table(TWO),
    made.rocm_matrices(TWO),
    made.rocm_json(TWO),
    made.rocm_lines(TWO),
    made.rocminfo(TWO),
    made.rccl(TWO),
]


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(OUTPUTS), st.integers(0, 10_000), st.integers(0, 60), st.text(max_size=12))
def test_whatever_stands_in_it_is_read_or_refused(text: str, at: int, length: int, instead: str) -> None:
    at %= len(text)
    found = imported(text[:at] + instead + text[at + length :])
    assert not [said for said in found.not_understood if "own fault" in said]
    judged(found)


WHOLE = {
    "amd-smi static": made.text(MI300X, "static"),
    "amd-smi list": made.text(MI300X, "list"),
    "amd-smi metric": amd_smi.answer(MI300X, "list", "7.2") + made.text(MI300X, "metric"),
    "amd-smi static --json": amd_smi.answer(MI300X, "static", "7.2"),
    "amd-smi topology": made.topology_tables(MI300X),
    "amd-smi xgmi": made.xgmi_tables(MI300X),
    "amd-smi": made.dashboard(MI300X),
    "rocm-smi": made.rocm_table(MI300X),
    "rocm-smi -a": made.rocm_lines(MI300X),
    "rocm-smi --showtopo": made.rocm_matrices(MI300X),
    "rocminfo": made.rocminfo(MI300X),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_what_is_missing_is_no_fault(kind: str) -> None:
    text = WHOLE[kind]
    assert not trouble(judged(node(text)))
    for place in range(1, len(text), 1 + len(text) // 11):
        start = text[place:].lstrip("\n")
        # Where a text ends between two cards, nothing tells that there were more.
        if not (kind in ("amd-smi static", "amd-smi list") and start.startswith("GPU: ")):
            assert not trouble(judged(node(text[:place]))), repr(text[:place][-60:])
        assert not trouble(judged(node(text[place:]))), repr(text[place:][:60])
