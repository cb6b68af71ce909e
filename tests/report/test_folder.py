from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodecheck.judge import Verdict, judge
from nodecheck.report import document, folder, render
from nodecheck.report.document import Report, ReportError
from nodecheck.report.folder import WriteError
from tests import healthy
from tests.report import samples

ROOT = Path(__file__).parents[2]


def judged(count: int = 2) -> Report:
    """A report whose judgement is what the rules give."""
    wanted = samples.profile(count)
    node = healthy.node(wanted)
    return document.build(node, wanted, judge(node, wanted), durations={"host": 0.2}, argv=["accept"])


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


EVIDENCE = {"files.json": b'{"a": 1}', "nvml.json": b"{}"}


def test_a_folder_holds_everything_for_its_owner_alone(tmp_path: Path) -> None:
    copied = tmp_path / "worker.log"
    copied.write_bytes(b"log")
    report = judged()
    before = os.umask(0)
    try:
        written = folder.write(report, tmp_path / "new" / "reports", {**EVIDENCE, "worker.log": copied})
    finally:
        os.umask(before)
    assert written.path.parent == tmp_path / "new" / "reports"
    assert written.path.name == f"h200x2-{report.created_at:%Y%m%dT%H%M%SZ}"
    files = {p.relative_to(written.path).as_posix() for p in written.path.rglob("*") if p.is_file()}
    assert files == {
        "report.json",
        "report.html",
        "report.md",
        "evidence/files.json",
        "evidence/nvml.json",
        "evidence/worker.log",
    }
    for path in (written.path, *written.path.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert document.load(written.path) == written.report
    assert set(written.report.parts) == {"facts", "profile", "judgement", "run", "evidence", *files} - {
        "report.json"
    }
    raw = (written.path / "report.json").read_bytes()
    assert hashlib.sha256(raw).hexdigest() == written.sha256
    assert names(written.path.parent) == [written.path.name]


def test_the_page_in_the_folder_is_the_page_of_the_report(tmp_path: Path) -> None:
    written = folder.write(judged(), tmp_path, EVIDENCE)
    loaded = document.load(written.path)
    assert (written.path / "report.html").read_text() == render(loaded, "html")
    assert (written.path / "report.md").read_text() == render(loaded, "md")


def test_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    report = judged()
    (tmp_path / folder.folder_name(report)).mkdir()
    taken = [folder.write(report, tmp_path).path.name for _ in range(3)]
    first = folder.folder_name(report)
    assert taken == [f"{first}-2", f"{first}-3", f"{first}-4"]
    assert names(tmp_path / first) == []


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc", "..", "", "\x1b[2J", "a/b\0c", "x" * 5000, "-rf", "ü" * 200, "COM1\n"],
)
def test_no_profile_can_name_a_folder_elsewhere(name: str, tmp_path: Path) -> None:
    report = judged(1)
    report = report.model_copy(update={"profile": report.profile.model_copy(update={"name": name})})
    written = folder.write(report, tmp_path / "reports")
    assert written.path.parent == tmp_path / "reports"
    assert written.path.name.isascii()
    assert written.path.name[0].isalnum()
    assert (written.path / "report.json").is_file()


def test_evidence_stays_in_its_folder(tmp_path: Path) -> None:
    written = folder.write(judged(1), tmp_path, {"../../escaped": b"1", "/etc/x": b"2", "..": b"3"})
    assert sorted(p.name for p in (written.path / "evidence").iterdir()) == ["escaped", "etc-x", "member"]
    assert folder.verify(written.path).differences == ()


CHILD = """
import os, signal, resource, sys
from pathlib import Path
from nodecheck.report import folder
from tests.report.test_folder import EVIDENCE, judged
parent = Path(sys.argv[1])
{trouble}
try:
    folder.write(judged(), parent, EVIDENCE)
except folder.WriteError as error:
    print(error)
    sys.exit(73)
"""


def child(trouble: str, parent: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD.format(trouble=trouble), str(parent)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )


@pytest.mark.parametrize("files_before_death", range(1, 6))
def test_killed_in_the_middle_no_half_report_lies_there(files_before_death: int, tmp_path: Path) -> None:
    trouble = f"""
calls = 0
fsync = os.fsync
def dying(descriptor):
    global calls
    calls += 1
    if calls == {files_before_death}:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(descriptor)
os.fsync = dying
"""
    done = child(trouble, tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [name for name in names(tmp_path) if not name.startswith(".")] == []


def test_a_disk_that_fills_up_gives_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    done = child("resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))", tmp_path)
    assert done.returncode == 73, done.stderr
    assert done.stdout.startswith("cannot write the report below")
    assert "File too large" in done.stdout
    assert done.stdout.count("\n") == 1
    assert names(tmp_path) == []


def test_where_nothing_can_be_written_there_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"cannot write a report below .*: (Not a directory|File exists)"):
        folder.write(judged(1), tmp_path / "file")
    with pytest.raises(WriteError, match=r"Not a directory"):
        folder.write(judged(1), tmp_path / "file" / "below")
    with pytest.raises(WriteError, match=r"cannot write a report below /proc/nodecheck"):
        folder.write(judged(1), Path("/proc/nodecheck"))
    with pytest.raises(WriteError, match="No such file"):
        folder.write(judged(1), tmp_path, {"gone": tmp_path / "gone"})
    assert names(tmp_path) == ["file"]


def test_a_folder_of_somebody_else_gives_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        # Root may write everywhere, so it becomes nobody first.
        done = child("os.geteuid() or os.setuid(65534)", tmp_path)
    finally:
        tmp_path.chmod(0o700)
    assert done.returncode == 73, done.stderr
    assert done.stdout.startswith("cannot write a report below")
    assert "Permission denied" in done.stdout


def test_a_page_that_cannot_be_made_does_not_cost_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(report: Report) -> str:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr("nodecheck.report.html.render", broken)
    written = folder.write(judged(1), tmp_path)
    assert written.unrendered == ("report.html: ZeroDivisionError: a fault of ours",)
    assert names(written.path) == ["report.json", "report.md"]
    assert folder.verify(written.path).differences == ()


def test_one_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    folder.write_file(path, b"after")
    assert path.read_text() == "after"
    with pytest.raises(WriteError, match=r"cannot write /dev/full: No space left on device"):
        folder.write_file(Path("/dev/full"), b"x")
    with pytest.raises(WriteError, match=r"cannot write .*: No such file or directory"):
        folder.write_file(tmp_path / "nowhere" / "page.html", b"x")
    folder.write_file(Path("/dev/null"), b"x")
    assert names(tmp_path) == ["page.html"]


# What verify must see.


def test_an_untouched_report_verifies(tmp_path: Path) -> None:
    written = folder.write(judged(), tmp_path, EVIDENCE)
    result = folder.verify(written.path)
    assert result.differences == ()
    assert {"facts", "report.html", "evidence/nvml.json", "verdict, judged again"} <= set(result.checked)
    alone = folder.verify(written.path / "report.json")
    assert alone.differences == ()
    assert "report.html" not in alone.checked


def rewrite(path: Path, change: Callable[[dict[str, Any]], None], *, hashed: bool = False) -> None:
    file = path / "report.json"
    raw = json.loads(file.read_text())
    change(raw)
    if hashed:
        raw["parts"].update(document.hashes(raw))
    file.write_text(json.dumps(raw))


def set_at(*steps: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(raw: Any) -> None:
        for step in steps[:-1]:
            raw = raw[step]
        assert raw[steps[-1]] != value
        raw[steps[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (set_at("facts", "cards", 0, "identity", "serial", value="1"), "facts: changed"),
        (set_at("facts", "host", "name", value="elsewhere"), "facts: changed"),
        (set_at("profile", "card", "memory_mib", value=141000), "profile: changed"),
        (set_at("judgement", "summary", value="ACCEPTED"), "judgement: changed"),
        (set_at("judgement", "findings", value=[]), "judgement: changed"),
        (set_at("waivers", value={"cards.count": "never mind"}), "run: changed"),
        (set_at("created_at", value="2020-01-01T00:00:00Z"), "run: changed"),
        (set_at("tool", "version", value="99"), "run: changed"),
        (set_at("interrupted", value=True), "run: changed"),
        (set_at("parts", value={}), "facts: the report has no hash of it"),
        (set_at("parts", "report.html", value="0" * 64), "report.html: changed"),
    ],
)
def test_an_edit_of_the_document_shows(
    change: Callable[[dict[str, Any]], None], told: str, tmp_path: Path
) -> None:
    written = folder.write(judged(), tmp_path, EVIDENCE)
    rewrite(written.path, change)
    assert any(line.startswith(told) for line in folder.verify(written.path).differences)


def flip_verdict(raw: dict[str, Any]) -> None:
    given = raw["judgement"]["verdict"]
    raw["judgement"]["verdict"] = "REJECTED" if given != "REJECTED" else "ACCEPTED"


def pass_everything(raw: dict[str, Any]) -> None:
    for finding in raw["judgement"]["findings"]:
        finding["status"] = "skipped"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (flip_verdict, "verdict: the report says"),
        (pass_everything, "skipped in the report, pass when judged again"),
        (lambda raw: raw["judgement"]["findings"].pop(), "and not in the report"),
        (
            lambda raw: raw["judgement"]["findings"].append(raw["judgement"]["findings"][0]),
            "in the report only",
        ),
        (set_at("judgement", "findings", 0, "detail", value="Fine."), "told otherwise when judged again"),
        (set_at("judgement", "summary", value="ACCEPTED"), "summary, reasons or ledger"),
        (set_at("facts", "cards", value=[]), "when judged again"),
        (set_at("profile", "cards", "count", value=7), "when judged again"),
    ],
)
def test_a_forger_who_mends_the_hashes_is_seen_by_judging_again(
    change: Callable[[dict[str, Any]], None], told: str, tmp_path: Path
) -> None:
    written = folder.write(judged(), tmp_path)
    rewrite(written.path, change, hashed=True)
    differences = folder.verify(written.path).differences
    assert any(told in line for line in differences), differences
    assert not any("SHA-256" in line for line in differences)


def test_a_verdict_over_a_suggested_profile_verifies_as_such(tmp_path: Path) -> None:
    wanted = samples.profile(2)
    node = healthy.node(wanted)
    judgement = judge(node, wanted, named=False)
    assert judgement.verdict is Verdict.incomplete
    written = folder.write(document.build(node, wanted, judgement), tmp_path)
    assert folder.verify(written.path).differences == ()


@pytest.mark.parametrize("name", ["report.html", "report.md", "evidence/nvml.json"])
def test_a_file_that_changed_or_is_gone_or_is_no_file_shows(name: str, tmp_path: Path) -> None:
    written = folder.write(judged(1), tmp_path, EVIDENCE)
    path = written.path / name
    whole = path.read_bytes()
    path.write_bytes(whole + b" ")
    assert folder.verify(written.path).differences == (
        f"{name}: changed since the report was written (its SHA-256 is another)",
    )
    missing = (f"{name}: missing, or not a plain file",)
    path.unlink()
    assert folder.verify(written.path).differences == missing
    (tmp_path / "same").write_bytes(whole)
    path.symlink_to(tmp_path / "same")
    assert folder.verify(written.path).differences == missing
    path.unlink()
    os.mkfifo(path)
    assert folder.verify(written.path).differences == missing


def test_a_file_that_was_added_shows(tmp_path: Path) -> None:
    written = folder.write(judged(1), tmp_path, EVIDENCE)
    (written.path / "evidence" / "more\x1b[2J.json").write_text("{}")
    (written.path / "invoice.html").write_text("")
    assert folder.verify(written.path).differences == (
        "evidence/more\\x1b[2J.json: not part of the report as it was written",
        "invoice.html: not part of the report as it was written",
    )


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/hostname", "evidence/../../outside", "evidence/..", "x\0y"]
)
def test_a_report_cannot_make_verify_read_elsewhere(name: str, tmp_path: Path) -> None:
    written = folder.write(judged(1), tmp_path, EVIDENCE)
    (tmp_path / "outside").write_bytes(b"")
    rewrite(written.path, lambda raw: raw["parts"].update({name: hashlib.sha256(b"").hexdigest()}))
    assert any("no name that a report's file has" in line for line in folder.verify(written.path).differences)


def test_verify_refuses_what_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(ReportError):
        folder.verify(tmp_path)


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_a_page_that_is_not_the_reports_own_shows(name: str, tmp_path: Path) -> None:
    written = folder.write(judged(1), tmp_path, EVIDENCE)
    forged = (written.path / name).read_bytes().replace(b"NVIDIA", b"NVIDlA")
    (written.path / name).write_bytes(forged)
    digest = hashlib.sha256(forged).hexdigest()
    rewrite(written.path, lambda raw: raw["parts"].update({name: digest}))
    assert folder.verify(written.path).differences == (f"{name}: not what report.json gives",)
    rewrite(written.path, set_at("tool", "version", value="0.0.1"), hashed=True)
    assert f"{name}: rendered differently by this version" in folder.verify(written.path).differences
    (written.path / name).unlink()
    rewrite(written.path, lambda raw: raw["parts"].pop(name))
    assert f"{name}: the report has no hash of it" in folder.verify(written.path).differences


def test_all_evidence_taken_away_together_with_its_hashes_shows(tmp_path: Path) -> None:
    written = folder.write(judged(1), tmp_path, EVIDENCE)
    shutil.rmtree(written.path / "evidence")
    assert "evidence/nvml.json: missing, or not a plain file" in folder.verify(written.path).differences

    def forget(raw: dict[str, Any]) -> None:
        raw["parts"] = {name: d for name, d in raw["parts"].items() if not name.startswith("evidence/")}

    rewrite(written.path, forget)
    pages = {form: render(document.load(written.path), form).encode() for form in folder.RENDERED.values()}
    for name, form in folder.RENDERED.items():
        (written.path / name).write_bytes(pages[form])
        digest = hashlib.sha256(pages[form]).hexdigest()
        rewrite(written.path, set_at("parts", name, value=digest))
    told = "evidence: changed since the report was written (its SHA-256 is another)"
    assert told in folder.verify(written.path).differences


def test_evidence_taken_away_together_with_its_hash_shows(tmp_path: Path) -> None:
    manifest = json.dumps({"members": dict.fromkeys(EVIDENCE, "")}).encode()
    written = folder.write(judged(1), tmp_path, {**EVIDENCE, "manifest.json": manifest})
    assert folder.verify(written.path).differences == ()
    (written.path / "evidence" / "nvml.json").unlink()
    rewrite(written.path, lambda raw: raw["parts"].pop("evidence/nvml.json"))
    assert "evidence/nvml.json: the report has no hash of it" in folder.verify(written.path).differences
