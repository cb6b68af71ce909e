"""A check in the form of the place that it goes to: mail, monitoring, continuous integration, a program."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from nodecheck.rental.result import CheckResult

FORMATS: dict[str, tuple[str, str]] = {
    "text": ("nodecheck.rental.output.text", "render"),
    "json": ("nodecheck.rental.result", "dump"),
    "nagios": ("nodecheck.rental.output.nagios", "render"),
    "openmetrics": ("nodecheck.rental.output.openmetrics", "render"),
    "junit": ("nodecheck.rental.output.junit", "render"),
}
"""Name → module and function from a `CheckResult` to text. The module is imported when it is asked for."""


def render(result: CheckResult, form: str) -> str:
    """The check in one of `FORMATS`. Raises KeyError for another."""
    module, function = FORMATS[form]
    return cast(str, getattr(import_module(module), function)(result))


_FOR_OTHERS = ("nagios", "openmetrics")
"""Forms that monitoring reads, under an account of its own."""


def write(result: CheckResult, form: str, path: Path) -> None:
    """Write the check in one of `FORMATS` to a file, whole or not at all. Raises `report.folder.WriteError`."""
    from nodecheck.report.folder import write_file

    write_file(path, render(result, form).encode(), 0o644 if form in _FOR_OTHERS else 0o600)
