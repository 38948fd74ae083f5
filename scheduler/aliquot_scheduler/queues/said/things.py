"""What queues speak of: compute and memory, of all GPUs or of those whose model a pattern takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aliquot_scheduler.queues.said.spec import ModelQuota, QueueSpec, Quota

# The pattern of all cards, beside those of models.
ALL_CARDS = ""
KINDS = ("compute", "memory")

# By pattern, the models there that it takes.
Kinds = Mapping[str, frozenset[int]]


class Thing(NamedTuple):
    """One of both, of the cards of a pattern."""

    pattern: str
    kind: str

    @property
    def field(self) -> str:
        """Where in a queue's `spec` its author writes of it."""
        return self.kind if self.pattern == ALL_CARDS else f"models[{self.pattern}].{self.kind}"


def patterns_of(models: Iterable[str]) -> tuple[str, ...]:
    """All cards, and then those of each model: the order in which dimensions are counted."""
    return (ALL_CARDS, *models)


def things_of(models: Iterable[str]) -> tuple[Thing, ...]:
    """Compute and memory of each pattern, in that order."""
    return tuple(Thing(pattern, kind) for pattern in patterns_of(models) for kind in KINDS)


def quota_of(spec: QueueSpec, thing: Thing) -> Quota:
    """What a queue says of one thing."""
    of_cards = spec if thing.pattern == ALL_CARDS else spec.models.get(thing.pattern, ModelQuota())
    return of_cards.compute if thing.kind == "compute" else of_cards.memory
