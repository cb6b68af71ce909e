"""`nodecheck import`: outputs that somebody pasted, made into facts."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import say

if TYPE_CHECKING:
    from nodecheck.imports import Imported

STDIN = Path("-")

_SHOWN = 40
"""Sentences of one kind that are printed: five facts of every card of eight may contradict each other."""


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            help="What tools printed on one node: nvidia-smi and amd-smi in all their forms, kernel logs, bug reports, "
            "nccl-tests, …, in any number of files; - is stdin.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the facts to this file instead of stdout. One that is there is replaced.",
        ),
    ] = None,
) -> None:
    """Read facts out of outputs that were pasted or attached, and say what was found in which file.

    Each is known by its content, not by its name. What none of them shows is `not_asked` in the facts.
    """
    from nodecheck.cli.run import write_text

    imported = read_pasted(files)
    facts = imported.node.model_dump_json(indent=2) + "\n"
    if output is None:
        tell(imported)
        say(facts)
    else:
        write_text(output, facts)
        tell(imported)


def read_pasted(files: Sequence[Path]) -> Imported:
    """What these files hold. Raises `Stop` where one cannot be read, or nothing in them is understood."""
    from nodecheck.imports import read

    imported = read([("stdin" if path == STDIN else str(path), content(path)) for path in files])
    if not imported.recognised:
        raise Stop(Exit.unreadable, f"no output that nodecheck knows: {'; '.join(imported.not_understood)}")
    return imported


def content(path: Path) -> bytes:
    """The bytes of a file, or of stdin; one too many where there are more than are read. Raises `Stop`."""
    from nodecheck.imports import MAX_BYTES

    try:
        if path == STDIN:
            if sys.stdin is None:  # closed by the caller (`<&-`)
                return b""
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        if not stat.S_ISREG(path.stat().st_mode):
            raise Stop(Exit.unreadable, f"{path} is not a file")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Stop(Exit.unreadable, f"cannot read {path}: {reason}") from None


def tell(imported: Imported) -> None:
    """What was found where, on stderr: what the command is there to print goes to stdout."""
    from nodecheck.report.text import plain

    for line in _told(imported):
        typer.echo(plain(line), err=True)


def _told(imported: Imported) -> Iterator[str]:
    for file in dict.fromkeys(one.file for one in imported.recognised):
        kinds = [f"{one.kind} (line {one.line})" for one in imported.recognised if one.file == file]
        more = f" and {len(kinds) - _SHOWN} more" if len(kinds) > _SHOWN else ""
        yield f"{file}: {', '.join(kinds[:_SHOWN])}{more}"
    for what, sentences in (
        ("contradiction", imported.conflicts),
        ("not understood", imported.not_understood),
    ):
        yield from (f"{what}: {sentence}" for sentence in sentences[:_SHOWN])
        if len(sentences) > _SHOWN:
            yield f"{what}: {len(sentences) - _SHOWN} more"
