"""The queues and namespaces that every replica follows, so that each can answer the webhook.

So it does the Lease on which the leader says what it alone knows (`told_there.py`).

What a watch has told may be a moment old: a queue that was made just now, or a namespace's label. So whoever would be
refused by it is judged once more by what the API server says when it is asked.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from aliquot_core.backoff import Random
from aliquot_core.clock import Clock
from aliquot_core.names import PACE_LEASE, Names
from aliquot_core.objects import Lease, Namespace, Queue
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import NotFoundError
from aliquot_kube.mirror import Mirror
from aliquot_kube.resources import LEASES, NAMESPACES, queues_of
from aliquot_kube.transport import Timeouts, Transport
from aliquot_scheduler.admission.told_there import there_as_told
from aliquot_scheduler.picture.there import There
from aliquot_scheduler.queues.said.entry import Plan, home_of, plan_of

# The API server waits for our answer meanwhile (timeoutSeconds in the webhooks' configuration).
_READS = Timeouts(connect=1.0, silence=2.0, total=3.0)


class Plans(Protocol):
    """Where queues and namespaces are told."""

    def known(self) -> Plan | None:
        """By what was heard last; None if not all of it was heard yet."""
        ...

    async def asked(self, namespace: str = "") -> Plan:
        """By what the API server says now, of all queues and of this namespace."""
        ...


class Landscape:
    """Follows them; where the definition of Queue is not installed there are none."""

    def __init__(self, *, transport: Transport, clock: Clock, random: Random, names: Names) -> None:
        self._names = names
        self._client = KubeClient(transport=transport, timeouts=_READS)
        following: dict[str, Any] = {"transport": transport, "clock": clock, "random": random}
        self._queues = Mirror[Queue](**following, resource=queues_of(names), may_be_absent=True)
        self._namespaces = Mirror[Namespace](**following, resource=NAMESPACES)
        told: dict[str, Any] = {"namespace": names.namespace, "field_selector": f"metadata.name={PACE_LEASE}"}
        self._leader = Mirror[Lease](**following, **told, resource=LEASES)
        self._plan: Plan | None = None
        for mirror in (self._queues, self._namespaces):
            mirror.subscribe(self._changed)

    async def run(self) -> None:
        """Follow them until cancelled."""
        async with asyncio.TaskGroup() as work:
            work.create_task(self._queues.run())
            work.create_task(self._namespaces.run())
            work.create_task(self._leader.run())

    def known(self) -> Plan | None:
        """By what was heard last; None if not all of it was heard yet."""
        if not (self._queues.freshness().synced and self._namespaces.freshness().synced):
            return None
        if self._plan is None:
            self._plan = plan_of(self._queues.objects.values(), self._namespaces.objects.values(), names=self._names)
        return self._plan

    def there(self) -> There:
        """What the leader says of the nodes' GPUs; nothing of what there is otherwise."""
        leases = self._leader.objects.values()
        return there_as_told(next((one.metadata.annotations for one in leases), {}), names=self._names)

    async def asked(self, namespace: str = "") -> Plan:
        """By what the API server says now, of all queues and of this namespace."""
        try:
            queues = await self._client.list(queues_of(self._names))
        except NotFoundError:
            queues = []
        namespaces = dict(self._namespaces.objects)
        if namespace:
            namespaces[namespace] = await self._client.get(NAMESPACES, name=namespace)
        return plan_of(queues, namespaces.values(), names=self._names)

    def _changed(self, change: object) -> None:
        """Heart-beats of namespaces, which change nothing that counts, would plant the tree anew each time."""
        old, new = getattr(change, "old", None), getattr(change, "new", None)
        if isinstance(old, Namespace) and isinstance(new, Namespace):
            if home_of(old, names=self._names) == home_of(new, names=self._names):
                return
        elif isinstance(old, Queue) and isinstance(new, Queue) and old.spec == new.spec:
            return
        self._plan = None
