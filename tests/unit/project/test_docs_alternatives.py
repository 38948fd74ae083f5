"""What docs/alternatives.md says can be written today is what the webhook and the queues read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from aliquot_core.membership import parse_group
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.request import parse_request

NAMES = Names()
TEXT = (Path(__file__).parents[3] / "docs" / "alternatives.md").read_text()


def _template() -> dict[str, Any]:
    """The pod template of the one manifest, of a kind that Aliquot has never heard of."""
    (block,) = TEXT.split("```yaml\n")[1:]
    (workers,) = yaml.safe_load(block.partition("```")[0])["spec"]["replicatedJobs"]
    made: dict[str, Any] = workers["template"]["spec"]
    return made


def test_a_kind_that_nobody_knows_is_a_group_by_its_pods_alone() -> None:
    """As many as it makes are let in together, in the queue that the template names."""
    job = _template()
    limits = job["template"]["spec"]["containers"][0]["resources"]["limits"]
    limits.update({name: str(amount) for name, amount in limits.items()})
    pod = msgspec.convert({**job["template"], "metadata": {**job["template"]["metadata"], "name": "one"}}, Pod)
    group = parse_group(pod.metadata, names=NAMES)
    assert group is not None
    assert (group.name, group.size) == ("train", job["parallelism"])
    request = parse_request(pod, names=NAMES)
    assert request.queue == "team-a"
    (container,) = request.containers
    assert container.compute.value == 100
