"""What an operator may set about queues."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

_DAY = 86_400.0


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[queues]`, in seconds."""

    # How long those behind may pass the head of a line that does not fit.
    patience: Annotated[float, msgspec.Meta(ge=0, le=7 * _DAY)] = 300.0
    # How long heads that were passed so long may hold others up; then all may pass again for the time of patience. Nor
    # is anybody kept waiting for pods that have run for longer. An hour made pods that run for days wait four times as
    # long as a quarter of it (docs/simulate.md), and pods of minutes need no more.
    hold: Annotated[float, msgspec.Meta(ge=0, le=7 * _DAY)] = 900.0
    # How long a pod waits inside its guarantee, which is free in pieces alone, before a node is kept for it: where pods
    # end within seconds it is whole again by itself, and nothing need stand idle for it.
    owed: Annotated[float, msgspec.Meta(ge=0, le=7 * _DAY)] = 60.0
    # After so long usage counts half.
    half_life: Annotated[float, msgspec.Meta(gt=0, le=366 * _DAY)] = _DAY
    # When a pod is let in, it counts at once as if it had run for so long.
    penalty: Annotated[float, msgspec.Meta(gt=0, le=_DAY)] = 60.0
    # A gang of which so long fewer than its minimum run, while others of it can't, is sent back as a whole.
    stale_gang: Annotated[float, msgspec.Meta(gt=0, le=_DAY)] = 60.0
    # So many pods may be moved within an hour, for one that waits, or so that GPUs or nodes stand empty; 0: nobody is.
    moves_per_hour: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    # What pods are moved together for though nobody waits for it: whole GPUs, or whole nodes, say to take some away.
    empties: Literal["Nothing", "GPUs", "Nodes"] = "Nothing"
    # Whether pods are moved off degraded GPUs, whatever may be moved otherwise.
    drain_degraded: bool = True
    # After so long PodDisruptionBudgets no more keep from an owner what it lent: whoever borrows may write one that
    # never lets anybody go. In ten minutes one that is meant well has let the next go. 0: they keep it for ever, and
    # nobody goes but as Kubernetes evicts.
    budget_grace: Annotated[float, msgspec.Meta(ge=0, le=366 * _DAY)] = 0.0
    # Whoever has to go for others is asked to be gone within so many seconds, whatever grace it gives itself: an owner
    # waits for no more than that, and a minute. To save a model takes minutes.
    max_grace: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 300
    # The label that says whose a pod is; without it, the namespace is the user.
    user_label: Annotated[str, msgspec.Meta(max_length=317)] = ""
