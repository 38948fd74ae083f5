"""What a node's heart-beat says of it: the agent writes the word, the centre binds by it."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Whether pods may be bound to the node."""

    READY = "ready"
    AWAY = "away"
    DRAINING = "draining"
