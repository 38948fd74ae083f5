"""Queues as tests write them."""

from __future__ import annotations

from typing import Any

from cluster.harness.api import Json
from cluster.installed import NAMES

QUEUES = f"/apis/{NAMES.domain}/v1alpha1/queues"


def queue(name: str, **spec: Any) -> Json:
    """A queue."""
    return {"apiVersion": f"{NAMES.domain}/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
