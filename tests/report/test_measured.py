from __future__ import annotations

import pytest

from nodecheck.profile import load
from nodecheck.report import measured
from tests import healthy
from tests.healthy import change
from tests.measured import measurements

PROFILE = load("h200x4")
NODE = healthy.node(PROFILE)
CARDS = tuple(card.key for card in NODE.known_cards)
FOUND = measurements(PROFILE, CARDS, level="full")


def test_cards_stand_side_by_side_and_pairs_in_a_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    measured.show(NODE, FOUND)
    lines = capsys.readouterr().out.splitlines()
    header = next(line for line in lines if line.startswith("measure"))
    assert header.split("unit")[1].split() == ["GPU", "0", "GPU", "1", "GPU", "2", "GPU", "3", "spread"]
    (copy,) = (line for line in lines if line.startswith("hbm.copy "))
    assert len(copy.split("GB/s")[1].split()) == 5
    at = next(i for i, line in enumerate(lines) if "pairs.one_way" in line)
    assert lines[at].endswith("pairs.one_way, 512 MiB, GB/s")
    assert [line.split("  ")[0] for line in lines[at + 2 : at + 6]] == ["GPU 0", "GPU 1", "GPU 2", "GPU 3"]
    assert "memory.pattern" in "\n".join(lines)
    assert not [line for line in lines if "WRONG" in line]


def test_what_is_wrong_or_missing_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    found = change(FOUND, "checks.1.wrong", 3)
    found = change(found, "stages.2.status", "timed_out")
    found = change(found, "stages.2.detail", "no answer\x1b[2J within 20 s\nsecond line")
    found = change(found, "dropped", ("storage",))
    measured.show(NODE, found)
    out = capsys.readouterr().out
    assert "WRONG on GPU 0: 3 of" in out
    assert "timed out: no answer\\x1b[2J within 20 s" in out
    assert "Left out for the time budget: storage" in out
    assert out.replace("\n", "").isprintable()
