"""Files of 20 MB of anything: bounded in time and memory, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.amd import amd_smi, describe
from tests.imports import outputs
from tests.imports.outputs import cards

SIZE = 20 * 1024 * 1024
MAX_MB = 200
MAX_SECONDS = 60
"""Some seconds on a machine that has nothing else to do."""

READ = """
import re, sys
from nodecheck.imports import read
found = read([("big", open(sys.argv[1], "rb").read())])
assert not any("own fault" in trouble for trouble in found.not_understood), found.not_understood
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) // 1024)
"""
"""`ru_maxrss` would count what the process that starts this one holds."""

XML = outputs.xml(cards(1))
CARD = amd_smi.answer(describe("mi300x", 1), "static", "7.2")
BLOCK = XML[XML.index("\t<gpu ") : XML.index("</nvidia_smi_log>")]
FILES = {
    "a kernel log": b"[ 1234.567890] NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=python3\n[ 1.000000] usb 1-2: hello\n",
    "an XML document of many cards": XML[: XML.index("\t<gpu ")].encode() + BLOCK.encode() * 10,
    "an XML document that never ends": b"<nvidia_smi_log><gpu id='1'>" + b"<a>1</a>" * 100_000,
    "a JSON document of many AMD cards": b'{"gpu_data": [\n'
    + CARD[CARD.index("{", 5) : CARD.rindex("]")].encode()
    + b",\n",
    "an indented text of many AMD cards": b"GPU: 1\n    ASIC:\n        MARKET_NAME: AMD Instinct MI300X\n"
    * 100,
    "quoted nothing": b"> > > > > > > >\n",
    "emoji": "\U0001f600 \u00e9\n".encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_twenty_megabytes(name: str, tmp_path: Path) -> None:
    part = FILES[name]
    (tmp_path / "big").write_bytes((part * (SIZE // len(part) + 1))[:SIZE])
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "big")],
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < MAX_MB
