"""A leader that knows a small cluster, without a server and without time."""

from __future__ import annotations

from typing import cast

from aliquot_kube.election import ElectionSettings
from aliquot_kube.transport import Transport
from aliquot_scheduler.centre.reign import Reign
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.rules.judging import NO_RULES, Rules
from support.centre import MEMORY, NAMES, WALL, asks, bound, gpus, make_lease, make_node
from support.clocks import VirtualClock


def known_reign(*, rules: Rules = NO_RULES) -> Reign:
    """A leader that knows two nodes, one of them cordoned, and three pods."""
    made = Reign(
        transport=cast("Transport", None),  # nothing is asked
        clock=VirtualClock(),
        random=lambda: 0.5,
        names=NAMES,
        settings=CentreSettings(evictions_denied=True),
        queues=QueueSettings(),
        leads=lambda: True,
        settled=lambda: None,
        led_until=None,
        renew=ElectionSettings().renew,
        rules=rules,
    )
    for node in (make_node("n1", gpus("n1", 4)), make_node("n2", gpus("n2", 4), cordoned=True)):
        made.picture.node_seen(node)
        made.picture.lease_seen(make_lease(node.metadata.name), wall=WALL)
    made.desk.pod_seen(bound(asks("u1", 50, MEMORY), node="n1", held={"GPU-n1-0": (50, MEMORY)}))
    made.desk.pod_seen(bound(asks("u2", 75, MEMORY // 4), node="n1", held={"GPU-n1-1": (75, MEMORY // 4)}))
    made.desk.pod_seen(bound(asks("u3", 100, 1_000), node="n1", held={"GPU-n1-2": (100, 1_000)}))
    made.turns.pod_seen(asks("u4", 30, 90_000, spec={"schedulingGates": [{"name": NAMES.gate}]}))
    return made
