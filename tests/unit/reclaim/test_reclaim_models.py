"""An owner whose pod names no model gets back what was lent on any: what others have of one need not be in its way."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota
from support.queue_stage import H100, queue
from support.reclaim_stage import ReclaimStage

OWNER, LENT = queue(guarantee=200), queue()
RESERVED = queue(models={"*A100*": ModelQuota(compute=Quota(guarantee=200, lending_limit=0))})
LIMITED = queue(guarantee=200, models={"*A100*": ModelQuota(compute=Quota(limit=100))})

# The queues; how many cards there are of H100 and of A100; on which those lie who came before; and who may go.
SCENES: dict[str, tuple[Mapping[str, QueueSpec], tuple[int, int], Mapping[str, str], set[str]]] = {
    "all A100 are reserved, and idle": (
        {"owner": OWNER, "lent": LENT, "keeps": RESERVED},
        (2, 2),
        {"lent0": "H100", "lent1": "H100"},
        {"lent0", "lent1"},
    ),
    "all A100 are reserved, and others use one": (
        {"owner": OWNER, "lent": LENT, "keeps": RESERVED},
        (2, 2),
        {"lent0": "H100", "lent1": "H100", "lent2": "A100"},
        {"lent0", "lent1"},
    ),
    "of A100 its limit is used up": (
        {"owner": LIMITED, "lent": LENT},
        (2, 2),
        {"owner0": "A100", "lent0": "H100", "lent1": "H100", "lent2": "A100"},
        {"lent0", "lent1"},
    ),
    "two of three A100 are reserved, and others use all, for longer": (
        {"owner": OWNER, "lent": LENT, "keeps": RESERVED},
        (2, 3),
        {"lent0": "A100", "lent1": "A100", "lent2": "A100", "lent3": "H100", "lent4": "H100"},
        {"lent3", "lent4"},
    ),
}


@pytest.mark.parametrize("scene", SCENES)
def test_one_goes_where_the_owner_may_lie_and_nobody_elsewhere(scene: str) -> None:
    """Until it lies somewhere it counts for each model: that keeps it out of none, and nobody goes for it in vain."""
    specs, nodes, there, may_go = SCENES[scene]
    stage = ReclaimStage({"lent": LENT, "owner": OWNER}, nodes=nodes, models={0: H100})
    for uid, model in there.items():
        stage.submit(uid, 100, queue=uid[:-1], notes={"gpu-model": f"*{model}*"})
        assert stage.run(after=100.0) == [uid]
    stage.queues.queues_seen(specs)
    stage.submit("mine", 100, queue="owner")
    assert stage.run(after=11.0) == []
    stage.reclaimed()
    assert stage.run(after=1.0) == ["mine"]
    assert len(stage.evicted) == 1
    assert set(stage.evicted) <= may_go
