"""Takes back what a node's agents have written in the cluster: the shell round `publishing.withdrawal`."""

from __future__ import annotations

import logging
from contextlib import suppress

from aliquot_agent.publishing.node_object import withdrawal
from aliquot_core.names import Names
from aliquot_kube.client import KubeClient
from aliquot_kube.errors import NotFoundError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import LEASES, NODES

log = logging.getLogger(__name__)


async def withdraw(*, client: KubeClient, node: str, names: Names) -> None:
    """Leave nothing of Aliquot's on the node's object, and no heart-beat; an agent that still runs writes both anew."""
    wanted = withdrawal(await client.get(NODES, name=node), names=names)
    if wanted.metadata is not None:
        await client.patch(NODES, name=node, patch=merge_patch(wanted.metadata))
    if wanted.status is not None:
        await client.patch(NODES, name=node, patch=merge_patch(wanted.status), subresource="status")
    # Without heart-beats the node is out in any case; but the lease would lie there for ever.
    with suppress(NotFoundError):
        await client.delete(LEASES, name=names.lease(node), namespace=names.namespace)
    log.info("withdrawn from the node", extra={"node": node})
