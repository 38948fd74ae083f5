"""Who goes first, as it is told to who stands back: by name in its own namespace, else by its queue and UID.

Whose it is may be another tenant, and of others' pods who waits need not know the names. The UID tells nobody whose it
is; whoever may see all pods finds the name by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from aliquot_scheduler.queues.judging.rules import First

_BY_UID = re.compile(r"a pod of another namespace \(queue (?P<queue>\S+), UID (?P<uid>\S+)\)")


def told_of(first: First | None, *, namespace: str) -> str:
    """To somebody of a namespace; None is one that is gone since."""
    if first is None:
        return "another pod"
    if first.namespace == namespace:
        return f"{first.namespace}/{first.name}"
    return f"a pod of another namespace (queue {first.queue}, UID {first.uid})"


def with_names(sentence: str, names: Mapping[str, str]) -> str:
    """What was told to who waits, for one who may see all pods; `names` are those of all that are there, by UID."""

    def name(found: re.Match[str]) -> str:
        key = names.get(found["uid"])
        return f"{key} of queue {found['queue']}" if key else found[0]

    return _BY_UID.sub(name, sentence)
