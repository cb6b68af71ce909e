"""From a pasted file to the outputs in it: decoding, cleaning, cutting apart."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from nodecheck.imports.kind import Kind, Section

MAX_BYTES = 64 * 1024 * 1024
"""Of a file, and of what is packed in one; bug reports of whole nodes have some MB."""

MAX_LINES = 1_000_000
"""Lines that are looked at in one file."""


class FileError(Exception):
    """A file that cannot be read as text; the reason in one sentence."""


@dataclass(frozen=True)
class Cut:
    """A stretch of the file that begins as these kinds do; none where it is not known."""

    section: Section
    kinds: tuple[Kind, ...]
    first_line: int


# What is done to the bytes: it is cheap there, and a text of 20 MB is held only once.
_ANSI = re.compile(
    rb"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78cM])"
)
_QUOTE = re.compile(rb"^(?:> ?){1,8}", re.MULTILINE)
_PART = 1024 * 1024
_FOUR_BYTES = bytes.maketrans(bytes(range(0xF0, 0xF8)), b"\xff" * 8)
"""Characters beyond the basic plane (emoji) become the mark for a damaged one: one alone would make Python hold
the whole text in four bytes a character."""


def text_of(raw: bytes) -> tuple[str, bool]:
    """The text in a file, unpacked and cleaned, and whether it is whole.

    Colours, carriage returns and the quoting of mails and chats are taken out. Raises `FileError`.
    """
    whole = True
    if raw[:2] == b"\x1f\x8b":
        raw, whole = _unpacked(raw)
    if len(raw) > MAX_BYTES:
        raise FileError(f"it is larger than {MAX_BYTES // 1024**2} MB, more than any of these outputs")
    if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        raw = raw.decode("utf-16", "replace").encode("utf-8", "replace")
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if raw[:4096].count(b"\0") > 8:
        raise FileError("it is no text")
    cleaned = b"".join(_cleaned(part) for part in _parts(raw))
    return cleaned.translate(_FOUR_BYTES).decode("utf-8", "replace"), whole


def _parts(raw: bytes) -> Iterator[bytes]:
    """The file in stretches of whole lines: what is replaced in a part takes memory many times its size."""
    start = 0
    while start < len(raw):
        end = raw.rfind(b"\n", start, start + _PART) + 1
        if end <= start:
            end = min(start + _PART, len(raw))
        yield raw[start:end]
        start = end


def _cleaned(part: bytes) -> bytes:
    if b"\r" in part:
        part = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\x1b" in part:
        part = _ANSI.sub(b"", part)
    return _QUOTE.sub(b"", part) if b">" in part else part


def _unpacked(raw: bytes) -> tuple[bytes, bool]:
    """What is in a gzip file. One that is cut short gives what can be had of it."""
    parts: list[bytes] = []
    size = 0
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
        try:
            while part := packed.read1(1024 * 1024):
                size += len(part)
                if size > MAX_BYTES:
                    raise FileError(f"it unpacks to more than {MAX_BYTES // 1024**2} MB")
                parts.append(part)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            if not parts:
                raise FileError(f"it is a damaged gzip file ({error})") from None
            return b"".join(parts), False
    return b"".join(parts), True


_PROMPT = re.compile(
    r"(?:\([\w.-]{1,40}\) ?)?"  # a virtual environment
    r"(?:\[?[\w.-]{1,64}@[\w.-]{1,64}[^$#\n]{0,100}[$#]|(?:bash|sh)-[\d.]{1,8}[$#]|PS [^>\n]{1,100}>"
    r"|[A-Z]:\\[^>\n]{0,100}>|[$\u276f\u279c]"
    # A lone # begins comments and tables as well.
    r"|[#%](?= ?(?:sudo |[\w/]{1,40}/)?(?:nvidia-|amd-smi|rocm-smi|dmesg|journalctl|lspci|dcgmi|nvbandwidth|python)))"
    r" *(?P<command>[^\s$#].{0,300})?$"
)
_RULE = re.compile(r"_{20,}$|```|\*{3} (?P<file>(?!ls: )\S.{0,300})$")
"""What parts the outputs in a bug report and in Markdown."""


def cut(text: str, whole: bool, kinds: Sequence[Kind]) -> Iterator[Cut]:
    """The outputs in a text, in their order.

    A section goes from a line that begins a kind, or from a prompt, to the next such line.
    """
    start, first_line, heading = 0, 1, ""
    current: tuple[Kind, ...] = ()
    # After a prompt, what its command prints is expected; what is there all the same counts for more.
    expected = awaits_title = False

    def section(end: int) -> Cut | None:
        body = text[start:end]
        if not body.strip():
            return None
        return Cut(Section(body, heading, whole or end < len(text)), current, first_line)

    signs = _Signs.of(tuple(kinds))
    for number, position, line in _lines(text):
        if number > MAX_LINES:
            break
        if not awaits_title and signs.mean_nothing(line, () if expected else current):
            continue
        prompt = _PROMPT.match(line)
        rule = None if prompt else _RULE.match(line)
        begun = () if prompt or rule else _begun(line, current, kinds, expected=expected)
        title = awaits_title and not (prompt or rule or begun) and bool(line.strip())
        if not (prompt or rule or begun or title):
            continue
        if piece := section(position):
            yield piece
        start, first_line, current = position, number, begun
        if begun:
            expected = awaits_title = False
            continue
        start = min(position + len(line) + 1, len(text))
        first_line = number + 1
        if prompt:
            heading, awaits_title = prompt["command"] or "", False
        elif rule:
            heading, awaits_title = rule["file"] or "", line.startswith("_")
        else:
            heading, awaits_title = line.strip()[:300], False
        current = tuple(kind for kind in kinds if kind.command and kind.command.search(heading))
        expected = True
    if piece := section(len(text)):
        yield piece


@dataclass(frozen=True)
class _Signs:
    """All patterns in one: most lines of a long file match none, or only say that it goes on."""

    begins: re.Pattern[str]
    any: re.Pattern[str]

    @classmethod
    @cache
    def of(cls, kinds: tuple[Kind, ...]) -> _Signs:
        begins = [kind.begins for kind in kinds if kind.begins]
        goes_on = [kind.goes_on for kind in kinds if kind.goes_on]
        return cls(_one_of(begins), _one_of([_PROMPT, _RULE, *begins, *goes_on]))

    def mean_nothing(self, line: str, current: tuple[Kind, ...]) -> bool:
        if any(kind.goes_on and kind.goes_on.match(line) for kind in current):
            return not self.begins.match(line)
        return not self.any.match(line)


def _one_of(patterns: Sequence[re.Pattern[str]]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{_scoped(pattern)})" for pattern in patterns) or r"(?!)")


def _scoped(pattern: re.Pattern[str]) -> str:
    """The pattern as a part of a larger one: its flags are its own, and its groups have no names."""
    flags = "".join(
        letter
        for letter, flag in (("i", re.IGNORECASE), ("m", re.MULTILINE), ("s", re.DOTALL), ("x", re.VERBOSE))
        if pattern.flags & flag
    )
    body = re.sub(r"\(\?P<\w+>", "(?:", pattern.pattern)
    return f"(?{flags}:{body})" if flags else body


def _begun(
    line: str, current: tuple[Kind, ...], kinds: Sequence[Kind], *, expected: bool
) -> tuple[Kind, ...]:
    """The kinds of which a section starts with this line; none where the line goes on with the present one."""
    starts = tuple(kind for kind in kinds if kind.begins and kind.begins.match(line))
    inside = tuple(kind for kind in kinds if kind.goes_on and kind.goes_on.match(line))
    # What the present kind knows as its own begins no other one, which looks alike.
    if starts and (expected or all(kind in starts for kind in inside if kind in current)):
        return starts
    if expected:
        return tuple(sorted(inside, key=lambda kind: kind not in current))
    return () if any(kind in current for kind in inside) else inside


def _lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Number, place and the first 2048 characters of every line, without a list of them."""
    position, number = 0, 1
    while position < len(text):
        end = text.find("\n", position)
        if end < 0:
            end = len(text)
        yield number, position, text[position : min(end, position + 2048)]
        position, number = end + 1, number + 1
