"""NVML through `pynvml`, every call made in a child process with a deadline, since a dying card can hang any call."""

from __future__ import annotations

from typing import Any

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources.channel import Answer, Channel


class Survey:
    """The answers to one round of NVML calls.

    A call's key is the function, the device index or indices it was asked of, and its further arguments:
    `nvmlDeviceGetName(0)`, `nvmlDeviceGetNvLinkState(0,17)`, `nvmlDeviceGetP2PStatus(0,1,NVML_P2P_CAPS_INDEX_READ)`.
    """

    def __init__(self, calls: dict[str, Any]) -> None:
        self._calls = calls

    def get(self, function: str, *arguments: object) -> Answer:
        """What the call returned as JSON (structs are objects, field name → value), or why it did not.

        NVMLError_NotSupported becomes `not_supported`, NoPermission `no_permission`, a call that was cut off
        `timed_out`, FunctionNotFound and LibraryNotFound `not_present`, any other error `failed`; `detail` names
        the NVML error. A call that the survey does not hold is `not_asked`.
        """
        raise NotImplementedError


class Nvml:
    """The typed front of the NVML channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def survey(self) -> Maybe[Survey]:
        """Every call that the probes use, in one round; absent where NVML could not be started at all."""
        answer = self._channel.ask("survey")
        if isinstance(answer, Absent):
            return answer
        if isinstance(answer, dict):
            return Survey(answer)
        return Absent(why=Why.failed, detail="an answer of another shape")
