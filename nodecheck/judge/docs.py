"""The page of all findings, `docs/findings.md`: `python -m nodecheck.judge.docs > docs/findings.md`."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from nodecheck.judge import REGISTRY, Described
from nodecheck.judge.roots import ROOTS
from nodecheck.judge.rule import OnAmd

INTRODUCTION = """\
# Findings

This page is generated from the rules themselves (`make docs`). Each finding has an id that does not change, a
subject (the node, a card, a pair of cards …) and one of five statuses:

| status | meaning |
|---|---|
| `pass` | it was seen, and it is as it should be |
| `warn` | it was seen, and you should know of it before going on |
| `fail` | it was seen, and the bundle must not be so |
| `unknown` | the profile asks, and it could not be seen; the finding says what was missing |
| `skipped` | it was not asked in this run, or does not apply here; the finding says why |

What was not seen is never a pass. An `unknown` of a *required* finding holds up the verdict (INCOMPLETE); one
that is only *wanted* stands in the ledger of closed doors. A profile may move a finding from one to the other
(`required = [...]`, `wanted = [...]`), and `--waive ID=reason` sets its warnings and failures aside, visibly:
they then weigh no more than a warning.

The verdict is the gravest of: REJECTED (a fail) · INCOMPLETE (a required unknown) · ACCEPTED WITH WARNINGS ·
ACCEPTED.

A warning or failure has a cause: `not_as_rented` (another thing than the contract's), `faulty` (broken or
about to break), `misconfigured` (a setting), `slow` or `not_visible`; and somebody who can mend it: the
provider, or you as the renter. The commands work without nodecheck wherever that is possible.
"""

STATED = "It is stated in the report and judged by nobody: it passes wherever it can be seen."


def page(
    introduction: str = INTRODUCTION, rules: Collection[Described] = REGISTRY.values(), prefix: str = ""
) -> str:
    """The whole page in Markdown; a section for each subject, which an id names after `prefix`."""
    subjects: dict[str, list[Described]] = {}
    for rule in rules:
        subjects.setdefault(rule.id.removeprefix(prefix).partition(".")[0], []).append(rule)
    lines = [
        introduction,
        "## All ids",
        "",
        "| id | checks that | unknown is | who acts |",
        "|---|---|---|---|",
    ]
    for rule in rules:
        weight = "required" if rule.required else "wanted"
        acts = rule.owner.value if rule.warns or rule.fails else "–"
        lines.append(f"| [`{rule.id}`](#{_anchor(rule)}) | {rule.title} | {weight} | {acts} |")
    for subject, rules in subjects.items():
        lines += ["", f"## {subject.replace('_', ' ').capitalize()}"]
        for rule in rules:
            lines += ["", *_section(rule)]
    return "\n".join(lines) + "\n"


def _anchor(rule: Described) -> str:
    return rule.id.replace(".", "")


def _section(rule: Described) -> Iterator[str]:
    yield f"### `{rule.id}`"
    yield ""
    yield f"**{rule.title}.** {'' if rule.warns or rule.fails else STATED}".rstrip()
    yield ""
    yield f"- Reads: {_sentence(rule.reads)} Through the door `{rule.door}`; unseen, it is {_unseen(rule)}."
    for status, when in (("pass", rule.passes), ("warn", rule.warns), ("fail", rule.fails)):
        if when:
            yield f"- `{status}`: {_sentence(when)}"
    if rule.meaning:
        yield f"- What it means for you: {_sentence(rule.meaning)}"
    if rule.warns or rule.fails:
        yield f"- Cause `{rule.cause.value}`, to be mended by the {rule.owner.value}."
    if rule.next_step:
        yield f"- Next step: {_sentence(rule.next_step)}"
    roots = [root.id for root in ROOTS if rule.id in root.causes]
    if roots:
        yield f"- Follows as a rule from: {', '.join(f'`{root}`' for root in roots)}."
    yield f"- See it again: `{rule.repeat}`"
    if rule.on_amd:
        yield f"- Of AMD's cards: {_on_amd(rule.on_amd)}."


def _on_amd(words: OnAmd) -> str:
    parts = (
        ("", words.title),
        ("it reads ", words.reads),
        ("door ", words.door and f"`{words.door}`"),
        ("it means: ", words.meaning),
        ("next step: ", words.next_step),
        ("see it again: ", words.repeat and f"`{words.repeat}`"),
    )
    return "; ".join(f"{name}{text.rstrip('.')}" for name, text in parts if text)


def _unseen(rule: Described) -> str:
    if rule.required:
        return "`unknown` and holds up the verdict"
    if rule.vital:
        return (
            "`unknown`; holds up the verdict where the answer was an error or nonsense, came too late or was "
            "never asked for, and stands in the ledger otherwise"
        )
    return "`unknown` and stands in the ledger"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


if __name__ == "__main__":
    print(page(), end="")
