"""What a rule of one's own is written against.

A rule is a function of a pod and a node, installed under the entry point group `aliquot.rules`. It is asked of each
node that has room. It is to be pure: no clock, no network, no luck, nothing remembered; the same question has the same
answer in the centre, in `aliquot explain` and in `aliquot simulate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

# The most that a rule may put on a node, in GPUs: as much as a degraded GPU and an empty one together.
MOST_COST = 2.0


class PodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule is told of a pod; `simulate` knows no namespace, labels or annotations."""

    namespace: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    # How many GPUs, and percent and MiB of the one of which most is asked; 0 MiB: compute's share of the card.
    gpus: int = 0
    compute: int = 0
    memory: int = 0
    cores: float = 0.0


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule is told of a node."""

    name: str
    labels: Mapping[str, str] = {}
    # Of each of its GPUs.
    models: tuple[str, ...] = ()


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule says of a node: not there, or at so much more (in GPUs, 0 to 2); `why` completes both for people.

    Less than 0 counts as 0 and more than 2 as 2, since a cost that is reckoned with pods' words is what people make it.
    """

    refused: bool = False
    cost: float = 0.0
    why: str = ""


def is_cost(number: float) -> bool:
    """Whether a rule may put so much on a node; what is no number is none."""
    return 0.0 <= number <= MOST_COST


# What people write on a pod: a field of its facts, and a key in it or all of it.
Word = tuple[str, str]
WORDS = ("namespace", "labels", "annotations")
ALL_WORDS: frozenset[Word] = frozenset((field, "") for field in WORDS)

# None: nothing against it.
Rule = Callable[[PodFacts, NodeFacts], Opinion | None]
