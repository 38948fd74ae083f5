"""What the API server says of one node and of the pods bound to it, followed for as long as the agent runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from aliquot_agent.pods.bound_pods import BoundPods
from aliquot_agent.signal import Signal
from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.objects import Node
from aliquot_kube.changes import Change
from aliquot_kube.mirror import Mirror
from aliquot_kube.questions import Transport
from aliquot_kube.reflector import Freshness
from aliquot_kube.resources import NODES, PODS


class NodeMirrors:
    """The node's object and its pods, as last heard."""

    def __init__(
        self,
        *,
        node: str,
        transport: Transport,
        clock: Clock,
        random: Random,
        changed: Signal,
        tell: Callable[[], None],
    ) -> None:
        """`changed` tells of pods, `tell` of the node."""
        self._name = node
        self._tell = tell
        self.pods = BoundPods(changed=changed)
        self._pods = Mirror(
            transport=transport, clock=clock, random=random, resource=PODS, field_selector=f"spec.nodeName={node}"
        )
        self._pods.subscribe(self.pods.take)
        self._nodes = Mirror(
            transport=transport, clock=clock, random=random, resource=NODES, field_selector=f"metadata.name={node}"
        )
        self._nodes.subscribe(self._node_changed)

    @property
    def node(self) -> Node | None:
        """The node's object; None before it was heard of, or when there is none."""
        return self._nodes.objects.get(self._name)

    @property
    def freshness(self) -> dict[str, Freshness]:
        """How old what we know is, by kind."""
        return {"pods": self._pods.freshness(), "nodes": self._nodes.freshness()}

    def work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """What is to run."""
        return self._pods.run(), self._nodes.run()

    def _node_changed(self, _: Change[Node]) -> None:
        self._tell()
