"""Hostile text in every place that takes text: nothing acts, nothing is lost, in no form of the report."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from itertools import cycle
from pathlib import Path

import pytest
from defusedxml.ElementTree import fromstring
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pydantic import BaseModel
from rich.console import Console

from nodecheck.facts import Absent, Why
from nodecheck.facts.card import Process
from nodecheck.facts.kernel_log import LogEvent
from nodecheck.judge import Finding, Judgement
from nodecheck.report import FORMATS, render, terminal
from nodecheck.report.document import Report
from nodecheck.report.text import plain
from tests import healthy
from tests.report import samples
from tests.report.hostile import ATTACKS, plant


def full(count: int = 2) -> Report:
    """A report in which every kind of fact stands somewhere, and every kind of finding."""
    report = samples.rejected(count)
    node = healthy.change(
        report.facts, "cards.0.processes", (Process(pid=7, kind="compute", used_bytes=1, name="p"),)
    )
    node = healthy.change(
        node,
        "kernel_log.events",
        (LogEvent(kind="xid", code=79, device="0000:18:00.0", count=2, text="NVRM: Xid: 79"),),
    )
    node = healthy.change(node, "topology.excluded", Absent(why=Why.failed, detail="NVML said no"))
    closed = healthy.node(report.profile, view="container").doors
    judgement = samples.judgement(node, report.profile, report.judgement.findings)
    ledger = samples.judgement(node.model_copy(update={"doors": closed}), report.profile, ()).ledger
    judgement = Judgement.model_validate({**dict(judgement), "ledger": ledger})
    return report.model_copy(update={"facts": node, "judgement": judgement, "interrupted": True})


def poisoned(report: Report, payloads: Iterable[str]) -> Report:
    """Every distinct text replaced by the next payload, with a number of its own."""
    supply = cycle(payloads)
    planted: dict[str, str] = {}

    def text(before: str) -> str:
        if before not in planted:
            payload = next(supply).encode("utf-8", "backslashreplace").decode()
            planted[before] = f"{payload}§{len(planted)}§"
        return planted[before]

    return plant(report, text)


def texts(value: object) -> Iterator[str]:
    """Every planted text below `value`."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from texts(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from texts(item)
    elif type(value) is str and "§" in value:
        yield value


class Page(HTMLParser):
    """Every tag with its attributes' names, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self.title = ""
        self._in_title = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self._in_title = tag == "title" and not self.title

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_title:
            self.title += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


DANGEROUS_TAGS = {"script", "img", "image", "iframe", "object", "embed", "link", "base", "form", "a", "use"}
DANGEROUS_ATTRIBUTES = re.compile(r"^(on.*|href|src|srcset|action|formaction|xlink:href|style|id)$")


CODE = ("code", ())
OURS = ("title", "meaning", "next_step")


def said(finding: Finding, name: str) -> str:
    """The text as a form shows it that has other signs for code than backticks."""
    text = plain(getattr(finding, name))
    return re.sub(r"`([^`]+)`", r"\1", text) if name in OURS else text


def check_page(page: str, like: str) -> Page:
    """The tags are those of `like`, which holds nothing hostile; and none of them can act or fetch."""
    seen = Page(page)
    # Backticks in our own texts are code, and a report may hold any text in their places.
    assert [tag for tag in seen.tags if tag != CODE] == [tag for tag in Page(like).tags if tag != CODE]
    for tag, attributes in seen.tags:
        assert tag not in DANGEROUS_TAGS
        assert not any(DANGEROUS_ATTRIBUTES.match(name) for name in attributes), (tag, attributes)
    return seen


HARMLESS = render(poisoned(full(), ["x"]), "html")


def test_html_is_the_same_page_whatever_the_texts_say_and_loses_none() -> None:
    report = poisoned(full(), ATTACKS)
    page = check_page(render(report, "html"), HARMLESS)
    wanted = set(texts(report.facts))
    assert len(wanted) > 100
    for text in wanted:
        assert plain(text) in page.text
    for finding in report.judgement.findings:
        if finding.root is None and finding.waived is None and finding.owner is not None:
            for name in ("id", "title", "detail", "observed_from", "meaning", "next_step", "repeat"):
                assert said(finding, name) in page.text
    assert plain(report.profile.name) in page.title


fragments = st.one_of(st.sampled_from(ATTACKS), st.text(st.characters(exclude_categories=()), max_size=30))
hostile_texts = st.lists(fragments, min_size=1, max_size=4).map("".join)
thoroughly = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(st.lists(hostile_texts, min_size=1, max_size=8))
@thoroughly
def test_any_text_stays_text_in_every_form(payloads: list[str]) -> None:
    report = poisoned(full(), payloads)
    check_page(render(report, "html"), HARMLESS)
    check_terminal(render(report, "terminal"))
    check_junit(render(report, "junit"), report)
    check_markdown(render(report, "md"))
    assert Report.model_validate_json(render(report, "json")) == report


def check_terminal(text: str) -> None:
    assert text.replace("\n", "").isprintable()
    assert max(map(len, text.splitlines())) < 8000


def test_the_terminal_shows_hostile_names_as_they_are() -> None:
    report = healthy_with_name("[red]H200[/red]\x1b[31m :smile: \u202e")
    text = render(report, "terminal").replace("\n", "")
    check_terminal(text)
    assert ":smile:" in re.sub(r"\s+", " ", text)


def test_colours_are_the_only_escapes_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    report = poisoned(full(), ATTACKS)
    stream = io.StringIO()
    terminal.print_on(Console(file=stream, width=80, force_terminal=True, color_system="standard"), report)
    without = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert without != stream.getvalue()
    check_terminal(without)


def check_junit(text: str, report: Report) -> None:
    suites = fromstring(text)
    cases = suites.findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == [plain(f.subject.label) for f in report.judgement.findings]
    assert [case.get("classname") for case in cases] == [plain(f.id) for f in report.judgement.findings]
    tags = {element.tag for element in suites.iter()}
    assert tags <= {
        "testsuites", "testsuite", "properties", "property", "testcase", "failure", "error", "skipped",
        "system-out",
    }  # fmt: skip


ALLOWED_TOKENS = {
    "heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline", "bullet_list_open",
    "bullet_list_close", "list_item_open", "list_item_close", "table_open", "table_close", "thead_open",
    "thead_close", "tbody_open", "tbody_close", "tr_open", "tr_close", "th_open", "th_close", "td_open",
    "td_close", "text", "code_inline", "strong_open", "strong_close", "text_special", "fence",
}  # fmt: skip


def blocks(markdown: str) -> list[Token]:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown)


def parted(markdown: str) -> tuple[str, str]:
    """The text without its list of long sources, and that list, whose length depends on the texts."""
    sources = re.search(r"\n## Sources\n.*?(?=\n## )", markdown, re.DOTALL)
    return (markdown, "") if sources is None else (markdown.replace(sources[0], "", 1), sources[0])


HARMLESS_BLOCKS = [token.type for token in blocks(parted(render(poisoned(full(), ["x"]), "md"))[0])]


def check_markdown(text: str) -> str:
    """No markup but ours; outside of code spans nothing that a forge takes for a link; returns the words."""
    main, sources = parted(text)
    tokens, listed = blocks(main), blocks(sources)
    assert [token.type for token in tokens] == HARMLESS_BLOCKS
    assert sum(token.type == "list_item_open" for token in listed) == sources.count("\n- [")
    tokens += listed
    read = ""
    for token in tokens:
        assert token.type in ALLOWED_TOKENS
        strong = 0
        for child in token.children or ():
            assert child.type in ALLOWED_TOKENS, child
            strong += child.type == "strong_open"
            read += child.content
            if child.type == "text":
                assert not FORGE.search(child.content), child.content
        assert strong <= 1 + text.count("NODE!") + text.count("SYS!")
        read += token.content if token.type == "fence" else ""
        read += "\n"
    return read


FORGE = re.compile(
    r"[@#]\w|\w://|www\.\w|GH-\d|[!&$%]\d|~\w|:(?=[\w+-]*[a-z+])[a-z0-9_+-]+:", re.IGNORECASE | re.ASCII
)
"""What a forge makes into a link, a mention or a picture after the Markdown is rendered."""


def test_markdown_loses_no_text_of_what_it_shows() -> None:
    report = poisoned(full(), ATTACKS)
    read = check_markdown(render(report, "md"))
    for card in report.facts.known_cards:
        for text in (card.identity.name, card.uuid, card.identity.serial):
            assert isinstance(text, str)
            assert plain(text) in read
    for finding in report.judgement.findings:
        if finding.root is None and finding.waived is None and finding.owner is not None:
            for name in ("id", "title", "detail", "observed_from", "meaning", "next_step", "repeat"):
                assert said(finding, name) in read


def healthy_with_name(name: str) -> Report:
    report = samples.accepted(1)
    return samples.report(
        healthy.change(report.facts, "cards.0.identity.name", name), report.profile, report.judgement.findings
    )


def test_even_a_megabyte_in_one_name_gives_a_page_one_can_send() -> None:
    report = healthy_with_name("<b>" * 400_000)
    for form in set(FORMATS) - {"json"}:
        assert len(render(report, form)) < 1_000_000


BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("guarded", [True, False], ids=["as it is", "without its content security policy"])
def test_in_a_real_browser_nothing_executes_and_nothing_is_lost(guarded: bool, tmp_path: Path) -> None:
    report = poisoned(full(), ATTACKS)
    page = render(report, "html")
    if not guarded:
        # Escaping alone must hold, so the second lock is taken off.
        page, count = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
        assert count == 1
    file = tmp_path / "report.html"
    file.write_text(page)
    seen = Page(browse(file, tmp_path / "profile"))
    assert seen.title == Page(page).title
    assert "planted" not in [value for value in seen.title.split() if value == "planted"]
    written = [tag for tag in Page(page).tags if tag[0] != "meta"]
    assert sorted(tag for tag in seen.tags if tag[0] != "meta") == sorted(written)
    for text in set(texts(report.facts)):
        assert plain(text) in seen.text


def browse(file: Path, profile: Path) -> str:
    """The document as it is after a browser has loaded it."""
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            f"--user-data-dir={profile}",
            "--virtual-time-budget=2000",
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        timeout=90,
        check=True,
    )
    return done.stdout.decode()
