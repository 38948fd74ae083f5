"""`aliquot up`, put together: one machine's API server, centre, scheduling loop, controllers and nodes.

Theory of operation. This process serves the API and does kube-scheduler's and the kubelets' part; the centre, endpoints
and agents are the real commands, as child processes. Parts start in the order in which they need each other and end in
the reverse; the folder's lock goes last. What must always hold: whatever way the block is left, no process, socket or
lock of ours is left; and nobody of an earlier run acts any more when this one begins, for that one's processes die with
it and the lock is freed no sooner.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec

from aliquot_agent.settings import NVML, AgentSettings
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.modes import MPS
from aliquot_core.names import Names
from aliquot_kube.plain import PlainServer, PlainTransport
from aliquot_kube.questions import Transport
from aliquot_standalone.apiserver.direct import DirectTransport
from aliquot_standalone.apiserver.embedded import kubeconfig, serving
from aliquot_standalone.apiserver.journal import Recovery
from aliquot_standalone.apiserver.store import Store
from aliquot_standalone.centre_child import CENTRE_PROCESS, CentrePlace, centre_command, until_ready
from aliquot_standalone.certificates import CentreFiles, make_files
from aliquot_standalone.children import Children
from aliquot_standalone.ending import end_node
from aliquot_standalone.home import Home
from aliquot_standalone.installing import Installer
from aliquot_standalone.kubelet.settings import Folders
from aliquot_standalone.mps_child import mps_command, until_kept, was_left
from aliquot_standalone.nodes import FullNode, NodePlan
from aliquot_standalone.parts import Ground, new_cron_jobs, new_events, new_extender, new_fleet, new_jobs, new_loop
from aliquot_standalone.plan import NodeShape, Plan
from aliquot_standalone.pod_logs import pod_logs
from aliquot_standalone.ports import LOOPBACK, Ports, any_port
from aliquot_standalone.simulated.fleet import Fleet
from aliquot_standalone.simulated.metrics import metrics_at, metrics_served
from aliquot_standalone.whereabouts import Running

# What containers have to leave in, whatever grace their pods name: somebody waits at the terminal.
GRACE = 5.0
Work = Callable[[], Awaitable[None]]


class Whole:
    """A machine that is up."""

    def __init__(
        self,
        *,
        home: Home,
        plan: Plan,
        names: Names,
        ports: Ports,
        transport: Transport,
        clock: Clock,
        random: Random,
        stack: AsyncExitStack,
        agents: AgentSettings,
        say: Callable[[str], None],
    ) -> None:
        """`transport` leads to the API server without a wire: whoever is in this process asks it directly."""
        self.home = home
        self.plan = plan
        self.names = names
        self.url = f"http://{LOOPBACK}:{ports.api}"
        self.centre = CentrePlace(port=ports.centre, status_port=ports.page)
        self._usage_port = ports.usage
        self._agents = agents
        self._keeps_mps = agents.wants(MPS) and plan.gpus == NVML
        self.nodes: list[FullNode] = []
        # None where no node is simulated.
        self.fleet: Fleet | None = None
        self.transport = transport
        self._installer = Installer(transport=self.transport, names=names)
        self.children = Children(logs=home.logs, clock=clock, say=say)
        self._clock = clock
        self._random = random
        self._stack = stack
        self._working: set[asyncio.Future[None]] = set()

    async def start(self) -> Running:
        """Bring everything up; returns when pods can be placed."""
        stack, began = self._stack, self._clock.wall()
        with self.home.writing():
            files = make_files(self.home.centre, host=LOOPBACK, now=began)
        await self._install(files)
        stack.push_async_callback(self.children.close)
        self.work(self.children.run)
        plans = [self._plan_of(shape) for shape in self.plan.full]
        usage = [metrics_at(port) for port in (self._usage_port, *(plan.metrics_port for plan in plans))]
        centre = centre_command(self.centre, files=files, kubeconfig=self.home.kubeconfig, usage=usage)
        await self.children.start(centre, before_again=self._free_leadership)
        if self._keeps_mps or was_left(self.home.mps):
            # Before agents look: what they find not kept they do not offer.
            await self.children.start(mps_command(self.home.mps))
            await self._or_broken(until_kept(self.home.mps, clock=self._clock))
        await asyncio.gather(*(self._start_node(plan) for plan in plans))
        await self._start_parts(files)
        await self._or_broken(self._until_ready())
        stack.callback(self.home.retract)
        return self.home.announce(api=self.url, page=self.centre.page, now=began)

    def over_http(self) -> PlainTransport:
        """A client's way to the API server, as from any other process: also to what is no answer, such as logs."""
        transport = PlainTransport(PlainServer(url=self.url, token=self.home.token()), user_agent="aliquot-up")
        self._stack.push_async_callback(transport.close)
        return transport

    def work(self, work: Work) -> None:
        """Have something done until all ends; its end before that is everybody's."""
        task = asyncio.ensure_future(work())
        self._working.add(task)
        self._stack.push_async_callback(_ended, task)

    async def run(self) -> None:
        """Return never: raise what ended one of the parts."""
        done, _ = await asyncio.wait(self._working, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _install(self, files: CentreFiles) -> None:
        await self._installer.install()
        await self._installer.retire_nodes(keep=self.plan.names)
        await self._end_retired()
        await self._free_leadership()
        await self._installer.ask_at(self.centre.url, authority=files.authority.read_bytes())

    async def _end_retired(self) -> None:
        """End what a run that was killed has left of nodes that are there no more: no kubelet comes for it."""
        kept = {self.home.node(shape.name) for shape in self.plan.full}
        for folder in self.home.nodes():
            if folder not in kept:
                await end_node(Folders(root=folder), clock=self._clock, grace=GRACE)

    async def _free_leadership(self) -> None:
        await self._installer.free_leadership(now=self._clock.wall())

    def _plan_of(self, shape: NodeShape) -> NodePlan:
        return NodePlan(
            name=shape.name,
            gpus=shape.gpus,
            folder=self.home.node(shape.name),
            runtime=self.home.runtime / shape.name,
            kubeconfig=self.home.kubeconfig,
            metrics_port=any_port(keep=self._stack.enter_context),
            mps=self.home.mps if self._keeps_mps else None,
            beside_simulated=bool(self.plan.simulated),
        )

    async def _start_node(self, plan: NodePlan) -> None:
        node = FullNode(
            plan=plan,
            names=self.names,
            transport=self.transport,
            children=self.children,
            clock=self._clock,
            random=self._random,
        )
        self._stack.push_async_callback(node.end_containers, grace=GRACE)
        self.work(node.kubelet.run)
        self.work(node.events.run)
        await self._or_broken(node.start())
        self.nodes.append(node)

    async def _start_parts(self, files: CentreFiles) -> None:
        ground = Ground(transport=self.transport, names=self.names, clock=self._clock, random=self._random)
        if self.plan.simulated:
            self.fleet = new_fleet(ground, plan=self.plan, agents=self._agents)
            await self._stack.enter_async_context(metrics_served(self.fleet, port=self._usage_port))
            self.work(self.fleet.run)
        extender = new_extender(self.centre, files=files)
        self._stack.push_async_callback(extender.close)
        self.work(new_loop(ground, extender=extender).run)
        events = new_events(ground)
        self.work(events.run)
        self.work(new_jobs(ground, events=events).run)
        self.work(new_cron_jobs(ground, events=events).run)

    async def _until_ready(self) -> None:
        offered = [node.until_offered() for node in self.nodes]
        if self.fleet is not None:
            offered.append(self.fleet.until_offered())
        await asyncio.gather(until_ready(self.centre, clock=self._clock), *offered)

    async def _or_broken(self, awaited: Awaitable[None]) -> None:
        """Wait for something, but no longer than all parts live."""
        waiting, running = asyncio.ensure_future(awaited), asyncio.ensure_future(self.run())
        try:
            await asyncio.wait({waiting, running}, return_when=asyncio.FIRST_COMPLETED)
            await (waiting if waiting.done() else running)
        finally:
            await _ended(running)
            await _ended(waiting)


@asynccontextmanager
async def standing(
    *,
    home: Home,
    plan: Plan,
    names: Names,
    ports: Ports,
    clock: Clock,
    say: Callable[[str], None],
    agents: AgentSettings = AgentSettings(),
) -> AsyncIterator[Whole]:
    """Hold the folder and serve its API; `start` brings up the rest, and all ends with the block.

    `say` tells the user what was wrong with what the folder had, when nothing can be written there, and how our own
    processes ended; `agents` is what the operator has set for nodes' agents.
    """
    home.create()
    luck = random.Random().random  # noqa: S311 - spreads retries, guards nothing
    store = Store()
    token = home.token()
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            serving(
                clock=clock,
                port=ports.api,
                tokens={token: "system:admin"},
                store=store,
                awaited=(LOOPBACK, ports.centre),
                if_silent=f"the centre does not answer; its log is {home.logs / CENTRE_PROCESS}.log",
                folder=home.folder,
                logs=pod_logs(store=store, home=home, clock=clock),
                recovered=partial(_tell_loss, say=say),
                say=say,
            )
        )
        # The lock is ours from here on.
        home.retract()
        stack.callback(shutil.rmtree, home.runtime, ignore_errors=True)
        home.write_kubeconfig(msgspec.json.encode(kubeconfig(server.url, token=token)))
        transport = DirectTransport(frontend=server.frontend, clock=clock, caller=server.caller)
        stack.callback(transport.cut_all)
        yield Whole(
            home=home,
            plan=plan,
            names=names,
            ports=ports,
            transport=transport,
            clock=clock,
            random=luck,
            stack=stack,
            agents=agents,
            say=say,
        )


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _tell_loss(found: Recovery, *, say: Callable[[str], None]) -> None:
    if found.emptied:
        say(
            "the journal is empty, as a crash or a full disk can leave it: whatever objects it had are lost, "
            "and all begins anew"
        )
    if not found.cut:
        return
    if found.lost:
        what = (
            f"the journal is damaged after record {found.records}, and {found.lost} whole ones behind that are left out"
        )
    else:
        what = "the journal ended in the middle of a record, as a kill or a full disk leaves it"
    say(f"{what}: all before that is there, the rest is kept in {found.kept_in}")
