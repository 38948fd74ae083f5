"""The endpoint as a process: what it loads, how it takes signals, how it comes back after being killed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aliquot_agent.pulse_file import EVERY, ailment
from aliquot_deviceplugin.endpoint.settings import EndpointSettings
from aliquot_proto import deviceplugin_v1beta1_pb2 as pb
from support.endpoints import COMPUTE, ScriptedAgent, agent, appears, settings_in, start_process, table
from support.scripted_kubelet import ScriptedKubelet


@contextlib.asynccontextmanager
async def process(settings: EndpointSettings) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run an endpoint; it is gone afterwards."""
    made = await start_process(settings)
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            made.kill()
        await made.wait()


async def test_another_domain(folder: Path, kubelet: ScriptedKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster with a domain of its own gets resources and CDI names of that domain."""
    monkeypatch.setenv("ALIQUOT_NAMES_DOMAIN", "gpus.example.org")
    settings = settings_in(folder)
    resource = "gpus.example.org/compute"
    async with process(settings), agent(settings, ScriptedAgent(), resources={resource: table()}):
        client = await kubelet.until_listed(resource, 200)
        asked = [pb.ContainerAllocateRequest(devices_ids=["0-01"])]
        given = await client.stub.Allocate(pb.AllocateRequest(container_requests=asked))

    assert given.container_responses[0].cdi_devices[0].name.startswith("gpus.example.org/slice=")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_leaves_when_told(folder: Path, kubelet: ScriptedKubelet, number: signal.Signals) -> None:
    """On a signal it ends with success, and the kubelet's stream with it."""
    settings = settings_in(folder)
    async with process(settings) as running:
        async with agent(settings, ScriptedAgent()):
            await kubelet.until_listed(COMPUTE, 200)
        running.send_signal(number)

        assert await asyncio.wait_for(running.wait(), 60) == 0
        await kubelet.until(lambda: COMPUTE not in kubelet.clients)


async def test_whether_it_turns_is_seen_from_outside(folder: Path) -> None:
    """By the file that a probe looks at: as long as it is stopped nothing is heard of it, and then again."""
    settings = settings_in(folder)

    async def expect_heard(*, heard: bool) -> None:
        path, allowed = str(settings.pulse), 2 * EVERY
        while (not ailment(path, allowed=allowed, now=time.time())) is not heard:  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.05)

    async with process(settings) as running:
        await appears(settings.pulse)
        running.send_signal(signal.SIGSTOP)
        await expect_heard(heard=False)
        running.send_signal(signal.SIGCONT)
        await expect_heard(heard=True)


async def test_killed_and_back(folder: Path, kubelet: ScriptedKubelet) -> None:
    """After kill -9, with sockets and lock left lying, the next one registers the same table without an agent."""
    settings = settings_in(folder)
    async with process(settings) as first:
        async with agent(settings, ScriptedAgent(), resources={COMPUTE: table(gpus=3)}):
            await kubelet.until_listed(COMPUTE, 300)
            await appears(Path(settings.state_file))
        first.kill()
        await first.wait()
        await kubelet.until(lambda: COMPUTE not in kubelet.clients)
    async with process(settings):
        assert len((await kubelet.until_listed(COMPUTE, 300)).devices) == 300


def test_loads_little() -> None:
    """It is to stay small: gRPC, its stubs, msgspec, and nothing of Kubernetes, NVML or metrics."""
    listing = "import aliquot_cli.main, aliquot_cli.endpoint, sys; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True).stdout.split()
    packages = {name.partition(".")[0] for name in loaded}

    heavy = {"kubernetes", "pynvml", "prometheus_client", "aiohttp", "urllib3", "pydantic", "yaml", "email"}
    assert packages & heavy == set()
    of_the_agent = {name.removeprefix("aliquot_agent.") for name in loaded if name.startswith("aliquot_agent.")}
    assert of_the_agent <= {"waiting", "whole_file", "pulse_file", "settings", "health", "health.xids"}
    # Time, waiting, and settings that a shared file may hold; nothing that could reach the API server.
    harmless = {"aliquot_kube.clock", "aliquot_kube.pacing", "aliquot_kube.election"}
    assert {name for name in loaded if name.startswith("aliquot_kube.")} <= harmless
