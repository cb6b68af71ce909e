"""Acceptance profiles: what a bundle promises, as data that a provider's engineer can read and sign.

A profile is a TOML file (`profiles/*.toml`, or one of the renter's own). `extends` names the profile it
builds on: tables are merged key by key, other values and lists are replaced, `figures` are appended and
replaced where measure and `at` are equal. `name`, `title` and `abstract` belong to the file they stand in.

What figures measure (`model.MEASURES` holds units, conditions and plausible ranges; definitions are those of
nccl-tests and nvbandwidth, GB = 10^9 bytes, message sizes binary):

- `all_reduce.busbw`, `all_gather.busbw`, `reduce_scatter.busbw`, `all_to_all.busbw`, `broadcast.busbw`: bus
  bandwidth of one collective over `ranks` cards of this node, message `size`, element `dtype`, in place.
- `all_reduce.busbw_without_nvls`: what a healthy node gives where NCCL does without NVLink SHARP; it tells
  "NVLS is off" from "a link is slow".
- `host.h2d`, `host.d2h`: pinned copy of `size`, one card at a time; `host.bidirectional`: both at once, their
  sum.
- `pairs.one_way`, `pairs.two_way`: copy of `size` between two cards, one pair at a time; `two_way` is the sum
  of both ways.
- `hbm.copy`, `hbm.triad`: device memory, bytes read and written, buffers of `size`.
- `gemm.float64`, `gemm.float32`, `gemm.tfloat32`, `gemm.float16`, `gemm.bfloat16`, `gemm.float8`: dense
  matrix product of `shape` (m x n x k), short burst.
- `launch.latency`: from the host's launch of an empty kernel to its return.
"""

from nodecheck.profile.loading import load, names
from nodecheck.profile.model import (
    MEASURES,
    NO_PROFILE,
    At,
    CardSpec,
    CardsSpec,
    Figure,
    HostSpec,
    Kind,
    LinksSpec,
    Measure,
    Profile,
    ProfileError,
    Sourced,
    StackSpec,
)
from nodecheck.profile.suggestion import suggest

__all__ = [
    "MEASURES",
    "NO_PROFILE",
    "At",
    "CardSpec",
    "CardsSpec",
    "Figure",
    "HostSpec",
    "Kind",
    "LinksSpec",
    "Measure",
    "Profile",
    "ProfileError",
    "Sourced",
    "StackSpec",
    "load",
    "names",
    "suggest",
]
