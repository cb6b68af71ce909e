from __future__ import annotations

from collections.abc import Mapping

import pytest

from nodecheck.facts import Absent, Maybe, Why
from nodecheck.probes import isolation
from nodecheck.probes.mounts import mounts
from nodecheck.sources import Files, Process
from nodecheck.sources.channel import Answer, Live

OWN = {f"link /proc/self/ns/{kind}": name for kind, name in isolation.INITIAL_NAMESPACES.items()}
APART = {**OWN, "link /proc/self/ns/pid": "pid:[4026532881]"}


def container(
    answers: Mapping[str, Answer], environment: dict[str, str] | None = None, version: str = "#1"
) -> Maybe[str]:
    def answer(question: str) -> Answer:
        return answers.get(question, Absent(why=Why.not_present))

    told: dict[str, Answer] = {
        "environment": environment or {},
        "uname": {"node": "n", "release": "6", "version": version, "machine": "x86_64"},
    }
    f = Files(Live(answer))
    return isolation.container(f, Process(Live(lambda question: told[question])), mounts(f))


def test_the_machine_itself() -> None:
    assert container(OWN | {"read /proc/self/cgroup": "0::/user.slice\n"}) == "none"


def test_a_disk_image_made_of_a_container_s_is_no_container() -> None:
    assert container(OWN | {"resolve /.dockerenv": "/.dockerenv"}) == "none"


@pytest.mark.parametrize(
    ("answers", "environment", "name"),
    [
        ({"resolve /.dockerenv": "/.dockerenv"}, {}, "docker"),
        ({"resolve /run/.containerenv": "/run/.containerenv"}, {}, "podman"),
        ({"resolve /.singularity.d": "/.singularity.d"}, {}, "apptainer"),
        ({"resolve /run/secrets/kubernetes.io": "/run/secrets/kubernetes.io"}, {}, "kubernetes"),
        ({"resolve /.dockerenv": "/.dockerenv"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"read /proc/1/environ": "A=b\0container=lxc\0"}, {}, "lxc"),
        ({"read /run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn"),
        ({}, {"container": "oci"}, "oci"),
        ({"read /proc/1/environ": "container=<script>\0"}, {}, "other"),
        ({"read /proc/self/cgroup": "0::/kubepods/burstable/pod1/x\n"}, {}, "kubernetes"),
        ({"read /proc/self/cgroup": "4:memory:/docker/0aff\n"}, {}, "docker"),
        (
            {"read /proc/self/mounts": "overlay / overlay rw,lowerdir=/var/lib/containerd/x 0 0\n"},
            {},
            "containerd",
        ),
        ({}, {}, "other"),
    ],
)
def test_containers(answers: dict[str, Answer], environment: dict[str, str], name: str) -> None:
    assert container(APART | answers, environment) == name


def test_a_container_that_shares_the_machine_s_namespaces_shows_in_its_group() -> None:
    assert container(OWN | {"read /proc/self/cgroup": "4:memory:/docker/0aff\n"}) == "docker"


def test_gvisor_is_known_by_its_kernel() -> None:
    assert container({}, version="#1 SMP Sun Jan 10 15:06:54 PST 2016") == "gvisor"


def test_where_nothing_can_be_seen_it_is_not_none() -> None:
    answer = container({"link /proc/self/ns/pid": Absent(why=Why.no_permission)})
    assert isinstance(answer, Absent)


INTEL = "processor\t: 0\nmodel name\t: Xeon\nflags\t\t: fpu vme{}\n"
GUEST = INTEL.format(" hypervisor lahf_lm")
MACHINE = INTEL.format(" lahf_lm")
ARM = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
DMI = "read /sys/class/dmi/id/"
CLOCK = "read /sys/devices/system/clocksource/clocksource0/available_clocksource"


@pytest.mark.parametrize(
    ("cpuinfo", "answers", "name"),
    [
        (MACHINE, {f"{DMI}sys_vendor": "Supermicro\n"}, "none"),
        (MACHINE, {}, "none"),
        (MACHINE, {f"{DMI}sys_vendor": "Amazon EC2\n", f"{DMI}product_name": "p5.metal\n"}, "none"),
        (GUEST, {f"{DMI}sys_vendor": "Amazon EC2\n", f"{DMI}product_name": "p5.48xlarge\n"}, "kvm"),
        (GUEST, {f"{DMI}sys_vendor": "QEMU\n"}, "kvm"),
        (MACHINE, {f"{DMI}sys_vendor": "QEMU\n"}, "kvm"),  # the flag can be hidden from a guest
        (GUEST, {f"{DMI}product_name": "VMware7,1\n"}, "vmware"),
        (
            GUEST,
            {f"{DMI}sys_vendor": "Microsoft Corporation\n", f"{DMI}product_name": "Virtual Machine"},
            "hyperv",
        ),
        (GUEST, {f"{DMI}sys_vendor": "Xen\n"}, "xen"),
        (GUEST, {f"{DMI}product_name": "Google Compute Engine\n"}, "kvm"),
        (GUEST, {CLOCK: "kvm-clock tsc acpi_pm\n"}, "kvm"),
        (GUEST, {CLOCK: "hyperv_clocksource_tsc_page\n"}, "hyperv"),
        (GUEST, {}, "other"),
        (ARM, {f"{DMI}sys_vendor": "QEMU\n"}, "kvm"),
        (ARM, {f"{DMI}sys_vendor": "Amazon EC2\n", f"{DMI}product_name": "g5g.metal\n"}, "none"),
        (ARM, {f"{DMI}sys_vendor": "NVIDIA\n"}, "none"),
    ],
)
def test_hypervisors(cpuinfo: str, answers: dict[str, Answer], name: str) -> None:
    f = Files(Live(lambda question: answers.get(question, Absent(why=Why.not_present))))
    assert isolation.virtualization(f, cpuinfo) == name


def test_an_arm_cpu_without_firmware_tables_tells_nothing() -> None:
    f = Files(Live(lambda question: Absent(why=Why.not_present)))
    assert isinstance(isolation.virtualization(f, ARM), Absent)
    assert isinstance(isolation.virtualization(f, Absent(why=Why.not_asked)), Absent)
