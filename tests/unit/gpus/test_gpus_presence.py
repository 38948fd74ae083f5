"""Which GPUs answer, and the events that makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.gpus.model import EventKind, Fault
from aliquot_agent.gpus.presence import Presence, observe

TABLE = [
    # before, observed, after, event
    (None, None, None, None),
    (None, Fault.LOST, Fault.LOST, EventKind.LOST),
    (None, Fault.SILENT, Fault.SILENT, EventKind.SILENT),
    (None, Fault.FAILED, Fault.FAILED, EventKind.FAILED),
    (None, Fault.UNWATCHED, None, None),
    (Fault.LOST, None, None, EventKind.RECOVERED),
    (Fault.LOST, Fault.LOST, Fault.LOST, None),
    (Fault.LOST, Fault.SILENT, Fault.LOST, None),
    (Fault.LOST, Fault.FAILED, Fault.LOST, None),
    (Fault.SILENT, None, None, EventKind.RECOVERED),
    (Fault.SILENT, Fault.LOST, Fault.LOST, EventKind.LOST),
    (Fault.SILENT, Fault.SILENT, Fault.SILENT, None),
    (Fault.SILENT, Fault.FAILED, Fault.FAILED, EventKind.FAILED),
    (Fault.FAILED, None, None, EventKind.RECOVERED),
    (Fault.FAILED, Fault.LOST, Fault.LOST, EventKind.LOST),
    (Fault.FAILED, Fault.SILENT, Fault.SILENT, EventKind.SILENT),
    (Fault.FAILED, Fault.FAILED, Fault.FAILED, None),
]


@pytest.mark.parametrize(("before", "observed", "after", "event"), TABLE)
def test_the_table(before: Fault | None, observed: Fault | None, after: Fault | None, event: EventKind | None) -> None:
    """Each line of the module's table holds, and another GPU stays as it is."""
    presence = Presence({"other": Fault.SILENT} | ({"gpu": before} if before else {}))
    changed, kind = observe(presence, uuid="gpu", fault=observed)
    assert (changed.of("gpu"), kind) == (after, event)
    assert changed.of("other") is Fault.SILENT
    assert changed.lost == ({"gpu"} if after is Fault.LOST else set())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([None, *Fault]))))
def test_recoveries_answer_troubles(observations: list[tuple[str, Fault | None]]) -> None:
    """However GPUs come and go, every change is one event, and a recovery is what follows a trouble."""
    presence, well = Presence(), dict.fromkeys("abc", True)
    for uuid, fault in observations:
        before = presence
        presence, kind = observe(presence, uuid=uuid, fault=fault)
        assert (kind is not None) == (presence.of(uuid) is not before.of(uuid))
        assert (kind is EventKind.RECOVERED) == (not well[uuid] and presence.of(uuid) is None)
        well[uuid] = presence.of(uuid) is None
