"""The means of those who write for the leader, over an API server of a test."""

from __future__ import annotations

from collections.abc import Callable

from aliquot_core.clock import Clock
from aliquot_kube.client import KubeClient
from aliquot_kube.transport import Transport
from aliquot_scheduler.centre.means import Means, means_of
from support.centre import NAMES


def means(api: Transport, *, clock: Clock, why_not: Callable[[], str] = lambda: "") -> Means:
    """Whose chance is always the same."""
    client = KubeClient(transport=api)
    return means_of(client=client, clock=clock, random=lambda: 0.5, names=NAMES, instance="replica", why_not=why_not)
