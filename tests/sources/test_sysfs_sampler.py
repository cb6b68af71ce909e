"""AMD's cards sampled under load: real processes over a tree of files that changes meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodecheck.sources import crew, sysfs_sampler
from nodecheck.sources.companion import Companion
from tests.fakes.amd import describe, tree
from tests.fakes.amd.node import key
from tests.fakes.tree import Ground, Kind


class Sampled:
    def __init__(self, sysfs: Path, card: str) -> None:
        self.sampler = crew._Sampler("sysfs_sampler.py", {"card": card, "sysfs": str(sysfs)})

    @property
    def companion(self) -> Companion:
        return self.sampler.companion

    def wait(self, fits: Callable[[Any], bool]) -> list[Any]:
        """The next sample that fits, without its time."""
        began = time.monotonic()
        while time.monotonic() < began + 20:
            for _, *sample in self.sampler.since(began):
                if fits(sample):
                    return list(sample)
            time.sleep(0.02)
        raise AssertionError(self.sampler.since(began)[-3:])


@pytest.fixture
def sample(tmp_path: Path) -> Iterator[Callable[[Path, str], Sampled]]:
    begun: list[Sampled] = []

    def begin(sysfs: Path, card: str) -> Sampled:
        begun.append(Sampled(sysfs, card))
        return begun[-1]

    yield begin
    for one in begun:
        one.companion.kill()
        assert one.companion.gone.wait(10)


def laid_out(folder: Path, kind: Kind = "bare", **values: Any) -> tuple[Path, str, Path]:
    """sysfs with two MI300X, the key of the second, and its folder."""
    node = describe("mi300x", 2, kind=kind)
    node.cards[1].__dict__.update(values)
    ground = Ground(folder)
    ground.hold(tree.plant(node))
    sysfs = ground.root / "sys"
    return sysfs, key(node.cards[1]), (sysfs / "bus/pci/devices" / node.cards[1].address).resolve()


def test_a_card_is_sampled_as_it_changes(tmp_path: Path, sample: Callable[[Path, str], Sampled]) -> None:
    sysfs, card, device = laid_out(tmp_path)
    sampled = sample(sysfs, card)
    assert sampled.wait(lambda _: True) == [132, 121.0, 41.0, None, 5, 16]
    (sensors,) = device.glob("hwmon/*")
    (device / "pp_dpm_sclk").write_text("0: 132Mhz\n1: 1730Mhz *\n2: 2100Mhz\n")
    (sensors / "power1_average").write_text("742500000\n")
    (sensors / "temp2_input").write_text("78500\n")
    (device / "current_link_speed").write_text("16.0 GT/s PCIe\n")
    (device / "current_link_width").write_text("8\n")
    assert sampled.wait(lambda one: one[5] == 8) == [1730, 742.5, 78.5, None, 4, 8]
    # What cannot be read any more, or says what cannot be, is not told; the rest goes on.
    (sensors / "temp2_input").unlink()
    (sensors / "power1_average").write_text("-1\n")
    (device / "pp_dpm_sclk").write_text("S: 19Mhz\n")
    (device / "current_link_speed").write_text("Unknown\n")
    (device / "current_link_width").write_text("255\n")
    (sensors / "freq1_input").write_text("900000000\n")
    assert sampled.wait(lambda one: one[5] is None) == [900, 121.0, None, None, None, None]


def test_a_virtual_function_tells_its_link_alone(
    tmp_path: Path, sample: Callable[[Path, str], Sampled]
) -> None:
    sysfs, card, _ = laid_out(tmp_path, "guest", unique_id=0)
    assert card == "0021:00:00.0"
    assert sample(sysfs, card).wait(lambda _: True) == [None, None, None, None, 5, 16]


def test_of_a_partition_the_package_is_sampled(tmp_path: Path) -> None:
    assert sysfs_sampler.address("0000:15:00.3", tmp_path) == "0000:15:00.0"


def test_who_knows_no_such_card_or_is_told_nothing_ends(
    tmp_path: Path, sample: Callable[[Path, str], Sampled]
) -> None:
    sysfs, card, device = laid_out(tmp_path)
    strange = sample(sysfs, "GPU-00000000000abc01")
    for name in ("pp_dpm_sclk", "current_link_speed", "current_link_width"):
        (device / name).unlink()
    (device / "hwmon").rename(device / "elsewhere")
    mute = sample(sysfs, card)
    for one in (strange, mute):
        assert one.companion.gone.wait(20)
        assert (one.companion.returncode, one.sampler.since(0.0)) == (0, [])


def test_a_read_that_hangs_ends_with_its_request(
    tmp_path: Path, sample: Callable[[Path, str], Sampled]
) -> None:
    """A named pipe that nobody writes to stands for a card that does not answer."""
    sysfs, card, device = laid_out(tmp_path)
    (device / "pp_dpm_sclk").unlink()
    os.mkfifo(device / "pp_dpm_sclk")
    hung = sample(sysfs, card)
    assert not hung.companion.gone.wait(0.5)
    assert hung.sampler.since(0.0) == []
    hung.companion.kill()
    assert hung.companion.gone.wait(10)


def test_nothing_but_the_standard_library_is_imported() -> None:
    assert "nodecheck" not in Path(sysfs_sampler.__file__).read_text(encoding="utf-8").split('"""', 2)[2]
