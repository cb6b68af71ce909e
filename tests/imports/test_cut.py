"""An output of a healthy node that was cut, anywhere and at either end: what is missing is no fault of the node."""

from __future__ import annotations

import pytest

from nodecheck.imports import read
from nodecheck.judge import Status, judge
from nodecheck.profile import load
from tests.imports import outputs
from tests.imports.outputs import cards

CARDS = cards(8)
WHOLE = {
    "nvidia-smi -q -x": outputs.xml(CARDS),
    "nvidia-smi -q": outputs.text(CARDS),
    "nvidia-smi": outputs.table(CARDS),
    "nvidia-smi -L": outputs.listing(CARDS),
    "nvidia-smi nvlink -s": outputs.nvlink(CARDS, lambda _card, _link: ": 26.562 GB/s", links=18),
    "nvidia-smi topo -m": outputs.matrix(lambda _a, _b: "NV18", count=8),
}


def failures(text: str) -> set[str]:
    node = read([("a", text.encode())]).node
    return {f.id for f in judge(node, load("h200x8")).findings if f.status is Status.fail}


@pytest.mark.parametrize("kind", WHOLE)
def test_what_is_missing_is_no_fault(kind: str) -> None:
    text = WHOLE[kind]
    expected = failures(text)
    # Where a list of lines ends with a line, nothing tells that there were more; the first card shows how many links
    # the others have.
    told_apart = {"nvidia-smi -L": ")\n", "nvidia-smi nvlink -s": "s\n"}.get(kind, "\0")
    for place in range(1, len(text), 1 + len(text) // 30):
        if text[place - 1] not in told_apart:
            assert failures(text[:place]) <= expected, repr(text[:place][-60:])
        assert failures(text[place:]) <= expected, repr(text[place:][:60])


def test_the_table_ends_where_something_follows_the_cards() -> None:
    table = WHOLE["nvidia-smi"]
    rows = table[: table.index("Processes:")]
    assert read([("a", table.encode())]).node.topology.nvml_count == 8
    assert read([("a", rows.encode())]).node.topology.nvml_count == 8
    assert read([("a", rows.partition("\n\n")[0].encode())]).node.topology.nvml_count != 8


@pytest.mark.parametrize("kind", WHOLE)
def test_a_missing_end_of_line_costs_no_count(kind: str) -> None:
    assert read([("a", WHOLE[kind].strip("\n").encode())]).node.topology.nvml_count == 8


def test_a_damaged_beginning_is_no_node_without_cards() -> None:
    assert failures("<nvidia_smi_log>\n<timestamp>Mon") == set()
