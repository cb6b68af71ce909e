"""`nodecheck profiles …`, as a user runs it: through the real command line, with its exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jsonschema
import pytest

from nodecheck import cli
from nodecheck.facts import Absent, Why
from nodecheck.measure.workers import stage_collectives, stage_gemm, stage_hbm, stage_host, stage_pairs
from nodecheck.profile import Figure, Profile, load, names
from nodecheck.profile.levels import first_level, size_bytes
from nodecheck.profile.loading import parse
from nodecheck.profile.text import WIDTH
from tests import healthy

PROJECT = Path(__file__).parents[2]


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Nodecheck = Callable[..., Ran]


@pytest.fixture
def nodecheck(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Nodecheck:
    def run(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["nodecheck", "profiles", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        code = ended.value.code
        assert isinstance(code, int)
        return Ran(code, *capsys.readouterr())

    return run


def test_list_names_every_bundle_with_its_title(nodecheck: Nodecheck) -> None:
    ran = nodecheck("list")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == list(names())
    assert "4 × NVIDIA H200 SXM 141 GB" in ran.out
    assert [entry["name"] for entry in json.loads(nodecheck("list", "--json").out)] == list(names())


def test_show_gives_the_whole_profile_with_its_witnesses(nodecheck: Nodecheck) -> None:
    ran = nodecheck("show", "h200x4")
    assert ran.code == 0
    for told in (
        "memory_mib",
        "143 771",
        "links_per_card",
        "363.3 GB/s, warn below 345, fail below 327",
        "2026-08-22",
    ):
        assert told in " ".join(ran.out.split())
    assert ran.out.count("  from ") >= 4 + len(load("h200x4").figures)
    assert "to be extended" in nodecheck("show", "h200").out


@pytest.mark.parametrize("name", ["h200x8", "b200x8", "rtx4090x4", "gb200x4", "cpu", "h100-nvl"])
def test_show_fits_a_terminal(nodecheck: Nodecheck, name: str) -> None:
    assert all(len(line) <= WIDTH for line in nodecheck("show", name).out.splitlines())


def test_show_says_who_says_what_and_what_is_measured_when(nodecheck: Nodecheck, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'schema = 1\nname = "mine"\ntitle = "t"\nextends = "h200x8"\n[card]\npower_limit_watts = 450\n'
        'source = "contract 4711"\ndate = 2027-01-02\n[[figures]]\nmeasure = "all_gather.busbw"\n'
        'at = { size = "16GiB", dtype = "bfloat16", ranks = 8 }\nunit = "GB/s"\ntypical = 361\nwarn_below = 325\n'
        'source = "contract 4711"\ndate = 2027-01-02\n'
    )
    out = nodecheck("show", mine).out
    card = out[out.index("\ncard\n") : out.index("\nlinks\n")]
    assert card.endswith("  power_limit_watts     450\n    from contract 4711 (published, 2027-01-02)\n")
    assert "own reading: one H200 SXM" in card[: card.index("450")]
    standard, full, never = (
        out.index(f"figures, measured at {level}") for level in ("level standard", "level full", "no level")
    )
    assert standard < out.index("(8GiB, bfloat16, 8 ranks): 473.1") < full
    assert full < out.index("(16GiB, bfloat16, 8 ranks): 480") < never
    assert never < out.index("all_gather.busbw (16GiB")


def test_figures_are_measured_at_the_level_that_is_told() -> None:
    """Held against what the stages themselves take."""
    for name in names():
        for figure in load(name).figures:
            taken = "standard" if _taken(figure, "standard") else "full" if _taken(figure, "full") else None
            assert first_level(figure) == taken, (name, figure)


def _taken(figure: Figure, level: str) -> bool:
    stage, _, kind = figure.measure.partition(".")
    at = figure.at
    if stage == "launch":
        return True
    if stage == "gemm":
        return at.shape in {"x".join(map(str, shape)) for shape in stage_gemm.SHAPES[kind]}
    size = size_bytes(at.size or "")
    if stage in ("hbm", "host", "pairs"):
        module = {"hbm": stage_hbm.BYTES, "host": stage_host.BYTES, "pairs": stage_pairs.SIZE_BYTES}
        return size == module[stage]
    runs = stage_collectives.planned("cuda", at.ranks or 0, {"level": level})
    return any(
        (run.collective, run.dtype, run.size_bytes(at.ranks or 0)) == (stage, at.dtype, size) for run in runs
    )


def test_show_json_is_the_profile_itself(nodecheck: Nodecheck) -> None:
    for name in ("h200x4", "cpu", "a100"):
        ran = nodecheck("show", name, "--json")
        assert Profile.model_validate_json(ran.out) == load(name, allow_abstract=True)


def test_an_unknown_profile_is_exit_65_with_one_sentence(nodecheck: Nodecheck) -> None:
    ran = nodecheck("show", "h200x7777")
    assert ran.code == 65 and ran.out == ""
    assert ran.err.startswith('nodecheck: There is no profile "h200x7777"; there are h200x1, h200x2, ')
    assert ran.err.count("\n") == 1


def test_the_shipped_profiles_are_valid_and_name_findings_that_exist(nodecheck: Nodecheck) -> None:
    files = sorted((PROJECT / "profiles").glob("*.toml"))
    ran = nodecheck("validate", *files)
    assert ran.code == 0, ran.out
    assert len(ran.out.splitlines()) == len(files) and all(
        ": valid (" in line for line in ran.out.splitlines()
    )


def test_validate_says_every_problem_on_a_line_of_its_own(nodecheck: Nodecheck, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('schema = 1\nname = "bad"\nextends = "h200x1"\n[cards]\ncount = -1\nconut = 2\n')
    ran = nodecheck("validate", bad, "h200x1", tmp_path / "absent.toml")
    assert ran.code == 65
    assert ran.out.splitlines() == [
        "bad.toml, line 1: title: is missing.",
        "bad.toml, line 5: cards.count: -1 is not plausible here, at least 0 is (is the unit right?).",
        "bad.toml, line 6: cards.conut: no such key; did you mean count?",
        "h200x1: valid (1 × NVIDIA H200 SXM 141 GB)",
        "absent.toml: cannot be read (no such file or directory).",
    ]


def test_validate_finds_a_finding_that_no_rule_has(nodecheck: Nodecheck, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('schema = 1\nname = "mine"\ntitle = "t"\nextends = "h200x1"\nwanted = ["cards.cuont"]\n')
    ran = nodecheck("validate", file)
    assert ran.code == 65
    assert ran.out.startswith("mine.toml, line 5: wanted: there is no finding cards.cuont; did you mean")


def test_the_schema_describes_every_shipped_profile(nodecheck: Nodecheck) -> None:
    schema = json.loads(nodecheck("schema").out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "NVLink version" in json.dumps(schema)
    for name in names():
        jsonschema.validate(json.loads(nodecheck("show", name, "--json").out), schema)


def facts(folder: Path, node: object) -> Path:
    path = folder / "facts.json"
    path.write_text(node.model_dump_json())  # type: ignore[attr-defined]
    return path


def test_new_writes_a_profile_that_is_valid(nodecheck: Nodecheck, tmp_path: Path) -> None:
    source = facts(tmp_path, healthy.node(load("h200x4")))
    printed = nodecheck("new", "--from", source)
    assert (
        printed.code == 0 and 'name = "my-h200x4"' in printed.out and printed.out.startswith("# Drafted by")
    )
    target = tmp_path / "ours.toml"
    assert nodecheck("new", "--from", source, "-o", target).code == 0
    assert load(str(target)).name == "ours" and load(str(target)).count == 4
    assert nodecheck("validate", target).code == 0
    assert nodecheck("new", "--from", source, "--name", "x1").out.count('name = "x1"') == 1


def test_new_replaces_a_file_as_other_commands_do(nodecheck: Nodecheck, tmp_path: Path) -> None:
    source = facts(tmp_path, healthy.node(load("h200x1")))
    target = tmp_path / "ours.toml"
    target.write_text("old")
    assert nodecheck("new", "--from", source, "-o", target).code == 0
    assert load(str(target)).count == 1
    assert nodecheck("new", "--from", source, "-o", tmp_path / "no/such/folder/x.toml").code == 73


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (
            "h200x4-rejected",
            "its node was REJECTED as h200x4 at level quick, so it is no model for a profile: ",
        ),
        ("h200x4-incomplete", "its node was INCOMPLETE as h200x4 at level quick, so it is no model"),
    ],
)
def test_new_refuses_the_report_of_a_node_that_was_not_accepted(
    nodecheck: Nodecheck, tmp_path: Path, kept: str, told: str
) -> None:
    ran = nodecheck("new", "--from", PROJECT / "reports" / kept, "-o", tmp_path / "mine.toml")
    assert (ran.code, ran.out) == (65, "") and told in ran.err and ran.err.count("\n") == 1
    report = json.loads((PROJECT / "reports" / kept / "report.json").read_text())
    assert report["judgement"]["reasons"][0] in ran.err
    assert not (tmp_path / "mine.toml").exists()


def test_new_says_who_judged_the_node(nodecheck: Nodecheck, tmp_path: Path) -> None:
    accepted = PROJECT / "reports/h200x4-accepted"
    date = json.loads((accepted / "report.json").read_text())["created_at"][:10]
    standing = f"ACCEPTED as h200x4 at level quick, report of {date}"
    for source in (accepted, accepted / "report.json"):
        text = nodecheck("new", "--from", source).out
        assert f"\n# The node was {standing}.\n" in text
        mine = parse(text, "mine.toml")
        assert mine.card and mine.card.source.endswith(f"on node host-1, {standing}")
    nobody = [
        facts(tmp_path, healthy.node(load("h200x4"))),  # facts
        PROJECT / "tests/nodes/h200x4-accepted",  # a recording
    ]
    for source in nobody:
        ran = nodecheck("new", "--from", source)
        assert ran.code == 0 and "\n# Nobody has judged this node" in ran.out
        mine = parse(ran.out, "mine.toml")
        assert mine.card and mine.card.source.endswith("judged by nobody")


def test_new_refuses_what_is_no_model(nodecheck: Nodecheck, tmp_path: Path) -> None:
    hidden = Absent(why=Why.no_permission, detail="NVMLError_NoPermission")
    node = healthy.change(healthy.node(load("h200x1")), "cards.0.identity.name", hidden)
    ran = nodecheck("new", "--from", facts(tmp_path, node))
    assert ran.code == 65 and ran.out == "" and "no card tells its name" in ran.err
    (tmp_path / "odd.json").write_text("{}")
    assert nodecheck("new", "--from", tmp_path / "odd.json").code == 65
    assert nodecheck("new", "--from", tmp_path / "absent.json").code == 65
    assert (
        nodecheck("new", "--from", facts(tmp_path, healthy.node(load("h200x1"))), "--name", "../x").code == 65
    )


def test_wrong_usage_is_exit_64(nodecheck: Nodecheck) -> None:
    assert nodecheck("show").code == 64
    assert nodecheck("new").code == 64
    assert nodecheck("frobnicate").code == 64
