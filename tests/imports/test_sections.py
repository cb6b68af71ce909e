"""From a file to the outputs in it."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.imports import MAX_BYTES
from tests.imports import outputs
from tests.imports.outputs import cards, imported, kinds, node

MADE = cards(2)
PASTED = f"""Hello, this is from our node:

root@node7:~# nvidia-smi -L
{outputs.listing(MADE)}root@node7:~# nvidia-smi topo -m
{outputs.matrix(lambda _a, _b: "NV18", count=2)}
root@node7:~# nvidia-smi topo -p2p r
{outputs.peers(lambda _a, _b: "OK", count=2)}
root@node7:~# nvidia-smi nvlink -s
{outputs.nvlink(MADE, lambda _c, _k: ": 26.562 GB/s")}root@node7:~# dmesg | tail
[ 1234.567890] NVRM: Xid (PCI:0000:1b:00): 31, pid=1, name=python3, MMU Fault
root@node7:~# nvidia-smi
{outputs.table(MADE)}
Can you help?
"""
KINDS = [
    "nvidia-smi -L",
    "nvidia-smi topo -m",
    "nvidia-smi topo -p2p",
    "nvidia-smi nvlink -s",
    "kernel log",
    "nvidia-smi",
]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: b"\xff\xfe" + text.encode("utf-16-le"),
        lambda text: gzip.compress(text.encode()),
        lambda text: "\n".join(f"> {line}" for line in text.split("\n")).encode(),
        lambda text: "\n".join(f">> {line}" for line in text.split("\n")).encode(),
        lambda text: text.replace("root@node7:~#", "\x1b[01;32mroot@node7\x1b[0m:~#").encode(),
        lambda text: text.replace("root@node7:~#", "(base) user@node7:/workspace$").encode(),
        lambda text: text.replace("root@node7:~#", "$").encode(),
        lambda text: text.replace("root@node7:~#", "#").encode(),
        lambda text: text.replace("root@node7:~#", "C:\\Users\\me>").encode(),
        lambda text: text.replace("Hello", "\U0001f600 Hello").encode(),
        lambda text: text.encode().replace(b"our node", b"\xff\xfe\xfd"),
    ],
)
def test_however_it_came(change) -> None:
    found = imported(change(PASTED))
    assert kinds(found) == KINDS
    assert found.not_understood == ()
    assert len(found.node.known_cards) == 2
    assert {pair.p2p_read for pair in found.node.topology.pairs} == {"ok"}


def test_where_each_begins() -> None:
    lines = PASTED.split("\n")
    for one in imported(PASTED).recognised:
        assert lines[one.line - 2].startswith("root@"), one


def test_outputs_without_anything_between_them() -> None:
    made = outputs.xml(MADE) + outputs.table(MADE) + outputs.listing(MADE) + outputs.text(MADE)
    found = imported(made)
    assert kinds(found) == ["nvidia-smi -q -x", "nvidia-smi", "nvidia-smi -L", "nvidia-smi -q"]
    assert len(found.node.known_cards) == 2


BUG_REPORT = f"""____________________________________________

Start of NVIDIA bug report log file.  Please include this file, along
with a detailed description of your problem.

nvidia-bug-report.sh Version: 36310941
____________________________________________

/usr/bin/lspci -d "10de:*" -v -xxx

1b:00.0 3D controller: NVIDIA Corporation Device 2335 (rev a1)
\tKernel driver in use: nvidia

____________________________________________

/bin/dmesg

[    0.000000] Linux version 5.15.0
[ 1234.567890] NVRM: Xid (PCI:0000:1b:00): 48, pid=1, name=python3, DBE
____________________________________________

*** /proc/driver/nvidia/./version
*** ls: -r--r--r-- 1 root root 0 2026-11-30 17:04:42 /proc/driver/nvidia/./version
NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:12 UTC 2026

____________________________________________

/usr/bin/nvidia-smi --query

{outputs.text(MADE)}
____________________________________________

/usr/bin/nvidia-smi topo -p2p n

{outputs.peers(lambda _a, _b: "OK", count=2)}
____________________________________________

/bin/journalctl -k -b -1 --no-hostname

[ 1234.567890] NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.
"""


def test_a_bug_report() -> None:
    found = imported(gzip.compress(BUG_REPORT.encode()))
    assert kinds(found) == [
        "lspci",
        "kernel log",
        "nvidia-smi -q",
        "nvidia-smi topo -p2p",
        "kernel log",
    ]
    assert len(found.node.known_cards) == 2
    assert [event.code for event in found.node.kernel_log.events] == [48]
    assert found.node.kernel_log.complete is True
    assert {pair.p2p_nvlink for pair in found.node.topology.pairs} == {"ok"}


def test_a_packed_file_that_is_cut_gives_what_can_be_had() -> None:
    found = imported(gzip.compress(BUG_REPORT.encode(), 0)[:-200])
    assert "nvidia-smi -q" in kinds(found)
    assert "cut short" in found.not_understood[0]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "nothing in it"),
        (b"hello\n", "nothing in it"),
        (b"\x7fELF" + bytes(100), "no text"),
        (b"\x1f\x8b" + b"x" * 100, "damaged gzip"),
        (gzip.compress(bytes(MAX_BYTES + 1)), "unpacks to more than 64 MB"),
        (b" " * (MAX_BYTES + 1), "larger than 64 MB"),
    ],
)
def test_what_cannot_be_read_is_named(raw: bytes, says: str) -> None:
    found = imported(raw, outputs.listing(MADE))
    assert says in found.not_understood[0]
    assert len(found.node.known_cards) == 2


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_file(raw: bytes) -> None:
    assert node(raw).level == "quick"


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="GPU0123:.$#>|+-=_ \t\nNVXidrmabc[]()<>/", max_size=400))
def test_any_text_is_a_file(text: str) -> None:
    found = imported(text)
    assert not any("own fault" in trouble for trouble in found.not_understood)


def test_a_file_of_more_outputs_than_any_is_read_as_far_as_that() -> None:
    found = imported(("$ nvidia-smi -L\n" + outputs.listing(MADE)) * 201)
    assert len(found.recognised) == 200
    assert "only its first 200 outputs" in found.not_understood[0]


def test_a_file_of_more_lines_than_any_is_read_as_far_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodecheck.imports.sections.MAX_LINES", 10)
    monkeypatch.setattr("nodecheck.imports.MAX_LINES", 10)
    found = imported("hello\n" * 11 + outputs.listing(MADE))
    assert found.recognised == ()
    assert "only its first 10 lines" in found.not_understood[0]
