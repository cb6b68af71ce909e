"""The live files: what they answer, where they refuse to go, and that nothing they meet holds them up."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.sources import Files, files
from nodecheck.sources.channel import Recorded, Recorder, encode
from nodecheck.sources.files import Usage


def below(root: Path) -> Files:
    return Files(files.live(str(root)))


def why(answer: Maybe[object]) -> Why:
    assert isinstance(answer, Absent), answer
    return answer.why


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A root with a secret beside it, and a few files and links."""
    (tmp_path / "secret").write_text("not yours")
    root = tmp_path / "root"
    for folder in ("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0", "sys/bus/pci/devices", "etc", "dev"):
        (root / folder).mkdir(parents=True)
    card = root / "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    (card / "vendor").write_text("0x10de\n")
    (card / "config").write_bytes(bytes(range(256)) * 20)
    (root / "sys/bus/pci/devices/0000:01:00.0").symlink_to(
        "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    )
    (root / "etc/name").write_text("node\n")
    return root


def test_text_names_and_bytes(tree: Path) -> None:
    f = below(tree)
    assert f.read("/etc/name") == "node\n"
    assert f.list("/etc") == ("name",)
    assert f.read("/sys/bus/pci/devices/0000:01:00.0/vendor") == "0x10de\n"
    config = f.read_hex("/sys/bus/pci/devices/0000:01:00.0/config")
    assert config == (bytes(range(256)) * 16).hex()


def test_links_are_followed_and_told(tree: Path) -> None:
    (tree / "dev/self").symlink_to("pid:[4026531836]")
    f = below(tree)
    assert f.resolve("/sys/bus/pci/devices/0000:01:00.0") == (
        "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    )
    assert f.link("/dev/self") == "pid:[4026531836]"
    assert why(f.resolve("/dev/self")) is Why.not_present
    assert why(f.link("/etc/name")) is Why.failed


@pytest.mark.parametrize(
    "target", ["../../secret", "../../../../../../secret", "/secret", "/../../secret", "{outside}"]
)
def test_no_link_leads_out_of_the_root(tree: Path, target: str) -> None:
    (tree / "etc/way").symlink_to(target.format(outside=tree.parent / "secret"))
    (tree / "etc/up").symlink_to("../..")
    f = below(tree)
    assert why(f.read("/etc/way")) is Why.not_present
    assert why(f.read("/etc/up/secret")) is Why.not_present
    assert why(f.read("/../secret")) is Why.not_present
    assert why(f.read_hex("/etc/way")) is Why.not_present
    assert why(f.usage("/etc/way")) is Why.not_present
    assert why(f.access("/etc/way")) is Why.not_present
    assert f.list("/etc/up") == f.list("/")


def test_an_absolute_link_stays_in_the_root(tree: Path) -> None:
    (tree / "etc/way").symlink_to("/etc/name")
    assert below(tree).read("/etc/way") == "node\n"
    assert below(tree).resolve("/etc/way") == "/etc/name"


def test_a_ring_of_links_ends(tree: Path) -> None:
    (tree / "etc/a").symlink_to("b")
    (tree / "etc/b").symlink_to("a")
    f = below(tree)
    for answer in (f.read("/etc/a"), f.resolve("/etc/a"), f.list("/etc/a")):
        assert why(answer) is Why.failed


def test_what_is_not_there_says_so(tree: Path) -> None:
    f = below(tree)
    answers = (
        f.read("/no"), f.read_hex("/no"), f.list("/no"), f.resolve("/no"), f.link("/no"), f.access("/no"),
        f.usage("/no"), f.kernel_messages(), f.read("/etc/name/below"),
    )  # fmt: skip
    assert {why(answer) for answer in answers} == {Why.not_present}


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, Why.no_permission),
        (errno.EPERM, Why.no_permission),
        (errno.ENODEV, Why.not_present),
        (errno.EOPNOTSUPP, Why.not_supported),
        (errno.ETIMEDOUT, Why.timed_out),
        (errno.EIO, Why.failed),
        (errno.EINVAL, Why.failed),
    ],
)
def test_each_error_of_the_kernel_has_its_reason(
    tree: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: Why
) -> None:
    real = os.open

    def refuse(path: str, *arguments: int) -> int:
        if str(path).endswith("/etc/name"):
            raise OSError(number, os.strerror(number))
        return real(path, *arguments)

    monkeypatch.setattr("nodecheck.sources.files.os.open", refuse)
    answer = below(tree).read("/etc/name")
    assert why(answer) is reason
    assert isinstance(answer, Absent)
    assert answer.detail == os.strerror(number)


def test_a_path_with_a_nul_is_refused_not_raised(tree: Path) -> None:
    f = below(tree)
    for answer in (f.read("/a\0b"), f.list("/a\0b"), f.resolve("/a\0b"), f.usage("/a\0b"), f.access("/a\0b")):
        assert why(answer) is Why.failed
    assert why(Files(files.live()).read("/etc/\0")) is Why.failed


def test_reads_are_bounded_and_undecodable_bytes_replaced(tree: Path) -> None:
    (tree / "etc/long").write_bytes(b"x" * (files.READ_LIMIT_BYTES + 5))
    (tree / "etc/odd").write_bytes(b"a\xff\xfeb")
    f = below(tree)
    assert f.read("/etc/long") == "x" * files.READ_LIMIT_BYTES
    assert f.read("/etc/odd") == "a��b"
    (tree / "etc/dir").mkdir()
    (Path(os.fsdecode(os.fsencode(tree / "etc/dir") + b"/\xff"))).touch()
    assert f.list("/etc/dir") == ("�",)


def test_only_regular_files_are_opened(tree: Path) -> None:
    os.mkfifo(tree / "etc/pipe")
    (tree / "etc/pipe").chmod(0o666)
    began = time.monotonic()
    assert why(below(tree).read("/etc/pipe")) is Why.failed
    assert why(below(tree).read("/etc")) is Why.failed
    assert time.monotonic() - began < 1
    assert why(Files(files.live()).read("/dev/zero")) is Why.failed


def test_access_tells_closed_from_missing(tree: Path) -> None:
    (tree / "dev/nvidia0").touch(mode=0o666)
    f = below(tree)
    assert f.access("/dev/nvidia0") is True
    assert why(f.access("/dev/nvidia1")) is Why.not_present
    if os.geteuid() != 0:  # root may open anything
        (tree / "dev/nvidia0").chmod(0)
        assert f.access("/dev/nvidia0") is False


def test_to_whom_a_file_belongs(tree: Path) -> None:
    (tree / "dev/kfd").touch()
    (tree / "dev/kfd").chmod(0o660)
    f = below(tree)
    assert f.owner("/dev/kfd") == files.Owner(0o660, os.geteuid(), (tree / "dev/kfd").stat().st_gid)
    assert why(f.owner("/dev/none")) is Why.not_present
    assert why(Files(Recorded({"owner /dev/kfd": {"value": [1, 2]}})).owner("/dev/kfd")) is Why.failed


def test_usage_is_the_file_system_s(tree: Path) -> None:
    space = os.statvfs(tree)
    usage = below(tree).usage("/")
    assert isinstance(usage, Usage)
    assert usage.total_bytes == space.f_frsize * space.f_blocks
    assert 0 <= usage.free_bytes <= usage.total_bytes


def hang_in(monkeypatch: pytest.MonkeyPatch, name: str, stuck: str) -> None:
    """Let `os.<name>` of a path that ends with `stuck` hang, as a dead mount or device does."""
    real: Callable[..., object] = getattr(os, name)

    def hang(path: object, *arguments: object, **named: object) -> object:
        if isinstance(path, str) and path.endswith(stuck):
            time.sleep(60)
        return real(path, *arguments, **named)

    monkeypatch.setattr(f"nodecheck.sources.files.os.{name}", hang)


def test_a_dead_mount_is_left_behind(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang_in(monkeypatch, "statvfs", "/etc")
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 0.3)
    f = below(tree)
    began = time.monotonic()
    assert why(f.usage("/etc")) is Why.timed_out
    assert time.monotonic() - began < 5
    assert isinstance(f.usage("/sys"), Usage)


def test_many_dead_mounts_cost_little_more_than_one(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang_in(monkeypatch, "statvfs", "/etc")
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 1.0)
    f = below(tree)
    began = time.monotonic()
    assert {why(f.usage("/etc")) for _ in range(6)} == {Why.timed_out}
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "path",
    [
        "/proc/driver/nvidia/gpus/0000:01:00.0/information",
        "/sys/bus/pci/devices/0000:01:00.0/current_link_speed",
        "/sys/class/infiniband/mlx5_0/ports/1/rate",
        "/home/somebody/file",
    ],
)
def test_a_driver_that_hangs_is_left_behind(tree: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    (tree / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    (tree / path[1:]).write_text("never read")
    hang_in(monkeypatch, "open", path.rpartition("/")[2])
    monkeypatch.setattr(files, "PATIENCE_SECONDS", 0.3)
    began = time.monotonic()
    assert why(below(tree).read(path)) is Why.timed_out
    assert time.monotonic() - began < 5


def test_the_kernel_s_messages_are_read_to_their_end_and_no_further(tree: Path) -> None:
    assert why(below(tree).kernel_messages()) is Why.not_present
    records = "".join(f"6,{i},{i * 1000},-;line {i}\n" for i in range(2000))
    (tree / "dev/kmsg").write_text(records)
    assert below(tree).kernel_messages() == records


def test_of_very_many_messages_the_newest_are_kept(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "KMSG_LIMIT_BYTES", 20_000)
    (tree / "dev/kmsg").write_text("old\n" * 10_000 + "new\n")
    kept = below(tree).kernel_messages()
    assert isinstance(kept, str)
    assert len(kept) <= 20_000
    assert kept.endswith("new\n")


def test_gaps_in_the_messages_are_passed_over(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "dev/kmsg").touch()
    said: list[object] = [b"6,1,0,-;first\n", BrokenPipeError(), b"6,9,0,-;second\n", BlockingIOError()]
    real = os.read

    def read(descriptor: int, size: int) -> bytes:
        if size != 8192:
            return real(descriptor, size)
        answer = said.pop(0)
        if isinstance(answer, OSError):
            raise answer
        assert isinstance(answer, bytes)
        return answer

    monkeypatch.setattr("nodecheck.sources.files.os.read", read)
    assert below(tree).kernel_messages() == "6,1,0,-;first\n6,9,0,-;second\n"


def test_the_machine_itself_answers() -> None:
    f = Files(files.live())
    uptime = f.read("/proc/uptime")
    assert isinstance(uptime, str)
    assert float(uptime.split()[0]) > 0
    listed = f.list("/proc/self/fd")
    assert isinstance(listed, tuple)
    assert f.resolve("/proc/self") == f"/proc/{os.getpid()}"
    namespace = f.link("/proc/self/ns/pid")
    assert isinstance(namespace, str)
    assert namespace.startswith("pid:[")
    assert isinstance(f.usage("/"), Usage)


def test_a_recording_gives_the_same_answers(tree: Path) -> None:
    recorder = Recorder(files.live(str(tree)))

    def ask(f: Files) -> list[object]:
        return [
            f.read("/etc/name"), f.read("/no"), f.list("/etc"), f.link("/etc"), f.usage("/"), f.access("/etc")
        ]  # fmt: skip

    assert ask(Files(Recorded({}))) != ask(Files(recorder)) == ask(Files(Recorded(recorder.answers)))


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=40), st.sampled_from(["read", "hex", "list", "resolve", "link", "access", "usage"]))
def test_no_path_raises(path: str, verb: str) -> None:
    root = Path("/proc/self/fdinfo")
    encode(files.live(str(root)).ask(f"{verb} /{path}"))
