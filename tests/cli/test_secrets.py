"""No secret that a node gives away stands in what is shown, written or stored of it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodecheck.facts import LogEvent
from nodecheck.profile import load
from tests import healthy

NODES = Path(__file__).parents[1] / "nodes"

BOOT = {
    "password=": "hunter2hunter2",
    "luks.passphrase=": "correct-horse-battery",
    "rd.luks.key=": "9f8e7d6c5b4a",
    "ds=nocloud;s=https://seed:": "uRLpaSs99",
}
ENVIRONMENT = {
    "NCCL_DEBUG_FILE": "AKIAQ7ZK3M5N8P2R4T6V",
    "CUDA_CACHE_PATH": "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "NVIDIA_PRODUCT_NAME": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "TORCH_HOME": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVPmB92K27uhbUJU1p1r",
    "UCX_TLS": "sk-proj-4f5G6h7J8k9L0mNbVcXz",
    "NV_CUDA_LIB_VERSION": "Zk4tQ9vB2mXw7RsL1pYd8HcN5jFg3TaE",
    "NCCL_CLIENT_PASSPHRASE": "opensesame77",
}
NCCL = "NCCL_NET_PASSPHRASE=nccl5ecret\nNCCL_DEBUG=https://bot:cOnfPass1@pool.example/x\n"
LOG = "NVRM: Xid (PCI:0000:3a:00): 31, pid=5, name=serve --api-key nK4p2wLm8s --token=tOk9xYz7 end"


def node_with_secrets(folder: Path) -> tuple[str, ...]:
    """Makes a recording that nobody scrubbed; gives its secrets."""
    sources: dict[str, dict[str, Any]] = {}
    for path in (NODES / "h200x4-rejected").glob("*.json"):
        sources[path.name] = json.loads(path.read_text())
    manifest = sources.pop("manifest.json")
    files = sources["files.json"]
    boot = " ".join(name + value for name, value in BOOT.items()) + "@cloud.example/ quiet\n"
    files["read /proc/cmdline"] = {"value": boot}
    files["read /etc/nccl.conf"] = {"value": NCCL}
    log = files["kmsg"]["value"]
    files["kmsg"]["value"] = log + f"3,999999,999999999,-;{LOG}\n" if isinstance(log, str) else log
    sources["process.json"]["environment"]["value"].update(
        {name: f"/x https://me:uRLpaSs42@host.example {value}" for name, value in ENVIRONMENT.items()}
    )
    folder.mkdir()
    for name, answers in sources.items():
        content = json.dumps(answers).encode()
        (folder / name).write_bytes(content)
        manifest["members"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return (
        *BOOT.values(),
        *ENVIRONMENT.values(),
        *("nccl5ecret", "cOnfPass1", "nK4p2wLm8s", "tOk9xYz7", "uRLpaSs42"),
    )


def nodecheck(*arguments: str | Path, cwd: Path) -> str:
    command = [sys.executable, "-m", "nodecheck", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.fixture
def secrets(tmp_path: Path) -> tuple[str, ...]:
    return node_with_secrets(tmp_path / "node")


def test_no_secret_stands_in_a_report(secrets: tuple[str, ...], tmp_path: Path) -> None:
    shown = nodecheck("accept", "--from", "node", "--profile", "h200x4", "--report-dir", "out", cwd=tmp_path)
    (folder,) = (tmp_path / "out").iterdir()
    written = {path.name: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert {"report.json", "report.html", "report.md"} < set(written)
    left = [(name, s) for name, text in {**written, "terminal": shown}.items() for s in secrets if s in text]
    assert left == []
    facts = json.loads(written["report.json"])["facts"]
    assert "password=[redacted]" in facts["host"]["boot_command_line"]
    assert ["NCCL_CLIENT_PASSPHRASE", "[redacted]"] in facts["stack"]["environment"]
    assert any("--api-key [redacted]" in event["text"] for event in facts["kernel_log"]["events"])
    assert facts["host"]["name"] == "host-1"
    assert "as it was written" in nodecheck("report", "verify", folder, cwd=tmp_path)


def test_no_secret_stands_in_what_is_probed(secrets: tuple[str, ...], tmp_path: Path) -> None:
    text = nodecheck("probe", "--from", "node", cwd=tmp_path)
    assert [secret for secret in secrets if secret in text] == []
    assert json.loads(text)["host"]["name"] == "host-1"


def test_facts_that_nobody_scrubbed_give_no_secret_away_when_they_are_judged(tmp_path: Path) -> None:
    node = healthy.node(load("h200x4"))
    event = LogEvent(kind="xid", code=79, device=healthy.ADDRESSES[0], count=1, text=f"fell off; {LOG}")
    (tmp_path / "facts.json").write_text(
        healthy.change(node, "kernel_log.events", (event,)).model_dump_json()
    )
    shown = nodecheck("judge", "facts.json", "--profile", "h200x4", cwd=tmp_path)
    assert "fell off" in shown
    assert not any(secret in shown for secret in ("nK4p2wLm8s", "tOk9xYz7"))
