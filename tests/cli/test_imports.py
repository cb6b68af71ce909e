"""`nodecheck import`, and `nodecheck judge` of outputs that were pasted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.imports import outputs
from tests.imports.outputs import cards

MADE = cards(4)
SMI = outputs.xml(MADE)
TOPOLOGY = f"$ nvidia-smi topo -m\n{outputs.matrix(lambda _a, _b: 'NV18')}"
LOG = "[ 1234.567890] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=python3, GPU has fallen off the bus.\n"


def run(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nodecheck", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def pasted(tmp_path: Path) -> Path:
    (tmp_path / "smi.xml").write_text(SMI)
    (tmp_path / "topo.txt").write_text(TOPOLOGY)
    (tmp_path / "dmesg.txt").write_text(LOG)
    (tmp_path / "letter.txt").write_text("Dear support,\nmy node is slow.\n")
    return tmp_path


def test_what_was_found_is_said_and_the_facts_are_written(pasted: Path) -> None:
    facts = pasted / "facts.json"
    done = run("import", pasted / "smi.xml", pasted / "topo.txt", pasted / "letter.txt", "-o", facts)
    assert done.returncode == 0, done.stderr
    assert "smi.xml: nvidia-smi -q -x (line 3)" in done.stderr
    assert "topo.txt: nvidia-smi topo -m (line 2)" in done.stderr
    assert "not understood: " in done.stderr
    assert "letter.txt: nothing in it" in done.stderr
    assert done.stdout == ""
    assert len(json.loads(facts.read_text())["cards"]) == 4
    judged = run("judge", facts, "--profile", "h200x4", "--quiet")
    assert judged.returncode == 3
    assert "INCOMPLETE h200x4" in judged.stdout


def test_facts_go_to_stdout_and_files_come_from_stdin() -> None:
    done = run("import", "-", stdin=SMI)
    assert json.loads(done.stdout)["topology"]["nvml_count"] == 4
    assert done.stderr.startswith("stdin: nvidia-smi -q -x")


@pytest.mark.parametrize(
    ("names", "code", "says"),
    [
        (("smi.xml", "topo.txt"), 3, "INCOMPLETE h200x4"),
        (("dmesg.txt",), 2, "REJECTED h200x4"),
        (("smi.xml", "dmesg.txt"), 2, "REJECTED h200x4"),
    ],
)
def test_pasted_outputs_are_judged(pasted: Path, names: tuple[str, ...], code: int, says: str) -> None:
    done = run("judge", *(pasted / name for name in names), "--profile", "h200x4")
    assert done.returncode == code, done.stderr
    assert says in done.stdout
    assert all(name in done.stderr for name in names)


def test_contradictions_are_shown(pasted: Path) -> None:
    (pasted / "other.txt").write_text(outputs.table(cards(4, name="NVIDIA L20X")))
    done = run("judge", pasted / "smi.xml", pasted / "other.txt", "--profile", "h200x4")
    assert done.stderr.count("contradiction: GPU ") == 4
    assert "nvidia-smi -q -x says NVIDIA H200, nvidia-smi says NVIDIA L20X" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("import", "letter.txt"), 65, "no output that nodecheck knows"),
        (("import", "nowhere.txt"), 65, "cannot read"),
        (("import", "."), 65, "is not a file"),
        (("judge", "letter.txt"), 65, "no output that nodecheck knows"),
        (("judge",), 64, "name either"),
        (("judge", "facts.json", "smi.xml"), 64, "judged alone"),
        (("import", "smi.xml", "-o", "nowhere/facts.json"), 73, "nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    pasted: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, says: str
) -> None:
    monkeypatch.chdir(pasted)
    (pasted / "facts.json").write_text('{"format": "nodecheck-facts/1"}')
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    done = run(*arguments)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert says in done.stderr


def test_hostile_text_does_not_reach_the_terminal(pasted: Path) -> None:
    (pasted / "bad.txt").write_text(outputs.table(cards(1, name="\x9b31mH200 \u202e")))
    done = run("judge", pasted / "bad.txt", "--profile", "h200x4")
    assert "\x9b" not in done.stdout + done.stderr
    assert "\u202e" not in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["import", "judge"])
def test_a_closed_stdin_is_an_empty_one(command: str) -> None:
    script = f'exec "$0" -m nodecheck {command} - <&-'
    done = subprocess.run(
        ["/bin/sh", "-c", script, sys.executable], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 65
    assert "stdin: nothing in it is an output" in done.stderr
