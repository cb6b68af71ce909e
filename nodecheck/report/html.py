"""The report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from nodecheck.facts import Absent, known
from nodecheck.facts.base import AMD_ALONE, NVIDIA_ALONE
from nodecheck.judge import Status
from nodecheck.report import figures, plots, view
from nodecheck.report.document import Report
from nodecheck.report.drawing import drawing
from nodecheck.report.figures import Figures
from nodecheck.report.text import conditions, number, plain, plural, shown, size, spans, unit_words

TEMPLATE = "report.html.j2"
STYLE = "style.css"
_MOST_EVENTS = 200
"""Kernel log events shown; all of them stand in report.json."""
_MOST_FACTS_CHARACTERS = 300_000
_LEVEL_WORDS = (
    *(f"≥ {limit:.0%}" for limit in figures.LEVELS),
    "less",
)


def render(report: Report) -> str:
    """The page, under 1 MB for eight cards."""
    judgement = report.judgement
    measured = figures.of(report)
    return _template().render(
        report=report,
        judgement=judgement,
        node=report.facts,
        profile=report.profile,
        drawing=drawing(report),
        matrix=view.matrix(report.facts, report.profile),
        sections=view.sections(judgement),
        waived=view.waived(judgement),
        missed=view.missed(judgement),
        passed=view.with_status(judgement, Status.passed),
        skipped=view.with_status(judgement, Status.skipped),
        facts=_record(report, measured),
        figures=measured,
        plots=plots,
        view=view,
        Status=Status,
        most_events=_MOST_EVENTS,
    )


@cache
def _template() -> Template:
    pages = environment("nodecheck.report")
    pages.globals.update(
        AMD_ALONE=AMD_ALONE,
        NVIDIA_ALONE=NVIDIA_ALONE,
        COLUMNS=figures.COLUMNS,
        LEVEL_WORDS=_LEVEL_WORDS,
        MOST_CARDS=figures.MOST_CARDS,
        MOST_ROWS=figures.MOST_ROWS,
        algorithms_words=figures.algorithms_words,
        disk_words=figures.disk_words,
        unit_words=unit_words,
        words=conditions,
        tries_words=figures.tries_words,
    )
    pages.tests.update(absent=lambda value: isinstance(value, Absent), known=known)
    return pages.get_template(TEMPLATE)


def environment(package: str) -> Environment:
    """Of the templates in `package`, and of the style that all pages share. Every text is escaped where it is put in,
    and made `plain`."""

    def source(name: str) -> str:
        return files("nodecheck.report" if name == STYLE else package).joinpath(name).read_text("utf-8")

    pages = Environment(
        loader=FunctionLoader(source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    pages.filters.update(shown=shown, size=_size, plural=plural, number=number, ours=_ours)
    return pages


def _finalize(value: Any) -> Any:
    """What every `{{ … }}` of the template goes through before it is escaped."""
    if isinstance(value, Markup):
        return value
    return plain(value) if isinstance(value, str) else shown(value)


def _ours(text: str) -> Markup:
    """One of our own texts, in which backticks mean code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if is_code else piece for piece, is_code in spans(text)
    )


def _size(value: Any) -> str:
    return size(value) if isinstance(value, int) else shown(value)


def _record(report: Report, measured: Figures | Absent | None) -> list[tuple[str, str]]:
    """Every fact by section, a text each, cut where a page would become too large to send."""
    left = _MOST_FACTS_CHARACTERS
    sections = []
    every = view.facts(report.facts)
    if isinstance(measured, Figures):
        every += (("Measurements", measured.record()),)
    for title, lines in every:
        text = ""
        for i, line in enumerate(lines):
            if len(line) > left:
                text += f"… {len(lines) - i} more lines in report.json"
                left = 0
                break
            left -= len(line)
            text += f"{line}\n"
        sections.append((title, text))
    return sections
