"""Who may speak to the API server: its certificate, its tokens, and kubeconfig files."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

ADMIN = "admin"
MASTERS = "system:masters"
NODES = "system:nodes"


class Credentials:
    """The certificate of the API server, the key that signs service account tokens, and fixed tokens per user."""

    def __init__(self, *, folder: Path, node_names: Iterable[str]) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self.certificate = folder / "apiserver.crt"
        self.key = folder / "apiserver.key"
        self.account_key = folder / "accounts.key"
        self.token_file = folder / "tokens.csv"
        self.tokens = {
            user: secrets.token_hex(16)
            for user in (
                ADMIN,
                "system:kube-scheduler",
                "system:kube-controller-manager",
                *(f"system:node:{name}" for name in node_names),
            )
        }
        self._make_keys()
        lines = (f'{token},{user},{user},"{_group_of(user)}"\n' for user, token in self.tokens.items())
        self.token_file.write_text("".join(lines))

    def kubeconfig(
        self, server: str, *, user: str = ADMIN, token: str = "", groups: Sequence[str] = (), path: Path | None = None
    ) -> Path:
        """Write a kubeconfig for a user: by this token, by the user's fixed one, or impersonated by the admin."""
        credential: dict[str, object] = {"token": token or self.tokens.get(user) or self.tokens[ADMIN]}
        if not token and user not in self.tokens:
            credential |= {"as": user, "as-groups": [*groups, "system:authenticated"]}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": server, "certificate-authority": str(self.certificate)}}
            ],
            "users": [{"name": user, "user": credential}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        file = path or self.folder / f"{user.replace(':', '-')}-{secrets.token_hex(4)}.kubeconfig"
        file.write_text(json.dumps(config, indent=1))
        return file

    def _make_keys(self) -> None:
        """Make them on elliptic curves, in milliseconds; a certificate that signs itself does for one server."""
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        names = "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc"
        subject = ["-subj", "/CN=aliquot-test-apiserver", "-addext", names, "-days", "2"]
        files = ["-keyout", str(self.key), "-out", str(self.certificate)]
        _openssl("req", "-x509", *curve, *subject, *files)
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(self.account_key))


def _group_of(user: str) -> str:
    if user == ADMIN:
        return MASTERS
    return NODES if user.startswith("system:node:") else ""


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
