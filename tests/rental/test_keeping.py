"""The rental's end, on real folders and with the mount tables of other machines."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from nodecheck.judge import Finding, Status
from nodecheck.rental import keeping
from nodecheck.rental.state import Terms
from nodecheck.sources import Files
from nodecheck.sources.channel import Recorded

NOW = datetime(2026, 12, 6, 12, 0, tzinfo=timezone.utc)
END = NOW + timedelta(hours=22)
LOCAL = "/dev/nvme0n1 / ext4 rw 0 0\n"


def unsaved(*paths: Path, table: str = LOCAL, copied_if: tuple[str, ...] = ()) -> list[Finding]:
    files = Files(Recorded({"read /proc/self/mounts": {"value": table}}))
    terms = Terms(ends_at=END, keep=tuple(map(str, paths)), copied_if=copied_if)
    first, *rest = keeping.findings(terms, NOW, files)
    assert (first.id, first.status) == ("rental.ends", Status.warn)
    assert {finding.id for finding in rest} == {"rental.unsaved"}
    return rest


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work 'n' \x1b[31m"
    (folder / "runs").mkdir(parents=True)
    (folder / "runs" / "model.pt").write_bytes(b"x" * 5000)
    (folder / "notes").write_text("y" * 120)
    time.sleep(0.02)  # more than the kernel's tick, by which files are dated
    return folder


def mark(path: Path, at: float | None = None) -> None:
    path.touch()
    if at is not None:
        os.utime(path, (at, at))


# When


@pytest.mark.parametrize(
    ("hours", "status", "words"),
    [
        (25, Status.passed, "The rental ends on 2026-12-07 13:00 UTC."),
        (24, Status.warn, "ends in less than 24 hours, on 2026-12-07 12:00 UTC"),
        (1, Status.warn, "no path was named with --keep"),
        (-3, Status.warn, "The rental ended on 2026-12-06 09:00 UTC"),
    ],
)
def test_the_end_is_told_a_day_before(hours: int, status: Status, words: str) -> None:
    (finding,) = keeping.findings(Terms(ends_at=NOW + timedelta(hours=hours)), NOW, Files(Recorded({})))
    assert (finding.id, finding.status) == ("rental.ends", status)
    assert words in finding.detail


def test_nothing_is_said_without_an_end_and_nothing_is_walked_before(work: Path) -> None:
    files = Files(Recorded({}))
    assert keeping.findings(Terms(), NOW, files) == ()
    early = Terms(ends_at=NOW + timedelta(days=3), keep=(str(work),))
    assert [finding.id for finding in keeping.findings(early, NOW, files)] == ["rental.ends"]


# What would be lost


def test_what_was_never_copied_is_named_with_its_size(work: Path) -> None:
    (finding,) = unsaved(work)
    assert finding.status is Status.warn
    assert finding.subject.key == str(work)
    assert (finding.observed, finding.unit) == (5120, "bytes")
    assert "5 KiB in 2 files on ext4 (a local disk)" in finding.detail
    assert "it was never marked as copied" in finding.detail
    assert "\x1b" not in finding.detail


def test_the_next_step_does_what_it_says(work: Path, tmp_path: Path) -> None:
    (finding,) = unsaved(work)
    command = finding.next_step.split("`")[1]
    program = tmp_path / "bin" / "rsync"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$1" = --archive ] && cp -a "$2." "$3"\n')
    program.chmod(0o755)
    where = tmp_path / "copy"
    where.mkdir()
    subprocess.run(
        ["sh", "-c", command.replace("WHERE", shlex.quote(str(where)))],
        check=True,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
    )
    assert (where / "runs" / "model.pt").exists()
    (finding,) = unsaved(work)
    assert finding.status is Status.passed
    assert "it was marked as copied on" in finding.detail


def test_what_changed_after_the_copy_is_not_copied(work: Path) -> None:
    mark(work / keeping.MARKER)
    assert unsaved(work)[0].status is Status.passed
    time.sleep(0.02)
    (work / "runs" / "model.pt").write_bytes(b"z")
    (finding,) = unsaved(work)
    assert finding.status is Status.warn
    assert "model.pt last changed on" in finding.detail


def test_a_download_with_an_old_date_is_not_copied(work: Path) -> None:
    mark(work / keeping.MARKER)
    time.sleep(0.02)
    mark(work / "dataset.tar", at=time.time() - 1e6)
    assert unsaved(work)[0].status is Status.warn


def test_one_file_has_its_marker_beside_it(work: Path) -> None:
    path = work / "notes"
    assert unsaved(path)[0].status is Status.warn
    mark(Path(f"{path}{keeping.MARKER}"), at=time.time() + 5)
    assert unsaved(path)[0].status is Status.passed


def test_an_empty_folder_loses_nothing_and_a_missing_one_is_told(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    lost, nothing = unsaved(tmp_path / "no such", empty)
    assert (lost.status, nothing.status) == (Status.warn, Status.passed)
    assert lost.detail == "There is no such path on this node."


def test_a_path_that_cannot_be_looked_at_holds_up_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str, strict: bool) -> str:
        raise PermissionError(13, "Permission denied")

    def hung(path: str, strict: bool) -> str:
        time.sleep(3)
        return path

    for behaviour, words in ((denied, "no permission"), (hung, "timed out")):
        monkeypatch.setattr(os.path, "realpath", behaviour)
        monkeypatch.setattr(keeping, "WALK_SECONDS", 0.2)
        (finding,) = unsaved(tmp_path)
        assert (finding.status, finding.required) == (Status.unknown, True)
        assert words in finding.detail


def test_links_lead_nowhere(work: Path, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    (work / "up").symlink_to(tmp_path)
    (work / "large").symlink_to(tmp_path / "large")
    os.mkfifo(work / "pipe")
    assert unsaved(work)[0].observed == 5120
    link = tmp_path / "link"
    link.symlink_to(work)
    assert unsaved(link)[0].observed == 5120


@pytest.mark.parametrize(
    ("table", "status", "words"),
    [
        ("filer:/home {} nfs4 rw 0 0\n", Status.passed, "network storage (nfs4, filer:/home)"),
        ("share {} virtiofs rw 0 0\n", Status.warn, "a share that may be a disk of this node"),
        ("mergerfs {} fuse.mergerfs rw 0 0\n", Status.warn, "a share that may be a disk of this node"),
        ("overlay / overlay rw 0 0\n", Status.warn, "the container's own layer"),
        ("tmpfs {} tmpfs rw 0 0\n", Status.warn, "lost at the next reboot"),
        ("filer:/home {} nfs4 rw 0 0\n/dev/sda1 {} xfs rw 0 0\n", Status.warn, "xfs (a local disk)"),
        ("", Status.warn, "a file system that could not be told"),
    ],
)
def test_the_file_system_decides(tmp_path: Path, table: str, status: Status, words: str) -> None:
    (tmp_path / "file").touch()
    (finding,) = unsaved(tmp_path, table=table.replace("{}", str(tmp_path)))
    assert finding.status is status
    assert words in finding.detail


def test_network_storage_below_a_folder_is_left_out_and_disks_are_not(tmp_path: Path) -> None:
    for name in ("filer", "scratch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 100)
    table = f"{LOCAL}filer:/ {tmp_path}/filer nfs4 rw 0 0\n/dev/nvme1n1 {tmp_path}/scratch xfs rw 0 0\n"
    assert unsaved(tmp_path, table=table)[0].observed == 100


def test_what_is_too_large_to_walk_is_at_least_so_large(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(3000):
        (work / f"{i}").touch()
    monkeypatch.setattr(keeping, "WALK_SECONDS", 0.001)
    mark(work / keeping.MARKER, at=time.time() + 5)
    (finding,) = unsaved(work)
    assert finding.status is Status.warn
    assert finding.detail.startswith("at least")
    assert "not all of it could be looked through" in finding.detail


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_closed_folder_is_no_pass(work: Path) -> None:
    mark(work / keeping.MARKER, at=time.time() + 5)
    (work / "runs").chmod(0)
    (finding,) = unsaved(work)
    (work / "runs").chmod(0o700)
    assert finding.status is Status.warn
    assert "1 folder in it could not be read" in finding.detail


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("import sys; sys.exit(sys.argv[1] == '')", Status.passed, "found nothing that is not copied"),
        (
            "print('>f+++++++++ model.pt')",
            Status.warn,
            "says it is not copied (exit code 0: >f+++++++++ model.pt)",
        ),
        ("import sys; sys.exit('1 difference')", Status.warn, "(exit code 1: 1 difference)"),
        ("import time; time.sleep(60)", Status.warn, "gave no answer (timed out"),
    ],
)
def test_the_renters_command_decides(
    work: Path, monkeypatch: pytest.MonkeyPatch, code: str, status: Status, words: str
) -> None:
    monkeypatch.setattr(keeping, "COMMAND_SECONDS", 1.0)
    mark(work / keeping.MARKER, at=time.time() + 5)
    (finding,) = unsaved(work, copied_if=(sys.executable, "-S", "-c", code, keeping.PATH))
    assert finding.status is status
    assert words in finding.detail


def test_a_command_that_does_not_exist_is_no_pass(work: Path) -> None:
    (finding,) = unsaved(work, copied_if=("no-such-program", "{path}"))
    assert finding.status is Status.warn
    assert "no-such-program" in finding.detail


# What the renter says


def test_terms_are_kept_in_utc_and_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    terms = keeping.terms(
        "2026-12-07T11:00+01:00",
        [Path("a"), Path("b/../a"), Path("/x")],
        "rclone check {path} 'far:my data'",
        NOW,
    )
    assert terms == Terms(
        ends_at=datetime(2026, 12, 7, 10, 0, tzinfo=timezone.utc),
        keep=(f"{tmp_path}/a", "/x"),
        copied_if=("rclone", "check", "{path}", "far:my data"),
    )
    assert keeping.terms("2026-12-07T10:00Z", [], None, NOW).ends_at == terms.ends_at
    assert keeping.terms(None, [], None, NOW) == Terms()


@pytest.mark.parametrize(
    ("ends", "keep", "copied_if", "words"),
    [
        ("2026-12-07T10:00", [], None, "does not say in which time zone"),
        ("2026-12-07", [], None, "does not say in which time zone"),
        ("next Monday", [], None, "is no time: write it as 2026-12-07T10:00Z"),
        ("2026-12-06T11:59Z", [], None, "is over already: it is 2026-12-06T12:00Z now"),
        ("9999-12-31T23:59-01:00", [], None, "no time of this world"),
        (None, ["/x"], None, "add --rental-ends"),
        ("2026-12-07T10:00Z", ["/x", "/y\udcff"], None, "is no UTF-8"),
        ("2026-12-07T10:00Z", [], "rclone check {path} x:", "name them"),
        ("2026-12-07T10:00Z", ["/x"], "rclone 'check", "--copied-if: "),
        ("2026-12-07T10:00Z", ["/x"], "rsync -an {path} far:", "add it"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    ends: str | None, keep: list[str], copied_if: str | None, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        keeping.terms(ends, [Path(path) for path in keep], copied_if, NOW)


def test_rsync_that_says_what_differs_is_taken() -> None:
    for options in ("-ani", "-a --dry-run --itemize-changes"):
        assert keeping.terms(
            "2026-12-07T10:00Z", [Path("/x")], f"rsync {options} {{path}} far:", NOW
        ).copied_if
