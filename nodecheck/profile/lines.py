"""Where in a TOML text each key stands. `tomllib` does not say, and an error without a line helps nobody.

This is no second parser: it walks over headers and keys and steps over values. Text that is not TOML may be
located wrongly, but always in time linear in its length.
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]
"""Keys and list positions from the top: `("figures", 2, "unit")`."""

MAX_DEPTH = 8
"""Dotted keys deeper than this are no profile, and they cost `tomllib` time quadratic in their depth."""

_KEY = re.compile(
    r"""[ \t]*(?:(?P<bare>[A-Za-z0-9_-]+)|"(?P<basic>(?:[^"\\\n]|\\.)*)"|'(?P<literal>[^'\n]*)')"""
    r"""[ \t]*(?P<dot>\.?)"""
)
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_PLAIN = re.compile(r"""[^"'#\[\]{}\n]+""")


class TooDeep(ValueError):
    """A dotted key with more parts than `MAX_DEPTH`; the message is its line number."""


def locate(text: str) -> dict[Path, int]:
    """The line (from 1) of every header and key of a TOML text. Raises `TooDeep`."""
    found: dict[Path, int] = {}
    arrays: dict[Path, int] = {}
    table: Path = ()
    line, counted, pos = 1, 0, 0
    while True:
        pos = _BLANK.match(text, pos).end()  # type: ignore[union-attr]  # it matches the empty text as well
        if pos >= len(text):
            return found
        line, counted = line + text.count("\n", counted, pos), pos
        header = text.startswith("[", pos)
        double = text.startswith("[[", pos)
        keys, pos = _keys(text, pos + header + double)
        if not keys:
            return found
        if len(keys) > MAX_DEPTH:
            raise TooDeep(line)
        if header:
            table = _resolve(keys, arrays, double)
            _note(found, table, line)
            pos = _end_of_line(text, pos)
        else:
            _note(found, (*table, *keys), line)
            pos = _after_value(text, pos)


def _keys(text: str, pos: int) -> tuple[list[str], int]:
    keys: list[str] = []
    while match := _KEY.match(text, pos):
        keys.append(next(part for part in match.group("bare", "basic", "literal") if part is not None))
        pos = match.end()
        if not match["dot"]:
            break
    return keys, pos


def _resolve(keys: list[str], arrays: dict[Path, int], double: bool) -> Path:
    """The path of a header, with the position of the current element behind each array of tables."""
    path: Path = ()
    for depth, key in enumerate(keys):
        path = (*path, key)
        last = depth == len(keys) - 1
        if last and double:
            arrays[path] = arrays.get(path, -1) + 1
        if path in arrays:
            path = (*path, arrays[path])
    return path


def _note(found: dict[Path, int], path: Path, line: int) -> None:
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], line)


def _end_of_line(text: str, pos: int) -> int:
    end = text.find("\n", pos)
    return len(text) if end < 0 else end


def _after_value(text: str, pos: int) -> int:
    """Behind the value that starts near `pos`: the next line end outside of strings and brackets."""
    depth = 0
    while pos < len(text):
        char = text[pos]
        if char == "\n" and depth <= 0:
            return pos
        if char == "#":
            pos = _end_of_line(text, pos)
        elif char in "\"'":
            pos = _after_string(text, pos, char)
        elif plain := _PLAIN.match(text, pos):
            pos = plain.end()
        else:
            depth += (char in "[{") - (char in "]}")
            pos += 1
    return pos


def _after_string(text: str, pos: int, quote: str) -> int:
    triple = text.startswith(quote * 3, pos)
    closing = quote * 3 if triple else quote
    pos += len(closing)
    while pos < len(text):
        if text[pos] == "\\" and quote == '"':
            pos += 2
        elif text.startswith(closing, pos):
            return pos + len(closing)
        elif text[pos] == "\n" and not triple:
            return pos
        else:
            pos += 1
    return pos
