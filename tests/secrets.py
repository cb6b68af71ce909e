"""Secrets, names and addresses of many shapes, each in the words around it; all are invented."""

from __future__ import annotations

import base64

_R = "Zk3mQ9xT7vB2nL5pR8sW1yD4gH6jK0aC"
"""What looks random."""
_HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"


def _joined(*parts: str) -> str:
    """In parts, so that nobody's scanner takes a planted secret for a leaked one."""
    return "".join(parts)


SECRETS: dict[str, str] = {
    # What must not survive → the text that it stands in, at `{}`.
    _joined("AKIA", "Q7ZK3M5N8P2R4T6V"): "uses {} for S3",
    _joined("ASIA", "Q7ZK3M5N8P2R4T6W"): "key id {}.",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXA4PLEKE": "aws {} here",
    "wJalrXUtnFEMIK7MDENGbPxRfiCYzEXA4PLEKEYa": "AWS_SECRET_ACCESS_KEY={}",
    _joined("AIza", "SyD4gH6jK0aCZk3mQ9xT7vB2nL5pR8sW1y"): "gcp {}",
    _joined("GOCSPX-", "Zk3mQ9xT7vB2nL5pR8sW1yD4gH6j"): "client {}",
    _joined("ya29.", "a0AfB_byZk3mQ9xT7vB2nL5pR8sW1yD4"): "oauth {}",
    "Zk3mQ9xT7vB2nL5pR8sW1yD4gH6jK0aCZk3mQ9xT7vB2nL5pR8sW1yD4gH6jK0aCZk3mQ9xT7vB2nL5pR8sW1y==": "blob {} end",
    "azureAccKey77zz==": "DefaultEndpointsProtocol=https;AccountKey={};EndpointSuffix=core",
    _joined("abc", "8Q~", "Zk3mQ9xT7vB2nL5pR8sW1yD4gH6jK0aCd"): "azure app {}",
    _joined("ghp_", "16C7e42F292c6912E7710c838347Ae178B4a"): "clone {}",
    _joined("github_pat_", "11AABBCCDDEEFFGGHHII_zzz"): "{}",
    _joined("hf_", "AbCdEfGhIjKlMnOpQrStUvWxYz012345"): "hub {}",
    _HEX: "wandb login --relogin {}",
    _joined("sk-", "proj-4f5G6h7J8k9L0mNbVcXz"): "openai {}",
    _joined("sk-", "ant-api03-4f5G6h7J8k9L0mNbVcXz"): "anthropic {}",
    _joined("xox", "b-123456789012-abcdefGHIJKL"): "slack {}",
    _joined("xapp-", "1-A0123-456789-abcdef0123"): "slack app {}",
    _joined("sk_", "live_4eC39HqLyjWDarjtT1zdp7dc"): "stripe {}",
    _joined("whsec_", "4eC39HqLyjWDarjtT1zdp7dc"): "hook {}",
    _joined("npm_", "4eC39HqLyjWDarjtT1zdp7dcZZZZ"): "registry {}",
    _joined("pypi-", "AgEIcHlwaS5vcmcCJDk4eC39HqLyjWDarjtT1zdp7dcAAABBB"): "twine {}",
    _joined("glpat-", "4eC39HqLyjWDarjtT1zd"): "gitlab {}",
    _joined("nvapi-", "4eC39HqLyjWDarjtT1zd"): "ngc {}",
    _joined("SG.", "4eC39HqLyjWDarjtT1zdZZ.4eC39HqLyjWDarjtT1zdYY"): "mail {}",
    _joined("AQ", "4eC39HqLyjWDarjtT1zdp7dc4eC39HqLyjAA=="): "keyring {}",
    _joined("eyJ", "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVPmB92K27uhbUJU1p1r"): "jwt {}",
    "s3cretPath99": "https://ci:{}@gitlab.example.org/x.git",
    "pg99pAss": "postgres://app:{}@db1.example.org:5432/main",
    "bAsIcTok3n": "https://{}@github.com/x/y",
    "hunter2AAA": "serve --password {} --port 8080",
    "hunter2BBB": "serve --api-key={}",
    "hunter2CCC": "login -p {}",
    "hunter2DDD": "mysql -uroot -p{} db",
    "hunter2EEE": "curl -u alice2:{} https://x.example.org",
    "hunter2FFF": "FOO_KEY={}",
    "hunter2GGG": '{{"password": "{}"}}',
    "hunter2HHH": '{{\\"db_password\\": \\"{}\\", \\"x\\": 1}}',
    "hunter2III": "password: {}",
    "hunter2JJJ": "&quot;token&quot;: &quot;{}&quot;",
    "hunter2KKK x y": 'secret="{}"',
    base64.b64encode(b"alice:hunter2").decode(): "Authorization: Basic {}",
    base64.b64encode(b"bob22:hunter2").decode(): '{{"auths": {{"r.example.org": {{"auth": "{}"}}}}}}',
    "sessionid=hunter2LLL": "Cookie: {}; x=1",
    "hunter2MMM": "machine api.example.org login me password {}",
    f"opaque{_R}": "X-Api-Key: {}",
    "hunter2NNN": "?X-Amz-Signature={}&x=1",
    "hunter2OOO": "PGPASSWORD {}",
    "hunter2PPP": "redis-cli -a {} ping",
    "hunter2QQQ": "echo {} | sudo -S nvidia-smi",
    "hunter2RRR": "openssl rsa -passin pass:{} -in x",
    "hunter2SSS": "the password is {}",
    "hunter2TTT": "serve --pass {}",
    "hunter2UUU": "api key: {}",
    "hunter2VVV": "<password>{}</password>",
    "hunter2WWW": "PASSWORD=$'{}'",
    "hunter2XXX": "WANDB_API_KEY {}",
    "hunter2YYY": "lab --IdentityProvider.token {}",
    "hunter2ZZZ": "Authorization: ApiKey {}",
    "hunter3AAA": 'os.environ["HF_TOKEN"]="{}"',
    "hunter3BBB": "smbclient //nas/x -U bob33%{}",
    "hunter3CCC": "mount -o user=bob33%{} //nas/x",
    "hunter3DDD": "creds={}",
}
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq3pemkey\nQ9xT7vB2nL5pR8sW1ysecondline\n"
    "-----END RSA PRIVATE KEY-----"
)
PEM_LINES = ("MIIEpAIBAAKCAQEA7bq3pemkey", "Q9xT7vB2nL5pR8sW1ysecondline")

IDENTITY: dict[str, str] = {
    "gpu-zeta17": "at gpu-zeta17 now",
    "gpu-zeta17.dc9.corpnet.example.com": "fqdn gpu-zeta17.dc9.corpnet.example.com",
    "gpu-zeta18.dc9.corpnet.example.com": "peer gpu-zeta18.dc9.corpnet.example.com",
    "ovidia": "in /home/ovidia/run7 by ovidia",
    "petrarca": "/Users/petrarca/Library",
    "quintus@loginzz4": "ssh quintus@loginzz4 uptime",
    "rosalind.b+x@mail.example.net": "mail rosalind.b+x@mail.example.net",
    "10.77.3.21": "from 10.77.3.21:22",
    "100.64.9.8": "ip=100.64.9.8::::",
    "fd12:3456:789a:1::42": "v6 fd12:3456:789a:1::42 up",
    "2A02:6B8:0:1:2:3:4:FFAA": "v6 [2A02:6B8:0:1:2:3:4:FFAA]:443",
    "::ffff:10.77.3.22": "mapped ::ffff:10.77.3.22",
    "52:54:00:ab:cd:ef": "mac 52:54:00:ab:cd:ef",
    "52-54-00-AB-CD-EE": "mac 52-54-00-AB-CD-EE",
    "5254.00ab.cdea": "mac 5254.00ab.cdea",
    "10.77.3.23@o2ib": "lustre 10.77.3.23@o2ib:/fs",
    "mdszz01": "mdszz01@o2ib1:/fs",
    "monzz-a": "ceph mon.monzz-a down",
    "nfszz7": "nfs: server nfszz7 not responding, still trying",
    "vaultzz.internal": "to vaultzz.internal:8200",
    "wikizz.corp": "see http://wikizz.corp/page",
    "rankzz0": "NCCL_COMM_ID=rankzz0:29500",
    "rankzz1": "at tcp://rankzz1:29500",
    "NODEZZ2": "SLURMD_NODENAME=NODEZZ2",
    "sallustia": "uid=1017(sallustia) gid=1017",
    "tiberiaa": "Invalid user tiberiaa from 10.77.3.29",
    "ulpianus": "in /home2/ulpianus/x",
    "5254000abcde": "port wlx5254000abcde up",
}
"""What must not survive → a text that it stands in."""


def texts() -> list[str]:
    """Every planted text."""
    return [*(around.format(secret) for secret, around in SECRETS.items()), PEM, *IDENTITY.values()]


def leaks(content: bytes) -> list[str]:
    """Which of them stand in `content`: as they are, escaped for JSON or for HTML, in any case of letters."""
    import html
    import json

    lowered = content.lower()
    found = []
    for secret in (*SECRETS, *PEM_LINES, *IDENTITY):
        ways = {secret, json.dumps(secret)[1:-1], html.escape(secret), secret.replace("/", "\\/")}
        if any(way.lower().encode() in lowered for way in ways):
            found.append(secret)
    return found
