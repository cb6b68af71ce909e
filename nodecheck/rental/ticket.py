"""A ticket: reports and their evidence in one zip for somebody else, with names, addresses and secrets replaced.

Nothing goes in as it was read. Each report is read, its texts are redacted, and its folder is written anew from that,
so that `nodecheck report verify` holds for the copy; one set of pseudonyms serves everything in the ticket.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from nodecheck import __version__
from nodecheck.facts import Absent, known
from nodecheck.facts.comparison import same_node
from nodecheck.judge import REGISTRY, Judgement, Owner, judge
from nodecheck.rental import summary
from nodecheck.report import document, folder, page
from nodecheck.report.document import EVIDENCE, Report, ReportError
from nodecheck.report.page import Heading, Line, Table
from nodecheck.report.text import plain, plural
from nodecheck.sources import NAMES, recording
from nodecheck.sources.recording import Recording, RecordingError
from nodecheck.sources.scrub import Part, Redaction, Replaced
from nodecheck.sources.secrets import REDACTED
from nodecheck.writing import reason

FORMAT: Final = "nodecheck-ticket/1"
MANIFEST = "manifest.json"

MAX_EVIDENCE_BYTES = 64 * 1024 * 1024
"""Of one file, and of all files of one report."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The same reports give the same bytes."""


class TicketError(Exception):
    """Nothing can be sent; one sentence."""


@dataclass(frozen=True)
class LeftOut:
    """What was asked for and is not in the ticket, in words that may be sent."""

    what: str
    why: str


@dataclass(frozen=True)
class Ticket:
    content: bytes
    """The zip."""
    name: str
    """What to call it."""
    reports: int
    members: tuple[str, ...]
    replaced: tuple[Replaced, ...]
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True)
class _Given:
    """A report as it was read, and what lies beside it."""

    path: Path
    raw: bytes
    report: Report
    recorded: Recording | None
    loose: dict[str, bytes]
    """Evidence that is no recording: name → content."""
    scrubbed: bool


def build(
    paths: Sequence[Path], owner: Owner, created_at: datetime, *, scrub_serials: bool = False
) -> Ticket:
    """The ticket of the reports at `paths`, for `owner` to act on.

    What is damaged is left out and named. Raises `TicketError` where no report is left.
    """
    troubles: list[tuple[str, str]] = []
    given: list[_Given] = []
    for path in dict.fromkeys(paths):
        try:
            given.append(_read(path, troubles))
        except ReportError as error:  # noqa: PERF203  (one of them may be damaged)
            troubles.append((str(path), str(error)))
    if not given:
        raise TicketError("; ".join(why for _, why in troubles) or "no report was named")
    given.sort(key=lambda one: (one.report.facts.taken_at, one.report.created_at))
    nodes = _nodes([one.report for one in given])
    redaction = Redaction(
        [_part(one, node) for one, node in zip(given, nodes, strict=True)],
        kept=_own_words(one.report for one in given),
        scrub_serials=scrub_serials,
    )
    members: dict[str, bytes] = {}
    sent: list[summary.Sent] = []
    for number, (one, node) in enumerate(zip(given, nodes, strict=True)):
        try:
            report = _redacted(one.report, number, redaction)
        except ValidationError:
            troubles.append((str(one.path), "what is left after its names are replaced is no report"))
            continue
        place, files = _files(report, _evidence(one, number, redaction, scrub_serials, troubles), number)
        members |= {f"{place}/{name}": content for name, content in files.items()}
        sent.append(summary.Sent(report, place, node, hashlib.sha256(one.raw).hexdigest()))
    if not sent:
        raise TicketError("; ".join(why for _, why in troubles))
    left_out = tuple(
        LeftOut(plain(redaction.text(0, what)), plain(redaction.text(0, why))) for what, why in troubles
    )
    pages = tuple(summary.blocks(sent, owner, [f"{out.what}: {out.why}" for out in left_out]))
    replaced = redaction.replaced()
    members = {
        "summary.md": page.markdown(pages).encode(),
        "summary.txt": page.text(pages).encode(),
        "replaced.md": page.markdown(_replaced_page(replaced, scrub_serials)).encode(),
        **members,
    }
    members[MANIFEST] = _manifest(sent, owner, created_at, scrub_serials, replaced, left_out, members)
    return Ticket(
        content=_zip(members),
        name=f"ticket-{folder.folder_name(sent[-1].report)}.zip",
        reports=len(sent),
        members=tuple(members),
        replaced=replaced,
        left_out=left_out,
    )


# Reading.


def _read(path: Path, troubles: list[tuple[str, str]]) -> _Given:
    """A report with its evidence. Raises `ReportError` for one that is damaged, or was changed since it was written."""
    raw = document.read(path)
    report = document.parse(raw, path)
    changed = [
        name
        for name, digest in document.hashes(json.loads(raw)).items()
        if report.parts.get(name, digest) != digest
    ]
    if changed:
        raise ReportError(f"{path} was changed since it was written: {', '.join(changed)}")
    root = path if path.is_dir() else path.parent
    files = dict(_read_evidence(root, report, troubles))
    recorded, scrubbed = None, False
    if recording.MANIFEST in files:
        try:
            recorded = recording.load(root / EVIDENCE)
            scrubbed = json.loads(files[recording.MANIFEST])["scrubbed"]["identity"] is True
        except (RecordingError, ValueError, LookupError, TypeError) as error:
            troubles.append((f"{root / EVIDENCE}", str(error)))
            files = {}
        for name in (recording.MANIFEST, *(f"{source}.json" for source in NAMES)):
            files.pop(name, None)
    host = report.facts.host
    earlier = not isinstance(host, Absent) and known(host.name) and host.name.startswith("host-")
    return _Given(path, raw, report, recorded, files, scrubbed or earlier)


def _read_evidence(
    root: Path, report: Report, troubles: list[tuple[str, str]]
) -> Iterator[tuple[str, bytes]]:
    """The files of a report's evidence that are plain, of a bearable size, and as they were when it was written."""
    place = root / EVIDENCE
    named = [name.partition("/")[2] for name in report.parts if name.startswith(f"{EVIDENCE}/")]
    try:
        if place.is_symlink():
            troubles.append((str(place), "it is a link, which is not followed"))
            return
        there = sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
    except OSError as error:
        troubles.append((str(place), reason(error)))
        return
    left = MAX_EVIDENCE_BYTES
    for name in sorted({*named, *there}):
        file = f"{EVIDENCE}/{name}"
        if name not in named:
            troubles.append((str(root / file), "it is not part of the report as it was written"))
            continue
        if not _NAME.fullmatch(name):
            troubles.append((f"{root}: {file}", "no name that a report's evidence has"))
            continue
        if not there and not place.is_dir():
            continue  # the document came without its folder
        try:
            kind = (root / file).lstat()
            if not stat.S_ISREG(kind.st_mode):
                raise OSError("it is not a plain file")
            if kind.st_size > left:
                raise OSError(f"it is too large (limit {MAX_EVIDENCE_BYTES // 1024**2} MiB a report)")
            with (root / file).open("rb") as stream:
                content = stream.read(left + 1)
        except OSError as error:
            troubles.append((str(root / file), reason(error)))
            continue
        if len(content) > left:
            troubles.append((str(root / file), "it is too large, and grows"))
        elif hashlib.sha256(content).hexdigest() != report.parts[file]:
            troubles.append((str(root / file), "it was changed since the report was written"))
        else:
            left -= len(content)
            yield name, content


def _nodes(reports: Sequence[Report]) -> list[int]:
    """Which node each report is of, numbered from 1."""
    found: list[int] = []
    for i, report in enumerate(reports):
        earlier = (found[j] for j in range(i) if same_node(reports[j].facts, report.facts))
        found.append(next(earlier, max(found, default=0) + 1))
    return found


# Redacting.


def _part(given: _Given, node: int) -> Part:
    host = given.report.facts.host
    name = host.name if not isinstance(host, Absent) and known(host.name) else ""
    answers: dict[str, Mapping[str, Any]] = {
        "report": {"document": json.loads(given.raw)},
        "loose": {name: _parsed(content) for name, content in given.loose.items()},
    }
    if given.recorded is not None:
        answers |= given.recorded.answers
    return Part(f"node {node}", answers, hosts=(name,) if name else (), scrubbed=given.scrubbed)


_WORD = re.compile(r"[a-z0-9-]+")


def _own_words(reports: Iterable[Report]) -> frozenset[str]:
    """What the words of facts and findings are: those of the models, of the rules, and products' names."""
    words: set[str] = set()
    waiting: list[Any] = [document.schema()]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            words.update(map(str, (*item.get("properties", ()), *item.get("enum", ()))))
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    said = [f"{rule.id} {rule.title} {rule.meaning} {rule.next_step}" for rule in REGISTRY.values()]
    for report in reports:
        said += [str(card.identity.name) for card in report.facts.known_cards]
    words.update(word for text in said for word in _WORD.findall(text.lower()))
    return frozenset(part for word in words for part in (word, *re.split("[_-]", word)))


def _redacted(report: Report, number: int, redaction: Redaction) -> Report:
    """The report with its texts redacted. Raises pydantic's ValidationError where that is no report any more."""
    read = json.loads(document.dump(report))
    # `-p` is a password's option elsewhere: here it names the profile.
    read["argv"] = [
        "--profile"
        if word == "-p" and after in (report.profile.name, f"{report.profile.name}.toml")
        else word
        for word, after in zip(report.argv, (*report.argv[1:], ""), strict=True)
    ]
    read["parts"] = {}
    made = Report.model_validate_json(json.dumps(redaction.document(number, read)))
    return made.model_copy(update={"judgement": _judgement(made)})


def _judgement(report: Report) -> Judgement:
    """What the redacted facts give, so that anyone can judge them again; what stands in the report where its rules
    were others than ours."""
    stored = report.judgement
    if report.tool.version != __version__:
        return stored
    try:
        again = judge(report.facts, report.profile, report.waivers, named=stored.named)
    except ValueError:
        return stored
    said = [[(f.id, f.subject, f.status) for f in judgement.findings] for judgement in (stored, again)]
    return again if said[0] == said[1] else stored


def _evidence(
    given: _Given, number: int, redaction: Redaction, scrub_serials: bool, troubles: list[tuple[str, str]]
) -> dict[str, bytes]:
    """The files of the evidence, redacted."""
    made: dict[str, bytes] = {}
    if given.recorded is not None:
        answers = {
            source: redaction.answers(number, source, asked)
            for source, asked in given.recorded.answers.items()
        }
        told = {"secrets": True, "identity": True, "serials": scrub_serials, "for": "a ticket"}
        made |= recording.pack(answers, given.recorded.taken_at, told)
    for name, content in given.loose.items():
        parsed = _parsed(content)
        if parsed is None:
            troubles.append((f"{EVIDENCE}/{name}", "it is no text, and cannot be searched for secrets"))
        elif isinstance(parsed, str):
            made[name] = redaction.text(number, parsed).encode()
        else:
            made[name] = (
                f"{json.dumps(redaction.json(number, parsed), indent=1, ensure_ascii=False)}\n".encode()
            )
    return made


def _parsed(content: bytes) -> Any:
    """JSON as a value, other text as text; None for neither."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (dict, list)) else text


# Writing.


def _files(report: Report, evidence: Mapping[str, bytes], number: int) -> tuple[str, dict[str, bytes]]:
    """The folder's place in the zip, and its files. Raises `folder.WriteError` where there is no room to make it."""
    try:
        with tempfile.TemporaryDirectory(prefix="nodecheck-") as made:
            written = folder.write(report.model_copy(update={"parts": {}}), Path(made), evidence)
            files = {
                path.relative_to(written.path).as_posix(): path.read_bytes()
                for path in sorted(written.path.rglob("*"))
                if path.is_file()
            }
    except OSError as error:
        raise folder.WriteError(f"there is no place for temporary files: {reason(error)}") from None
    return f"reports/{number + 1}-{folder.folder_name(report)}", files


def _replaced_page(replaced: Sequence[Replaced], scrub_serials: bool) -> Iterator[page.Block]:
    yield Heading("What was replaced", 1)
    yield Line(
        "The same name has the same pseudonym everywhere in this ticket; what it stands for is written nowhere in it."
    )
    if replaced:
        rows = tuple((one.kind, one.name or REDACTED, str(one.times)) for one in replaced)
        yield Table(("kind", "stands there now", "times"), rows)
    else:
        yield Line("Nothing that looks like a name, an address or a secret was met.")
    kept = "were replaced too" if scrub_serials else "are kept: support needs them"
    yield Line(f"Serial numbers and UUIDs of cards {kept}.")


def _manifest(
    sent: Sequence[summary.Sent],
    owner: Owner,
    created_at: datetime,
    scrub_serials: bool,
    replaced: Sequence[Replaced],
    left_out: Sequence[LeftOut],
    members: Mapping[str, bytes],
) -> bytes:
    manifest = {
        "format": FORMAT,
        "tool": {"name": "nodecheck", "version": __version__},
        "created_at": created_at.isoformat(),
        "to": owner.value,
        "report_schema": document.SCHEMA_ID,
        "serials_replaced": scrub_serials,
        "reports": [
            {
                "folder": one.place,
                "node": one.node,
                "redacted_copy": True,
                "original_report_json_sha256": one.original_sha256,
                "created_at": one.report.created_at.isoformat(),
                "profile": one.report.profile.name,
                "verdict": one.report.judgement.verdict.value,
            }
            for one in sent
        ],
        "left_out": [{"what": out.what, "why": out.why} for out in left_out],
        "replaced": [
            {"kind": one.kind, "name": one.name or REDACTED, "times": one.times} for one in replaced
        ],
        "members": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    }
    return f"{json.dumps(manifest, indent=1, ensure_ascii=False)}\n".encode()


def _zip(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | 0o600) << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def told(ticket: Ticket) -> str:
    """What a ticket holds, in one sentence."""
    kinds: dict[str, int] = {}
    for one in ticket.replaced:
        kinds[one.kind] = kinds.get(one.kind, 0) + (1 if one.name else one.times)
    words = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "nothing"
    return f"{plural(ticket.reports, 'report')}, {plural(len(ticket.members), 'file')}; replaced: {words}"
