"""Takes back what a node's agents have written in the cluster: the shell round `publishing.withdrawal`.

Of the device plugin's resources the kubelet has the last word: for five minutes after the plugin has left it goes on
telling what there was, then it writes 0 and leaves it there. Only that 0 can be taken away for good, so we wait for it.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from aliquot_agent.publishing.node_object import withdrawal
from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_core.names import Names
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import NotFoundError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import LEASES, NODES

log = logging.getLogger(__name__)

# A kubelet tells its node's status anew every 10 s where it is not as the kubelet has it: what has not come back in
# more than two of these is forgotten.
_QUIET = 25.0
_LOOK_AGAIN = 5.0
# Five minutes, and what a kubelet in trouble takes on top.
_PATIENCE = 480.0


class KubeletRemembersError(ClusterError):
    """The kubelet goes on telling of a plugin that has left."""


async def withdraw(*, client: KubeClient, node: str, names: Names) -> None:
    """Leave nothing of Aliquot's on the node's object, and no heart-beat; an agent that still runs writes both anew."""
    await _take_back(client=client, node=node, names=names)
    # Without heart-beats the node is out in any case; but the lease would lie there for ever.
    with suppress(NotFoundError):
        await client.delete(LEASES, name=names.lease(node), namespace=names.namespace)
    log.info("withdrawn from the node", extra={"node": node})


async def wait_until_forgotten(*, client: KubeClient, clock: Clock, node: str, names: Names) -> None:
    """Take back what the kubelet still tells of the plugin, until it tells no more; a node that is gone is done."""
    begun = quiet_since = clock.monotonic()
    while clock.monotonic() - quiet_since < _QUIET:
        await clock.sleep(_LOOK_AGAIN)
        try:
            told = await _take_back(client=client, node=node, names=names)
        except NotFoundError:
            return
        if told:
            quiet_since = clock.monotonic()
            if quiet_since - begun > _PATIENCE:
                raise KubeletRemembersError(
                    f"the kubelet still tells {', '.join(f'{name}: {count}' for name, count in told.items())}",
                    where=f"node {node}",
                    remedy="see that no endpoint of Aliquot runs there (its pod, or its unit), then run this again",
                )
    log.info("the kubelet has forgotten the plugin", extra={"node": node})


async def _take_back(*, client: KubeClient, node: str, names: Names) -> dict[str, str]:
    """Remove all that is there now; what the kubelet had told."""
    found = await client.get(NODES, name=node)
    wanted = withdrawal(found, names=names)
    if wanted.metadata is not None:
        await client.patch(NODES, name=node, patch=merge_patch(wanted.metadata))
    if wanted.status is not None:
        await client.patch(NODES, name=node, patch=merge_patch(wanted.status), subresource="status")
    capacity = found.status.capacity
    return {name: str(capacity[name]) for name in (names.compute, names.best_effort) if name in capacity}
