"""The ways of a process to its API server: without the official client where address and token are all there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from aliquot_cli.ways import Ways, ways_of_a_node, ways_of_the_centre
from aliquot_kube.plain import PlainTransport
from aliquot_kube.swift import SwiftTransport
from aliquot_kube.transport import HttpTransport
from aliquot_standalone.apiserver.embedded import kubeconfig
from support.clocks import VirtualClock

PLAIN, TLS = "http://127.0.0.1:1", "https://127.0.0.1:1"
PROBE = "import sys, aliquot_cli.scheduler, aliquot_cli.agent; print('kubernetes' in sys.modules)"


async def kinds(ways: Ways) -> tuple[type, type]:
    """What they are, once closed."""
    for way in ways:
        await way.close()
    return type(ways[0]), type(ways[1])


@pytest.mark.parametrize(
    ("url", "centre", "node"),
    [
        (PLAIN, (PlainTransport, PlainTransport), (PlainTransport, PlainTransport)),
        (TLS, (SwiftTransport, HttpTransport), (HttpTransport, HttpTransport)),
    ],
)
async def test_the_way_is_the_lightest_that_leads_there(
    tmp_path: Path, url: str, centre: tuple[type, type], node: tuple[type, type]
) -> None:
    """Plain HTTP for what `aliquot up` writes, the official client's configuration for all else; two ways, not one."""
    file = tmp_path / "kubeconfig"
    file.write_bytes(msgspec.json.encode(kubeconfig(url, token="t")))
    ways = ways_of_the_centre(str(file), user_agent="test", clock=VirtualClock())
    assert ways[0] is not ways[1]
    assert await kinds(ways) == centre
    assert await kinds(ways_of_a_node(str(file), user_agent="test")) == node


def test_centre_and_agent_begin_without_the_official_client() -> None:
    """Its import is 0.35 s of each of them, while somebody waits for `aliquot up`."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=150, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
