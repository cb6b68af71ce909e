"""Finding, reading and merging profile files."""

from __future__ import annotations

import difflib
import json
import re
import stat
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from nodecheck.profile import lines
from nodecheck.profile.check import Fault, check, shown, witness_faults
from nodecheck.profile.model import SECTIONS, Profile, ProfileError, Section, Sourced

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_BYTES = 2**20
MAX_CHAIN = 8
"""How many files may build on each other."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_OWN_KEYS = ("name", "title", "abstract", "extends", "schema")
"""Keys that belong to one file and are not inherited."""
_INHERITED = "inherited"
"""`Section.inherited`, which no file may write."""
_TOML_LINE = re.compile(r"(?:at )?\(?at line ([0-9]+)")


@dataclass(frozen=True)
class _File:
    """One file of a chain, as it was read."""

    path: Path
    table: dict[str, Any]
    lines: dict[lines.Path, int]

    @property
    def label(self) -> str:
        return _label(self.path)


def load(
    name_or_path: str, *, allow_abstract: bool = False, findings: Collection[str] | None = None
) -> Profile:
    """The profile of this name among the shipped ones, or from a path (with a `/`, or ending in `.toml`).

    Raises ProfileError, whose `problems` name file, key and line. A card's or board's file (`abstract`) is an
    error unless `allow_abstract`: nothing can be accepted by it. With `findings`, the ids that there are, so is
    any other id in `required` and `wanted`, which would do nothing.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        profile = _load(Path(name_or_path), findings=findings)
    else:
        profile = _shipped(name_or_path, None if findings is None else frozenset(findings))
    if profile.abstract and not allow_abstract:
        bundles = [name for name in names() if re.fullmatch(rf"{re.escape(profile.name)}x[0-9]+", name)]
        hint = f": name a bundle of it ({', '.join(bundles)})" if bundles else ""
        raise ProfileError(f"{profile.name} is to be extended and accepts nothing by itself{hint}.")
    return profile


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """The names of the shipped bundles, by card and then by count."""
    found = []
    for path in _folder().glob("*.toml"):
        abstract = re.search(r"^abstract *= *true", path.read_text("utf-8"), re.MULTILINE)
        if not abstract:
            found.append(path.stem)
    return tuple(sorted(found, key=_by_card_and_count))


def _by_card_and_count(name: str) -> tuple[str, int]:
    card, _, count = name.rpartition("x")
    return (card, int(count)) if count.isdigit() else (name, 0)


def _folder() -> Path:
    """Inside the package in a wheel, beside it in a source checkout and an editable install."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "profiles"
    return inside if inside.is_dir() else package.parent / "profiles"


def _shipped_path(name: str) -> Path | None:
    """The file of a shipped profile. Only plain names are looked up, so no name leads out of the folder."""
    path = _folder() / f"{name}.toml"
    return path if _NAME.fullmatch(name) and path.is_file() else None


@lru_cache(maxsize=256)
def _shipped(name: str, findings: frozenset[str] | None = None) -> Profile:
    path = _shipped_path(name)
    if path is None:
        raise ProfileError(
            f"There is no profile {shown(name)}{_hint(name)} (`nodecheck profiles list` names them; a file of "
            "your own is given by its path)."
        )
    return _load(path, findings=findings)


def _hint(name: str) -> str:
    """What may have been meant: the name written the other way about, the card's bundles, or a like name."""
    wanted = name.strip().lower()
    turned = re.fullmatch(r"([0-9]{1,4})[ _-]?x[ _-]?([a-z0-9-]+)", wanted)
    if turned:
        wanted = f"{turned[2]}x{turned[1]}"
    if wanted in names():
        return f"; did you mean {wanted}?"
    card = wanted.rpartition("x")[0] or wanted
    bundles = [bundle for bundle in names() if bundle.rpartition("x")[0] == card]
    if bundles:
        return f"; there {'is' if len(bundles) == 1 else 'are'} {', '.join(bundles)}"
    near = difflib.get_close_matches(wanted, names(), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def parse(text: str, name: str, findings: Collection[str] | None = None) -> Profile:
    """The profile in a TOML text that stands in no file; `name` takes the file's place in a ProfileError."""
    return _load(Path(name), text.encode("utf-8", "replace"), findings)


def _load(path: Path, data: bytes | None = None, findings: Collection[str] | None = None) -> Profile:
    """`data` stands for what would be read from `path`."""
    try:
        return _merge_and_check(_chain(_parsed(path, _read(path) if data is None else data)), findings)
    except RecursionError:
        raise ProfileError(f"{_label(path)}: nested too deeply for a profile.") from None


def _chain(first: _File) -> list[_File]:
    """The file and everything it builds on, nearest first."""
    chain = [first]
    seen = [first.path.resolve()]
    while (extends := chain[-1].table.get("extends")) is not None:
        child = chain[-1]
        where = f"{child.label}, line {child.lines.get(('extends',), 1)}: extends"
        if not isinstance(extends, str):
            raise ProfileError(f"{where}: must be a text, not {shown(extends)}.")
        parent = _parent(child.path, extends)
        if parent is None:
            near = difflib.get_close_matches(extends, [p.stem for p in _folder().glob("*.toml")], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ProfileError(
                f"{where}: there is no {shown(extends)}{hint} (a shipped profile's name, or the name of a "
                ".toml file in the same folder)."
            )
        if parent.resolve() in seen:
            raise ProfileError(f"{where}: {shown(extends)} builds on this file again.")
        if len(chain) == MAX_CHAIN:
            raise ProfileError(f"{where}: more than {MAX_CHAIN} files build on each other.")
        chain.append(_parsed(parent, _read(parent)))
        seen.append(parent.resolve())
    return chain


def _parent(child: Path, extends: str) -> Path | None:
    if not extends.endswith(".toml"):
        return _shipped_path(extends)
    beside = child.parent / extends
    plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", extends)
    return beside if plain and beside.is_file() else None


def _label(path: Path) -> str:
    return shown(path.name or str(path), 80, quote=False)


def _read(path: Path) -> bytes:
    label = _label(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ProfileError(f"{label}: not a file.")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no such file"
        raise ProfileError(f"{label}: cannot be read ({reason.lower()}).") from None
    if len(data) > MAX_BYTES:
        raise ProfileError(f"{label}: larger than {MAX_BYTES // 2**20} MiB, so it is no profile.")
    return data


def _parsed(path: Path, data: bytes) -> _File:
    label = _label(path)
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ProfileError(f"{label}, line {line}: not UTF-8 text.") from None
    try:
        located = lines.locate(text)
        table = tomllib.loads(text)
    except lines.TooDeep as error:
        raise ProfileError(f"{label}, line {error}: nested too deeply for a profile.") from None
    except ValueError as error:  # TOMLDecodeError, and integers with more digits than Python reads
        raise ProfileError(_syntax_error(label, str(error))) from None
    return _File(path, table, located)


def _syntax_error(label: str, message: str) -> str:
    place = _TOML_LINE.search(message)
    line = f", line {place[1]}" if place else ""
    what = re.sub(r" \(at [^)]*\)$", "", message)
    return f"{label}{line}: not valid TOML: {shown(what, 200, quote=False)}."


def _merge_and_check(chain: list[_File], findings: Collection[str] | None) -> Profile:
    merged: dict[str, Any] = {}
    origins: list[tuple[_File, int]] = []
    problems: list[str] = []
    for file in reversed(chain):
        child = file is chain[0]
        own = file.table if child else {key: v for key, v in file.table.items() if key not in _OWN_KEYS}
        if not child and file.table.get("schema") != 1:
            problems.append(f"{file.label}, line {file.lines.get(('schema',), 1)}: schema: must be 1.")
        problems += _merge_figures(merged, origins, own.get("figures"), file)
        problems += _merge_witnesses(merged, own, file)
        _merge(merged, {key: value for key, value in own.items() if key != "figures"})
    profile, faults = check(merged, findings)
    problems += [_sentence(fault, chain, origins) for fault in faults]
    if problems or profile is None:
        raise ProfileError(*dict.fromkeys(problems))
    return profile


def _merge_witnesses(merged: dict[str, Any], own: dict[str, Any], file: _File) -> list[str]:
    """Leave to what `file` does not say the witnesses that it had. Gives what is wrong with the file's own."""
    problems = []
    for name, model in SECTIONS.items():
        table, base = own.get(name), merged.get(name)
        if not isinstance(table, dict):
            continue
        if not table and base is not None:
            continue  # it says nothing
        if _INHERITED in table:
            problems.append(_here(Fault((name, _INHERITED), "no such key."), file))
        problems += [_here(fault, file) for fault in witness_faults(name, table)]
        if isinstance(base, dict):
            before = {key: base.pop(key) for key in Sourced.model_fields if key in base}
            known = base.get(_INHERITED, {})
            base[_INHERITED] = {key: known.get(key, before) for key in _keys(model) if key not in table}
    return problems


def _keys(model: type[Section]) -> list[str]:
    return [key for key in model.model_fields if key not in Section.model_fields]


def _merge(base: dict[str, Any], over: dict[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = _copy(value)


def _copy(value: Any) -> Any:
    """Tables are merged in place, so the ones that were read must not be shared."""
    return {key: _copy(item) for key, item in value.items()} if isinstance(value, dict) else value


def _merge_figures(
    merged: dict[str, Any], origins: list[tuple[_File, int]], figures: Any, file: _File
) -> list[str]:
    if figures is None:
        return []
    if not isinstance(figures, list):
        merged["figures"] = figures
        return []
    problems = []
    known = merged.setdefault("figures", [])
    if not isinstance(known, list):  # a parent's nonsense, which is reported by itself
        return []
    inherited = len(known)
    places = {what: place for place, other in enumerate(known) if (what := _of_what(other))}
    for index, figure in enumerate(figures):
        what = _of_what(figure)
        twin = places.get(what) if what else None
        if twin is None:
            if what:
                places[what] = len(known)
            known.append(figure)
            origins.append((file, index))
        elif twin < inherited:
            known[twin], origins[twin] = figure, (file, index)
        else:
            line = file.lines.get(("figures", index), file.lines.get(("figures",), 1))
            problems.append(
                f"{file.label}, line {line}: figures[{index + 1}]: {shown(figure.get('measure'))} stands "
                "here twice with the same `at`."
            )
    return problems


def _of_what(figure: Any) -> str:
    """The measure and `at` of a figure, right or wrong, in one word; empty where it has no measure."""
    if not isinstance(figure, dict) or "measure" not in figure:
        return ""
    return json.dumps([figure["measure"], figure.get("at", {})], sort_keys=True, default=str)


def _sentence(fault: Fault, chain: list[_File], origins: list[tuple[_File, int]]) -> str:
    """`file, line N: key: what is wrong`: where the value came from, or what contradicts it in a file nearer."""
    path, files = fault.path, chain[:1] if fault.path[0] in _OWN_KEYS else chain
    if len(path) > 1 and path[0] == "figures" and isinstance(path[1], int) and path[1] < len(origins):
        file, index = origins[path[1]]
        path = ("figures", index, *path[2:])
        files = [file]
    own, line = _place(path, files)
    file, key = own, _key(path)
    for other in fault.against:
        nearer = chain[: chain.index(file)]
        if any(other in candidate.lines for candidate in nearer):
            file, line = _place(other, nearer)
            key = f"{_key(path)} (of {own.label})"
    return f"{file.label}, line {line}: {key}: {fault.says}"


def _here(fault: Fault, file: _File) -> str:
    return _sentence(fault, [file], [])


def _place(path: lines.Path, files: list[_File]) -> tuple[_File, int]:
    """The nearest file that has the key, or else as much of the way to it as any has."""
    for length in range(len(path), 0, -1):
        for file in files:
            if path[:length] in file.lines:
                return file, file.lines[path[:length]]
    return files[0], 1


def _key(path: lines.Path) -> str:
    """`figures[2].unit`; list positions count from 1."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{shown(part, 40, quote=False)}"
    return text.lstrip(".") or "profile"
