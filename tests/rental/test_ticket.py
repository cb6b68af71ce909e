"""Nothing that was planted leaves in a ticket, what is in it still verifies, and it says what fails and since when."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import re
import zipfile
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodecheck.facts import LogEvent, Node
from nodecheck.judge import Owner, judge
from nodecheck.profile import Profile, load
from nodecheck.rental import ticket
from nodecheck.rental.ticket import Ticket, TicketError, build
from nodecheck.report import document, folder
from nodecheck.report.document import Report
from nodecheck.sources import NAMES, recording
from tests import healthy, secrets
from tests.healthy import change
from tests.report import hostile, samples

NOW = datetime(2026, 12, 2, 8, 0, tzinfo=timezone.utc)
PROFILE = load("h200x4")
NODE = healthy.node(PROFILE)
CAPPED = change(NODE, "cards.3.power.limit_watts", 500.0)


def report(node: Node = NODE, profile: Profile = PROFILE, **more: Any) -> Report:
    more.setdefault("argv", ["accept", "-p", profile.name])
    return document.build(node, profile, judge(node, profile), **more)


def written(parent: Path, made: Report, evidence: dict[str, bytes] | None = None) -> Path:
    return folder.write(made, parent, evidence).path


def at(node: Node, hours: float) -> Node:
    return node.model_copy(update={"taken_at": node.taken_at + timedelta(hours=hours)})


def made(*paths: Path, owner: Owner = Owner.provider, **more: Any) -> Ticket:
    return build(paths, owner, NOW, **more)


def members(one: Ticket) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(one.content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def unpacked(one: Ticket, place: Path) -> list[Path]:
    with zipfile.ZipFile(io.BytesIO(one.content)) as archive:
        archive.extractall(place)
    return sorted((place / "reports").iterdir())


# What is planted does not leave.


def planted_answers(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Raw answers that nobody scrubbed: a log, an environment, files, a process list, a table of mounts."""
    lines = [line for text in texts for line in text.split("\n")]
    answers: dict[str, dict[str, Any]] = {name: {} for name in NAMES}
    answers["process"]["uname"] = {
        "value": {"node": "gpu-zeta17", "release": "6.8.0", "version": "#1", "machine": "x"}
    }
    answers["process"]["environment"] = {"value": {f"NCCL_X{i}": text for i, text in enumerate(texts)}}
    answers["files"]["kmsg"] = {"value": "\n".join(f"3,{i},{i}000,-;{line}" for i, line in enumerate(lines))}
    answers["files"]["read /proc/cmdline"] = {"value": " ".join(lines)}
    answers["files"]["read /proc/self/mounts"] = {
        "value": "nfszz7:/export/ovidia /home/ovidia nfs4 rw,addr=10.77.3.21 0 0\n"
        "petrarca@b3acfc0d-575f-41d3-9c91-0e7ed3dbb3fa.fs=/x /mnt ceph rw,mon_addr=10.77.3.21:3300 0 0\n"
        "vaultzz.internal,monzz-a:6789:/ /c ceph rw,name=petrarca,secret=hunter2FFF 0 0\n"
        "mdszz01@o2ib:10.77.3.23@o2ib:/fs /l lustre rw 0 0\n"
    }
    answers["interpreter"]["describe"] = {
        "value": {"items": {"log": list(texts), "deep": json.dumps(json.dumps(list(texts)))}}
    }
    answers["commands"]["journal"] = {
        "value": {"stdout": "\n".join(f"[  1.5] gpu-zeta17 kernel: {line}" for line in lines)}
    }
    answers["nvml"]["survey"] = {
        "value": {"names": list(texts), "argv": ["serve", "--token", "hunter2AAA", "-p", "hunter2BBB"]}
    }
    return answers


def planted_report(made: Report, texts: list[str]) -> Report:
    """A planted text in every place of a report that takes any: its place in the list decides which."""
    turn = itertools.cycle(texts)
    chosen: dict[str, str] = {}
    made = hostile.plant(made, lambda text: f"{text} {chosen.setdefault(text, next(turn))}")
    node = change(made.facts, "host.name", "gpu-zeta17.dc9.corpnet.example.com")
    disk = {
        "mount": "/mnt/z",
        "device": "monzz-a,vaultzz.internal:6789:/",
        "filesystem": "ceph",
        "kind": "network",
        "read_only": False,
    }
    node = Node.model_validate_json(
        json.dumps({**json.loads(node.model_dump_json()), "taken_at": NODE.taken_at.isoformat()})
    )
    host = json.loads(node.host.model_dump_json())  # type: ignore[union-attr]
    host["disks"] = [*host["disks"], disk]
    host["boot_command_line"] = " ".join(text.replace("\n", " ") for text in texts)
    stack = json.loads(node.stack.model_dump_json())  # type: ignore[union-attr]
    stack["environment"] = [
        *([f"NCCL_Y{i}", text] for i, text in enumerate(texts)),
        ["SLURM_JOB_USER", "ovidia"],
        ["DB_PASSWORD", "hunter2AAA"],
    ]
    events = [LogEvent(kind="xid", code=31, count=1, device="0000:18:00.0", text=text) for text in texts]
    facts = {**json.loads(node.model_dump_json()), "host": host, "stack": stack}
    facts["kernel_log"]["events"] = [json.loads(event.model_dump_json()) for event in events]
    argv = [
        "accept",
        "--from",
        "/home/ovidia/node.tar.gz",
        "--password",
        "hunter2AAA",
        "-p",
        "hunter2CCC",
        *texts,
    ]
    return made.model_copy(
        update={
            "facts": Node.model_validate_json(json.dumps(facts)),
            "argv": tuple(argv),
            "waivers": {"cards.persistence": "\n".join(texts)},
        }
    )


@pytest.fixture(scope="module")
def hostile_ticket(tmp_path_factory: pytest.TempPathFactory) -> Ticket:
    place = tmp_path_factory.mktemp("planted")
    texts = secrets.texts()
    evidence = recording.pack(planted_answers(texts), NOW, {"identity": False})
    evidence |= {
        "worker.log": "\n".join(texts).encode(),
        "odd.json": json.dumps({"password": "hunter2DDD", "x": texts, "key": "hunter2EEE"}).encode(),
    }
    one = written(place, planted_report(samples.rejected(4), texts), evidence)
    two = written(place, report(at(CAPPED, 1)))
    raw = b"\0".join(path.read_bytes() for path in one.rglob("*") if path.is_file())
    assert set(secrets.leaks(raw)) == {*secrets.SECRETS, *secrets.PEM_LINES, *secrets.IDENTITY}
    return made(one, two)


def test_nothing_planted_is_left_in_any_member(hostile_ticket: Ticket) -> None:
    found = {name: secrets.leaks(content) for name, content in members(hostile_ticket).items()}
    assert {name: left for name, left in found.items() if left} == {}
    assert hostile_ticket.left_out == ()
    assert secrets.leaks("\n".join(hostile_ticket.members).encode()) == []


def test_pseudonyms_are_alike_in_every_member(hostile_ticket: Ticket) -> None:
    inside = members(hostile_ticket)
    (name,) = [name for name in inside if name.endswith("report.json") and "1-" in name]
    host = json.loads(inside[name])["facts"]["host"]
    assert re.fullmatch(r"host-\d+", host["name"])
    root = name.removesuffix("report.json")
    process = json.loads(inside[f"{root}evidence/process.json"])
    assert process["uname"]["value"]["node"] == host["name"]
    user = re.search(r"/home/(user-\d+)/run7", inside[f"{root}evidence/files.json"].decode())
    assert user is not None
    for member in ("report.json", "evidence/worker.log", "evidence/nvml.json"):
        assert f"/home/{user[1]}/run7 by {user[1]}" in inside[root + member].decode()


def test_what_was_replaced_is_listed_and_never_what_it_was(hostile_ticket: Ticket) -> None:
    inside = members(hostile_ticket)
    listed = json.loads(inside["manifest.json"])["replaced"]
    assert {entry["kind"] for entry in listed} == {"secret", "host", "user", "ip", "mac"}
    assert all(entry["times"] > 0 for entry in listed)
    assert all(re.fullmatch(r"(host|user|ip|mac)-\d+|\[redacted\]", entry["name"]) for entry in listed)
    assert "host-1" in inside["replaced.md"].decode()


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(sorted(secrets.SECRETS)), min_size=1, max_size=4),
    st.sampled_from([", ", "; ", "\n", "\t", " | ", '"', "\\n", "&amp; "]),
    st.booleans(),
)
def test_secrets_next_to_one_another(some: list[str], between: str, escaped: bool) -> None:
    from nodecheck.sources.scrub import Part, Redaction

    text = f"{between} ".join(secrets.SECRETS[one].format(one) for one in some)
    doc = {"x": json.dumps({"log": text}) if escaped else text}
    out = json.dumps(Redaction([Part("n", {"r": {"d": doc}})]).json(0, doc))
    assert [one for one in some if one in out] == []


# What is in it.


def test_the_copies_verify_and_the_manifest_names_every_file(tmp_path: Path) -> None:
    node = change(NODE, "host.name", "gpu-zeta17")
    node = change(
        node,
        "kernel_log.events",
        (LogEvent(kind="xid", code=79, count=1, device=healthy.ADDRESSES[0], text="at gpu-zeta17"),),
    )
    evidence = recording.pack(planted_answers(["at gpu-zeta17"]), NOW, {"identity": False})
    path = written(tmp_path, report(node), evidence)
    one = made(path)
    (copy,) = unpacked(one, tmp_path / "out")
    result = folder.verify(copy)
    assert result.differences == ()
    assert "evidence/process.json" in result.checked
    assert "gpu-zeta17" not in (copy / "report.json").read_text()
    assert recording.load(copy / "evidence").answers["process"]["uname"]["value"]["node"] == "host-1"  # type: ignore[index,call-overload]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["report_schema"] == document.SCHEMA_ID
    (entry,) = manifest["reports"]
    assert entry["redacted_copy"] is True
    assert (
        entry["original_report_json_sha256"]
        == hashlib.sha256((path / "report.json").read_bytes()).hexdigest()
    )
    inside = {name: hashlib.sha256(content).hexdigest() for name, content in members(one).items()}
    assert manifest["members"] == {name: digest for name, digest in inside.items() if name != "manifest.json"}


def test_the_same_reports_give_the_same_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, report())
    assert made(path).content == made(path).content


def test_serials_stay_unless_they_are_to_go(tmp_path: Path) -> None:
    path = written(tmp_path, report())
    card = NODE.known_cards[0]
    kept = members(made(path))["summary.md"].decode()
    assert str(card.uuid) in kept
    assert str(card.identity.serial) in kept
    node = NODE.model_dump_json()
    for i, each in enumerate(NODE.known_cards):
        node = node.replace(str(each.uuid), f"GPU-1c2d3e4f-aaaa-4bbb-8ccc-abcdef00000{i}").replace(
            f'"{each.identity.serial}"', f'"165012401424{i}"'
        )
    path = written(tmp_path / "b", report(Node.model_validate_json(node)))
    inside = members(made(path, scrub_serials=True))
    assert not any(b"1c2d3e4f-aaaa" in content or b"165012401424" in content for content in inside.values())


def test_the_provider_reads_the_promise_and_its_source_and_nothing_of_the_renters(tmp_path: Path) -> None:
    node = change(CAPPED, "host.memory.shm_total_bytes", 64 * 1024**2)
    path = written(tmp_path, report(node))
    renters = {
        f.id
        for f in report(node).judgement.findings
        if f.owner is Owner.renter and f.status.value in ("fail", "warn")
    }
    assert renters
    text = members(made(path))["summary.txt"].decode()
    assert text.startswith("REJECTED h200x4: 1 problem for the provider to mend")
    (finding,) = [
        f for f in report(node).judgement.findings if f.id == "cards.power_limit" and f.status.value == "fail"
    ]
    flat = re.sub(r"\s+", " ", text)
    assert f"promised: 700 W, by {finding.expected_from}" in flat
    assert f"    {finding.repeat}\n" in text
    for id in renters:
        assert f"({id})" not in text
    other = members(made(path, owner=Owner.renter))["summary.txt"].decode()
    assert "to mend yourself" in other
    for id in renters:
        assert f"({id})" in other
    assert "(cards.power_limit)" not in other


def test_since_when_is_told_from_the_reports_and_the_log(tmp_path: Path) -> None:
    event = LogEvent(
        kind="xid",
        code=79,
        count=3,
        device=healthy.ADDRESSES[3],
        first_seconds=60.0,
        last_seconds=120.0,
        text="GPU has fallen off the bus",
    )
    paths = [
        written(tmp_path, report(at(CAPPED, 3))),
        written(tmp_path, report(at(NODE, 0))),
        written(tmp_path, report(at(change(CAPPED, "kernel_log.events", (event,)), 9))),
    ]
    text = re.sub(r"\s+", " ", members(made(*paths))["summary.txt"].decode())
    times = [f"{at(NODE, hours).taken_at:%Y-%m-%d %H:%M:%S} UTC" for hours in (0, 3)]
    assert f"since: first seen at {times[1]} (reports/2-" in text
    assert f"still right at {times[0]} (reports/1-" in text
    assert "kernel log: Xid 79, 3 times, 2026-" in text


def test_what_came_and_went_is_not_forgotten(tmp_path: Path) -> None:
    paths = [written(tmp_path, report(at(node, i))) for i, node in enumerate((CAPPED, NODE))]
    text = members(made(*paths))["summary.md"].decode()
    assert "Seen earlier, and not in the last report" in text
    assert "passes now" in text


def test_reports_of_two_nodes_are_told_apart(tmp_path: Path) -> None:
    other = NODE.model_dump_json()
    for i, card in enumerate(NODE.known_cards):
        other = other.replace(str(card.uuid), f"GPU-ffffff{i:02x}-0000-4000-8000-000000000000")
    elsewhere = change(change(Node.model_validate_json(other), "host.name", "host-1"), "host.boot_id", "b")
    here = change(NODE, "host.name", "gpu-zeta17")
    inside = members(made(written(tmp_path, report(here)), written(tmp_path, report(at(elsewhere, 1)))))
    names = {
        json.loads(content)["facts"]["host"]["name"]
        for name, content in inside.items()
        if name.endswith("report.json")
    }
    assert names == {"host-1", "host-2"}  # whatever an earlier scrub called the second
    assert "Node 2" in inside["summary.md"].decode()


# What cannot go in.


def test_a_damaged_report_is_named_and_the_others_go_in(tmp_path: Path) -> None:
    sound = written(tmp_path, report())
    damaged = tmp_path / "ovidia" / "report.json"
    damaged.parent.mkdir()
    damaged.write_text('{"format": "nodecheck-report/1"')
    edited = written(tmp_path / "c", report(CAPPED)) / "report.json"
    edited.write_text(edited.read_text().replace('"limit_watts": 500.0', '"limit_watts": 700.0'))
    one = made(damaged, sound, tmp_path / "nowhere", edited)
    assert one.reports == 1
    assert len(one.left_out) == 3
    assert "changed since it was written" in " ".join(out.why for out in one.left_out)
    assert "Left out" in members(one)["summary.md"].decode()


def test_without_any_report_there_is_no_ticket(tmp_path: Path) -> None:
    with pytest.raises(TicketError, match="cannot read"):
        made(tmp_path / "nowhere")


def test_links_strange_names_and_floods_in_the_evidence_stay_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticket, "MAX_EVIDENCE_BYTES", 10_000)
    path = written(
        tmp_path,
        report(),
        {
            "a.log": b"fine",
            "big.log": b"x" * 20_000,
            "link.log": b"l",
            "edited.log": b"e",
            "odd.bin": b"\xff\xfe\x00",
        },
    )
    evidence = path / "evidence"
    (evidence / "link.log").unlink()
    (evidence / "link.log").symlink_to("/etc/passwd")
    (evidence / "edited.log").write_text("other")
    (evidence / "stray.log").write_text("planted")
    os.mkfifo(evidence / "pipe.log")
    one = made(path)
    names = {name.rpartition("evidence/")[2] for name in members(one) if "evidence/" in name}
    assert names == {"a.log"}
    assert len(one.left_out) == 6
    (copy,) = unpacked(one, tmp_path / "out")
    assert folder.verify(copy).differences == ()


def test_a_linked_folder_of_evidence_is_not_followed(tmp_path: Path) -> None:
    path = written(tmp_path, report(), {"a.log": b"fine"})
    (path / "evidence").rename(tmp_path / "elsewhere")
    (path / "evidence").symlink_to(tmp_path / "elsewhere")
    one = made(path)
    assert not any("evidence/" in name for name in members(one))
    assert "link" in one.left_out[0].why


def test_names_with_paths_in_them_open_nothing(tmp_path: Path) -> None:
    raw = report()
    parts = {**raw.parts, "evidence/../../secret.txt": "0" * 64}
    parts |= document.hashes({**json.loads(document.dump(raw)), "parts": parts})
    (tmp_path / "r" / "evidence").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("planted")
    (tmp_path / "r" / "report.json").write_text(document.dump(raw.model_copy(update={"parts": parts})))
    one = made(tmp_path / "r")
    assert len(one.left_out) == 1
    assert not any(b"planted" in content for content in members(one).values())
