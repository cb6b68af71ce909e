"""`dcgmi diag -j`: DCGM's own verdicts, card by card.

DCGM 3 and older name the cards of a result (`gpu_id`, `gpu_ids`), DCGM 4 its entities (`entity_group`, `entity_id`). A
result of `Fail` may be about a setting: each warning carries a severity (`dcgm_errors.h`: 5 is a setting).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

from nodecheck.facts import Stack
from nodecheck.facts.diagnosis import Diagnosis, Outcome
from nodecheck.facts.stack import Driver
from nodecheck.imports.kind import Kind, Piece, Section, Unreadable

_SETTING = 5
"""`DCGM_ERROR_CONFIG`: the severity of a warning about a setting, persistence mode for example."""
_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_MOST = 10_000


def read(section: Section) -> Piece:
    """Raises `Unreadable` where the document is damaged or holds no result."""
    try:
        document = json.loads(section.text[section.text.index("{") : section.text.rindex("}") + 1])
        root = next(document[name] for name in _ROOTS if name in document)
        found = tuple(_diagnoses(root))[:_MOST]
        driver = str((document.get("metadata") or root).get("Driver Version Detected", ""))
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration, RecursionError):
        raise Unreadable("it is no whole document of dcgmi diag") from None
    if not found:
        trouble = root.get("runtime_error") or root.get("error") or "it holds no result"
        raise Unreadable(f"dcgmi diag tested nothing: {str(trouble)[:200]}")
    if re.fullmatch(r"\d+(\.\d+)+", driver):
        return Piece(diagnoses=found, stack=Stack(driver=Driver(version=driver)))
    return Piece(diagnoses=found)


def _diagnoses(root: dict[str, Any]) -> Iterator[Diagnosis]:
    for category in root["test_categories"]:
        for test in category.get("tests", []):
            for result in test.get("results", []):
                told = tuple(_texts(result.get("warnings"))) or tuple(_texts(result.get("info")))
                for card in _cards(result):
                    yield Diagnosis(
                        tool="dcgmi diag",
                        test=str(test.get("name", "?"))[:100],
                        card=card,
                        outcome=_outcome(result),
                        detail="; ".join(told)[:1000],
                    )


def _cards(result: dict[str, Any]) -> Iterator[str]:
    if result.get("entity_group", "GPU") != "GPU":
        yield ""
    elif "entity_id" in result:
        yield f"card {int(result['entity_id'])}"
    else:
        numbers = re.findall(r"\d{1,3}", str(result.get("gpu_ids", result.get("gpu_id", ""))))
        yield from (f"card {number}" for number in numbers) if numbers else ("",)


def _outcome(result: dict[str, Any]) -> Outcome:
    word = str(result.get("status", "")).strip().lower()
    warnings = [one for one in result.get("warnings") or [] if isinstance(one, dict)]
    if word == "fail" and warnings and all(one.get("error_severity") == _SETTING for one in warnings):
        return "warn"
    return word if word in get_args(Outcome) else "unknown"  # type: ignore[return-value]


def _texts(lines: object) -> Iterator[str]:
    for line in lines if isinstance(lines, list) else [lines] if isinstance(lines, str) else []:
        text = line.get("warning", "") if isinstance(line, dict) else line
        if isinstance(text, str) and text.strip():
            yield text.strip()


KINDS = (
    Kind(
        name="dcgmi diag -j",
        read=read,
        begins=re.compile(r"\{"),
        recognises=lambda text: any(f'"{root}"' in text for root in _ROOTS),
    ),
)
