"""`nodecheck profiles`: what the bundles promise, and profiles of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nodecheck.cli.exits import Exit, Stop
from nodecheck.cli.options import From, printing, say

if TYPE_CHECKING:
    from nodecheck.profile import Profile
    from nodecheck.report.document import Report

app = typer.Typer(
    help="List, show, check or draft profiles: what bundles promise.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Name every shipped profile, with its title."""
    import json

    from nodecheck.profile import load, names

    titles = {name: load(name).title for name in names()}
    if as_json:
        say(json.dumps([{"name": name, "title": title} for name, title in titles.items()], indent=2) + "\n")
        return
    width = max(map(len, titles))
    say("".join(f"{name:{width}}  {title}\n" for name, title in titles.items()))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A profile's name, or a TOML file.")], as_json: AsJson = False
) -> None:
    """Show a profile with everything that it extends merged in."""
    from nodecheck.profile.text import readable

    profile = _load(name)
    say((profile.model_dump_json(indent=2, by_alias=True) if as_json else readable(profile)) + "\n")


@app.command()
def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Profiles: TOML files, or names.")],
) -> None:
    """Check profiles.

    Every problem stands on a line of its own, with file, line and key.
    """
    from nodecheck.judge import REGISTRY
    from nodecheck.profile import ProfileError, load

    def valid(file: str) -> bool:
        try:
            profile = load(file, allow_abstract=True, findings=REGISTRY)
        except ProfileError as error:
            said.extend(error.problems)
            return False
        said.append(f"{profile.name}: valid ({profile.title})")
        return True

    said: list[str] = []
    every = [valid(file) for file in files]
    with printing():
        print("\n".join(said))
    raise typer.Exit(Exit.accepted if all(every) else Exit.unreadable)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a profile."""
    import json

    from nodecheck.profile import Profile

    say(json.dumps(Profile.model_json_schema(by_alias=True), indent=2) + "\n")


@app.command("suggest")
def suggest_(recording: From = None) -> None:
    """Name the profile that this node looks like. Whether that is what was rented, only you can say."""
    from nodecheck.cli.run import Run
    from nodecheck.profile import suggest

    likely = suggest(Run(recording, None).probe(stages=("cards", "topology")))
    if likely is None:
        raise Stop(Exit.incomplete, "no shipped profile fits this node; `nodecheck profiles list` names them")
    say(f"{likely}\n")


@app.command()
def new(
    source: Annotated[
        Path,
        typer.Option(
            "--from",
            help="A good node: the report of one that was accepted, or its facts or a recording (made by "
            "`nodecheck capture`), which nobody has judged.",
            metavar="REPORT|FACTS|RECORDING",
        ),
    ],
    name: Annotated[str | None, typer.Option("--name", help="What to call the profile.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write to this file instead of stdout. One that is there is replaced."
        ),
    ] = None,
) -> None:
    """Draft a profile from a good node.

    Comments explain what was chosen.
    """
    from nodecheck.cli.run import read_anything, write_text
    from nodecheck.profile import ProfileError, suggest
    from nodecheck.profile.draft import draft

    node, report = read_anything(source)
    standing = "" if report is None else _standing(report, source)
    called = name or (output.stem if output else f"my-{suggest(node) or 'bundle'}")
    try:
        text = draft(node, called, source.name, standing)
    except ProfileError as error:
        raise Stop(Exit.unreadable, str(error)) from None
    if output is None:
        say(text)
        return
    write_text(output, text)
    say(f"{output}: written; read it through, then `nodecheck profiles validate {output}`\n")


def _standing(report: Report, source: Path) -> str:
    """What the report says of its node. Raises `Stop` where that is no model for a profile."""
    from nodecheck.judge import Verdict

    judgement = report.judgement
    said = f"{judgement.verdict.value} as {judgement.profile} at level {judgement.level}"
    if judgement.verdict in (Verdict.rejected, Verdict.incomplete):
        why = judgement.reasons[0] if judgement.reasons else "no reason is given."
        raise Stop(
            Exit.unreadable,
            f"{source}: its node was {said}, so it is no model for a profile: {why} (What nobody has judged can be "
            "drafted from facts, `nodecheck probe -o facts.json`, or from a recording.)",
        )
    waived = f", {len(report.waivers)} waived" if report.waivers else ""
    return f"{said}{waived}, report of {report.created_at:%Y-%m-%d}"


def _load(name: str) -> Profile:
    from nodecheck.profile import ProfileError, load

    try:
        return load(name, allow_abstract=True)
    except ProfileError as error:
        raise Stop(Exit.unreadable, str(error)) from None
