"""Secrets do not survive a scrub, names are replaced alike everywhere, and facts stay what they were."""

from __future__ import annotations

import json
import random
import string
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodecheck.probes import Probing
from nodecheck.sources import NAMES, Sources, recorders
from nodecheck.sources.channel import Json
from nodecheck.sources.scrub import scrub
from nodecheck.sources.secrets import REDACTED
from tests import secrets
from tests.fakes import node as fake_nodes
from tests.fakes import nvml
from tests.fakes.nvml.products import PRODUCTS
from tests.fakes.tree import Ground

Stored = dict[str, dict[str, Json]]


def recording(**sources: dict[str, Json]) -> Stored:
    """Plain answers by source and question, encoded."""
    return {
        name: {question: {"value": value} for question, value in sources.get(name, {}).items()}
        for name in NAMES
    }


def scrubbed(text: str, question: str = "kmsg", **options: Any) -> str:
    """One text of the node `gpu17.dc3.example.com`, scrubbed."""
    uname = {"node": "gpu17.dc3.example.com", "release": "6.8.0", "version": "#1", "machine": "x86_64"}
    stored = recording(files={question: text}, process={"uname": uname})
    value = scrub(stored, **options)[0]["files"][question]["value"]
    assert isinstance(value, str)
    return value


# Names.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu17 kernel: hello", "host-1 kernel: hello"),
        ("GPU17.dc3.example.com up", "host-1 up"),
        ("at gpu17.dc3.example.com:8080", "at host-1:8080"),
        ("seen gpu17. Then gpu17.log", "seen host-1. Then host-1.log"),
        ("gpu17-ib0 and gpu17_mgmt", "host-1-ib0 and host-1_mgmt"),
        ("gpu170 and xgpu17", "gpu170 and xgpu17"),
        ("ntp gpu18.dc3.example.com", "ntp host-2"),
        ("/home/alice/x and /Users/alice", "/home/user-1/x and /Users/user-1"),
        ("/home/alice then /scratch/alice/run by alice", "/home/user-1 then /scratch/user-1/run by user-1"),
        ("/home/alice/a /home/bob/b /home/alice/c", "/home/user-1/a /home/user-2/b /home/user-1/c"),
        ("/home/ubuntu/x /root/x", "/home/ubuntu/x /root/x"),
        ("/home/data/x, SXid Data {0x5} data", "/home/user-1/x, SXid Data {0x5} data"),
        ("PATH=/home/alice/bin:/usr/bin", "PATH=/home/user-1/bin:/usr/bin"),
        ("Hostname set to <node-7f>. node-7f", "Hostname set to <host-2>. host-2"),
        ("ip-10-0-1-23.us-west-2.compute.internal", "host-2"),
    ],
)  # fmt: skip
def test_names(text: str, expected: str) -> None:
    assert scrubbed(text) == expected


def test_the_servers_of_mounted_file_systems_are_hosts_too() -> None:
    mounts = "filer01.lab:/export/alice /home/alice nfs4 rw 0 0\n10.1.2.3@tcp:/lustre /lustre lustre rw 0 0\n"
    assert scrubbed(mounts, "read /proc/self/mounts") == (
        "host-2:/export/user-1 /home/user-1 nfs4 rw 0 0\n192.0.2.1@tcp:/lustre /lustre lustre rw 0 0\n"
    )


def test_a_host_whose_name_is_a_word_of_the_facts_is_replaced_only_where_it_is_the_answer() -> None:
    stored = recording(
        process={"uname": {"node": "h200"}},
        nvml={"survey": {"nvmlDeviceGetName(0)": "NVIDIA H200"}},
        files={"read /proc/sys/kernel/hostname": "h200\n", "read /proc/sys/vm/swappiness": "h200"},
    )
    result = scrub(stored)[0]
    assert result["process"]["uname"]["value"]["node"] == "host-1"
    assert result["files"]["read /proc/sys/kernel/hostname"]["value"] == "host-1"
    assert result["nvml"] == stored["nvml"]


def test_questions_are_replaced_as_their_answers_are() -> None:
    stored = recording(
        process={"environment": {"CUDA_HOME": "/home/alice/cuda"}},
        files={"read /home/alice/cuda/version.json": "{}"},
    )
    result = scrub(stored)[0]
    assert result["process"]["environment"]["value"] == {"CUDA_HOME": "/home/user-1/cuda"}
    assert list(result["files"]) == ["read /home/user-1/cuda/version.json"]


def test_names_that_the_caller_knows_of() -> None:
    assert scrubbed("carol on login3", hosts=["login3"], users=["carol"]) == "user-1 on host-2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in /u/dana/run by dana", "in /u/user-1/run by user-1"),
        ("mail to dana.smith+x@corp.example.com.", "mail to user-1@example.org."),
        ('audit: USER_LOGIN acct="dana" exe="/usr/sbin/sshd"', 'audit: USER_LOGIN acct="user-1" exe="/usr/sbin/sshd"'),
        ("getty@tty1.service user@1000.service", "getty@tty1.service user@1000.service"),
        ("/sys/u/x /var/u/data", "/sys/u/x /var/u/data"),
    ],
)  # fmt: skip
def test_people(text: str, expected: str) -> None:
    assert scrubbed(text) == expected


def test_servers_and_accounts_of_lustre_and_ceph_go() -> None:
    mounts = (
        "mds01@o2ib:mds02.lab@o2ib1:10.1.2.3@tcp:/fs /l lustre rw 0 0\n"
        "mona,monb.lab:6789:/ /c ceph rw,name=erin 0 0\n"
        "frank@b3acfc0d-575f-41d3-9c91-0e7ed3dbb3fa.cephfs=/x /d ceph rw,mon_addr=10.1.2.4:3300/10.1.2.5:3300 0 0\n"
    )
    result = scrubbed(mounts, "read /proc/self/mounts")
    for name in ("mds01", "mds02", "mona", "monb", "erin", "frank", "10.1.2"):
        assert name not in result, name
    assert "mon_addr=192.0.2.2:3300/192.0.2.3:3300" in result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ssh dana@login4 -p 22, then dana on login4", "ssh user-1@host-2 -p 22, then user-1 on host-2"),
        ("repo/x@df1c9a3 x@df1c9a3 img@sha256:0a y@v1.2", "repo/x@df1c9a3 x@df1c9a3 img@sha256:0a y@v1.2"),
        ("Linux version 6.8.0 (buildd@lcy02-amd64-032)", "Linux version 6.8.0 (buildd@lcy02-amd64-032)"),
        ("nfs: server filer9 not responding", "nfs: server host-2 not responding"),
        ("ceph: mon.alpha5 client.dana client.admin", "ceph: mon.host-2 client.user-1 client.admin"),
        ("session opened for user dana(uid=1000)", "session opened for user user-1(uid=1000)"),
        ("SLURM_JOB_USER=dana", "SLURM_JOB_USER=user-1"),
        ("to vault.internal:8200", "to host-2:8200"),
        ("to db.svc.cluster.local", "to host-2"),
    ],
)  # fmt: skip
def test_logins_and_servers(text: str, expected: str) -> None:
    assert scrubbed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "timedatectl show -p NTPSynchronized", "ldconfig -p | grep -o x", "mkdir -p x", "ssh -p 2222 h",
        "nodecheck accept -p h200x4", "docker run -p 8080:80 -u 1000:1000 x",
    ],
)  # fmt: skip
def test_options_that_are_no_passwords(text: str) -> None:
    assert scrubbed(text) == text


@pytest.mark.parametrize("secret", sorted(secrets.SECRETS))
def test_planted_shapes(secret: str) -> None:
    assert secret not in scrubbed(secrets.SECRETS[secret].format(secret), keep_identity=True)


def test_what_only_shows_over_several_items() -> None:
    lists = {
        "argv": ["serve", "--token", "Zk3mQ9xT", "-p", "Zk3mQ9xU", "-p", "8080"],
        "pem": secrets.PEM.split("\n"),
    }
    result = json.dumps(scrub(recording(nvml={"survey": lists}))[0])
    assert not any(secret in result for secret in ("Zk3mQ9xT", "Zk3mQ9xU", *secrets.PEM_LINES))
    assert '"-p", "8080"' in result


@pytest.mark.parametrize(
    "text",
    ["password=" + "\\" * 200_000, 'password="' * 20_000, "mysql " * 50_000 + "-p", "-p x " * 50_000, "a@" * 100_000,
     "eyJ" * 50_000, "-----BEGIN PRIVATE KEY-----" * 5_000, "login login password " * 20_000, "cookie=" * 30_000],
)  # fmt: skip
def test_hostile_lines_take_seconds(text: str) -> None:
    began = time.perf_counter()
    scrubbed(text)
    assert time.perf_counter() - began < 20


def test_accounts_of_mounts_go_and_what_else_is_called_a_name_stays() -> None:
    mounts = (
        "//nas/x /mnt/x cifs rw,username=dana,domain=CORPNET,vers=3.0 0 0\n"
        "10.1.2.3:6789:/ /mnt/c ceph rw,name=erin,acl 0 0\n"
        "filer7:/export /mnt/n nfs4 rw,addr=10.1.2.4 0 0\n"
        "cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n"
    )
    result = scrubbed(mounts, "read /proc/self/mounts")
    for name in ("nas", "dana", "CORPNET", "10.1.2", "erin", "filer7"):
        assert name not in result, name
    assert "cgroup rw,name=systemd 0 0" in result
    assert ",vers=3.0 0 0" in result


def test_thousands_of_names_and_a_long_log_take_seconds() -> None:
    pick = random.Random(7)
    names = ["".join(pick.choices(string.ascii_lowercase, k=9)) for _ in range(20_000)]
    lines = [
        f"[{number}.123456] app[{number}]: /home/{name}/run began and ended well"
        for number, name in enumerate(names)
    ]
    text = "\n".join(lines * 3)
    began = time.perf_counter()
    result = scrubbed(text)
    assert time.perf_counter() - began < 20
    assert not any(f"/home/{name}/" in result for name in names[:200])


# Addresses.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ip=10.0.0.5::10.0.0.1:255.255.255.0:x:eth0", "ip=192.0.2.1::192.0.2.2:255.255.255.0:x:eth0"),
        ("8.8.8.8 and 10.0.0.5/24 and 8.8.8.8.", "192.0.2.1 and 192.0.2.2/24 and 192.0.2.1."),
        ("from 10.0.0.5-10.0.0.9", "from 192.0.2.1-192.0.2.2"),
        ("127.0.0.1 0.0.0.0", "127.0.0.1 0.0.0.0"),
        ("fe80::5054:ff:fe12:3456%eth0", "2001:db8::1%eth0"),
        ("2600:1f14:abc:de00:1:2:3:4/64 ::1", "2001:db8::1/64 ::1"),
        ("52:54:00:12:34:56", "02:00:00:00:00:01"),
        ("52-54-00-12-34-5E 5254.0012.345e", "02-00-00-00-00-01 0200.0000.0001"),
        ("BOOTIF=01-52-54-00-12-34-56", "BOOTIF=01-02-00-00-00-00-01"),
        ("cdc_ether eth0: 82:8c:fc:a8:df:e8 enx828cfca8dfe8", "cdc_ether eth0: 02:00:00:00:00:01 enx020000000001"),
    ],
)  # fmt: skip
def test_addresses(text: str, expected: str) -> None:
    assert scrubbed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "0000:9b:00.0 PCI:0000:9b:00 00000000:9B:00.0 9b:00.0 10de:2335",
        "580.159.04 12.8 2.28.3-1+cuda13.0 6.8.0-60-generic",
        "version 12.4.5.8, nvidia-cublas-cu12==12.4.5.8, libcudnn.so.9.14.0.64, 9.14.0.64-1",
        "nvidia_cublas_cu12-12.4.5.8.dist-info nvidia_cublas_cu12-12.4.5.8-py3-none-linux.whl",
        "96.00.a5.00.1a G520.0280.00.06 96.00.49.00",
        "0-31,64-95 CPU 12:34:56 2025-01-21T04:41:44,285060+00:00",
        "[   12.345678] std::vector c10::Error a::b 1::2",
        "/sys/bus/pci/devices/0000:9b:00.0/numa_node /proc/sys/vm/swappiness",
        "GPU-00000000-0000-4000-8000-000000000001 root=UUID=3f1c2a9e-0c1f-4f57-9b8e-0d5f5c0a1b2c",
        "iommu=pt crashkernel=512M-:192M BOOT_IMAGE=(hd0,gpt2)/vmlinuz-6.8.0",
        "Loaded X.509 cert 'Build time autogenerated kernel key: 4a5b6c7d8e9f'",
    ],
)
@pytest.mark.parametrize("question", ["kmsg", "read /proc/cmdline", "read /proc/self/mounts"])
def test_what_only_looks_like_a_name_stays(text: str, question: str) -> None:
    assert scrubbed(text, question) == text


def test_a_version_that_looks_like_an_address_stays_where_it_is_called_one() -> None:
    stored = recording(interpreter={"describe": {"items": {"cudnn": "9.14.0.64", "gateway": "9.14.0.64"}}})
    items = scrub(stored)[0]["interpreter"]["describe"]["value"]["items"]
    assert items == {"cudnn": "9.14.0.64", "gateway": "192.0.2.1"}


def test_configuration_space_is_left_alone() -> None:
    stored = recording(files={"hex /sys/bus/pci/devices/0000:00:01.0/config": "de10" * 64})
    assert scrub(stored)[0] == stored


# Secrets.

WORD = st.text(string.ascii_letters + string.digits, min_size=20, max_size=40)
PASSWORD = st.text(string.ascii_letters + string.digits + "!$%^*+,.;:#~|/-_", min_size=8, max_size=30)
SHAPED = st.one_of(
    st.builds("hf_{}".format, WORD),
    st.builds("ghp_{}".format, WORD),
    st.builds("github_pat_{}".format, WORD),
    st.builds("glpat-{}".format, WORD),
    st.builds("nvapi-{}".format, WORD),
    st.builds("sk-proj-1{}".format, WORD),
    st.builds("xoxb-{}".format, WORD),
    st.builds("eyJ{0}.eyJ{0}.{0}".format, WORD),
    st.builds("AKIA{}".format, st.text(string.ascii_uppercase + string.digits, min_size=16, max_size=16)),
)
NAMED = (
    "password={}", "db_password={}", "rd.luks.key={}", "token={}", "api_key={}", "API-KEY: {}", "secret = {}",
    "Authorization: Bearer {}", "https://user:{}@host.example.org/x", "systemd.set_credential=db:{}",
    "pwd={}", "init_pw:{}", "db_pwd = {}",
    "--token {}", '"access_key": "{}"', "psk={}", "HF_TOKEN={}", "aws_secret_access_key={}",
)  # fmt: skip
PLACES = (
    "[   12.345678] systemd[1]: Command line: {} quiet",
    "{}",
    "root=/dev/sda1 {} ro",
    "a line\n{}\nanother",
)


@given(
    SHAPED, st.sampled_from(PLACES), st.sampled_from(["kmsg", "read /proc/cmdline", "read /etc/nccl.conf"])
)
def test_a_secret_that_shows_by_its_shape_does_not_survive(secret: str, place: str, question: str) -> None:
    assert secret not in scrubbed(place.format(secret), question)


@given(PASSWORD, st.sampled_from(NAMED), st.sampled_from(PLACES), st.booleans())
def test_a_secret_that_is_called_one_does_not_survive(
    secret: str, named: str, place: str, keep_identity: bool
) -> None:
    if "://" in named or '"' in named:
        secret = secret.replace("/", "x")
    if "Bearer" in named:
        secret = secret.replace(",", "x").replace(";", "x")
    result = scrubbed(place.format(named.format(secret)), keep_identity=keep_identity)
    assert secret not in result
    assert REDACTED in result


@given(PASSWORD.map(lambda secret: secret.replace(",", "x")))
def test_a_secret_among_mount_options_takes_no_option_with_it(secret: str) -> None:
    line = "//nas/x /mnt/x cifs ro,username=alice,password={},vers=3.0 0 0\n"
    result = scrubbed(line.format(secret), "read /proc/self/mounts")
    assert result == "//host-2/x /mnt/x cifs ro,username=user-1,password=[redacted],vers=3.0 0 0\n"


@given(
    WORD,
    st.sampled_from(["NVIDIA_API_KEY", "TORCH_TOKEN", "CUDA_PASSWORD", "NV_ACCESS_KEY_ID", "UCX_SECRET"]),
)
def test_a_variable_that_is_called_a_secret_is_one(secret: str, name: str) -> None:
    result = scrub(recording(process={"environment": {name: secret, "UCX_IB_PKEY": "0x7fff"}}))[0]
    assert result["process"]["environment"]["value"] == {name: REDACTED, "UCX_IB_PKEY": "0x7fff"}


@given(WORD)
def test_other_variables_of_other_processes_do_not_survive(secret: str) -> None:
    environ = f"HOME=/root\0MY_THING={secret}\0container=docker\0NCCL_DEBUG=INFO\0"
    assert scrubbed(environ, "read /proc/1/environ") == "container=docker\0NCCL_DEBUG=INFO"


def test_a_long_random_word_among_settings_is_a_secret() -> None:
    word = "Zk3mQ9xT7vB2nL5pR8sW1yD4gH6jK0aC"
    assert word not in scrubbed(f"join={word}", "read /proc/cmdline")
    assert "GPU-1c2d3e4f-0000-4000-8000-ABCDEF000001" in scrubbed(
        "CUDA_VISIBLE_DEVICES=GPU-1c2d3e4f-0000-4000-8000-ABCDEF000001", "read /proc/cmdline"
    )


@pytest.mark.parametrize(
    "text",
    [
        "PGPASSWORD Zk3mQ9xT", "DB_PASSWORD  Zk3mQ9xT", "mount //bob:Zk3mQ9xT@nas/x",
        "netroot=iscsi:bob:Zk3mQ9xT@10.0.0.1::::x",
        "https://hooks.slack.com/services/T0000/B0000/Zk3mQ9xT",
    ],
)  # fmt: skip
def test_further_places_of_secrets(text: str) -> None:
    result = scrubbed(text, keep_identity=True)
    assert "Zk3mQ9xT" not in result
    assert REDACTED in result


def test_pairs_of_a_variable_and_its_value() -> None:
    pairs = [["NCCL_TOKEN", "Zk3mQ9xT"], ["NCCL_DEBUG", "INFO"], ["UCX_IB_PKEY", "0x7fff"], ["key", "value"]]
    result = scrub(recording(interpreter={"describe": {"settings": pairs}}))[0]
    expected = [["NCCL_TOKEN", REDACTED], *pairs[1:]]
    assert result["interpreter"]["describe"]["value"] == {"settings": expected}


@pytest.mark.parametrize(
    "text", ["PWD=/work OLDPWD=/tmp", "PASSWORD: ", "a//b //host/share", "iscsi: registered transport (tcp)"]
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert scrubbed(text) == text


def test_a_private_key_goes_whole() -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAAB3NzaC1yc2E\n-----END OPENSSH PRIVATE KEY-----"
    assert scrubbed(f"before\n{key}\nafter") == f"before\n{REDACTED}\nafter"


# Options.


def test_identity_may_stay_but_secrets_go() -> None:
    text = "gpu17 10.0.0.5 fe80::5054:ff:fe12:3456 52:54:00:12:34:56 /home/alice/x password=hunter22"
    assert scrubbed(text, keep_identity=True) == text.replace("hunter22", REDACTED)


def test_serials_stay_unless_they_are_to_go() -> None:
    uuid = "1c2d3e4f-aaaa-4bbb-8ccc-abcdef000001"
    stored = recording(
        nvml={"survey": {"nvmlDeviceGetUUID(0)": f"GPU-{uuid}", "nvmlDeviceGetSerial(0)": "1650124014249"}},
        interpreter={f"context GPU-{uuid}": {"items": {}}, "describe": {"devices": [{"uuid": uuid}]}},
        files={
            "kmsg": f"NVRM: GPU at PCI:0000:9b:00: GPU-{uuid.upper()}\nNVRM: GPU Board Serial Number: 1650124014249",
            "read /sys/class/dmi/id/product_serial": "S412345X\n",
        },
    )
    assert scrub(stored)[0] == stored
    result = scrub(stored, scrub_serials=True)[0]
    changed = json.dumps(result)
    assert uuid not in changed.lower()
    assert "1650124014249" not in changed
    new = "GPU-00000000-0000-4000-8000-000000000001"
    assert result["nvml"]["survey"]["value"]["nvmlDeviceGetUUID(0)"] == new
    assert f"context {new}" in result["interpreter"]
    assert result["interpreter"]["describe"]["value"]["devices"] == [{"uuid": new.removeprefix("GPU-")}]
    serial = result["nvml"]["survey"]["value"]["nvmlDeviceGetSerial(0)"]
    assert len(serial) == 13
    assert serial.isdigit()
    assert result["files"]["kmsg"]["value"].endswith(serial)
    assert "412345" not in changed


def test_amds_numbers_of_cards_go_in_every_form_they_are_written_in() -> None:
    """KFD writes them as decimal numbers, HIP and the tools in three other ways."""
    number, hive = 0x0A3B_5C6D_7E8F_9012, 0x5C9F_2A1B_3D4E_6F70
    static = [
        {"gpu": 0, "asic": {"asic_serial": f"0x{number:016X}"}, "board": {"product_serial": "692325000017"}}
    ]
    stored = recording(
        files={
            "read /sys/class/kfd/kfd/topology/nodes/2/properties": f"unique_id {number}\nhive_id {hive}\n"
        },
        commands={
            "amd_smi_static": {"stdout": json.dumps(static)},
            "amd_smi_list": {"stdout": '[{"gpu": 0, "uuid": "0aff74a1-0000-1000-8012-0a3b5c6d7e8f"}]'},
            "rocm_smi": {"stdout": json.dumps({"card0": {"Unique ID": f"0x{number:x}"}})},
        },
        amdsmi={"survey": {"amdsmi_get_xgmi_info(0)": {"value": {"xgmi_hive_id": hive}}}},
        process={"environment": {"ROCR_VISIBLE_DEVICES": f"GPU-{number:016x}"}},
        interpreter={f"context GPU-{number:016x}": {"items": {}}},
    )
    assert scrub(stored)[0] == stored
    result = scrub(stored, scrub_serials=True)[0]
    changed = json.dumps(result).lower()
    for form in (f"{number:x}", str(number), f"{hive:x}", str(hive), "692325000017", "7e8f"):
        assert form not in changed
    environment = result["process"]["environment"]["value"]
    name = environment["ROCR_VISIBLE_DEVICES"]
    assert f"context {name}" in result["interpreter"]
    kfd = result["files"]["read /sys/class/kfd/kfd/topology/nodes/2/properties"]["value"]
    assert kfd.startswith(f"unique_id {int(name.removeprefix('GPU-'), 16)}\n")
    assert name.removeprefix("GPU-") in changed.split("rocm_smi")[1]


def test_counts_say_what_was_replaced() -> None:
    stored = recording(
        process={"uname": {"node": "gpu17"}}, files={"kmsg": "gpu17 10.0.0.5 /home/alice token=abcdef"}
    )
    assert scrub(stored)[1] == {"host": 1, "ipv4": 1, "user": 1, "secret": 1}


# Properties.

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=40), JSON, max_size=5), st.booleans(), st.booleans())
def test_any_answers_come_out_as_json(answers: dict[str, Json], keep: bool, serials: bool) -> None:
    stored = {name: dict(answers) for name in NAMES}
    result = scrub(stored, keep_identity=keep, scrub_serials=serials)[0]
    json.dumps(result, allow_nan=False)
    assert result.keys() == stored.keys()


@given(st.lists(st.from_regex(r"[a-z]{4,8}[0-9]{2}", fullmatch=True), min_size=1, max_size=6, unique=True))
def test_different_users_stay_different(names: list[str]) -> None:
    text = " ".join(f"/home/{name}/x" for name in names)
    assert len(set(scrubbed(text).split())) == len(names)


# Whole nodes.

ALICE = "/home/alice/miniconda3/envs/work"


def planted(kind: Any) -> fake_nodes.FakeNode:
    node = fake_nodes.healthy("h200x2", kind=kind)
    node.process["uname"]["node"] = "gpu17.dc3.example.com"
    node.tree.files["/proc/sys/kernel/hostname"] = "gpu17\n"
    node.set_environment(
        PATH=f"{ALICE}/bin:/usr/bin", NCCL_SOCKET_IFNAME="eth0", NCCL_TOPO_FILE="/home/alice/topo.xml",
        KUBERNETES_SERVICE_HOST="10.96.0.1",
    )  # fmt: skip
    cmdline = node.tree.files["/proc/cmdline"]
    assert isinstance(cmdline, str)
    node.tree.files["/proc/cmdline"] = f"{cmdline.strip()} ip=10.20.30.40:::::eth0 root_password=hunter22\n"
    if kind != "container":
        node.log(
            f"NVRM: Xid (PCI:{nvml.addresses(PRODUCTS['h200'], 2)[0][:-2]}): 31, pid=7, name=python, Ch 8",
            "systemd[1]: Hostname set to <gpu17>.",
            "mlx5_core 0000:5c:00.0 eth2: Link down at 10.20.30.40",
        )
    return node


@pytest.mark.skipif(not nvml.compiler(), reason="no C compiler here")
@pytest.mark.parametrize("kind", ["bare", "guest", "container"])
def test_the_facts_of_a_scrubbed_recording_are_those_of_the_node(kind: Any, tmp_path: Path) -> None:
    channels = recorders(planted(kind).channels(Ground(tmp_path / "node")))
    seen = Probing(Sources.over(dict(channels)), "quick").run()
    answers = {name: recorder.answers for name, recorder in channels.items()}
    result, _ = scrub(answers)
    written = json.dumps(result)
    for name in ("gpu17", "example.com", "alice", "10.20.30.40", "10.96.0.1", "hunter22"):
        assert name not in written, name

    again = Probing(Sources.recorded(result), "quick", taken_at=seen.taken_at).run()
    expected = seen.model_dump_json()
    for name, pseudonym in (
        ("gpu17.dc3.example.com", "host-1"), ("gpu17", "host-1"), ("alice", "user-1"), ("hunter22", REDACTED),
    ):  # fmt: skip
        expected = expected.replace(name, pseudonym)
    given_addresses = {"10.20.30.40", "10.96.0.1"}
    for address in sorted(given_addresses):
        pseudonym = next(p for p in ("192.0.2.1", "192.0.2.2") if p not in expected)
        expected = expected.replace(address, pseudonym)
    unordered = again.model_dump_json()
    if unordered != expected:  # the two addresses may have been met in the other order
        expected = (
            expected.replace("192.0.2.1", "?").replace("192.0.2.2", "192.0.2.1").replace("?", "192.0.2.2")
        )
    assert json.loads(unordered) == json.loads(expected)
