"""Runs in the renter's interpreter: which packages with GPU code stand beside torch, and for whose cards.

Stand-alone: Python >= 3.8 and the standard library alone; no package is imported. Started by its path as

    python extensions.py DUMP_AFTER_SECONDS ANSWERS_DESCRIPTOR

Versions come from the packages' metadata. Whose code a package carries is told by its shared objects: the section in
which a compiler puts kernels, or the vendor's runtime that they are linked to. The answer is a line as `stack.py`
writes it, with the item `extensions`.
"""

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    # This script's folder: the renter's programs do not see it.
    del sys.path[0]

import csv
import faulthandler
import glob
import json
import os
import re
import struct
from typing import Any, BinaryIO, Dict, Iterator, List, Set, Tuple

NAMES = re.compile(
    r"torch|torchvision|torchaudio|(pytorch-)?triton(-rocm)?|flash-attn(-[a-z0-9]+)*|apex|bitsandbytes|vllm|xformers"
    r"|aotriton|(amd-)?aiter|transformer-engine(-[a-z0-9]+)*|deepspeed|causal-conv1d|mamba-ssm"
)
SECTIONS = {
    ".hip_fatbin": "hip",
    ".hipFatBinSegment": "hip",
    ".nv_fatbin": "cuda",
    ".nvFatBinSegment": "cuda",
}
LIBRARIES = re.compile(r"lib(?:(amdhip64)|cudart|cuda)\.so")
"""Runtimes that a shared object may be linked to; AMD's has a name of its own."""
BACKENDS = {"amd": "hip", "nvidia": "cuda"}
"""Triton's folders of what it compiles for: it holds no kernels before it runs."""

MOST_FILES = 64
MOST_SECTIONS = 4096
MOST_BYTES = 4 * 2**20
"""Of one table of a shared object."""
FARTHEST = 2**40


def extensions() -> List[Dict[str, Any]]:
    """Name, version and vendors of every such package, the first of each name on sys.path."""
    found: Dict[str, Dict[str, Any]] = {}
    for name, version, files in packages():
        if name not in found:
            found[name] = {"name": name, "version": version, "built_for": sorted(built_for(files))}
            found[name]["files"] = len(files)
    return [found[name] for name in sorted(found)]


def packages() -> Iterator[Tuple[str, str, List[str]]]:
    """Name, version and shared objects."""
    for entry in sys.path:
        named = re.match(r"(.+?)-(\d[^-]*)(-py.*)?\.egg$", os.path.basename(entry))
        if named and wanted(named.group(1)):
            yield wanted(named.group(1)), named.group(2), below(entry)
        for path in sorted(glob.glob(os.path.join(glob.escape(entry), "*.dist-info"))):
            name, _, version = os.path.basename(path)[: -len(".dist-info")].rpartition("-")
            if wanted(name):
                yield wanted(name), version, recorded(entry, path)
        for path in glob.glob(os.path.join(glob.escape(entry), "torch", "lib", "libaotriton*.so.*")):
            release = re.search(r"\.so\.(\d+(?:\.\d+)+)$", path)
            if release:
                yield "aotriton", release.group(1), [path]


def wanted(name: str) -> str:
    """The name as package indexes write it, if it is one of ours; else empty."""
    name = re.sub(r"[-_.]+", "-", name).lower()
    return name if NAMES.fullmatch(name) else ""


def recorded(entry: str, metadata: str) -> List[str]:
    """The shared objects that the package's own list names, and triton's back ends."""
    try:
        with open(os.path.join(metadata, "RECORD"), encoding="utf-8", errors="replace", newline="") as file:
            names = [row[0] for row in csv.reader(file) if row]
    except (OSError, csv.Error):
        return []
    backends = {name.split("/")[2] for name in names if name.startswith("triton/backends/")}
    folders = [os.path.join(entry, "triton", "backends", name) for name in sorted(backends & BACKENDS.keys())]
    return folders + [os.path.join(entry, name) for name in names if is_shared_object(name)][:MOST_FILES]


def below(folder: str) -> List[str]:
    found: List[str] = []
    for where, _, names in os.walk(folder):
        found += [os.path.join(where, name) for name in sorted(names) if is_shared_object(name)]
        if len(found) >= MOST_FILES:
            break
    return found[:MOST_FILES]


def is_shared_object(name: str) -> bool:
    return re.search(r"\.so(\.[\d.]+)?$", name) is not None


def built_for(files: List[str]) -> Set[str]:
    """Vendors' platforms, `cuda` and `hip`; none where there is no code for a card."""
    found: Set[str] = set()
    for path in files:
        backend = BACKENDS.get(os.path.basename(path))
        if backend is not None:
            found.add(backend)
        elif len(found) < 2:
            try:
                with open(path, "rb") as file:
                    found |= platforms(file)
            except (OSError, ValueError, struct.error):
                continue
    return found


def platforms(file: BinaryIO) -> Set[str]:
    """Of one shared object (64 bits, little-endian). Raises ValueError for what is none."""
    header = file.read(64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no shared object")
    (start,) = struct.unpack_from("<Q", header, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", header, 0x3A)
    if size != 64 or not 0 < count <= MOST_SECTIONS or names_at >= count:
        raise ValueError("no table of sections")
    table = part(file, start, size * count)
    # Of each section the place of its name, its place in the file and its size.
    sections = [
        (struct.unpack_from("<I", table, at)[0], *struct.unpack_from("<QQ", table, at + 0x18))
        for at in range(0, size * count, size)
    ]
    names = part(file, *sections[names_at][1:])
    places = {text(names, name): (place, length) for name, place, length in sections}
    found = {SECTIONS[name] for name in places if name in SECTIONS}
    if ".dynamic" in places and ".dynstr" in places:
        strings, dynamic = part(file, *places[".dynstr"]), part(file, *places[".dynamic"])
        for tag, value in struct.iter_unpack("<QQ", dynamic[: len(dynamic) // 16 * 16]):
            linked = LIBRARIES.match(text(strings, value)) if tag == 1 else None  # DT_NEEDED
            if linked:
                found.add("hip" if linked.group(1) else "cuda")
    return found


def part(file: BinaryIO, start: int, size: int) -> bytes:
    if size > MOST_BYTES or start > FARTHEST:
        raise ValueError("a table of %d bytes at %d" % (size, start))
    file.seek(start)
    return file.read(size)


def text(table: bytes, start: int) -> str:
    return table[start : table.find(b"\0", start)].decode("utf-8", "replace")


def main() -> None:
    dump_after, descriptor = sys.argv[1:3]
    faulthandler.enable(file=2)
    faulthandler.dump_traceback_later(float(dump_after), file=2)
    with os.fdopen(int(descriptor), "w", encoding="ascii") as answers:
        print(json.dumps({"item": "extensions", "value": extensions()}), file=answers)


if __name__ == "__main__":
    main()
