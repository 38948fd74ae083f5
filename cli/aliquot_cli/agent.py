"""`aliquot agent`: the composition root of a node's agent."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import random
import socket
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from aliquot_agent.gpus.driver import GpuDriver
from aliquot_agent.health.health_memory import HealthFile
from aliquot_agent.health.xids import HealthSettings, policy
from aliquot_agent.isolation.departed import Departed
from aliquot_agent.isolation.node_processes import NodeProcesses
from aliquot_agent.isolation.pacemaker import Pacemaker
from aliquot_agent.isolation.slice_files import SliceFiles
from aliquot_agent.machine import Machine
from aliquot_agent.node_agent import NodeAgent
from aliquot_agent.pods.residents import ProcResidents
from aliquot_agent.publishing.withdrawing import wait_until_forgotten
from aliquot_agent.publishing.withdrawing import withdraw as withdraw_node
from aliquot_agent.settings import NVML, AgentSettings
from aliquot_agent.status import Status, nobody_hears
from aliquot_agent.web.http_server import HttpServer
from aliquot_cli.node_isolation import (
    change_room,
    is_simulated,
    make_isolation,
    make_mps,
    offer_isolation,
    tell_memory,
    what_hinders,
)
from aliquot_cli.running import run_until_stopped, start_logging, until
from aliquot_cli.sources import gather
from aliquot_cli.ways import ways_of_a_node
from aliquot_core.clock import Clock
from aliquot_core.names import Names
from aliquot_deviceplugin.cdi.discovery import DriverPlace
from aliquot_deviceplugin.cdi.driver_files import DriverFiles, SimulatedDriverFiles
from aliquot_deviceplugin.cdi.errors import DriverFilesError
from aliquot_deviceplugin.cdi.finding import CurrentDriverFiles, DriverSettings, node_driver_files
from aliquot_deviceplugin.cdi.folder import RealFolder
from aliquot_deviceplugin.cdi.node_files import RootedFiles
from aliquot_deviceplugin.cdi.store import SpecStore
from aliquot_deviceplugin.checkpoint import CheckpointReader
from aliquot_deviceplugin.local_kubelet import LocalKubelet
from aliquot_deviceplugin.podresources import PodResources
from aliquot_deviceplugin.slice_specs import SliceSpecs
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock

log = logging.getLogger(__name__)
AGENT = "aliquot-agent"

# Working out what is said of slices takes a thread some 30 ms of a full node. By Python's own 5 ms, each step of a
# scrape on the loop would wait as long for it: p99 of a scrape is 15 ms with this and 27 to 51 without (run).
SWITCH = 0.001


@click.command()
@click.option("--config", "file", metavar="FILE", help="Settings file (default: $ALIQUOT_CONFIG).")
@click.option("--node-name", metavar="NAME", help="This node's name in Kubernetes.")
@click.option(
    "--kubeconfig", metavar="FILE", help="Where the API server is (default: $KUBECONFIG, else the service account)."
)
@click.option("--gpus", metavar="SPEC", help='"nvml", or GPUs to simulate, such as 8xA100-80GB.')
@click.option("--withdraw", is_flag=True, help="Take back all that agents wrote on the node's object, and end.")
@click.option(
    "--withdraw-no-wait", is_flag=True, help="The same, without waiting until the kubelet has forgotten the plugin."
)
@click.option("--make-room", is_flag=True, help="Mount what bounds the accounts of containers (as root), and end.")
@click.option("--take-room-away", is_flag=True, help="Unmount it, and end.")
def agent(
    file: str | None,
    *,
    withdraw: bool,
    withdraw_no_wait: bool,
    make_room: bool,
    take_room_away: bool,
    **flags: Any,
) -> None:
    """Know this node's GPUs, publish them, and ready the slice of each granted container.

    \b
    Examples:
      aliquot agent --node-name gpu-1 --kubeconfig ~/.kube/config --gpus 8xA100-80GB
      aliquot agent --node-name gpu-1 --withdraw        # once the node's agent was stopped for good
    """
    sources = gather(file=file, flags={"agent": flags})
    start_logging(sources)
    settings = sources.resolve("agent", AgentSettings).value
    names = sources.resolve("names", Names).value
    health = sources.resolve("health", HealthSettings).value
    if make_room or take_room_away:
        change_room(settings, away=take_room_away)
    elif withdraw or withdraw_no_wait:
        asyncio.run(leave_node(settings, names=names, waits=not withdraw_no_wait))
    else:
        run_until_stopped(partial(serve_node, settings=settings, names=names, health=health))


async def leave_node(settings: AgentSettings, *, names: Names, waits: bool) -> None:
    """Take back what was published of the node, and wait for the kubelet to forget the plugin."""
    transport, other = ways_of_a_node(settings.kubeconfig, user_agent=AGENT)
    try:
        client, node = KubeClient(transport=transport), settings.node_name
        await withdraw_node(client=client, node=node, names=names)
        if waits:
            await wait_until_forgotten(client=client, clock=SystemClock(), node=node, names=names)
    finally:
        await other.close()
        await transport.close()


async def serve_node(stop: asyncio.Event, *, settings: AgentSettings, names: Names, health: HealthSettings) -> None:
    """Be the agent of one node until told to stop."""
    sys.setswitchinterval(SWITCH)
    clock = SystemClock()
    luck = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    driver = make_driver(settings, clock=clock)
    transport, beat_transport = ways_of_a_node(settings.kubeconfig, user_agent=AGENT)
    pod_resources = PodResources(socket=settings.pod_resources, clock=clock, random=luck)
    isolation = make_isolation(settings)
    machine = make_machine(
        settings,
        names=names,
        driver=driver,
        view=LocalKubelet(checkpoint=CheckpointReader(settings.kubelet_record), podresources=pod_resources),
        memory=HealthFile(health.memory),
        isolation=isolation,
    )
    node = NodeAgent(
        settings=settings,
        names=names,
        clock=clock,
        random=luck,
        identity=f"{socket.gethostname()}, pid {os.getpid()}",
        machine=machine,
        transport=transport,
        beat_transport=beat_transport,
        policy=policy(health, names=names),
    )
    pacemaker = make_pacemaker(isolation, clock=clock, node=node) if isolation else None
    status = make_status(node, pacemaker=pacemaker, names=names, clock=clock)
    departed = Departed(files=isolation, living=NodeProcesses(), clock=clock) if isolation else None
    pacing = [pacemaker.run, departed.run] if pacemaker and departed else []
    http = HttpServer(address=settings.http_address, port=settings.http_port, pages=status.pages, clock=clock)
    try:
        await until(stop, node.run(status.run, http.run, *pacing), farewell=node.drain)
    finally:
        await pod_resources.close()
        await beat_transport.close()
        await transport.close()
        await driver.close()


def make_pacemaker(files: SliceFiles, *, clock: Clock, node: NodeAgent) -> Pacemaker:
    """What holds slices back goes by what the node found of them."""
    return Pacemaker(
        files=files, clock=clock, throttled=node.over_use.throttled, allowed=lambda: node.live_limits.allowed
    )


def make_status(node: NodeAgent, *, pacemaker: Pacemaker | None, names: Names, clock: Clock) -> Status:
    """What the agent tells of its node, and of what is held back there by whoever paces it."""
    return Status(
        node=node,
        register=ProcResidents(),
        names=names,
        clock=clock,
        version=version("aliquot"),
        heard=partial(tell_memory, pacemaker) if pacemaker else nobody_hears,
        pacing_faults=lambda: pacemaker.faults if pacemaker else {},
        unpaid=lambda: pacemaker.unpaid if pacemaker else {},
    )


def make_machine(
    settings: AgentSettings,
    *,
    names: Names,
    driver: GpuDriver,
    view: LocalKubelet,
    memory: HealthFile,
    isolation: SliceFiles | None,
) -> Machine:
    """The node itself, with the files that containers get and the modes in which its GPUs hold them."""
    store = SpecStore(names=names, folder=RealFolder(Path(settings.cdi_folder)))
    driver_files, mps = make_driver_files(settings, store=store), make_mps(settings)
    return Machine(
        driver=driver,
        view=view,
        residents=ProcResidents(),
        specs=SliceSpecs(names=names, store=store, driver_files=driver_files, isolation=isolation, mps=mps),
        missing_files=partial(missing_files, driver_files),
        memory=memory,
        offer=partial(
            offer_isolation, settings=settings, obstacle=partial(what_hinders, isolation, driver_files), mps=mps
        ),
        mps=mps,
    )


def make_driver(settings: AgentSettings, *, clock: Clock) -> GpuDriver:
    """Open the door to real or simulated GPUs."""
    if settings.gpus == NVML:
        from aliquot_agent.gpus.nvml import NvmlDriver  # 6 MiB that a simulated node does not need

        return NvmlDriver(clock=clock)
    from aliquot_agent.gpus.simulated import SimulatedDriver  # only where GPUs are simulated
    from aliquot_agent.gpus.spec import models_by_node, parse_gpu_spec

    models = models_by_node(parse_gpu_spec(settings.gpus))[0]
    return SimulatedDriver(node=settings.node_name, models=models, clock=clock)


def make_driver_files(settings: AgentSettings, *, store: SpecStore) -> DriverFiles:
    """Find what containers need of the driver; GPUs that do not exist need a mark only."""
    if is_simulated(settings):
        return SimulatedDriverFiles()
    place = DriverPlace(root=settings.driver_root, machine=platform.machine())
    files = RootedFiles(Path(settings.node_root))
    return node_driver_files(files, settings=DriverSettings(place=place), is_ours=store.is_ours)


def missing_files(driver_files: DriverFiles) -> str:
    """Say why containers could not use a GPU here, if so."""
    if not isinstance(driver_files, CurrentDriverFiles):
        return ""
    try:
        driver_files.refresh()
    except DriverFilesError as error:
        return str(error)
    return ""
