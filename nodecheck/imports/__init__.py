"""Evidence that already exists: outputs that somebody pasted, read as facts of one node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from nodecheck.facts import OWN_FAULT, Node
from nodecheck.imports.kind import Kind, Piece, Unreadable
from nodecheck.imports.kinds import KINDS
from nodecheck.imports.merge import Told, merge
from nodecheck.imports.sections import MAX_BYTES, MAX_LINES, Cut, FileError, cut, text_of
from nodecheck.sources.secrets import without_secrets

MAX_OUTPUTS = 200
"""Of one file; a bug report has under a hundred."""

__all__ = ["KINDS", "MAX_BYTES", "Imported", "Kind", "Recognised", "read"]


@dataclass(frozen=True)
class Recognised:
    """An output that was found in a file."""

    file: str
    line: int
    """Where it begins, counted from 1."""
    kind: str


@dataclass(frozen=True)
class Imported:
    node: Node
    recognised: tuple[Recognised, ...]
    conflicts: tuple[str, ...]
    """Facts that two outputs state differently, a sentence each."""
    not_understood: tuple[str, ...]
    """What could not be read, and where, a sentence each."""


def read(files: Sequence[tuple[str, bytes]], now: datetime | None = None) -> Imported:
    """The facts in these files (name, content) of one node.

    Never raises for what is in them. `now` is the time of a node whose outputs do not say when they were taken.
    """
    told: list[Told] = []
    recognised: list[Recognised] = []
    troubles: list[str] = []
    for name, raw in files:
        try:
            text, whole = text_of(raw)
        except FileError as error:
            troubles.append(f"{name}: {error}")
            continue
        before = len(recognised)
        if text.count("\n") > MAX_LINES:
            troubles.append(f"{name}: only its first {MAX_LINES} lines were looked at")
        if not whole:
            troubles.append(f"{name}: the packed file is cut short; what could be unpacked was read")
        for piece in cut(text, whole, KINDS):
            kind = _kind(piece)
            if kind is None:
                continue
            if len(recognised) - before == MAX_OUTPUTS:
                troubles.append(f"{name}: only its first {MAX_OUTPUTS} outputs were read")
                break
            recognised.append(Recognised(name, piece.first_line, kind.name))
            read_piece, trouble = _read(kind, piece)
            if read_piece is not None:
                told.append(Told(name, kind, read_piece))
                troubles += [
                    f"{name}, line {piece.first_line} ({kind.name}): {remark}"
                    for remark in read_piece.remarks
                ]
            else:
                troubles.append(f"{name}, line {piece.first_line} ({kind.name}): {trouble}")
        if len(recognised) == before:
            troubles.append(f"{name}: nothing in it is an output that nodecheck knows")
    told.sort(key=lambda one: KINDS.index(one.kind))
    merged = merge(told, now or datetime.now(timezone.utc))
    return Imported(
        Node.model_validate_json(json.dumps(without_secrets(json.loads(merged.node.model_dump_json())))),
        tuple(recognised),
        _shown(merged.conflicts),
        _shown((*troubles, *merged.unplaced)),
    )


def _shown(sentences: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(sentence) for sentence in json.loads(json.dumps(without_secrets(list(sentences)))))


def _kind(piece: Cut) -> Kind | None:
    """The first of the kinds that the section begins as which recognises it; the command at the prompt goes first."""
    return next((kind for kind in piece.kinds if kind.recognises(piece.section.text)), None)


def _read(kind: Kind, piece: Cut) -> tuple[Piece | None, str]:
    try:
        return kind.read(piece.section), ""
    except Unreadable as error:
        return None, str(error)
    except Exception as error:
        return None, f"{OWN_FAULT}{type(error).__name__}: {error}"
