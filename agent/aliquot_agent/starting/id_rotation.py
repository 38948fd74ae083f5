"""Ids that an ended pod still holds in the kubelet's record are replaced by fresh ones.

The kubelet frees the ids of ended pods only when it next allocates, and not at all until it has heard from the API
server. So a kubelet that starts with a record full of ended pods fails the pods that wait for it: "requested 10,
available 0" with every GPU idle (run: 16 of 20 restarts of a real kubelet with 20 pods bound meanwhile). Ids that it
has never seen can't be taken; the number of ids stays.

An id is a slot and a turn: `a1b2c3-07`, then `a1b2c3-07a`, `a1b2c3-07b`. What must always hold: every slot has one id
in the table; an id that a living pod holds stays in the table; an id that an ended pod holds is not in it.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from aliquot_agent.starting.kubelet_view import Recorded
from aliquot_core.door import Device
from aliquot_core.objects import Pod


def spent_ids(
    recorded: Collection[Recorded], *, pods: Mapping[str, Pod], standing: Collection[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """The ids in the kubelet's record, as (those of living pods, those of pods that ended or are gone)."""
    living: set[str] = set()
    ended: set[str] = set()
    for entry in recorded:
        pod = pods.get(entry.uid)
        lives = entry.uid in standing if pod is None else not pod.ended
        (living if lives else ended).update(entry.ids)
    return frozenset(living), frozenset(ended - living)


class IdRotation:
    """Which turn each slot is at."""

    def __init__(self) -> None:
        self._turns: dict[str, str] = {}

    def id_of(self, slot: str) -> str:
        """The slot's id now."""
        return slot + self._turns.get(slot, "")

    def turn(self, slots: Collection[str], *, living: frozenset[str], spent: frozenset[str]) -> None:
        """Move every slot whose id is spent on to one that nobody holds; find the ids that living pods hold."""
        held = {slot_of(device): device for device in living}
        for slot in slots:
            if device := held.get(slot):
                self._turns[slot] = device.removeprefix(slot)
            elif self.id_of(slot) in spent:
                self._turns[slot] = next(turn for turn in _turns() if slot + turn not in spent)


def with_recorded(table: Mapping[str, Sequence[Device]], recorded: Iterable[Recorded]) -> dict[str, list[Device]]:
    """A table with the ids of slots that it lacks and the kubelet has given away: of GPUs that an agent did not find.

    Without them the kubelet would count what is held there against the GPUs that are left, and fail for good who is
    admitted meanwhile.
    """
    slots = {slot_of(device.id) for devices in table.values() for device in devices}
    given = {name: list(devices) for name, devices in table.items()}
    for entry in recorded:
        away = sorted(one for one in entry.ids if slot_of(one) not in slots)
        given.get(entry.resource, []).extend(Device(id=one, healthy=True) for one in away)
    return given


def slot_of(device: str) -> str:
    """`a1b2c3-07b` → `a1b2c3-07`."""
    return device.rstrip(string.ascii_lowercase)


def _turns() -> Iterator[str]:
    """No letter, then `a` to `z`, then `aa` and so on: as short as can be, and again from the start."""
    yield ""
    for length in itertools.count(1):
        yield from map("".join, itertools.product(string.ascii_lowercase, repeat=length))
