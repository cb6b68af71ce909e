"""The recipes, run and read as their readers do."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodecheck.rental import recipes


@pytest.mark.parametrize(
    ("code", "ends", "level", "printed"),
    [
        (0, 0, "", ""),
        (2, 1, "daemon.err", "print NODECHECK CRITICAL - 17 of 18 NVLinks \n"),
        (1, 0, "daemon.warning", ""),
        (3, 0, "daemon.warning", ""),
        (75, 0, "daemon.warning", ""),
    ],
)
def test_the_prolog_fails_for_a_failed_check_alone(
    tmp_path: Path, code: int, ends: int, level: str, printed: str
) -> None:
    program = tmp_path / "node check"
    program.write_text(
        f"#!/bin/sh\n[ \"$*\" = 'check --format nagios' ] || exit 9\n"
        f"echo 'NODECHECK CRITICAL - 17 of 18 NVLinks | x=1'; echo '`reboot` $HOME'; exit {code}\n"
    )
    log = tmp_path / "logger"
    log.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\n')
    for made in (program, log):
        made.chmod(0o755)
    script = tmp_path / "prolog.sh"
    text = recipes.slurm_prolog([str(program)])
    assert "@" not in text
    script.write_text(text.replace("PATH=/usr/local/sbin", f"PATH={tmp_path}:/usr/local/sbin"))
    subprocess.run(["bash", "-n", script], check=True)
    said = subprocess.run(["sh", script], capture_output=True, text=True, check=False, env={})
    assert (said.returncode, said.stdout, said.stderr) == (ends, printed, "")
    assert level in ((tmp_path / "log").read_text() if level else "")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    script = tmp_path / "prolog.sh"
    script.write_text(recipes.slurm_prolog(["nodecheck"]))
    subprocess.run(["shellcheck", script], check=True)


def documents() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    return list(yaml.safe_load_all(recipes.kubernetes()))


def test_the_manifest_is_yaml_and_fits_together() -> None:
    namespace, daemon = documents()
    assert daemon["metadata"]["namespace"] == namespace["metadata"]["name"]
    template = daemon["spec"]["template"]
    assert daemon["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in template["spec"]["volumes"]
    }
    subprocess.run(["sh", "-n", "-c", container["args"][0]], check=True)


def test_its_lines_are_whole_without_a_parser() -> None:
    text = recipes.kubernetes()
    assert "\t" not in text
    for line in text.splitlines():
        assert (len(line) - len(line.lstrip())) % 2 == 0
    script = text.partition("            - |\n")[2].partition("          env:\n")[0]
    assert re.search(r"nodecheck check --format openmetrics --output /textfile/nodecheck\.prom", script)
    subprocess.run(["sh", "-n", "-c", script], check=True)
