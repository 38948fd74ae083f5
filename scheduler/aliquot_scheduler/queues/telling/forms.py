"""What is printed and shown of queues: one row of a table, one pod that waits, all of one queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aliquot_scheduler.queues.said.settings import QueueSettings

# Whose queue was deleted. In parentheses, which no queue's name has.
NO_QUEUE = "(no queue)"


class UserStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A user's part of a queue; who has less goes first."""

    user: str
    share: float
    waiting: int


class SiblingStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A queue among those beside it: higher priority first, then who has less beyond guarantees, then of all."""

    name: str
    priority: int
    beyond: float
    of_all: float


class _Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Common settings of what is printed as JSON."""


class Part(_Told, frozen=True, kw_only=True):
    """One of compute and memory; None is nothing said, or not known."""

    guarantee: int | None
    limit: int | None
    weight: int | None
    lending_limit: int | None
    borrowing_limit: int | None
    used: int | None = None
    borrowed: int | None = None
    fair_share: int | None = None
    asked: int | None = None


class OwnPart(_Told, frozen=True, kw_only=True):
    """What a namespace has of a queue."""

    namespace: str
    compute: int
    memory: int
    running: int
    waiting: int
    # How many wait for what, by the word in their conditions.
    reasons: Mapping[str, int] = {}


class ModelParts(_Told, frozen=True, kw_only=True):
    """What a queue says of GPUs of a model, and has of them."""

    compute: Part
    memory: Part


class QueueRow(_Told, frozen=True, kw_only=True):
    """A queue in a table, below its parent."""

    name: str
    parent: str
    depth: int
    leaf: bool
    compute: Part
    memory: Part
    running: int | None
    waiting: int | None
    priority: int | None
    stop: str
    told_by: str
    # Where it is told by the view of a namespace.
    own: OwnPart | None = None
    # What is wrong with it.
    problems: Sequence[str] = ()
    # By pattern, of models of which it says anything.
    models: Mapping[str, ModelParts] = {}


class WaitingPod(_Told, frozen=True, kw_only=True):
    """A pod that waits: `place` counts all queues' pods, and is 0 where it is in no line."""

    pod: str
    queue: str
    user: str
    place: int
    # It could not be let in whatever others do, as nodes and its queue are; not said of who may not wait in that.
    never: bool
    priority: int
    since: str
    compute: int
    memory: int
    # In a word, as its condition says it; none of who is in no line for gates of others.
    reason: str
    why: str


class ChargedPod(_Told, frozen=True, kw_only=True):
    """A pod that is let in, and charged to a queue that is gone."""

    pod: str
    queue: str
    # Empty until it is bound.
    node: str
    compute: int
    memory: int


class GoneQueue(_Told, frozen=True, kw_only=True):
    """A queue that pods name or are charged to: it was deleted, or it hangs on nothing."""

    name: str
    hangs: bool
    running: int
    waiting: int


class QueueAnswer(_Told, frozen=True, kw_only=True):
    """All of one queue."""

    row: QueueRow
    path: Sequence[str]
    namespaces: Sequence[str]
    home_of: Sequence[str]
    siblings: Sequence[SiblingStanding] = ()
    users: Sequence[UserStanding] = ()
    pods: Sequence[WaitingPod] = ()
    # Where it is gone: which one, or which ones, and who runs on.
    gone: Sequence[GoneQueue] = ()
    charged: Sequence[ChargedPod] = ()
    # By which shares were worked out; and whose they are: the "leader"'s, or if it has told none those of who asks.
    settings: QueueSettings | None = None
    settings_of: str = ""
