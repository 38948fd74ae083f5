"""Takes back what a node's agents have written on the node's object: the shell round `publishing.withdrawal`."""

from __future__ import annotations

import logging

from aliquot_agent.publishing import withdrawal
from aliquot_core.names import Names
from aliquot_kube.client import KubeClient
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import NODES

log = logging.getLogger(__name__)


async def withdraw(*, client: KubeClient, node: str, names: Names) -> None:
    """Leave nothing of Aliquot's on the node's object; an agent that still runs would write it anew."""
    wanted = withdrawal(await client.get(NODES, name=node), names=names)
    if wanted.metadata is not None:
        await client.patch(NODES, name=node, patch=merge_patch(wanted.metadata))
    if wanted.status is not None:
        await client.patch(NODES, name=node, patch=merge_patch(wanted.status), subresource="status")
    log.info("withdrawn from the node", extra={"node": node})
