"""NCCL's and RCCL's logs, recorded and made up, and any other text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts.measurements import Transport
from nodecheck.measure import transport
from nodecheck.measure.transport import MARK, Log, read

SHARED = Path(__file__).parents[2] / "../shared/nodes/h200x1"


@pytest.mark.parametrize("world", [2, 4, 8])
def test_recorded_ranks_over_sockets(world: int) -> None:
    path = SHARED / f"nccl-debug-world{world}-net-socket.txt"
    if not path.exists():
        pytest.skip("no recording here")
    found = read(path.read_text())
    assert found.library == "NCCL 2.28.9"
    assert found.paths == ("NET/Socket",)
    assert "NCCL_HOSTID set to h0" in found.notes


def test_a_setting_without_the_end_of_its_sentence() -> None:
    found = read("n1:7:9 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.\n")
    assert found.notes == ("NCCL_NVLS_ENABLE set to 0",)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "P2P/CUMEM"),
        ("n1:7:9 [0] NCCL INFO Channel 23/1 : 7[7] -> 0[0] via P2P/CUMEM/read", "P2P/CUMEM"),
        ("n1:7:9 [0] NCCL INFO Channel 23/1 : 7[7] -> 0[0] via P2P/CUMEM/CE", "P2P/CUMEM"),
        ("n1:7:9 [0] NCCL INFO Channel 02 : 0[1b000] -> 1[43000] via P2P/IPC", "P2P/IPC"),
        ("n1:7:9 [0] NCCL INFO Channel 02/0 : 3[3] -> 2[2] via P2P/IPC/read", "P2P/IPC"),
        (
            "n1:7:9 [0] NCCL INFO Channel 02/0 : 7[ce000] -> 5[c6000] via P2P/IPC comm 0xfb16e30 nRanks 08",
            "P2P/IPC",
        ),
        ("n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer", "P2P/direct"),
        ("n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer/read", "P2P/direct"),
        ("n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/indirect/2[2]/read", "P2P/indirect"),
        ("n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL", "P2P/MNNVL"),
        ("n1:7:9 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", "SHM"),
        ("n1:7:9 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct", "SHM"),
        ("n1:7:9 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via direct shared memory", "SHM"),
        ("n1:7:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 15[7] [send] via NET/IB/3/GDRDMA", "NET/IB"),
        (
            "n1:7:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 15[7] [send] via NET/IB/0(15)/GDRDMA(PCI)/Shared",
            "NET/IB",
        ),
        ("n1:7:9 [0] NCCL INFO Channel 00/1 : 0[0] -> 1[0] [receive] via NET/Socket/0/Shared", "NET/Socket"),
        (
            "n1:7:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 6[6] [send] via NET/AWS Libfabric/0/GDRDMA",
            "NET/AWS Libfabric",
        ),
        ("n1:7:9 [0] NCCL INFO CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA", "COLLNET"),
    ],
)
def test_every_way_is_known(line: str, path: str) -> None:
    assert read(line).paths == (path,)


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("NCCL version 2.18.5+cuda11.8", "NCCL 2.18.5"),
        ("vm:444:444 [0] NCCL INFO NCCL version 2.28.9+cuda13.0", "NCCL 2.28.9"),
        ("RCCL version 2.20.5+hip6.2 HEAD:2f6d59e", "RCCL 2.20.5"),
        ("RCCL version : 2.22.3-HEAD:9f3b1a2", "RCCL 2.22.3"),
        ("n1:1:1 [0] NCCL INFO cudaDriverVersion 13000", ""),
    ],
)
def test_every_version_is_known(line: str, library: str) -> None:
    assert read(line).library == library


def test_a_complaint_about_versions_is_no_version() -> None:
    line = "n1:1:1 [0] init.cc:9 NCCL WARN This application was compiled with NCCL version 2.19.3, but is running"
    assert read(line).library == ""


@pytest.mark.parametrize(
    ("lines", "algorithms"),
    [
        # NCCL 2.24 and later: names.
        (
            [
                "x:1:1 [0] NCCL INFO AllReduce: 8589934592 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}"
            ],
            (("all_reduce 8589934592", "NVLS/SIMPLE"),),
        ),
        # 2.22 and 2.23: numbers.
        (
            ["x:1:1 [0] NCCL INFO AllGather: 1048576 Bytes -> Algo 1 proto 0 time 12.5"],
            (("all_gather 1048576", "RING/LL"),),
        ),
        # 2.19 to 2.21: not even the collective, which the worker's own line tells.
        (
            [
                f"{MARK}reduce_scatter 1073741824 bfloat16",
                "x:1:1 [0] NCCL INFO 1073741824 Bytes -> Algo 1 proto 2 time 4.2",
            ],
            (("reduce_scatter 1073741824", "RING/SIMPLE"),),
        ),
        # The share of one rank: the worker's line tells the whole.
        (
            [
                f"{MARK}all_gather 8388608 bfloat16",
                "x:1:1 [0] NCCL INFO AllGather: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..7}",
            ],
            (("all_gather 8388608", "RING/LL128"),),
        ),
        # The tiny all_reduce between the runs is no run.
        (
            [
                f"{MARK}all_gather 8388608 bfloat16",
                "x:1:1 [0] NCCL INFO AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}",
            ],
            (("all_reduce 4", "TREE/LL"),),
        ),
        (["x:1:1 [0] NCCL INFO 64 Bytes -> Algo 9 proto 7 time 1"], (("64", "9/7"),)),
    ],
)
def test_algorithms_of_every_generation(lines: list[str], algorithms: tuple[tuple[str, str], ...]) -> None:
    assert read("\n".join(lines)).algorithms == algorithms


CHANNELS = "x:1:1 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels"
RING = "x:1:1 [0] NCCL INFO AllReduce: 8589934592 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}"
NVLS = RING.replace("RING", "NVLS")


@pytest.mark.parametrize(
    ("lines", "used"),
    [
        ([CHANNELS], True),  # an NCCL that does not tell its algorithms
        ([CHANNELS, NVLS], True),
        ([CHANNELS, NVLS.replace("NVLS", "NVLS_TREE")], True),
        ([CHANNELS, RING], False),  # could be used, and is not: four cards
        ([CHANNELS.replace("16 nvls", "0 nvls")], False),
        (["x:1:1 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)"], False),
    ],
)
def test_nvls_is_named_where_it_is_used(lines: list[str], used: bool) -> None:
    assert ("NVLS" in read("\n".join(lines)).paths) is used


def test_why_nvls_is_not_used() -> None:
    log = "\n".join(
        (
            "x:1:1 [0] NCCL INFO NVLS multicast support is not available on dev 0",
            "x:1:1 [1] NCCL INFO NVLS multicast support is not available on dev 1",
            "x:1:1 [0] NCCL INFO NCCL_NVLS_ENABLE set by environment to 0.",
            "x:1:1 [0] NCCL INFO NCCL_DEBUG_SUBSYS set by environment to INIT",
            "x:1:1 [0] transport/nvls.cc:9 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097"
            " : CUDA error 401 'the operation cannot be performed in the present state'.",
        )
    )
    notes = read(log).notes
    assert notes[:2] == ("NVLS multicast support is not available", "NCCL_NVLS_ENABLE set to 0")
    assert len(notes) == 3 and "CUDA error 401" in notes[2]


def test_a_group_is_what_its_ranks_say_together() -> None:
    first = (
        f"NCCL version 2.27.3+cuda12.9\nn:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n{RING}"
    )
    second = "n:2:2 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct"
    answers = [{"log": first, "backend": "nccl"}, {"log": second, "backend": "nccl"}]
    assert transport.transport(("a", "b"), "all", answers) == Transport(
        cards=("a", "b"),
        name="all",
        paths=("P2P/CUMEM", "SHM"),
        algorithms=(("all_reduce 8589934592", "RING/SIMPLE"),),
        library="NCCL 2.27.3",
    )


def rccl(*lines: str) -> str:
    """RCCL's log on eight MI300X, made up."""
    started = (
        "RCCL version : 2.22.3-HEAD:9f3b1a2",
        "HIP version  : 6.4.43482-0f2d60242",
        "ROCm version : 6.4.0.0-47-a8fba1b",
        "Hostname     : node",
        "Librccl path : /opt/rocm/lib/librccl.so.1",
    )
    said = [f"node:71:90 [0] NCCL INFO {line}" for line in lines]
    return "\n".join((*started, *said)) + "\n"


RINGS = (
    "Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 comm 0x2ceb0ba0 nRanks 08 busId c000",
    "Channel 00/56 :    0   1   2   3   4   5   6   7",
    "Channel 00/0 : 0[0] -> 1[1] via P2P/IPC comm 0x2ceb0ba0 nRanks 08",
    "Channel 55/0 : 0[0] -> 7[7] via P2P/IPC comm 0x2ceb0ba0 nRanks 08",
    "Connected all rings comm 0x2ceb0ba0 nRanks 08 busId c000",
    "Connected all trees",
    "threadThresholds 8/8/64 | 64/8/64 | 256 | 256",
    "56 coll channels, 0 nvls channels, 64 p2p channels, 8 p2p channels per peer",
)


def test_rccl_over_xgmi() -> None:
    tuned = (f"{MARK}all_reduce 8589934592 bfloat16", "8589934592 Bytes -> Algo 1 proto 2 time 47000.0")
    assert read(rccl(*RINGS, *tuned)) == Log(
        library="RCCL 2.22.3",
        paths=("P2P/IPC",),
        algorithms=(("all_reduce 8589934592", "RING/SIMPLE"),),
        notes=("56 channels for collectives",),
    )


def test_rccl_that_leaves_collectives_to_msccl() -> None:
    """Rings and trees are set up whatever is used: without a word on the algorithm there is none."""
    found = read(
        rccl(
            *RINGS,
            "MSCCL: No external scheduler found, using internal implementation",
            "Using MSCCL files from /opt/rocm/lib/../share/rccl/msccl-algorithms",
            "MSCCL: Initialization finished, localSize 400",
        )
    )
    assert (found.paths, found.algorithms) == (("P2P/IPC",), ())
    assert found.notes == (
        "56 channels for collectives",
        "MSCCL is on, and names no algorithm for the collectives that it runs",
    )


@pytest.mark.parametrize(
    ("way", "path"),
    [
        ("P2P/IPC", "P2P/IPC"),
        ("P2P/direct pointer", "P2P/direct"),
        ("SHM/direct/direct", "SHM"),
        ("SHM", "SHM"),
        ("NET/Socket/0", "NET/Socket"),
        ("NET/IB/3/GDRDMA", "NET/IB"),
    ],
)
def test_ways_of_rccl(way: str, path: str) -> None:
    assert read(rccl(f"Channel 00/0 : 0[0] -> 1[1] via {way} comm 0x2ceb0ba0 nRanks 08")).paths == (path,)


def test_settings_of_rccl_s_own() -> None:
    found = read(
        rccl("NCCL_P2P_DISABLE set by environment to 1.", "RCCL_MSCCL_ENABLE set by environment to 0.")
    )
    assert found.notes == ("NCCL_P2P_DISABLE set to 1", "RCCL_MSCCL_ENABLE set to 0")


def test_channels_of_nccl_are_no_news() -> None:
    line = "n:1:1 [0] NCCL INFO 24 coll channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer"
    assert read(f"NCCL version 2.28.9+cuda13.0\n{line}\n").notes == ()


def test_gloo_writes_no_log() -> None:
    answer = {"log": "", "backend": "gloo", "version": []}
    assert transport.transport(("cpu0", "cpu1"), "all", [answer, answer]).paths == ("gloo/TCP",)


def test_a_silent_library_leaves_the_way_unknown() -> None:
    found = transport.transport(("a", "b"), "all", [{"log": "", "backend": "nccl", "version": [2, 21, 5]}])
    assert (found.paths, found.library) == ((), "NCCL 2.21.5")
    said = {"log": "", "backend": "nccl", "library": "RCCL", "version": [2, 27, 7]}
    assert transport.transport(("a", "b"), "all", [said]).library == "RCCL 2.27.7"
    assert transport.transport(("a",), "all", []).paths == ()


PIECES = st.sampled_from(
    [
        " via ",
        "P2P/",
        "NET/",
        "SHM",
        "Bytes -> Algo ",
        "proto ",
        "99999999999999999999",
        "²",
        "٣",
        MARK,
        "NCCL version 2.",
        "NCCL_X set by environment to ",
        "nvls channels",
        "\x1b[31m",
        "\n",
        "\r",
        "[0]",
        "comm 0x",
        "AllReduce: ",
    ]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=20)), max_size=60).map("".join))
def test_any_text_is_read(log: str) -> None:
    found = read(log)
    assert isinstance(found, Log)
    texts = [
        found.library,
        *found.paths,
        *found.notes,
        *(word for pair in found.algorithms for word in pair),
    ]
    assert all(text.isprintable() and len(text) <= 300 for text in texts)
    transport.transport(("a",), "all", [{"log": log, "version": [2, None]}, {"log": 3}])


def test_a_huge_log_is_read_to_a_limit() -> None:
    line = "n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/{}/0"
    found = read("\n".join(line.format(f"Plugin{number}") for number in range(5000)) + "x" * 5_000_000)
    assert len(found.paths) == transport.MOST_NAMES
