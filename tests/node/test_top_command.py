"""`aliquot top` before a real API server, and before a page that is played."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.names import Names
from aliquot_core.quantities import MiB, Percent
from aliquot_standalone.apiserver.embedded import kubeconfig
from support.embedded_thread import embedded_server
from support.http_api import LONG_S, HttpApi
from support.large_cluster import capacity, inventory_note, lease_manifest, node_names
from support.scripted_http import Exchange, ScriptedServer
from support.small_machine import COMMAND
from support.top_scene import busy

NAMES = Names()
PODS = "/api/v1/namespaces/default/pods"
NODE = node_names(1)[0]


@pytest.fixture(scope="module")
def api() -> Iterator[HttpApi]:
    """A node of two GPUs with one pod on it, and one that waits."""
    with embedded_server() as url:
        api = HttpApi(url=url)
        api.post("/api/v1/namespaces", {"metadata": {"name": NAMES.namespace}}).ok()
        metadata = {"name": NODE, "annotations": inventory_note(NODE, cards=2)}
        api.post("/api/v1/nodes", {"metadata": metadata, "status": {"capacity": capacity(2)}}).ok()
        api.post(f"/apis/coordination.k8s.io/v1/namespaces/{NAMES.namespace}/leases", lease_manifest(NODE)).ok()
        place(api, "holds")
        waits = api.post(PODS, asking("waits", gates=[{"name": NAMES.gate}])).ok()
        said = {"type": NAMES.admitted, "status": "False", "reason": "NoRoom", "message": "not before noon"}
        name = waits["metadata"]["name"]
        api.patch(f"{PODS}/{name}/status", {"status": {"conditions": [said]}}).ok()
        yield api


def asking(name: str, *, gates: list[dict[str, str]] | None = None) -> dict[str, Any]:
    """A pod that asks for a slice."""
    limits = {NAMES.compute: "30", NAMES.memory: "8000"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "schedulingGates": gates or []}}


def place(api: HttpApi, name: str) -> None:
    """Bind a pod with a grant, as the centre does."""
    pod = api.post(PODS, asking(name)).ok()
    uuid = json.loads(next(iter(inventory_note(NODE, cards=2).values())))["gpus"][0]["uuid"]
    slices = (Slice(gpu=uuid, compute=Percent(30), limit=Percent(30), memory=MiB(8000)),)
    grant = Grant(
        node=NODE, pod=pod["metadata"]["uid"], containers={"main": ContainerGrant(slices=slices, isolation="observe")}
    )
    binding = {"metadata": {"name": name, "annotations": {NAMES.grant: encode_grant(grant)}}, "target": {"name": NODE}}
    api.post(f"{PODS}/{name}/binding", binding).ok()


def environment(api: HttpApi, folder: Path) -> Mapping[str, str]:
    """A user whose kubeconfig names the server."""
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig(api.url)))
    return {**os.environ, "KUBECONFIG": str(folder / "kubeconfig"), "COLUMNS": "120", "LANG": "C.UTF-8"}


def once(api: HttpApi, folder: Path, *arguments: str) -> list[str]:
    """What it prints to a pipe."""
    done = subprocess.run(
        [COMMAND, "top", "--once", *arguments],
        env=environment(api, folder),
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_cluster_is_made_anew_of_what_the_api_has(api: HttpApi, tmp_path: Path) -> None:
    """Who holds what of each GPU, and that its use is not known."""
    lines = once(api, tmp_path)
    assert "1 node  2 GPUs  1 runs  1 waits" in lines[0]
    assert "compute 15 % granted" in lines[1]
    assert "use is not known here" in lines[1]
    assert lines[4].split()[0] == NODE[: len(lines[4].split()[0])]
    assert lines[4].endswith("holds")
    assert "▏▓" in lines[4]
    assert "\033" not in "".join(lines)


def test_who_waits_is_told_in_the_leader_s_words(api: HttpApi, tmp_path: Path) -> None:
    """As they stand on the pod."""
    lines = once(api, tmp_path, "waiting")
    assert lines[4].startswith("default/waits")
    assert lines[4].endswith("not before noon")


def test_what_it_lists_is_printed_in_every_form(api: HttpApi, tmp_path: Path) -> None:
    """Once, as it was chosen to be seen: for programs, for other commands, and with every column for people."""

    def answer(exchange: Exchange) -> None:
        exchange.answer(200, body=msgspec.json.encode(busy(nodes=2)))

    with ScriptedServer(answer) as server:
        asked = ["--page", server.url, "--filter", "a100-001"]
        found = json.loads("".join(once(api, tmp_path, *asked, "-o", "json")))
        assert yaml.safe_load("\n".join(once(api, tmp_path, *asked, "-o", "yaml"))) == found
        assert once(api, tmp_path, *asked, "-o", "name") == [f"gpu/{gpu['uuid']}" for gpu in found]
        narrow, wide = once(api, tmp_path, *asked), once(api, tmp_path, *asked, "-o", "wide")
    assert {gpu["node"] for gpu in found} == {"a100-001"}
    assert max(map(len, narrow)) <= 120 < max(map(len, wide))
    assert not [line for line in wide if "…" in line]
    assert once(api, tmp_path, "pods", "-o", "name") == ["pod/holds", "pod/waits"]
    assert once(api, tmp_path, "waiting", "-o", "name") == ["pod/waits"]


def test_the_page_is_asked_where_it_is_named(api: HttpApi, tmp_path: Path) -> None:
    """It knows what is used."""

    def answer(exchange: Exchange) -> None:
        exchange.answer(200, body=msgspec.json.encode(busy(nodes=1)))

    with ScriptedServer(answer) as server:
        lines = once(api, tmp_path, "--page", server.url, "--filter", "a100-001")
        assert server.requests[0].path == "/page/state.json"
    assert "% used" in lines[1]
    assert "from the page" in lines[2]
    assert len(lines) == 4 + 8


def test_a_page_that_is_none_is_said_to_be(api: HttpApi, tmp_path: Path) -> None:
    """Whoever named it is not shown something else."""
    with ScriptedServer(lambda exchange: exchange.answer(200, body=b"<html>")) as server:
        done = subprocess.run(
            [COMMAND, "top", "--once", "--page", server.url],
            env=environment(api, tmp_path),
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
        )
    assert done.returncode == 4
    assert "no page of this version answers" in done.stderr


def test_it_shows_itself_on_a_real_terminal_and_ends_by_a_key(api: HttpApi, tmp_path: Path) -> None:
    """Bytes of a pseudo terminal: bars come, q ends it, and the terminal is given back."""
    leader, follower = pty.openpty()
    given = {**environment(api, tmp_path), "TERM": "xterm-256color"}
    with subprocess.Popen([COMMAND, "top"], env=given, stdin=follower, stdout=follower, stderr=follower) as process:
        os.close(follower)
        seen = read_until(leader, b"holds")
        os.write(leader, b"q")
        rest = read_until(leader, b"\033[?1049l")
        assert process.wait(LONG_S) == 0
    os.close(leader)
    assert "▏".encode() in seen
    # The other screen is left, and the user's own is there again.
    assert rest.count(b"\033[?1049l") >= 1


def read_until(terminal: int, wanted: bytes) -> bytes:
    """What it writes up to something."""
    seen = b""
    while wanted not in seen:
        assert select.select([terminal], [], [], LONG_S)[0], seen[-500:]
        seen += os.read(terminal, 65_536)
    return seen
