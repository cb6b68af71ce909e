"""The report's folder: written whole or not at all, readable by its owner alone, and checked again later."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from nodecheck import __version__
from nodecheck.judge import Finding, Judgement, judge
from nodecheck.report import document, render
from nodecheck.report.document import EVIDENCE, FILE, Report
from nodecheck.report.text import plain
from nodecheck.writing import reason, write_out, write_whole

RENDERED = {"report.html": "html", "report.md": "md"}
"""File → format of what lies beside report.json."""

_CHUNK_BYTES = 1024 * 1024


class WriteError(Exception):
    """The report cannot be written; one sentence, with the reason."""


@dataclass(frozen=True)
class Written:
    """A report on disk."""

    path: Path
    """The folder."""
    report: Report
    """As written: `parts` names every file."""
    sha256: str
    """Of report.json."""
    unrendered: tuple[str, ...]
    """Files that could not be made from the report, with the reason; report.json is whole all the same."""


def write(report: Report, parent: Path, evidence: Mapping[str, bytes | Path] | None = None) -> Written:
    """Write `<profile>-<UTC>` below `parent` (made if need be): a 0700 folder of 0600 files.

    `evidence` maps names to contents, or to files that are copied. Everything is written under a hidden name
    first, so that the folder appears whole. Raises `WriteError`; nothing is left behind then.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".nodecheck-", suffix=".partial", dir=parent))
    except OSError as error:
        raise WriteError(f"cannot write a report below {parent}: {reason(error)}") from None
    try:
        written, digest, unrendered = _fill(draft, report, evidence or {})
        path = _publish(draft, parent, folder_name(report))
    except OSError as error:
        raise WriteError(f"cannot write the report below {parent}: {reason(error)}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Written(path, written, digest, unrendered)


def write_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write one file whole or not at all; a device or pipe is written to. Raises `WriteError`."""
    try:
        if path.exists() and not path.is_file():
            # By the name that was given: a pipe behind /dev/stdout has no path of its own.
            path.write_bytes(content)
            return
        write_whole(path.resolve(), content, mode)
    except (OSError, RuntimeError) as error:
        raise WriteError(f"cannot write {path}: {reason(error)}") from None


def folder_name(report: Report) -> str:
    """`h200x4-20261130T183000Z`; whatever a profile calls itself, one harmless path component."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", report.profile.name)[:64].strip(".-") or "profile"
    return f"{name}-{report.created_at:%Y%m%dT%H%M%SZ}"


def _fill(
    draft: Path, report: Report, evidence: Mapping[str, bytes | Path]
) -> tuple[Report, str, tuple[str, ...]]:
    parts = dict(report.parts)
    if evidence:
        (draft / EVIDENCE).mkdir(mode=0o700)
    for name, content in evidence.items():
        member = f"{EVIDENCE}/{_member(name)}"
        if isinstance(content, Path):
            content = content.read_bytes()
        parts[member] = _put(draft / member, content)
    report = report.model_copy(update={"parts": dict(parts)})
    parts |= document.hashes(json.loads(document.dump(report)))
    report = report.model_copy(update={"parts": dict(parts)})
    unrendered = []
    for name, form in RENDERED.items():
        try:
            text = render(report, form)
        except Exception as error:
            # A fault of ours in a template must not cost the renter what was seen.
            unrendered.append(f"{name}: {type(error).__name__}: {plain(str(error), 200)}")
            continue
        parts[name] = _put(draft / name, text.encode())
    report = report.model_copy(update={"parts": parts})
    return report, _put(draft / FILE, document.dump(report).encode()), tuple(unrendered)


def _member(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[-100:].lstrip(".-") or "member"


def _put(path: Path, content: bytes) -> str:
    write_out(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), content)
    return hashlib.sha256(content).hexdigest()


def _publish(draft: Path, parent: Path, name: str) -> Path:
    attempt = 1
    while True:
        path = parent / (name if attempt == 1 else f"{name}-{attempt}")
        attempt += 1
        if os.path.lexists(path):
            continue
        try:
            return draft.rename(path)
        except OSError:
            # Another run may have taken the name just now; anything else is trouble.
            if not os.path.lexists(path):
                raise


@dataclass(frozen=True)
class Verification:
    """What was compared, and what was found otherwise than the report says."""

    checked: tuple[str, ...]
    differences: tuple[str, ...]


def verify(path: Path) -> Verification:
    """Compute every hash again, and judge the facts again with the profile inside.

    Given a folder, its files are checked as well; given a report.json, that document alone. Raises
    `document.ReportError` for something that is no report.
    """
    raw = document.read(path)
    report = document.parse(raw, path)
    checked: list[str] = []
    differences: list[str] = []
    inner = document.hashes(json.loads(raw))
    for name, digest in inner.items():
        checked.append(name)
        if name not in report.parts:
            differences.append(f"{name}: the report has no hash of it")
        elif report.parts[name] != digest:
            differences.append(f"{name}: changed since the report was written (its SHA-256 is another)")
    if path.is_dir():
        files = {name: digest for name, digest in report.parts.items() if name not in inner}
        checked += files
        differences += _file_differences(path, files)
        differences += _rendered_differently(path, report)
        differences += _evidence_missing(path, files)
    if report.level != report.facts.level:
        differences.append(f"level: the report says {report.level}, its facts {report.facts.level}")
    checked.append("verdict, judged again")
    differences += _judged_again(report)
    return Verification(tuple(plain(name) for name in checked), tuple(plain(line) for line in differences))


def _file_differences(root: Path, files: Mapping[str, str]) -> Iterator[str]:
    for name, digest in files.items():
        if not _inside(name):
            yield f"{name}: no name that a report's file has"
            continue
        found = _digest(root / name)
        if found is None:
            yield f"{name}: missing, or not a plain file"
        elif found != digest:
            yield f"{name}: changed since the report was written (its SHA-256 is another)"
    for entry in sorted(root.rglob("*")):
        name = entry.relative_to(root).as_posix()
        if name not in files and name not in (FILE, EVIDENCE):
            yield f"{name}: not part of the report as it was written"


def _rendered_differently(root: Path, report: Report) -> Iterator[str]:
    """Pages that are not what their report gives, even if the hashes agree."""
    for name, form in RENDERED.items():
        try:
            page = render(report, form).encode()
        except Exception:
            page = None  # as it was when the report was written: then there is no page
        if page is None:
            continue
        stored = report.parts.get(name)
        if stored is None:
            yield f"{name}: the report has no hash of it"
        elif stored == _digest(root / name) != hashlib.sha256(page).hexdigest():
            same = report.tool.version == __version__
            yield f"{name}: {'not what report.json gives' if same else 'rendered differently by this version'}"


def _evidence_missing(root: Path, files: Mapping[str, str]) -> Iterator[str]:
    """Files that the evidence's own list names and the report does not."""
    manifest = f"{EVIDENCE}/manifest.json"
    if manifest not in files or files[manifest] != _digest(root / manifest):
        return
    try:
        members = json.loads(document.read(root / manifest))["members"]
        missing = [f"{EVIDENCE}/{name}" for name in members if f"{EVIDENCE}/{name}" not in files]
    except (document.ReportError, ValueError, RecursionError, LookupError, TypeError):
        yield f"{manifest}: no list of a recording's files"
        return
    yield from (f"{name}: the report has no hash of it" for name in missing)


def _inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return name in RENDERED or (len(parts) == 2 and parts[0] == EVIDENCE and parts[1] != "..")


def _digest(path: Path) -> str | None:
    try:
        if not stat.S_ISREG(path.lstat().st_mode) or path.parent.is_symlink():
            return None
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest()
    except (OSError, ValueError):
        return None


def _judged_again(report: Report) -> Iterator[str]:
    stored = report.judgement
    try:
        again = judge(report.facts, report.profile, report.waivers, named=stored.named)
    except Exception as error:
        yield f"judging the facts again broke: {type(error).__name__}: {error}"
        return
    if again == stored:
        return
    if report.tool.version != __version__:
        yield f"rules may differ: nodecheck {report.tool.version} then, {__version__} now"
    if again.verdict is not stored.verdict:
        yield f"verdict: the report says {stored.verdict.value}, its facts give {again.verdict.value}"
    before, after = _by_subject(stored), _by_subject(again)
    for key in {**before, **after}:
        label = f"{key[0]} ({key[1]})"
        then, now = before.get(key), after.get(key)
        if now is None:
            yield f"{label}: in the report only"
        elif then is None:
            yield f"{label}: {now.status.value} when judged again, and not in the report"
        elif then.status is not now.status:
            yield f"{label}: {then.status.value} in the report, {now.status.value} when judged again"
        elif then != now:
            yield f"{label}: told otherwise when judged again"
    if before == after:
        yield "judgement: its summary, reasons or ledger are not what the facts give"


def _by_subject(judgement: Judgement) -> dict[tuple[str, str, int], Finding]:
    """Findings by id, subject and how often the two had come before."""
    found: dict[tuple[str, str, int], Finding] = {}
    for finding in judgement.findings:
        repeat = 0
        while (finding.id, finding.subject.key, repeat) in found:
            repeat += 1
        found[finding.id, finding.subject.key, repeat] = finding
    return found
