"""What controllers are given in tests."""

from __future__ import annotations

from aliquot_core.clock import Clock
from aliquot_kube.client import KubeClient
from aliquot_kube.event_ledger import EventLedger
from aliquot_kube.events import EventRecorder


def quiet_events(*, client: KubeClient, clock: Clock) -> EventRecorder:
    """A recorder that nobody runs: what it is told is never written."""
    return EventRecorder(
        client=client,
        clock=clock,
        random=lambda: 0.5,
        controller="aliquot-controllers",
        instance="test",
        ledger=EventLedger(),
    )
