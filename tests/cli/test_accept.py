"""The commands as a user runs them: in a process of their own, by exit code, output and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

NODES = Path(__file__).parents[1] / "nodes"


def nodecheck(
    *arguments: str | Path, cwd: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nodecheck", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def only_report(folder: Path) -> dict[str, Any]:
    (report,) = folder.glob("*/report.json")
    loaded: dict[str, Any] = json.loads(report.read_text())
    return loaded


@pytest.mark.parametrize(
    ("node", "profile", "code", "first"),
    [
        ("h200x4-accepted", "h200x4", 0, "ACCEPTED h200x4"),
        ("h200x4-rejected", "h200x4", 2, "REJECTED h200x4"),
        ("h200x4-incomplete", "h200x4", 3, "INCOMPLETE h200x4"),
        ("h200x8", "h200x8", 0, "ACCEPTED h200x8"),
        ("h200x1", "h200x1", 0, "ACCEPTED h200x1"),
        ("h200x2", "h200x2", 0, "ACCEPTED h200x2"),
        ("mi300xx8", "mi300xx8", 0, "ACCEPTED mi300xx8 at level standard"),
        ("mi300xx8-rejected", "mi300xx8", 2, "REJECTED mi300xx8"),
        ("h200x4-accepted", "h200x8", 2, "REJECTED h200x8"),
        ("h200x4-accepted", "b200x4", 2, "REJECTED b200x4"),
        ("h200x4-accepted", "cpu", 2, "REJECTED cpu"),
    ],
)
def test_recorded_nodes_are_judged(node: str, profile: str, code: int, first: str, tmp_path: Path) -> None:
    run = nodecheck("accept", "--from", NODES / node, "--profile", profile, cwd=tmp_path)
    assert run.stdout.startswith(first), run.stdout + run.stderr
    assert run.returncode == code
    report = only_report(tmp_path / "reports")
    assert report["judgement"]["profile"] == profile  # type: ignore[index]
    (folder,) = (tmp_path / "reports").iterdir()
    assert nodecheck("report", "verify", folder, cwd=tmp_path).returncode == 0
    again = nodecheck("judge", folder, "--profile", profile, "--quiet", cwd=tmp_path)
    assert (again.returncode, again.stdout.split(":")[0]) == (
        code,
        run.stdout.split(":")[0].replace("\n", " "),
    )


def test_without_a_profile_the_likely_one_is_named_and_accepts_nothing(tmp_path: Path) -> None:
    run = nodecheck("accept", "--from", NODES / "h200x4-accepted", cwd=tmp_path)
    assert run.returncode == 3
    assert run.stdout.startswith("INCOMPLETE h200x4")
    assert "--profile" in run.stdout.split(":")[1]
    likely = nodecheck("profiles", "suggest", "--from", NODES / "h200x4-accepted", cwd=tmp_path)
    assert likely.stdout == "h200x4\n"


def test_this_machine_and_its_recording_give_the_same_facts(tmp_path: Path) -> None:
    run = nodecheck("accept", "--profile", "cpu", "--level", "quick", "--report-dir", "out", cwd=tmp_path)
    assert run.returncode in (0, 3), run.stdout + run.stderr
    (folder,) = (tmp_path / "out").iterdir()
    live = json.loads((folder / "report.json").read_text())["facts"]
    replayed = json.loads(nodecheck("probe", "--from", folder / "evidence", cwd=tmp_path).stdout)
    name = live["host"].pop("name")
    assert replayed["host"].pop("name") in (name, "host-1")
    live.pop("taken_at")  # the recording is dated a moment later, when the run was over
    replayed.pop("taken_at")
    # What carries a name of this machine (paths below a home) is replaced, and nothing else.
    assert json.loads(json.dumps(replayed).replace("user-1", "root")) == json.loads(
        json.dumps(live).replace("user-1", "root")
    )


def test_capture_and_replay(tmp_path: Path) -> None:
    made = nodecheck("capture", "node.tar.gz", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "node.tar.gz").stat().st_mode & 0o777 == 0o600
    run = nodecheck("accept", "--from", "node.tar.gz", "--profile", "cpu", "--quiet", cwd=tmp_path)
    assert run.returncode in (0, 3)
    assert run.stdout.count("\n") == 1


def test_warnings_count_when_strict_and_waivers_stand_in_the_report(tmp_path: Path) -> None:
    rejected: list[str | Path] = [
        "accept",
        "--from",
        NODES / "h200x4-rejected",
        "--profile",
        "h200x4",
        "--report-dir",
        "out",
    ]
    waived = [
        "cards.power_limit", "health.row_remap_pending", "topology.nvlink.active_links", "topology.pairs.nvlink",
        "kernel_log.xid",
    ]  # fmt: skip
    options = [option for name in waived for option in ("--waive", f"{name}=agreed with support, ticket 5")]
    run = nodecheck(*rejected, *options, cwd=tmp_path)
    assert run.returncode == 0, run.stdout
    assert "agreed with support, ticket 5" in run.stdout
    assert only_report(tmp_path / "out")["waivers"] == dict.fromkeys(waived, "agreed with support, ticket 5")
    assert nodecheck(*rejected, "--waive", "cards.power_limit", cwd=tmp_path).returncode == 64
    misspelt = nodecheck(*rejected, "--waive", "cards.power_limits=because", cwd=tmp_path)
    assert (misspelt.returncode, "did you mean cards.power_limit?" in misspelt.stderr) == (64, True)


def test_a_report_is_judged_again_by_the_profile_that_it_holds(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'schema = 1\nname = "mine"\ntitle = "ours"\nextends = "h200x4"\n[card]\npower_limit_watts = 750\n'
        'source = "contract 4711"\ndate = 2027-01-02\n'
    )
    node = NODES / "h200x4-accepted"
    run = nodecheck("accept", "--from", node, "--profile", mine, "--report-dir", "out", cwd=tmp_path)
    assert run.returncode == 2
    mine.unlink()
    (folder,) = (tmp_path / "out").iterdir()
    power = next(
        finding
        for finding in only_report(tmp_path / "out")["judgement"]["findings"]
        if finding["id"] == "cards.power_limit"
    )
    assert power["expected_from"] == "contract 4711 (published, 2027-01-02)"
    for report in (folder, folder / "report.json"):
        again = nodecheck("judge", report, "--quiet", cwd=tmp_path)
        assert again.returncode == 2 and again.stdout.startswith("REJECTED mine at level quick")
    other = nodecheck("judge", folder, "--quiet", "--profile", "h200x4", cwd=tmp_path)
    assert other.returncode == 0 and other.stdout.startswith("ACCEPTED h200x4")
    assert nodecheck("report", "verify", folder, cwd=tmp_path).returncode == 0


def test_a_report_whose_profile_was_suggested_accepts_nothing_when_judged_again(tmp_path: Path) -> None:
    run = nodecheck("accept", "--from", NODES / "h200x4-accepted", "--report-dir", "out", cwd=tmp_path)
    assert run.returncode == 3
    (folder,) = (tmp_path / "out").iterdir()
    again = nodecheck("judge", folder, "--quiet", cwd=tmp_path)
    assert again.returncode == 3 and again.stdout.startswith("INCOMPLETE h200x4 (only suggested")


def test_a_machine_with_cards_is_no_machine_without(tmp_path: Path) -> None:
    run = nodecheck("judge", "--from", NODES / "h200x4-rejected", "--profile", "cpu", cwd=tmp_path)
    assert run.returncode == 2
    assert "The driver lists 4, the profile has 0." in " ".join(run.stdout.split())


def test_a_profile_that_names_a_finding_that_no_rule_has_is_no_profile(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('schema = 1\nname = "m"\ntitle = "t"\nextends = "h200x4"\nrequired = ["cards.cuont"]\n')
    run = nodecheck("judge", "--from", NODES / "h200x4-accepted", "--profile", mine, cwd=tmp_path)
    assert run.returncode == 65
    assert run.stderr.endswith(
        "line 5: required: there is no finding cards.cuont; did you mean cards.count?\n"
    )


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (["capture"], "node.tar.gz"),
        (["probe", "--from", NODES / "h200x1", "-o"], "facts.json"),
        (["profiles", "new", "--from", NODES / "h200x1", "-o"], "mine.toml"),
        (["report", "render", NODES.parents[1] / "reports/h200x1", "-f", "md", "-o"], "page.md"),
    ],
)
def test_every_command_that_writes_a_file_replaces_the_one_that_is_there(
    command: list[str | Path], file: str, tmp_path: Path
) -> None:
    (tmp_path / file).write_text("old")
    (tmp_path / "kept").hardlink_to(tmp_path / file)
    run = nodecheck(*command, file, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert b"old" not in (tmp_path / file).read_bytes()[:3]
    assert (tmp_path / "kept").read_text() == "old", "written beside it, then renamed"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([file, "kept"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["accept", "--profile", "h200x7777"], 65),
        (["accept", "--profile", "../../etc/passwd"], 65),
        (["accept", "--profile", "./missing.toml"], 65),
        (["accept", "--profile", "h200"], 65),
        (["accept", "--from", "missing.tar.gz", "--profile", "cpu"], 65),
        (["accept", "--from", "/etc/hostname", "--profile", "cpu"], 65),
        (["judge", "/etc/hostname", "--profile", "cpu"], 65),
        (["judge", "--profile", "cpu"], 64),
        (["accept", "--profile", "cpu", "--python", "/nope"], 64),
        (["probe", "--python", "no-such-python"], 64),
        (["probe", "--from", "/dev/null"], 65),
        (["accept", "--level", "extreme"], 64),
        (["accept", "--profile", "cpu", "--time-budget", "soon"], 64),
        (["accept", "--profile", "cpu", "--time-budget", "-5s"], 64),
        (["measure", "nonsense"], 64),
        (["accept", "--no-such-option"], 64),
        (["reject"], 64),
    ],
)
def test_what_cannot_be_used_is_one_sentence(arguments: list[str], code: int, tmp_path: Path) -> None:
    run = nodecheck(*arguments, cwd=tmp_path)
    assert run.returncode == code, run.stderr
    assert "Traceback" not in run.stderr
    assert run.stderr.strip()
    assert not list(tmp_path.iterdir())


def test_a_report_that_cannot_be_written_is_still_shown(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    run = nodecheck(
        "accept", "--from", NODES / "h200x4-accepted", "--profile", "h200x4", "--report-dir", "taken/here",
        cwd=tmp_path,
    )  # fmt: skip
    assert run.returncode == 73
    assert run.stdout.startswith("ACCEPTED h200x4")
    assert run.stderr.strip().splitlines()[-1].startswith("nodecheck: cannot write")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_what_it_had(number: signal.Signals, tmp_path: Path) -> None:
    """A torch whose import never ends stands for a stuck driver; the child must not outlive the run."""
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import os, time\n"
        f"open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "time.sleep(600)\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "nodecheck", "accept", "--profile", "cpu", "--python", sys.executable],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pids = tmp_path / "pids"
    until = time.monotonic() + 30
    while time.monotonic() < until and not (pids.exists() and pids.read_text().strip()):
        time.sleep(0.05)
    began = time.monotonic()
    run.send_signal(number)
    stdout, stderr = run.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert run.returncode == 130, stderr
    assert stdout.startswith("INCOMPLETE cpu")
    report = only_report(tmp_path / "reports")
    assert report["interrupted"] is True
    assert report["facts"]["host"]["kernel"] == os.uname().release  # type: ignore[index]
    for pid in map(int, pids.read_text().split()):
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and alive(pid):
            time.sleep(0.05)
        assert not alive(pid)


def alive(pid: int) -> bool:
    try:
        return (
            f"{pid} (" in Path(f"/proc/{pid}/stat").read_text()
            and ") Z " not in Path(f"/proc/{pid}/stat").read_text()
        )
    except OSError:
        return False


def test_help_and_version(tmp_path: Path) -> None:
    assert "accept" in nodecheck("--help", cwd=tmp_path).stdout
    assert nodecheck("--version", cwd=tmp_path).stdout.startswith("nodecheck ")


@pytest.mark.parametrize("stdout", ["closed pipe", "/dev/full", "none"])
def test_a_broken_stdout_changes_no_verdict(stdout: str, tmp_path: Path) -> None:
    argv = ["accept", "--from", str(NODES / "h200x4-rejected"), "--profile", "h200x4"]
    command = [sys.executable, "-m", "nodecheck", *argv]
    if stdout == "none":
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    with Path("/dev/full").open("wb") as full:
        run = subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=full if stdout == "/dev/full" else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    if run.stdout:
        run.stdout.close()
    assert run.stderr
    said = run.stderr.read()
    assert run.wait(timeout=30) == 2, said
    assert "Traceback" not in said
    assert only_report(tmp_path / "reports")


def shell(script: str, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A bash script in which `$@` is nodecheck with these arguments."""
    command = [sys.executable, "-m", "nodecheck", *map(str, arguments)]
    return subprocess.run(
        ["bash", "-c", script, "bash", *command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("closing", ["2>&-", "2>/dev/full"])
def test_a_broken_stderr_changes_nothing(closing: str, tmp_path: Path) -> None:
    argv: list[str | Path] = ["accept", "--from", NODES / "h200x4-rejected", "--profile", "h200x4"]
    run = shell(f'exec "$@" {closing}', *argv, cwd=tmp_path)
    assert run.returncode == 2
    assert run.stdout.startswith("REJECTED h200x4") and "nodecheck: " not in run.stdout.split("\n")[0]
    assert only_report(tmp_path / "reports")
    for code, wrong in ((64, ["reject"]), (65, ["accept", "--profile", "h200x7777"])):
        refused = shell(f'exec "$@" {closing}', *wrong, cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (code, "")


def test_a_node_with_few_processes_left_still_has_a_report(tmp_path: Path) -> None:
    """Without threads (none can be started: the limit is the user's, and root has none) it takes longer."""
    (tmp_path / "sitecustomize.py").write_text(
        "import threading\n"
        "def start(self):\n"
        '    raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = start\n"
    )
    run = nodecheck(
        "accept", "--profile", "h200x1", "--level", "quick", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}
    )
    assert run.returncode == 3, run.stdout + run.stderr
    report = only_report(tmp_path / "reports")
    assert report["facts"]["host"]["kernel"] == os.uname().release


@pytest.mark.parametrize("pipe", ["| true", ">/dev/full"])
def test_an_exit_code_is_the_same_behind_a_pipe(pipe: str, tmp_path: Path) -> None:
    made = nodecheck(
        "accept",
        "--from",
        NODES / "h200x4-accepted",
        "--profile",
        "h200x4",
        "--report-dir",
        "out",
        cwd=tmp_path,
    )
    assert made.returncode == 0
    (folder,) = (tmp_path / "out").iterdir()
    (folder / "report.md").write_text("mended")
    (tmp_path / "bad.toml").write_text("schema = 7\n")
    node = NODES / "h200x4-accepted"
    argvs: tuple[tuple[int, list[str | Path]], ...] = (
        (2, ["report", "verify", folder]),
        (65, ["profiles", "validate", tmp_path / "bad.toml"]),
        (3, ["measure", "--from", node]),
        (2, ["judge", folder, "--profile", "h200x8"]),
        (0 if pipe == "| true" else 73, ["probe", "--from", node]),
    )
    for code, argv in argvs:
        run = shell(f'"$@" {pipe}; exit ${{PIPESTATUS[0]}}', *argv, cwd=tmp_path)
        assert run.returncode == code, (argv, run.stderr)
        assert (
            "Traceback" not in run.stderr and "internal" not in run.stderr and "Exception" not in run.stderr
        )


@pytest.mark.parametrize("place", ["/", "", "missing/node.tar.gz", "closed/node.tar.gz", "/proc/node.tar.gz"])
def test_where_no_recording_can_be_written_none_is_made(place: str, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    if place.startswith("closed") and os.getuid() == 0:
        pytest.skip("root may write anywhere")
    run = nodecheck("capture", place, cwd=tmp_path)
    assert run.returncode == 73
    assert run.stderr.startswith("nodecheck: ") and run.stderr.count("\n") == 1


def test_a_terminal_of_unknown_width_is_an_ordinary_one(tmp_path: Path) -> None:
    argv: list[str | Path] = ["judge", "--from", NODES / "h200x1", "--profile", "h200x1"]
    plain, unknown = (nodecheck(*argv, cwd=tmp_path, env={"COLUMNS": columns}) for columns in ("80", "0"))
    assert unknown.stdout == plain.stdout != ""


def test_a_file_behind_a_pipe_is_written_to(tmp_path: Path) -> None:
    argv: list[str | Path] = ["probe", "--from", NODES / "h200x1", "-o", "/dev/stdout"]
    run = shell('"$@" | cat; exit ${PIPESTATUS[0]}', *argv, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["cards"]


@pytest.mark.parametrize(
    ("command", "file"),
    [(["probe", "-o", "facts.json"], "facts.json"), (["capture", "node.tar.gz"], "node.tar.gz")],
)
def test_an_interrupted_look_is_written_and_said(command: list[str], file: str, tmp_path: Path) -> None:
    package = tmp_path / "site" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        f"import time\nopen({str(tmp_path / 'begun')!r}, 'w').close()\ntime.sleep(600)\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "nodecheck", *command, "--python", sys.executable],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 30
    while time.monotonic() < until and not (tmp_path / "begun").exists():
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    _, stderr = run.communicate(timeout=20)
    assert run.returncode == 130, stderr
    assert stderr.strip().splitlines()[-1].startswith("nodecheck: interrupted")
    assert (tmp_path / file).stat().st_size > 100


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_report_that_is_being_written_is_finished(number: signal.Signals, tmp_path: Path) -> None:
    """The signal comes from within, at the first file that is written."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, nodecheck.writing as writing\n"
        "before = writing.write_out\n"
        "def write_out(*arguments):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    return before(*arguments)\n"
        "writing.write_out = write_out\n"
    )
    run = nodecheck(
        "accept", "--from", NODES / "h200x4-accepted", "--profile", "h200x4",
        cwd=tmp_path, env={"PYTHONPATH": f"{tmp_path}:{NODES.parents[1]}"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("ACCEPTED h200x4")
    (folder,) = (tmp_path / "reports").iterdir()
    assert nodecheck("report", "verify", folder, cwd=tmp_path).returncode == 0
