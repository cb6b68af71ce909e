"""Lines of amdgpu, KFD and RAS in the kernel's log: which message of `judge/amdgpu.toml` a line is.

The wordings are those of the driver in Linux 5.15 to 6.18 and of AMD's own module (6.2 to 6.16), as public logs show
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OURS = re.compile(r"amdgpu|\bkfd\b|amdkfd|\[drm:.{0,60}\bamdgpu")

_RAS = re.compile(
    r"\b(?P<count>\d{1,9}) (?:new )?(?P<kind>uncorrectable|correctable|deferred) hardware errors? detected "
    r"(?P<total>in total )?in (?P<block>\w{1,24}) block"
)
_RAS_NAMES = {
    "uncorrectable": "ras_uncorrectable",
    "correctable": "ras_correctable",
    "deferred": "ras_deferred",
}
_LINK_BLOCK = "xgmi_wafl"

# The first that fits is the message; no pattern holds two open-ended repeats.
_MESSAGES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("poison", r"[Pp]oison (?:is |was )?consum|poison consumption|RAS poison"),
        ("ras_uncorrectable", r"ERREVENT_ATHUB_INTERRUPT|uncorrectable hardware error"),
        ("aca_events", r"Accelerator Check Architecture|\[Hardware Error\]: aca entry"),
        (
            "bad_page_threshold",
            r"reaches threshold value|exceeds? (?:the )?(?:bad page )?threshold|GPU will not be initialized",
        ),
        (
            "bad_page",
            r"marked as bad page|\bbad pages? (?:has|have|was|were) been|[Rr]etire\w{0,2} (?:\w{1,12} )?pages?\b",
        ),
        ("boot_memory", r"(?:memory training|hbm bist test|hbm \w{1,12}) failed|unknown boot time error"),
        ("link_training", r"\b(?:xgmi|wafl|usr [cd]p) link training failed"),
        ("xgmi", r"(?i:\bxgmi\b).{0,80}(?i:fail|error|timed? ?out|\bdown\b)"),
        (
            "reset_failed",
            r"GPU Recovery Failed|GPU reset(?:\(\d{1,6}\))? failed|GPU reset end with ret = -?[1-9]|ASIC reset failed",
        ),
        (
            "reset_done",
            r"GPU reset(?:\(\d{1,6}\))? succeeded|GPU reset end with ret = 0|\b[Rr]ing \S{1,32} reset succe",
        ),
        ("reset", r"GPU reset begin"),
        ("ring_recovered", r"\bring \S{1,32} timeout, but soft recovered"),
        ("ring_timeout", r"\bring \S{1,32} timeout\b|\b[Rr]ing \S{1,32} reset failed"),
        (
            "page_fault",
            r"\[(?:gfx|mm)hub\d{0,3}\] (?:no-)?(?:retry )?page fault|VM_L2_PROTECTION_FAULT_STATUS",
        ),
        (
            "scheduler",
            r"preemption time(?:d| )?out|HWS hang|MES .{0,60}(?:unrecoverable|failed|timed? ?out)|suspend all gangs",
        ),
        ("oversubscribed", r"[Rr]unlist is getting oversubscribed"),
        ("queue_evicted", r"queue evicted|Freeing queue vital buffer"),
        ("overheated", r"GPU over temperature range|Critical Temperature Fault|SW CTF"),
        ("throttled", r"thermal throttling|GPU is throttled"),
        (
            "smu",
            r"SMU: (?:I'm not|No response|response:0x)|SMU is in hanged state|[Ff]ailed to send message 0x",
        ),
        ("psp_optional", r"psp gfx command (?:LOAD_TA|INVOKE_CMD|UNLOAD_TA)\S{0,12} failed"),
        ("psp", r"(?i:\bpsp\b).{0,80}(?:failed|timed? ?out)"),
        (
            "firmware",
            r"Direct firmware load for amdgpu/\S{1,64} failed|[Ff]ailed to (?:load|request|get) .{0,24}firmware",
        ),
        ("atomics", r"PCI[Ee] atomic ops is not supported"),
    )
)
_LOST = re.compile(r"device lost from bus|PCI error: detected callback, state\([23]\)")
_NOT_STARTED = re.compile(
    r"Fatal error during GPU init|amdgpu_device_ip_init failed"
    r"|\bprobe (?:of \S{1,32} |with driver \S{1,32} )?failed with error"
    r"|invalid ip discovery binary|_init of IP block <\w{1,16}> failed|amdgpu_discovery_init failed"
)
_COMPLAINT = re.compile(r"\*ERROR\*|\bfailed\b|\berror\b|\btimed? ?out\b|\bhang\b", re.IGNORECASE)
_HARMLESS = re.compile(
    r"smu (?:driver|fw) (?:if|program)|SECUREDISPLAY|[Oo]ptional (?:firmware|ras ta)|RAS INFO|ucode is not available"
    r"|\((?:0x)?0\)$|Process information|in page starting at|for process|error (?:counter|inject|count)"
)

OTHER = "other"
"""Any further complaint of the driver: told, and weighed by nobody."""
NAMES = frozenset(
    {*(name for name, _ in _MESSAGES), *_RAS_NAMES.values(), "xgmi_uncorrectable", "xgmi_correctable", OTHER}
)


@dataclass(frozen=True)
class Message:
    """What a line of the driver says."""

    name: str
    """Row of `judge/amdgpu.toml`; `lost` and `not_started` are events of their own kinds."""
    count: int = 1
    continues: bool = False
    """The line only adds detail to a message already counted."""


def read(text: str) -> Message | None:
    """The message of amdgpu's that the line is; None where it is none, or nothing worth a look."""
    if not _OURS.search(text):
        return None
    if ras := _RAS.search(text):
        name = _RAS_NAMES[ras["kind"]]
        if ras["block"].lower() == _LINK_BLOCK and name != "ras_deferred":
            name = name.replace("ras_", "xgmi_")
        return Message(name, max(1, int(ras["count"])), continues=ras["total"] is not None)
    if _LOST.search(text):
        return Message("lost")
    if _NOT_STARTED.search(text):
        return Message("not_started")
    for name, pattern in _MESSAGES:
        if pattern.search(text):
            return Message(name, continues="FAULT_STATUS" in text or name == "aca_events")
    if _HARMLESS.search(text) or not _COMPLAINT.search(text):
        return None
    return Message(OTHER)
