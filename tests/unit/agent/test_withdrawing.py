"""What Aliquot wrote on a node's object can be taken back, and nothing else is touched; the kubelet's word too."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from aliquot_agent.publishing.node_object import patches
from aliquot_agent.publishing.withdrawing import KubeletRemembersError, wait_until_forgotten, withdraw
from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node
from aliquot_kube.client import KubeClient
from aliquot_kube.questions import Question
from aliquot_kube.resources import LEASES, NODES
from support.clocks import VirtualClock
from support.fake_api import FakeApi, Json, _merged

NAMES = Names()
PATH = NODES.path(name="n1")
INVENTORY = Inventory(gpus=(Gpu(uuid="GPU-1", index=0, model="NVIDIA A100", memory=1000),), driver="600.1")
BARE: dict[str, Any] = {
    "metadata": {"name": "n1", "labels": {"team": "x"}, "annotations": {"aliquot.dev/mark": "an operator's"}},
    "status": {"capacity": {"cpu": "4"}},
}


def published() -> dict[str, Any]:
    """The node after its agent has published all it has."""
    wanted = patches(msgspec.convert(BARE, Node), inventory=INVENTORY, names=NAMES)
    kubelets = {"status": {"capacity": {NAMES.compute: "100", NAMES.best_effort: "0"}}}
    return dict(_merged(_merged(_merged(BARE, wanted.metadata), wanted.status), kubelets))


async def test_what_was_published_is_taken_back_and_nothing_else() -> None:
    """Inventory, labels, memory and heart-beat go; the operator's annotation, other labels and the CPUs stay."""
    api = FakeApi()
    lease, another = (LEASES.path(namespace=NAMES.namespace, name=NAMES.lease(node)) for node in ("n1", "n2"))
    for path in (lease, another):
        api.put(path, {})
    assert published() != BARE
    for path in (PATH, f"{PATH}/status"):
        api.put(path, published())
    await withdraw(client=KubeClient(transport=api), node="n1", names=NAMES)
    metadata = api.objects[PATH]["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == (
        BARE["metadata"]["labels"],
        BARE["metadata"]["annotations"],
    )
    assert api.objects[f"{PATH}/status"]["status"] == BARE["status"]
    assert lease not in api.objects
    assert another in api.objects


async def test_a_node_without_anything_of_ours_is_left_as_it_is() -> None:
    """So the command can be run over all nodes, and twice."""
    api = FakeApi()
    api.put(PATH, BARE)
    before = dict(api.objects)
    await withdraw(client=KubeClient(transport=api), node="n1", names=NAMES)
    assert api.objects == before
    assert [write.method for write in api.writes] == ["DELETE"]


class Kubelet(FakeApi):
    """A node's object and the kubelet that keeps its capacity: of a plugin that has left as kubelets do."""

    def __init__(self, *, clock: VirtualClock, forgets_at: float) -> None:
        super().__init__()
        self._clock, self._forgets_at = clock, forgets_at
        self._says: str | None = "100"
        self.put(PATH, BARE)

    def told(self) -> dict[str, str]:
        """The node's capacity."""
        capacity: dict[str, str] = self.objects[PATH]["status"]["capacity"]
        return capacity

    async def run(self) -> None:
        """Every ten seconds; 0 is written once, and never again."""
        while True:
            await self._clock.sleep(10)
            if self._clock.monotonic() >= self._forgets_at and self._says:
                self._write("0")
                self._says = None
            elif self._says:
                self._write(self._says)

    def _write(self, count: str) -> None:
        self.put(PATH, _merged(self.objects[PATH], {"status": {"capacity": {NAMES.compute: count}}}))

    def _patch(self, path: str, change: Json) -> None:
        # The status is a part of the same object.
        super()._patch(path.removesuffix("/status"), change)

    def _answer(self, question: Question) -> Json:
        if question.path == f"{PATH}/status":
            self._patch(question.path, json.loads(question.body or b""))
            return self.objects[PATH]
        return super()._answer(question)


async def waiting(clock: VirtualClock, api: FakeApi) -> asyncio.Future[None]:
    """Begin to wait."""
    client = KubeClient(transport=api)
    await withdraw(client=client, node="n1", names=NAMES)
    return asyncio.ensure_future(wait_until_forgotten(client=client, clock=clock, node="n1", names=NAMES))


@pytest.mark.parametrize("forgets_at", [300.0, 20.0, 0.0])
async def test_the_kubelet_s_last_word_is_taken_back_too(forgets_at: float) -> None:
    """Whenever it comes; and nothing is there any more when the command ends, nor later."""
    clock = VirtualClock()
    kubelet = Kubelet(clock=clock, forgets_at=forgets_at)
    running = asyncio.ensure_future(kubelet.run())
    await clock.advance(10)
    withdrawing = await waiting(clock, kubelet)
    await clock.advance(forgets_at - 10 if forgets_at else 0)
    assert not withdrawing.done()
    await clock.advance(50)
    assert withdrawing.done()
    withdrawing.result()
    assert kubelet.told() == {"cpu": "4"}
    await clock.advance(600)
    assert kubelet.told() == {"cpu": "4"}
    running.cancel()


async def test_a_kubelet_that_does_not_forget_is_not_waited_for_without_end() -> None:
    """Its plugin may run on: whoever asked is told what it still has."""
    clock = VirtualClock()
    kubelet = Kubelet(clock=clock, forgets_at=float("inf"))
    running = asyncio.ensure_future(kubelet.run())
    withdrawing = await waiting(clock, kubelet)
    await clock.advance(470)
    assert not withdrawing.done()
    await clock.advance(30)
    with pytest.raises(KubeletRemembersError, match=f"still tells {NAMES.compute}: 100"):
        await withdrawing
    running.cancel()


async def test_a_node_that_is_gone_is_not_waited_for() -> None:
    """Nothing is left on it."""
    clock = VirtualClock()
    kubelet = Kubelet(clock=clock, forgets_at=300)
    withdrawing = await waiting(clock, kubelet)
    del kubelet.objects[PATH]
    await clock.advance(5)
    assert withdrawing.done()
    withdrawing.result()
