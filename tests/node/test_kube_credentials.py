"""Every way in which the API server's address and our credentials are found, through the official client's loaders."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from pathlib import Path
from typing import Any

import kubernetes.config.incluster_config as incluster
import pytest
from kubernetes.client import Configuration

from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.errors import UnconfiguredError
from aliquot_kube.transport import HttpTransport, Question
from support.http_api import LONG_S
from support.scripted_http import Exchange, ScriptedServer

GET = Question(method="GET", path="/")


def write_kubeconfig(folder: Path, *, server: str, user: dict[str, Any]) -> str:
    """Write a kubeconfig (JSON is YAML) and give its path."""
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(config))
    return str(path)


def write_plugin(folder: Path, *, expires: str) -> str:
    """Write an exec plugin that gives another token at each call."""
    path = folder / "plugin"
    path.write_text(
        f"""#!/bin/sh
echo x >> {folder}/calls
n=$(wc -l < {folder}/calls)
echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",
"status":{{"token":"token-'$n'","expirationTimestamp":"{expires}"}}}}'
"""
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


async def tokens_sent(server: ScriptedServer, credentials: Credentials, *, requests: int) -> list[str]:
    """Ask so often and say with which tokens."""
    transport = HttpTransport(credentials=credentials)
    for _ in range(requests):
        await transport.request(GET)
    await transport.close()
    return [request.headers.get("authorization", "") for request in server.requests]


@pytest.mark.parametrize(
    ("expires", "expected"),
    [
        ("2001-01-01T00:00:00Z", ["Bearer token-2", "Bearer token-3"]),
        ("2999-01-01T00:00:00Z", ["Bearer token-1", "Bearer token-1"]),
    ],
)
async def test_exec_plugin_runs_again_when_its_token_expired(tmp_path: Path, expires: str, expected: list[str]) -> None:
    """A kubeconfig's exec plugin gives the token, and is asked again only once that has expired."""
    exec_user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": write_plugin(tmp_path, expires=expires),
            "interactiveMode": "Never",
        }
    }
    with ScriptedServer(lambda exchange: exchange.answer(200)) as server:
        path = write_kubeconfig(tmp_path, server=server.url, user=exec_user)
        assert (
            await tokens_sent(server, Credentials(lambda: load_configuration(kubeconfig=path)), requests=2) == expected
        )


async def test_a_kubeconfig_that_says_as_whom_to_act_is_followed(tmp_path: Path) -> None:
    """`as` is passed on with all its groups: who may do little by a kubeconfig must not do what its token may."""
    user = {"token": "abc", "as": "eve", "as-groups": ["a", "b"], "as-uid": "u1", "as-user-extra": {"x/y": ["1", "2"]}}
    with ScriptedServer(lambda exchange: exchange.answer(200)) as server:
        path = write_kubeconfig(tmp_path, server=server.url, user=user)
        await tokens_sent(server, Credentials(lambda: load_configuration(kubeconfig=path)), requests=1)
        (asked,) = server.requests
    assert asked.headers["authorization"] == "Bearer abc"
    assert {name: told for name, told in asked.headers.items() if name.startswith("impersonate-")} == {
        "impersonate-user": "eve",
        "impersonate-uid": "u1",
        "impersonate-group": "a, b",
        "impersonate-extra-x%2fy": "1, 2",
    }


async def test_environment_names_the_kubeconfig(tmp_path: Path) -> None:
    """`KUBECONFIG` is used where no file is given, also inside a pod."""
    with ScriptedServer(lambda exchange: exchange.answer(200)) as server:
        path = write_kubeconfig(tmp_path, server=server.url, user={"token": "abc"})
        environ = {"KUBECONFIG": path, "KUBERNETES_SERVICE_HOST": "192.0.2.1"}
        assert await tokens_sent(server, Credentials(lambda: load_configuration(environ=environ)), requests=1) == [
            "Bearer abc"
        ]


async def test_in_a_pod_the_service_account_is_used_and_its_token_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mounted token is sent without its newline; one that the kubelet renewed is picked up."""
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    authority.write_text("unused by plain http")
    monkeypatch.setattr(incluster, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    configuration = load_configuration(environ={"KUBERNETES_SERVICE_HOST": "192.0.2.1"})
    assert configuration.host == "https://192.0.2.1:443"
    assert configuration.ssl_ca_cert == str(authority)
    key = configuration.get_api_key_with_prefix("BearerToken")
    assert key is not None
    assert key.split() == ["bearer", "first"]


GARBLED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "no YAML": (b"{", "is not a kubeconfig that can be used: while parsing a flow node expected the node content"),
    "a word": (b"just text", "is not a kubeconfig;"),
    "a list": (b"[]", "is not a kubeconfig;"),
    "no text": (b"\xff\xfe\x00", "is not a kubeconfig that can be used: 'utf-8' codec can't decode"),
    "no context": (b"apiVersion: v1\nkind: Config\n", "Expected key current-context"),
}


@pytest.mark.parametrize("row", GARBLED)
def test_useless_kubeconfig_is_named(tmp_path: Path, row: str) -> None:
    """Whatever is wrong with a kubeconfig, one line names the file, the trouble and what to do."""
    content, words = GARBLED[row]
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)
    with pytest.raises(UnconfiguredError) as caught:
        load_configuration(kubeconfig=str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)
    assert "name a kubeconfig (--kubeconfig, KUBECONFIG)" in caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("contexts", "told"),
    [(["here", "there"], "there are here, there"), ([], "there is none at all")],
)
def test_a_context_that_is_not_there_is_told_with_those_that_are(
    tmp_path: Path, contexts: list[str], told: str
) -> None:
    """In words of ours, for a person who has mistyped it."""
    known = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in contexts]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "contexts": known, "current-context": "here"}))
    with pytest.raises(UnconfiguredError) as caught:
        load_configuration(kubeconfig=str(path), context="nope")
    assert str(caught.value) == f"{path}: it has no context nope; {told}"


def test_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing file and a folder in its place say just that."""
    with pytest.raises(UnconfiguredError, match="missing: can't be read: there is no such file; name a kubeconfig"):
        load_configuration(kubeconfig=str(tmp_path / "missing"))
    with pytest.raises(UnconfiguredError, match="can't be read: Is a directory"):
        load_configuration(environ={"KUBECONFIG": str(tmp_path)})


def test_outside_a_pod_nobody_s_own_kubeconfig_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent started by mistake on a person's machine must not act as that person."""
    (tmp_path / ".kube").mkdir()
    write_kubeconfig(tmp_path / ".kube", server="http://127.0.0.1:1", user={"token": "mine"})
    (tmp_path / ".kube" / "kubeconfig").rename(tmp_path / ".kube" / "config")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UnconfiguredError, match="no kubeconfig is given, and this is no pod"):
        load_configuration(environ={})


def test_pod_without_its_token_is_told_so() -> None:
    """The service account is meant, so its remedy is named first."""
    with pytest.raises(UnconfiguredError, match=r"service account: .*automountServiceAccountToken"):
        load_configuration(environ={"KUBERNETES_SERVICE_HOST": "192.0.2.1"})


def test_failing_exec_plugin_is_named(tmp_path: Path) -> None:
    """A plugin that can't be run is an error, and not a client without credentials."""
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(tmp_path / "missing")}}
    path = write_kubeconfig(tmp_path, server="https://127.0.0.1:1", user=user)
    with pytest.raises(UnconfiguredError, match="exec plugin"):
        load_configuration(kubeconfig=path)


async def test_a_burst_keeps_its_connections_for_the_next_one(tmp_path: Path) -> None:
    """The centre's 32 threads bind over connections that are there: each new one would be a TLS handshake."""
    together = threading.Barrier(32)

    def answer(exchange: Exchange) -> None:
        together.wait(timeout=LONG_S)
        exchange.answer(200, b"{}")

    with ScriptedServer(answer) as server:
        path = write_kubeconfig(tmp_path, server=server.url, user={"token": "abc"})
        transport = HttpTransport(credentials=Credentials(lambda: load_configuration(kubeconfig=path)), workers=32)
        for _ in range(2):
            await asyncio.gather(*(transport.request(GET) for _ in range(32)))
        assert len(server._connections) == 32
        await transport.close()


async def test_token_that_can_not_be_refreshed_is_named() -> None:
    """Whatever the official client raises on its way to a fresh token becomes our own error."""

    def refuse(_: Configuration) -> None:
        raise FileNotFoundError("token is gone")

    configuration = Configuration(host="http://127.0.0.1:1")
    configuration.refresh_api_key_hook = refuse  # type: ignore[assignment]  # declared as None by them
    transport = HttpTransport(credentials=Credentials(lambda: configuration))
    with pytest.raises(UnconfiguredError, match="token is gone"):
        await transport.request(GET)
    await transport.close()
