"""Candidates against a real kube-apiserver: it refuses whoever comes second, and knows a lease that nobody holds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime

from aliquot_core.names import Names
from aliquot_kube.client import KubeClient
from aliquot_kube.clock import SystemClock
from aliquot_kube.credentials import Credentials, load_configuration
from aliquot_kube.election import ElectionSettings
from aliquot_kube.leadership import Leadership
from aliquot_kube.lease import LeaseKeeper
from aliquot_kube.transport import HttpTransport
from cluster.harness.cluster import ClusterHarness

# Half of the real ones, for the test's sake.
TIMES = ElectionSettings(duration=5.0, renew=0.8, margin=1.0, request=0.9, look=0.3)
LEASE = "leader"


@asynccontextmanager
async def candidate(
    cluster: ClusterHarness, namespace: str, name: str
) -> AsyncIterator[tuple[Leadership, asyncio.Task[None]]]:
    """A process that wants to lead; cancelling its task is its death."""
    kubeconfig = str(cluster.kubeconfig())
    transport = HttpTransport(credentials=Credentials(lambda: load_configuration(kubeconfig=kubeconfig)), workers=1)
    one = Leadership(
        keeper=LeaseKeeper(client=KubeClient(transport=transport), namespace=namespace, name=LEASE),
        clock=SystemClock(),
        random=random.random,
        name=name,
        address=f"https://{name}:10950",
        names=Names(),
        settings=TIMES,
    )
    task = asyncio.create_task(one.run())
    try:
        yield one, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await transport.close()


async def who_leads(*candidates: Leadership) -> Leadership:
    """Wait for one of these."""
    waiting = {asyncio.ensure_future(one.until(leads=True)): one for one in candidates}
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    (leader,) = (waiting[task] for task in done)
    return leader


def seconds(cluster: ClusterHarness, namespace: str, what: str) -> float:
    """When the lease was taken, or written last, as it says itself: however busy the machine is, that is exact."""
    spec = cluster.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE}")["spec"]
    return datetime.fromisoformat(spec[what]).timestamp()


async def test_leadership_changes_hands_by_death_and_by_leave(cluster: ClusterHarness, namespace: str) -> None:
    """A killed leader costs the length of its lease, or two looks less; one that leaves does not; terms grow."""
    async with AsyncExitStack() as stack:
        lives = {}
        for name in ("a", "b", "c"):
            one, life = await stack.enter_async_context(candidate(cluster, namespace, name))
            lives[one] = life
        first = await who_leads(*lives)
        terms = [first.check()]
        lives.pop(first).cancel()
        written = seconds(cluster, namespace, "renewTime")
        second = await who_leads(*lives)
        assert seconds(cluster, namespace, "acquireTime") - written >= TIMES.duration - TIMES.early
        terms.append(second.check())
        await second.resign()
        del lives[second]
        written = seconds(cluster, namespace, "renewTime")
        third = await who_leads(*lives)
        assert seconds(cluster, namespace, "acquireTime") - written < TIMES.duration - TIMES.early
        assert third.leader is not None
        assert (third.leader.identity, third.leader.address) == (third.identity, f"https://{third.identity[0]}:10950")
        terms.append(third.check())
        assert sorted(terms) == terms
        assert len({term.transitions for term in terms}) == 3
