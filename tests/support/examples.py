"""What examples of use show, wherever they run: for each what is applied, and what is held after that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Stage(NamedTuple):
    """Files that are applied, and what there is of each namespace after that."""

    files: Sequence[str]
    # Percent of GPUs; how many GPUs they are of; pods behind their gates; pods that have succeeded.
    held: Mapping[str, int] = {}
    cards: Mapping[str, int] = {}
    waiting: Mapping[str, int] = {}
    done: Mapping[str, int] = {}


# On four GPUs of one node, of 80 GB, that are no L40S; each from an empty machine.
USES: Mapping[str, Sequence[Stage]] = {
    "two-notebooks": [Stage(["notebooks"], {"notebooks": 70}, {"notebooks": 1})],
    "inference-beside-training": [Stage(["pods"], {"beside": 100}, {"beside": 1})],
    "gang": [Stage(["training"], {"gang": 400}, {"gang": 4})],
    "gpu-types": [Stage(["pods"], {"types": 50}, waiting={"types": 1})],
    "urgent-first": [
        Stage(["queues", "runs"], {"urgent": 100}),
        Stage(["line"], {"urgent": 100}, waiting={"urgent": 2}),
    ],
    "quotas": [Stage(["quotas"]), Stage(["job"], {"quotas": 80})],
    "jobs": [Stage(["jobs"], done={"jobs": 4})],
    "weights": [
        Stage(["queues", "small"], {"small": 200}, waiting={"small": 4}),
        Stage(["large"], {"small": 200, "large": 200}, waiting={"large": 4}),
    ],
}
