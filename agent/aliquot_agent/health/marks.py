"""What an operator says of GPUs, in annotations of the node: uuids with commas between them, `*` for all of the node.

`degraded-gpus` and `cordoned-gpus` hold as long as they stand there. `clear-health` is said once: it is taken in and
then removed by the agent, so that it does not excuse what happens later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot_core.inventory import Health
from aliquot_core.names import Names
from aliquot_core.objects import Node

EVERY_GPU = "*"
DEGRADED, CORDONED = "marked", "cordoned"
CAUSES = frozenset({DEGRADED, CORDONED})


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """The marks as they stand; `reasons` has the words for each."""

    degraded: frozenset[str] = frozenset()
    cordoned: frozenset[str] = frozenset()
    clear: frozenset[str] = frozenset()
    reasons: Mapping[str, str] = {}

    def of(self, uuid: str) -> dict[str, tuple[Health, str]]:
        """What is said of one GPU, by cause."""
        said = {DEGRADED: (self.degraded, Health.DEGRADED), CORDONED: (self.cordoned, Health.SICK)}
        return {cause: (health, self.reasons[cause]) for cause, (which, health) in said.items() if named(uuid, which)}

    def strangers(self, gpus: Iterable[str]) -> frozenset[str]:
        """What is named and is no GPU of this node: probably a typing error."""
        return (self.degraded | self.cordoned | self.clear) - {EVERY_GPU} - set(gpus)


def read_marks(node: Node, *, names: Names) -> Marks:
    """The marks in a node's annotations."""
    notes = node.metadata.annotations
    return Marks(
        degraded=_uuids(notes.get(names.degraded_gpus, "")),
        cordoned=_uuids(notes.get(names.cordoned_gpus, "")),
        clear=_uuids(notes.get(names.clear_health, "")),
        reasons={
            DEGRADED: f"marked as degraded by the node's annotation {names.degraded_gpus}",
            CORDONED: f"cordoned by the node's annotation {names.cordoned_gpus}",
        },
    )


def named(uuid: str, which: frozenset[str]) -> bool:
    """Whether these words mean this GPU."""
    return uuid in which or EVERY_GPU in which


def _uuids(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())
