"""From whatever it finds, the keeper of MPS daemons comes to what is wanted, and never by a dangerous step."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.gpu_modes import Use
from aliquot_agent.isolation.mps_steps import Daemon, Seen, Step, next_step, told

seen_ones = st.builds(Seen, closed=st.booleans(), daemon=st.sampled_from(list(Daemon)))
BECOMES: dict[Step, dict[str, Any]] = {
    Step.CLOSE: {"closed": True},
    Step.OPEN: {"closed": False},
    Step.START: {"daemon": Daemon.ANSWERS},
    Step.QUIT: {"daemon": Daemon.GONE},
    Step.KILL: {"daemon": Daemon.GONE},
}


@given(seen_ones, st.lists(st.sampled_from(list(Use)), min_size=1, max_size=4), st.data())
def test_every_way_leads_to_what_is_wanted(seen: Seen, wishes: list[Use], data: st.DataObject) -> None:
    """Within three steps of the last wish, however often that changed on the way; and each step is a safe one."""
    for number, wanted in enumerate(wishes):
        last = number == len(wishes) - 1
        for _ in range(3 if last else data.draw(st.integers(0, 3))):
            step = next_step(wanted, seen)
            assert step is not Step.START or (seen.closed and seen.daemon is Daemon.GONE), "beside MPS, without limits"
            assert step is not Step.OPEN or seen.daemon is Daemon.GONE, "others beside its clients"
            seen = msgspec.structs.replace(seen, **BECOMES.get(step, {}))
    assert next_step(wishes[-1], seen) is Step.REST
    shared = wishes[-1] is Use.SHARED
    assert seen == Seen(closed=shared, daemon=Daemon.ANSWERS if shared else Daemon.GONE)


@given(seen_ones)
def test_a_shared_gpu_that_somebody_opened_is_closed_under_its_daemon(seen: Seen) -> None:
    """Its clients go on: a daemon that answers is ended only where the GPU is not to be shared."""
    seen = msgspec.structs.replace(seen, daemon=Daemon.ANSWERS)
    assert next_step(Use.SHARED, seen) is (Step.REST if seen.closed else Step.CLOSE)


@pytest.mark.parametrize(("wanted", "faulty", "said"), [(Use.SHARED, 1, True), (Use.SHARED, 0, False)])
def test_a_fault_is_said(wanted: Use, faulty: int, said: bool) -> None:
    """A server in fault takes no client: whoever would start there waits, and is told why."""
    found = told(
        wanted, Seen(closed=True, daemon=Daemon.ANSWERS, faulty=faulty, clients=2, servers=(9,)), most_clients=48
    )
    assert ("fault" in found.problem) is said
    assert (found.use, found.clients, found.most_clients, found.servers) == (wanted, 2, 48, (9,))
