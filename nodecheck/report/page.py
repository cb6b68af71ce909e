"""A short page of headings, lines, items, tables and commands, as Markdown or as text for a terminal or a mail."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from nodecheck.report import markup
from nodecheck.report.text import plain, unmarked

_WIDTH = 80
"""Columns of text; a cell or a command may be longer than that and is never broken."""


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Line:
    """A paragraph. `ours`: one of our own texts, in which backticks mean code; else anybody's."""

    text: str
    ours: bool = False


@dataclass(frozen=True)
class Item:
    """A line of a list, with a word before it that stands out."""

    text: str
    lead: str = ""
    depth: int = 0


@dataclass(frozen=True)
class Table:
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Command:
    text: str


Block = Heading | Line | Item | Table | Command


def markdown(blocks: Iterable[Block]) -> str:
    """GitHub's and GitLab's Markdown."""
    return _joined(blocks, _markdown)


def text(blocks: Iterable[Block]) -> str:
    """Plain text; a command stands alone on its line, so that it can be copied."""
    return _joined(blocks, _text)


def _joined(blocks: Iterable[Block], write: Callable[[Block], Iterator[str]]) -> str:
    lines: list[str] = []
    before: Block | None = None
    for block in blocks:
        if before is not None and not (isinstance(before, Item) and isinstance(block, Item)):
            lines.append("")
        lines += write(block)
        before = block
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _markdown(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {markup.ours(block.text)}"
    elif isinstance(block, Line):
        yield markup.ours(block.text) if block.ours else markup.prose(block.text)
    elif isinstance(block, Item):
        lead = f"**{markup.prose(block.lead)}**: " if block.lead else ""
        yield f"{'  ' * block.depth}- {lead}{markup.prose(block.text)}"
    elif isinstance(block, Table):
        rows = (tuple(map(markup.prose, row)) for row in block.rows)
        yield from markup.table(map(markup.prose, block.head), rows)
    else:
        yield from markup.block(block.text)


def _text(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        title = unmarked(block.text)
        yield title
        yield {1: "=", 2: "-"}.get(block.level, "~") * min(len(title), _WIDTH)
    elif isinstance(block, Line):
        yield from _wrapped(unmarked(block.text) if block.ours else plain(block.text), "", "")
    elif isinstance(block, Item):
        lead = f"{plain(block.lead)}: " if block.lead else ""
        margin = "  " * block.depth
        yield from _wrapped(f"{lead}{plain(block.text)}", f"{margin}- ", f"{margin}  ")
    elif isinstance(block, Table):
        rows = [tuple(map(plain, row)) for row in (block.head, *block.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    else:
        yield f"    {plain(block.text)}"


def _wrapped(sentence: str, first: str, further: str) -> list[str]:
    return textwrap.wrap(
        sentence,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first]
