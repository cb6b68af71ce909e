"""GitHub's and GitLab's Markdown, of texts that cannot become markup, link or mention."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nodecheck.report.text import plain, spans

_ACTING = re.compile(
    r"""
      [a-z][a-z0-9+.-]*://\S+ | www\.\S+               # links
    | \b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b  # a PCI address: `:ab:` and others in it are emojis
    | (?<![\w.:+-])[\w.:+-]*:(?:100|1234|(?=[\w+-]*[a-z+]|-1:)[\w+-]+):(?:[\w.:+-]*[\w+-])?  # an emoji's name
    | (?<![\w.+/-])[\w.+/-]*[@\#]\w(?:[\w./@\#-]*\w)?  # a mention, an address, an issue, a commit elsewhere
    | [!&$]\d+ | [%~](?:\d[\w.]*|"[^"]*") | ~\w+ | \^\w+\#\d+ | \[\w+:[^\]\s]+\] | \bGH-\d+  # references
    | (?<![\w-])[0-9a-f]{7,40}(?![\w-])                 # a commit
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""What forges look for in text that is already rendered, where no backslash helps: only code is left alone."""
_MARKUP = re.compile(r"[\\`*\[\]<~$]|&(?=[#\w])|(?<![^\W_])_|_(?![^\W_])")
_OPENING = re.compile(r"(?=[-+=>#])|\d{1,9}(?=[.)](?: |$))")
"""What would begin a list, a heading, a quotation or a rule."""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Lines of a table; the cells are Markdown already."""
    head = tuple(head)
    yield f"| {' | '.join(cell.replace('|', _PIPE) for cell in head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', _PIPE) for cell in row)} |"


_PIPE = "\\|"
"""A pipe inside a cell, even in code."""


def prose(text: str) -> str:
    """`text` as text: nothing in it is markup, and what a forge would act on all the same stands in code."""
    return _edged(_words(plain(text)))


def ours(text: str) -> str:
    """One of our own texts, in which backticks mean code."""
    return _edged("".join(code(piece) if is_code else _words(piece) for piece, is_code in spans(text)))


def _words(text: str) -> str:
    made, done = "", 0
    for acting in _ACTING.finditer(text):
        made += _MARKUP.sub(r"\\\g<0>", text[done : acting.start()]) + code(acting[0])
        done = acting.end()
    return made + _MARKUP.sub(r"\\\g<0>", text[done:])


def _edged(made: str) -> str:
    """Blanks at the ends would be lost or be markup; so would some signs at the beginning."""
    if made.startswith(" "):
        made = f"&#32;{made[1:]}"
    if made.endswith(" "):
        made = f"{made[:-1]}&#32;"
    return _OPENING.sub(r"\g<0>\\", made, count=1) if _OPENING.match(made) else made


def code(text: str) -> str:
    """A code span of `text`, to the letter."""
    text = plain(text)
    if not text.strip():
        return text
    fence = "`" * (_longest_run(text) + 1)
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def block(text: str, indent: str = "") -> Iterator[str]:
    """A command by itself, to be copied."""
    text = plain(text)
    fence = "`" * max(_longest_run(text) + 1, 3)
    yield f"{indent}{fence}sh"
    yield f"{indent}{text}"
    yield f"{indent}{fence}"


def _longest_run(text: str) -> int:
    """Of backticks."""
    return max((len(run) for run in re.findall("`+", text)), default=0)
