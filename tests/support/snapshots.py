"""What tests of snapshots share: how a command is called, gated pods, and queues."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from aliquot_cli.cluster import Place
from aliquot_cli.options import Call
from aliquot_cli.sources import gather
from aliquot_core.objects import Queue
from support.large_cluster import NAMES

GATES = [{"name": NAMES.gate}]
CALL = Call(place=cast("Place", None), sources=gather(), names=NAMES)


def queue_manifest(name: str, **compute: int) -> dict[str, Any]:
    """A queue that takes pods of all namespaces, with so much compute."""
    spec = {"namespaces": ["*"], "compute": compute}
    return {"apiVersion": f"{NAMES.domain}/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def read_queue(body: dict[str, Any]) -> Queue:
    """A queue as it is read from the API server."""
    return msgspec.convert(body, Queue)
