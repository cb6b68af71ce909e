from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodecheck.facts import Absent, Why
from nodecheck.sources import Commands, commands
from nodecheck.sources.channel import Recorded
from nodecheck.sources.commands import Output


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of our own, in front of nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install(folder: Path, name: str, body: str, mode: int = 0o755) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(mode)


def run(name: str) -> object:
    return Commands(commands.live()).run(name)


def test_a_program_is_run_with_its_fixed_arguments_in_plain_english(programs: Path) -> None:
    install(programs, "dmesg", 'echo "$LC_ALL $*"')
    output = run("dmesg")
    assert isinstance(output, Output)
    assert (output.returncode, output.stdout, output.stderr) == (0, "C --color=never\n", "")


def test_a_refusal_keeps_its_words(programs: Path) -> None:
    install(programs, "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    output = run("dmesg")
    assert isinstance(output, Output)
    assert output.returncode == 1
    assert output.stdout == ""
    assert "not permitted" in output.stderr


def test_what_is_not_installed_or_not_allowed_to_run(programs: Path) -> None:
    answer = run("nvcc")
    assert isinstance(answer, Absent)
    assert answer.why is Why.not_present
    install(programs, "nvcc", "true", mode=0o644)
    answer = run("nvcc")
    assert isinstance(answer, Absent)
    assert answer.why is Why.no_permission


def test_a_closed_folder_on_the_path_does_not_make_a_program_closed(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"/proc/self/maps:{programs}")

    def refuse(*arguments: object, **named: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(
        "nodecheck.sources.child.subprocess.Popen", refuse
    )  # as execvp does for root's folders
    answer = run("nvcc")
    assert isinstance(answer, Absent)
    assert answer.why is Why.not_present


@pytest.mark.parametrize("entry", [".", "", "bin", "../bin", "./"])
def test_a_program_in_a_relative_folder_of_the_path_is_none(
    entry: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "bin").mkdir(parents=True)
    monkeypatch.chdir(here)
    for folder in (here, here / "bin"):
        install(folder, "dmesg", "echo planted")
    if entry == "../bin":
        install(programs, "dmesg", "echo planted")
    monkeypatch.setenv("PATH", f"{entry}:/nonexistent:{entry}")
    answer = run("dmesg")
    assert isinstance(answer, Absent)
    assert answer.why is Why.not_present
    install(programs, "dmesg", 'echo "$0"')
    monkeypatch.setenv("PATH", f"{entry}:{programs}")
    output = run("dmesg")
    assert isinstance(output, Output)
    assert output.stdout == f"{programs}/dmesg\n"


def test_a_program_that_hangs_is_left_behind(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "DEADLINE_SECONDS", 0.5)
    install(programs, "nv-fabricmanager", "trap '' TERM INT; echo started; /bin/sleep 600")
    began = time.monotonic()
    answer = run("fabric_manager")
    assert time.monotonic() - began < 5
    assert isinstance(answer, Absent)
    assert answer.why is Why.timed_out


def test_no_other_program_is_ever_started(programs: Path) -> None:
    install(programs, "rm", "echo done")
    with pytest.raises(KeyError):
        run("rm")
    with pytest.raises(KeyError):
        Commands(Recorded({"rm -rf": {"value": {}}})).run("rm -rf")


@pytest.mark.parametrize(
    "stored", [None, 5, "x", [], {}, {"returncode": "x"}, {"returncode": 0, "stdout": ""}]
)
def test_recorded_nonsense_is_failed_not_raised(stored: object) -> None:
    answer = Commands(Recorded({"dmesg": {"value": stored}})).run("dmesg")
    assert isinstance(answer, Absent)
    assert answer.why is Why.failed


def test_rocms_programs_are_found_where_rocm_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "amd-smi"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(commands, "_ROCM_FOLDERS", (str(tmp_path),))
    output = Commands(commands.live()).run("amd_smi_bad_pages")
    assert not isinstance(output, Absent)
    assert output.stdout == "bad-pages --json\n"
