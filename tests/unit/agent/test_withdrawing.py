"""What Aliquot wrote on a node's object can be taken back, and nothing else is touched."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot_agent.publishing.node_object import patches
from aliquot_agent.publishing.withdrawing import withdraw
from aliquot_core.inventory import Gpu, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node
from aliquot_kube.client import KubeClient
from aliquot_kube.resources import LEASES, NODES
from support.fake_api import FakeApi, _merged

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
