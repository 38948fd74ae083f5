"""What examples of use show, wherever they run: for each what is applied, and what is held after that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Stage(NamedTuple):
    """Files that are applied, and then percent held (memory aside) and pods waiting, by namespace."""

    files: Sequence[str]
    held: Mapping[str, int] = {}
    waiting: Mapping[str, int] = {}


# On four GPUs of one node, of 80 GB, that are no L40S; each from an empty machine.
USES: Mapping[str, Sequence[Stage]] = {
    "two-notebooks": [Stage(["notebooks"], {"notebooks": 70})],
    "inference-beside-training": [Stage(["pods"], {"beside": 100})],
    "gang": [Stage(["training"], {"gang": 400})],
    "gpu-types": [Stage(["pods"], {"types": 50}, {"types": 1})],
    "urgent-first": [
        Stage(["queues", "runs"], {"urgent": 100}),
        Stage(["line"], {"urgent": 100}, {"urgent": 2}),
    ],
    "quotas": [Stage(["quotas"]), Stage(["job"], {"quotas": 80})],
    "jobs": [Stage(["jobs"])],
    "weights": [
        Stage(["queues", "small"], {"small": 200}, {"small": 4}),
        Stage(["large"], {"small": 200, "large": 200}, {"large": 4}),
    ],
}
