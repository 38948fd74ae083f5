"""What the queues know of cards: which nodes would do for a pod if they were empty, and which have room now."""

from __future__ import annotations

import pytest

from aliquot_core.request import parse_request
from aliquot_scheduler.fit.demand import demand_of
from aliquot_scheduler.queues.judging.cards import Cards
from aliquot_scheduler.queues.said.tree import plant
from support.centre import NAMES, asks, gpus, make_node, picture_with


@pytest.mark.parametrize(
    ("uuids", "able"),
    [
        ("GPU-n2-1", {"n2"}),
        ("GPU-n1-*", {"n1"}),
        ("!GPU-n1-*", {"n2"}),
        ("GPU-elsewhere", set()),
        ("*", {"n1", "n2"}),
    ],
)
def test_only_nodes_with_the_gpus_that_are_named_would_do(uuids: str, able: set[str]) -> None:
    """A pod that names GPUs fits only where they are: a gang is laid out, and room is kept, nowhere else."""
    picture = picture_with(make_node("n1", gpus("n1", 2)), make_node("n2", gpus("n2", 2)))
    cards = Cards(picture=picture, dimensions=plant({}).dimensions, names=NAMES)
    pod = asks("u", 30, 1_000, annotations={NAMES.gpu_uuid: uuids})
    demand = demand_of(parse_request(pod, names=NAMES))
    rows = {name: known.row for name, known in picture.nodes.items()}
    assert {name for name, row in rows.items() if cards.able(demand)[row]} == able
    assert {name for name, row in rows.items() if cards.roomy(demand)[row]} == able
