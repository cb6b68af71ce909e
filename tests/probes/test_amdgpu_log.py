"""Which message a line of amdgpu is; the lines are as the driver writes them, with addresses made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.facts import LogEvent
from nodecheck.probes import amdgpu_log
from nodecheck.probes.kernel_log import Line, find_events

CARD = "amdgpu 0000:9f:00.0: amdgpu: "

LINES = [
    ("socket: 4, die: 0, 3 new uncorrectable hardware errors detected in umc block", "ras_uncorrectable"),
    ("{7} socket: 1, die: 3, 12 new correctable hardware errors detected in gfx block", "ras_correctable"),
    ("5 correctable hardware errors detected in mmhub block, no user action is needed.", "ras_correctable"),
    ("socket: 2, die: 1, 1 new deferred hardware errors detected in umc block", "ras_deferred"),
    ("socket: 2, die: 1, 2 new uncorrectable hardware errors detected in xgmi_wafl block", "xgmi_uncorrectable"),
    ("socket: 2, die: 1, 9 new correctable hardware errors detected in xgmi_wafl block", "xgmi_correctable"),
    ("{1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", "ras_uncorrectable"),
    ("{9} socket: 3, die: 2, 1 new poison consumption detected in gfx block", "poison"),
    ("{1}[Hardware Error]: Accelerator Check Architecture events logged", "aca_events"),
    ("{1}[Hardware Error]: aca entry[00].STATUS=0x98000800003e0000", "aca_events"),
    ("Saved bad pages 256 reaches threshold value 256", "bad_page_threshold"),
    ("RAS records:260 exceed threshold:256, GPU will not be initialized. Replace this GPU", "bad_page_threshold"),
    ("socket: 0, aid: 2, hbm: 1, fw_status: 0x1010, memory training failed", "boot_memory"),
    ("socket: 0, aid: 2, hbm: 1, fw_status: 0x2080, hbm bist test failed", "boot_memory"),
    ("socket: 0, aid: 1, fw_status: 0x1020, xgmi link training failed", "link_training"),
    ("socket: 0, aid: 1, fw_status: 0x1020, wafl link training failed", "link_training"),
    ("XGMI: Set topology failed on device 0, hive 4711, ret -22", "xgmi"),
    ("GPU reset begin!", "reset"),
    ("GPU reset begin!. Source:  1", "reset"),
    ("GPU reset(2) succeeded!", "reset_done"),
    ("GPU reset succeeded, trying to resume", "reset_done"),
    ("GPU reset(3) failed", "reset_failed"),
    ("GPU reset end with ret = -19", "reset_failed"),
    ("GPU reset end with ret = 0", "reset_done"),
    ("GPU Recovery Failed: -19", "reset_failed"),
    ("ASIC reset failed with error, -62 for drm dev, 0000:9f:00.0", "reset_failed"),
    ("ring comp_1.2.0 timeout, signaled seq=88, emitted seq=90", "ring_timeout"),
    ("ring sdma0 timeout, but soft recovered", "ring_recovered"),
    ("[gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32770)", "page_fault"),
    ("[mmhub0] retry page fault (src_id:0 ring:0 vmid:3 pasid:32790)", "page_fault"),
    ("GCVM_L2_PROTECTION_FAULT_STATUS:0x00601431", "page_fault"),
    ("cp queue preemption time out.", "scheduler"),
    ("MES failed to respond to msg=REMOVE_QUEUE", "scheduler"),
    ("Runlist is getting oversubscribed due to too many queues. Expect reduced ROCm performance.", "oversubscribed"),
    ("Freeing queue vital buffer 0x7f2a00000000, queue evicted", "queue_evicted"),
    ("ERROR: GPU over temperature range(SW CTF) detected!", "overheated"),
    ("ERROR: GPU HW Critical Temperature Fault(aka CTF) detected!", "overheated"),
    ("WARN: GPU is throttled, expect performance decrease. HBM", "throttled"),
    ("SMU: I'm not done with your previous command: SMN_C2PMSG_66:0x00000012", "smu"),
    ("SMU: response:0xFFFFFFFF for index:18 param:0x00000005 message:TransferTableSmu2Dram?", "smu"),
    ("Failed to send message 0x26, response 0x0", "smu"),
    ("PSP load kdb failed!", "psp"),
    ("psp reg (0x16091) wait timed out, mask: ffffffff, read: 80000000 exp: 00000000", "psp"),
    ("psp gfx command LOAD_TA(0x1) failed and response status is (0x7)", "psp_optional"),
    ("Direct firmware load for amdgpu/gc_9_4_3_rlc.bin failed with error -2", "firmware"),
    ("PCIE atomic ops is not supported", "atomics"),
    ("Some new trouble: the frobnicator failed", "other"),
]  # fmt: skip

HARMLESS = [
    "[drm] amdgpu kernel modesetting enabled.",
    "amdgpu: Virtual CRAT table created for CPU",
    "amdgpu: Topology: Add CPU node",
    CARD + "RAS INFO: ras initialized successfully, hardware ability[1cf73] ras_mask[1cf73]",
    CARD + "smu driver if version = 0x08042024, smu fw if version = 0x08042027, smu fw version = 0x00557800",
    CARD + "RAS: optional ras ta ucode is not available",
    CARD + '[drm] Optional firmware "amdgpu/isp_4_1_0.bin" was not found',
    CARD + "XGMI: Add node 3, hive 0x5c9f2a1b3d4e6f70.",
    CARD + "MEM ECC is active.",
    CARD + "  Process python3 pid 5923 thread python3 pid 5923",
    CARD + "     WALKER_ERROR: 0x0",
    CARD + "ring comp_1.0.0 uses VM inv eng 1 on hub 0",
    "usb 1-1: device descriptor read/64, error -71",
]


def events(*lines: str) -> tuple[LogEvent, ...]:
    return find_events(Line(text, float(i)) for i, text in enumerate(lines))


@pytest.mark.parametrize(("text", "name"), LINES)
def test_a_line_is_its_message(text: str, name: str) -> None:
    (event,) = events(CARD + text)
    assert (event.kind, event.name, event.device) == ("amdgpu", name, "0000:9f:00.0")


@pytest.mark.parametrize("text", HARMLESS)
def test_what_healthy_nodes_write_is_no_trouble(text: str) -> None:
    assert events(text) == ()


def test_every_message_has_a_line() -> None:
    shown = {name for _, name in LINES}
    assert amdgpu_log.NAMES - shown <= {"bad_page"}
    (event,) = events(CARD + "RAS WARN: 0x1234 has been marked as bad page")
    assert event.name == "bad_page"


def test_errors_are_counted_once_by_their_number() -> None:
    found = events(
        CARD + "socket: 4, die: 0, 3 new uncorrectable hardware errors detected in umc block",
        CARD + "socket: 4, die: 0, 3 uncorrectable hardware errors detected in total in umc block",
        CARD + "socket: 4, die: 0, 2 new uncorrectable hardware errors detected in umc block",
    )
    assert [(event.name, event.count) for event in found] == [("ras_uncorrectable", 5)]


def test_messages_and_cards_are_kept_apart() -> None:
    found = events(
        CARD + "GPU reset begin!",
        CARD + "ring comp_1.2.0 timeout, signaled seq=88, emitted seq=90",
        CARD.replace("9f", "0c") + "GPU reset begin!",
        "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=2, emitted seq=4",
    )
    assert [(event.name, event.device if isinstance(event.device, str) else None) for event in found] == [
        ("reset", "0000:9f:00.0"),
        ("ring_timeout", "0000:9f:00.0"),
        ("reset", "0000:0c:00.0"),
        ("ring_timeout", None),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "device"),
    [
        (CARD + "Fatal error during GPU init", "card_init", "0000:9f:00.0"),
        ("amdgpu: probe of 0000:05:00.0 failed with error -22", "card_init", "0000:05:00.0"),
        ("amdgpu 0000:05:00.0: probe with driver amdgpu failed with error -22", "card_init", "0000:05:00.0"),
        (CARD + "get invalid ip discovery binary signature", "card_init", "0000:9f:00.0"),
        (CARD + "device lost from bus!", "fallen_off_bus", "0000:9f:00.0"),
        (
            "amdgpu 0000:9f:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0x517e flags=0x10]",
            "iommu",
            "0000:9f:00.0",
        ),
        (
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:9f:00.0 domain=0x000f address=0x517e flags=0x10]",
            "iommu",
            "0000:9f:00.0",
        ),
        (
            "DMAR: [DMA Read NO_PASID] Request device [18:00.0] fault addr 0x7f000000 [fault reason 0x06]",
            "iommu",
            "0000:18:00.0",
        ),
    ],
)
def test_lines_of_other_kinds(text: str, kind: str, device: str) -> None:
    (event,) = events(text)
    assert (event.kind, event.device) == (kind, device)


@given(st.text(max_size=400))
def test_no_line_breaks_it(text: str) -> None:
    message = amdgpu_log.read(f"amdgpu 0000:9f:00.0: {text}")
    assert message is None or message.count >= 1
