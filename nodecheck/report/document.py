"""The report as a document: everything a verdict was computed from, so that anyone can compute it again."""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import AwareDatetime, ValidationError

from nodecheck import __version__
from nodecheck.facts import Fact, Level, Node
from nodecheck.judge import Judgement
from nodecheck.profile import Profile
from nodecheck.report.text import plain

FORMAT: Final = "nodecheck-report/1"
FILE = "report.json"
EVIDENCE = "evidence"
SCHEMA_ID = "urn:nodecheck:schema:report:1"
MAX_BYTES = 64 * 1024 * 1024
"""A report of eight cards has about 1 MB; anything much larger is not one."""

_MAX_MARKS = 500_000
"""Of a document's commas and opening brackets: a value takes some 100 bytes of memory, what is wrong with it 4 kB."""
_MAX_CARDS = 256
_MAX_ITEMS = 20_000

_SECRET = re.compile(r"token|secret|passw|credential|api[-_]?key", re.IGNORECASE)


class ReportError(Exception):
    """A report that cannot be read, in one sentence."""


class Tool(Fact):
    name: Literal["nodecheck"] = "nodecheck"
    version: str


class Report(Fact):
    """One acceptance, whole."""

    format: Literal["nodecheck-report/1"] = FORMAT
    tool: Tool
    created_at: AwareDatetime
    """UTC."""
    argv: tuple[str, ...]
    """The command line after the program's name; values of options that look like secrets are replaced."""
    level: Level
    interrupted: bool
    """The run was broken off: what had not been asked by then is `not_asked`."""
    durations_seconds: dict[str, float]
    """How long each stage took."""
    waivers: dict[str, str]
    """Finding id → the reason for setting its warnings and failures aside."""
    judgement: Judgement
    profile: Profile
    """With everything that it extends already merged in."""
    facts: Node
    parts: dict[str, str]
    """Name → SHA-256 in hexadecimal: of the canonical JSON of `facts`, `profile`, `judgement`, `evidence` (the
    hashes in `parts` of the files below evidence/, by name) and `run` (all other keys), and of each file beside
    report.json. Canonical: keys sorted, no white space, UTF-8, nothing escaped that need not be. The hashes show
    damage and edits; they cannot show who wrote the report."""


def build(
    node: Node,
    profile: Profile,
    judgement: Judgement,
    *,
    waivers: Mapping[str, str] | None = None,
    durations: Mapping[str, float] | None = None,
    interrupted: bool = False,
    argv: Sequence[str] = (),
    created_at: datetime | None = None,
) -> Report:
    """The report of one run. `durations` are seconds by stage; `created_at` is now unless it is given."""
    report = Report(
        tool=Tool(version=__version__),
        created_at=created_at or datetime.now(timezone.utc),
        argv=_without_secrets(argv),
        level=node.level,
        interrupted=interrupted,
        durations_seconds={stage: round(seconds, 3) for stage, seconds in (durations or {}).items()},
        waivers=dict(waivers or {}),
        judgement=judgement,
        profile=profile,
        facts=node,
        parts={},
    )
    return report.model_copy(update={"parts": hashes(json.loads(dump(report)))})


def dump(report: Report) -> str:
    """The report as JSON."""
    return report.model_dump_json(indent=1, by_alias=True) + "\n"


def load(path: Path) -> Report:
    """The report in a report.json or in a report's folder. Raises `ReportError`."""
    return parse(read(path), path)


def parse(raw: bytes, path: Path) -> Report:
    """The report that `raw`, read from `path`, holds. Raises `ReportError`."""
    outline = tree(raw, path)
    try:
        report = Report.model_validate_json(raw)
    except ValidationError as error:
        raise ReportError(f"{path} {_trouble(error)}") from None
    if outline is None:
        raise ReportError(f"{path} is damaged, or no report at all")
    return report


def tree(raw: bytes, path: Path) -> Any:
    """The JSON of `raw`, None if it is none. Raises `ReportError` where a key stands twice, or for too much of it."""
    if sum(map(raw.count, (b",", b"[", b"{"))) > _MAX_MARKS:
        raise ReportError(f"{path} is damaged, or no report: it holds more values than any report")
    try:
        value = json.loads(raw, object_pairs_hook=_unambiguous)
    except (ValueError, RecursionError):
        return None
    except ReportError as error:
        raise ReportError(f"{path} {error}") from None
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            cards = item.get("cards")
            if isinstance(cards, list) and len(cards) > _MAX_CARDS:
                raise ReportError(f"{path} names {len(cards)} cards, more than any node has")
            waiting += item.values()
        elif isinstance(item, list):
            if len(item) > _MAX_ITEMS:
                raise ReportError(f"{path} holds a list of {len(item)} items, longer than in any report")
            waiting += item
    return value


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in made if names.count(name) > 1)
        raise ReportError(f"is damaged: the key {plain(twice, 100)} stands twice in one object")
    return made


def read(path: Path) -> bytes:
    """The bytes of a report.json, given itself or its folder. Raises `ReportError`."""
    try:
        if path.is_dir():
            path = path / FILE
        if not stat.S_ISREG(path.stat().st_mode):
            raise ReportError(f"{path} is not a file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ReportError(f"cannot read the report {path}: {reason}") from None
    if len(raw) > MAX_BYTES:
        raise ReportError(f"{path} is larger than any report (limit {MAX_BYTES // 1024**2} MiB)")
    return raw


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a report."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **Report.model_json_schema(mode="serialization"),
    }


def hashes(document: Mapping[str, Any]) -> dict[str, str]:
    """The hashes of the inner parts of a report's JSON; see `Report.parts`."""
    named = {name: document.get(name) for name in ("facts", "profile", "judgement")}
    named["run"] = {key: value for key, value in document.items() if key not in named and key != "parts"}
    parts = document.get("parts") or {}
    named[EVIDENCE] = {name: digest for name, digest in parts.items() if name.startswith(f"{EVIDENCE}/")}
    return {name: hashlib.sha256(_canonical(value)).hexdigest() for name, value in named.items()}


def _canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _trouble(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return f"is damaged, or no report at all: {plain(first['msg'], 200)}"
    if first["loc"] in ((), ("format",)) or any(e["loc"] == ("format",) for e in error.errors()):
        return f"is not a report that this nodecheck reads ({FORMAT})"
    place = ".".join(str(step) for step in first["loc"])
    return f"is damaged: at {plain(place, 200)}: {plain(first['msg'], 200)}"


def _without_secrets(argv: Sequence[str]) -> tuple[str, ...]:
    cleaned: list[str] = []
    hide_next = False
    for word in argv:
        option, equals, _ = word.partition("=")
        secret = word.startswith("-") and _SECRET.search(option) is not None
        if hide_next and not word.startswith("-"):
            word = "***"
        elif secret and equals:
            word = f"{option}=***"
        hide_next = secret and not equals
        cleaned.append(re.sub(r"(?<=://)[^/@\s]+(?=@)", "***", word))
    return tuple(cleaned)
