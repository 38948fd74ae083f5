"""What the leader tells Prometheus: numbers of a known picture, and nothing where it does not lead."""

from __future__ import annotations

from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from aliquot_kube.transport import Transport
from aliquot_scheduler.centre.centre import Reign
from aliquot_scheduler.centre.metrics import CentreCollector
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.queues.settings import QueueSettings
from support.centre import MEMORY, NAMES, WALL, asks, bound, gpus, make_lease, make_node
from support.clocks import VirtualClock

MIB = 1024 * 1024


@pytest.fixture
def reign() -> Reign:
    """A leader that knows two nodes, one of them cordoned, and three pods."""
    made = Reign(
        transport=cast("Transport", None),  # nothing is asked
        clock=VirtualClock(),
        random=lambda: 0.5,
        names=NAMES,
        settings=CentreSettings(),
        queues=QueueSettings(),
        leads=lambda: True,
        settled=lambda: None,
    )
    for node in (make_node("n1", gpus("n1", 4)), make_node("n2", gpus("n2", 4), cordoned=True)):
        made.picture.node_seen(node)
        made.picture.lease_seen(make_lease(node.metadata.name), wall=WALL)
    made.desk.pod_seen(bound(asks("u1", 50, MEMORY), node="n1", held={"GPU-n1-0": (50, MEMORY)}))
    made.desk.pod_seen(bound(asks("u2", 75, MEMORY // 4), node="n1", held={"GPU-n1-1": (75, MEMORY // 4)}))
    made.desk.pod_seen(bound(asks("u3", 100, 1_000), node="n1", held={"GPU-n1-2": (100, 1_000)}))
    made.turns.pod_seen(asks("u4", 30, 90_000, spec={"schedulingGates": [{"name": NAMES.gate}]}))
    return made


def registered(reign: Reign | None) -> CollectorRegistry:
    """A registry that scrapes this leader, or one who does not lead."""
    registry = CollectorRegistry()
    registry.register(CentreCollector(reign=lambda: reign, leads=lambda: reign is not None))
    return registry


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("leader", {}, 1.0),
        ("deciding", {}, 0.0),
        ("nodes", {"state": "in"}, 1.0),
        ("nodes", {"state": "out"}, 1.0),
        ("gpus", {}, 4.0),
        ("compute_free_gpus", {}, 0.5 + 0.25 + 0.0 + 1.0),
        ("memory_free_bytes", {}, (0.75 + 1.0) * MEMORY * MIB),
        ("compute_stranded_gpus", {}, 0.5),
        ("memory_stranded_bytes", {}, 0.5 * MEMORY * MIB),
        ("promises", {"stage": "offered"}, 0.0),
        ("waiting_pods", {}, 1.0),
    ],
)
def test_each_figure_is_what_the_picture_says(reign: Reign, name: str, labels: dict[str, str], value: float) -> None:
    """A GPU given whole has nothing free, whatever memory was asked; a cordoned node's GPUs don't count."""
    found = registered(reign).get_sample_value(f"aliquot_centre_{name}", labels)
    assert found == pytest.approx(value)


def test_who_does_not_lead_says_only_that() -> None:
    """Or sums over replicas would count twice."""
    families = list(registered(None).collect())
    assert [family.name for family in families] == ["aliquot_centre_leader"]
