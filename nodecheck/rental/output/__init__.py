"""A check in the form of the place that it goes to: mail, monitoring, continuous integration, a program."""

from __future__ import annotations

from importlib import import_module
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
