"""Texts that want to be more than text, planted in every place of a report that takes text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

ATTACKS = (
    "<script>document.title='planted';document.body.id='planted'</script>",
    '"><img src=x onerror="document.title=\'planted\'">',
    "' onmouseover='document.title=1' x='",
    "</style></pre></title></details><h1 id=planted>",
    "--><svg/onload=\"document.title='planted'\">",
    "{{ 7*7 }}{% raw %}",
    "]]></failure><testcase/>",
    "&lt;b&gt; &amp;",
    "[red]markup[/red] [link=http://planted.example]x[/link]",
    "\x1b]0;planted\x07\x1b[2J\x1b[31m",
    "\r\n# planted\n- [x](javascript:planted)\t\x00\x7f\x9b",
    "\u202e\u2066gnp.exe\u200b\ufeff\u2028",
    "@everyone #12 !34 GH-5 ![i](http://planted.example/i.png) http://planted.example www.planted.example",
    "| a | b | `code` ``more`` \\| ~~gone~~ **bold** _em_ :tada: |",
    "\ud800 not unicode",
)

M = TypeVar("M", bound=BaseModel)


def plant(model: M, text: Callable[[str], str]) -> M:
    """`model` with every text in it replaced by `text(itself)`, where the model takes any text there.

    Equal texts stay equal if `text` is a function, so that facts that name each other still do.
    """
    fields: dict[str, Any] = {name: getattr(model, name) for name in type(model).model_fields}
    for name, value in fields.items():
        planted = _planted(value, text)
        if planted is not value:
            fields = _with(type(model), fields, name, planted)
    return type(model).model_validate(_by_alias(type(model), fields))


def _planted(value: Any, text: Callable[[str], str]) -> Any:
    if isinstance(value, BaseModel):
        return plant(value, text)
    if type(value) is str:
        return text(value)
    if isinstance(value, tuple):
        return tuple(_planted(item, text) for item in value)
    if isinstance(value, dict):
        return {_planted(key, text): _planted(item, text) for key, item in value.items()}
    return value


def _with(kind: type[BaseModel], fields: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    changed = {**fields, name: value}
    try:
        kind.model_validate(_by_alias(kind, changed))
    except ValidationError:
        return fields  # a closed list of words: no foreign text can stand there
    return changed


def _by_alias(kind: type[BaseModel], fields: dict[str, Any]) -> dict[str, Any]:
    return {kind.model_fields[name].alias or name: value for name, value in fields.items()}
