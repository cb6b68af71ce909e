"""Reports: one document, and the forms it is shown in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from nodecheck.report.document import Report

FORMATS: dict[str, tuple[str, str]] = {
    "terminal": ("nodecheck.report.terminal", "render"),
    "html": ("nodecheck.report.html", "render"),
    "md": ("nodecheck.report.markdown", "render"),
    "junit": ("nodecheck.report.junit", "render"),
    "json": ("nodecheck.report.document", "dump"),
}
"""Name → module and function from a `Report` to text. The module is imported when it is asked for."""


def render(report: Report, form: str) -> str:
    """The report in one of `FORMATS`. Raises KeyError for another."""
    module, function = FORMATS[form]
    return cast(str, getattr(import_module(module), function)(report))
