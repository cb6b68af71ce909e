"""Tables and JSON of nccl-tests, made up as its 2.19 prints them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import NOT_ASKED, Absent, known
from nodecheck.facts.measurements import Check, Figure
from nodecheck.imports.kind import Piece, Section, Unreadable
from nodecheck.imports.readers.nccl_tests import read_json, read_table

GIB = 2**30


def table(rows: list[str], ranks: int = 4, name: str = "# Collective test starting: all_reduce_perf") -> str:
    devices = "\n".join(
        f"#  Rank  {rank} Group  0 Pid   {4000 + rank} on  somewhere device  {rank} "
        f"[0000:{0x1B + rank:02x}:00] NVIDIA H200"
        for rank in range(ranks)
    )
    return (
        f"{name}\n# nThread 1 nGpus {ranks} minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 "
        "agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n"
        f"{devices}\n#\n#                                      out-of-place                       in-place\n"
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong\n"
        + "\n".join(rows)
        + "\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 363.2\n#\n"
    )


ROW = (
    "  8589934592    2147483648     float     sum      -1  35470.0  242.17  363.26      0"
    "  35460.0  242.24  363.36      0"
)


def figures(piece: Piece) -> tuple[Figure, ...]:
    return piece.measurements.figures if known(piece.measurements) else ()


def checks(piece: Piece) -> tuple[Check, ...]:
    return piece.measurements.checks if known(piece.measurements) else ()


def busbw(piece: Piece) -> dict[tuple[str, int | None, bool | None], float]:
    return {
        (figure.measure, figure.at.size_bytes, figure.at.in_place): figure.median
        for figure in figures(piece)
        if figure.unit == "GB/s" and figure.measure.endswith("busbw")
    }


def test_table() -> None:
    piece = read_table(Section(table([ROW])))
    assert busbw(piece) == {
        ("all_reduce.busbw", 8 * GIB, False): 363.26,
        ("all_reduce.busbw", 8 * GIB, True): 363.36,
    }
    assert {figure.at.dtype for figure in figures(piece)} == {"float32"}
    assert {figure.repetitions for figure in figures(piece)} == {20}
    assert [card.pci_address for card in piece.cards] == [f"0000:{0x1B + rank:02x}:00.0" for rank in range(4)]
    assert all(check.compared == 2147483648 and check.wrong == 0 for check in checks(piece))


@pytest.mark.parametrize(
    ("place", "address"),
    [
        ("[0000:{bus:02x}:00.0]", "0000:1b:00.0"),
        ("[0002:{bus:02x}:00]", "0002:1b:00.0"),
        ("[0x{bus:02x}]", None),
    ],
)
@pytest.mark.parametrize("name", ["AMD Instinct MI300X VF", ""])
def test_rccl_tests(place: str, address: str | None, name: str) -> None:
    ranks = "\n".join(
        f"#   Rank  {rank} Pid  4711 on somewhere device  {rank} {place.format(bus=0x1B + rank)} {name}".rstrip()
        for rank in range(4)
    )
    text = table([ROW])
    head = text[: text.index("#  Rank")] + "rccl-tests: Version develop:ae3e635\n" + ranks
    piece = read_table(Section(head + text[text.index("\n#\n#      ") :]))
    assert not isinstance(piece.cards, Absent)
    assert {card.vendor for card in piece.cards} == {"amd"}
    assert piece.cards[0].pci_address == (address or NOT_ASKED)
    assert piece.cards[0].identity.name == (name or NOT_ASKED)
    assert piece.cards[0].uuid == NOT_ASKED
    assert busbw(piece)["all_reduce.busbw", 8 * GIB, True] == 363.36


def test_wrong_elements_are_a_check_that_failed() -> None:
    piece = read_table(Section(table([ROW.replace("363.26      0", "363.26      7")])))
    assert [check.wrong for check in checks(piece)] == [7, 0]


def test_unchecked_is_no_check() -> None:
    piece = read_table(Section(table([ROW.replace("     0", "   N/A")])))
    assert figures(piece) and not checks(piece)


@pytest.mark.parametrize(
    ("row", "measure"),
    [
        (ROW, "all_reduce"),
        (ROW.replace("363.26", "181.63").replace("363.36", "181.68"), "reduce_scatter"),
        (ROW.replace("363.26", "181.63").replace("363.36", "181.68").replace("sum", "none"), None),
        (ROW.replace("363.26", "242.17").replace("363.36", "242.24"), None),
    ],
)
def test_collective_without_a_name(row: str, measure: str | None) -> None:
    piece = read_table(Section(table([row], name="#")))
    assert {figure.measure.partition(".")[0] for figure in figures(piece)} == (
        {measure} if measure else set()
    )
    assert bool(piece.remarks) is (measure is None)


def test_the_command_at_the_prompt_names_it() -> None:
    piece = read_table(Section(table([ROW], name="#"), heading="./build/all_gather_perf -b 8 -e 8G"))
    assert {figure.measure for figure in figures(piece)} == {
        "all_gather.busbw",
        "all_gather.algbw",
        "all_gather.latency",
    }


def test_columns_for_every_iteration_and_times() -> None:
    extra = "  35400.0  35500.0  35490.0  0.10"
    words = ROW.split()
    row = " ".join(words[:9]) + extra + " " + " ".join(words[9:]) + extra + " 2026-11-30 10:00:00"
    assert busbw(read_table(Section(table([row])))) == busbw(read_table(Section(table([ROW]))))


def test_ranks_of_two_nodes_say_nothing_of_one() -> None:
    text = table([ROW])
    head = [line for line in text.splitlines() if "Rank" in line]
    piece = read_table(Section(text.replace(head[-1], "\n".join([head[-1], *head]))))
    assert not figures(piece) and "several nodes" in piece.remarks[0]


def test_no_row() -> None:
    with pytest.raises(Unreadable, match="no row"):
        read_table(Section(table(["  8589934592    2147483648     float     sum"])))


def document(**changes: Any) -> dict[str, Any]:
    side = {"time": 35470.0, "alg_bw": 242.17, "bus_bw": 363.26, "nwrong": 0.0}
    devices = [
        {
            "rank": r,
            "group": 0,
            "pid": 1,
            "hostname": "h",
            "device": r,
            "device_hex": f"0000:{r:02x}:00",
            "device_info": "NVIDIA H200",
        }
        for r in range(4)
    ]
    row = {
        "size": 8 * GIB,
        "count": 2 * GIB,
        "type": "float",
        "redop": "sum",
        "root": "-1",
        "out_of_place": side,
        "in_place": None,
    }
    return {
        "version": 2,
        "args": ["./all_reduce_perf", "-J", "out.json"],
        "env": ["TOKEN=secret"],
        "config": {"iterations": 20, "devices": devices},
        "results": [row],
        **changes,
    }


def test_json() -> None:
    piece = read_json(Section(json.dumps(document())))
    assert busbw(piece) == {("all_reduce.busbw", 8 * GIB, False): 363.26}
    assert "secret" not in repr(piece)


@pytest.mark.parametrize("text", ["{", "{}", '{"results": 3}', json.dumps(document(results=[]))])
def test_damaged_json(text: str) -> None:
    with pytest.raises(Unreadable):
        read_json(Section(text))


@given(st.text(alphabet="0123456789 .#N/Afloatsumne-\n\t", max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (read_table, read_json):
        with contextlib.suppress(Unreadable):
            read(Section(table([ROW]) + text))
