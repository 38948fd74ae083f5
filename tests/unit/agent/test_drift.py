"""What runs on a node, what was granted and what the kubelet counts: where they part, it is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_agent.pods.standing import Standing
from aliquot_agent.starting.decision import Known
from aliquot_agent.starting.drift import Kind, drifts
from aliquot_agent.starting.kubelet_view import Recorded
from aliquot_core.claims import Claim
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Health, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent

NAMES = Names()
CARD = Gpu(uuid="GPU-a", index=0, model="A100", memory=80_000)


def running(*, memory: int = 8_000, phase: str = "Running", grant: str | None = None) -> Pod:
    """A pod with 30 % of the card."""
    part = Slice(gpu=CARD.uuid, compute=Percent(30), limit=Percent(30), memory=MiB(memory))
    right = encode_grant(
        Grant(node="n1", pod="u", containers={"main": ContainerGrant(slices=(part,), isolation="observe")})
    )
    limits = {NAMES.compute: "30", NAMES.memory: str(memory)}
    return msgspec.convert(
        {
            "metadata": {
                "name": "p",
                "namespace": "team",
                "uid": "u",
                "annotations": {NAMES.grant: right if grant is None else grant},
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
            "status": {"phase": phase},
        },
        Pod,
    )


RECORD = Recorded(uid="u", container="main", resource=NAMES.compute, ids=frozenset({"x"}), names=("n",))
GOOD = Known(
    node="n1",
    names=NAMES,
    inventory=Inventory(gpus=(CARD,)),
    pods={"u": running()},
    recorded=(RECORD,),
    standing={"u": Standing(pod="team/p", claims={CARD.uuid: Claim(compute=Percent(30), memory=MiB(8_000))})},
)


def with_card(**changes: Any) -> Inventory:
    """The node, its card changed."""
    return Inventory(gpus=(msgspec.structs.replace(CARD, **changes),))


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"pods": {"u": running(memory=9_000)}}, Kind.GRANT, "team/p runs under another grant than it has"),
        ({"pods": {"u": running(grant="{")}}, Kind.GRANT, "its grant is good no more"),
        ({"recorded": ()}, Kind.RECORD, "the kubelet counts its device ids as free"),
        ({"inventory": with_card(memory=4_000)}, Kind.ROOM, "8000 MiB of 4000 MiB memory"),
    ],
)
def test_what_was_started_otherwise_is_told(change: dict[str, Any], kind: Kind, says: str) -> None:
    """One line for each, that says what to do."""
    (found,) = drifts(msgspec.structs.replace(GOOD, **change))
    assert found.kind is kind
    assert says in found.what


@pytest.mark.parametrize(
    "change",
    [
        {},
        # Not known: no word.
        {"recorded": None},
        {"pods": {"u": running(grant="{")}, "complete": False},
        {"pods": {"u": running(grant="{")}, "remembered": False},
        # Gone or ended: what the kubelet drops, and what nobody needs any more.
        {"pods": {}, "recorded": ()},
        {"pods": {"u": running(phase="Succeeded", grant="{")}, "recorded": ()},
        # It has our word, and the kubelet is about to make its container.
        {"pods": {"u": running(phase="Pending")}, "recorded": ()},
        # Its pods were told that it is sick, or that it is lost.
        {"inventory": with_card(memory=4_000, health=Health.SICK)},
        {"inventory": Inventory()},
    ],
)
def test_what_is_right_or_not_known_is_no_drift(change: dict[str, Any]) -> None:
    """No false alarm at three in the morning."""
    assert drifts(msgspec.structs.replace(GOOD, **change)) == frozenset()
