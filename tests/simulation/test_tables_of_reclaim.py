"""The tables of who has to go for whom, lived through by the whole system while something goes wrong in each step.

What they say of the core (`tests/unit/reclaim/test_reclaim_tables.py`) and of a real cluster holds here as well: by
grants and gates, and nobody goes beside those. A node that is lost is in a table of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from simulation.universe.api import Weather
from simulation.universe.doomed import RESTART, quiet
from simulation.universe.evictions import Evictions
from simulation.universe.replica import SimReplica
from simulation.universe.table import Table
from support.queue_scenarios import Scenario
from support.reclaim_scenarios import MEANWHILE, RECLAIMS

SCALE = quiet("test_tables_of_reclaim.py")
ROOM = Names().room
# What watches tell comes late, some of it twice, and some is lost in a watch that breaks.
LATE = Weather(lag=0.05, late_line=0.5, doubled_line=0.1, cut_line=0.02)


class Lagging(Table):
    """Whoever leads knows late."""

    async def before(self) -> None:
        """From now on."""
        self.town.api.weather(LATE)


class Refused(Table):
    """A disruption budget, of which nobody was told, keeps the first who is asked in each step."""

    evictions: Evictions

    def step_begins(self) -> None:
        """Once more."""
        self.evictions.keeps_next = True


class Beheaded(Table):
    """In each step the leader dies, at the first write of some kind."""

    # How often it died.
    deaths = 0
    _is_due = False

    def is_then(self, before: Pod | None, now: Pod) -> bool:
        """Whether it is that write."""
        raise NotImplementedError

    def step_begins(self) -> None:
        """Once more."""
        self._is_due = True

    def written(self, before: Pod | None, now: Pod) -> None:
        """The write is done, and whoever wrote it never hears of it."""
        if not self._is_due or not self.is_then(before, now):
            return
        self._is_due = False
        self.deaths += 1
        leader = self.leader
        leader.kill()
        self.town.loop.spawn(self._start_anew(leader))

    async def _start_anew(self, replica: SimReplica) -> None:
        await asyncio.sleep(RESTART)
        replica.start()


class DiesDeciding(Beheaded):
    """Between deciding and evicting: it stands where room is made, and nobody was asked yet."""

    def is_then(self, before: Pod | None, now: Pod) -> bool:
        """The first says so."""
        return ROOM in now.metadata.annotations and (before is None or ROOM not in before.metadata.annotations)


class DiesEvicting(Beheaded):
    """Between evicting and admitting, or one eviction and the next."""

    def is_then(self, before: Pod | None, now: Pod) -> bool:
        """The first is asked to go."""
        return bool(now.metadata.deletion_timestamp and before and not before.metadata.deletion_timestamp)


class DiesAdmitting(Beheaded):
    """Between admitting one and the next, or its being bound."""

    def is_then(self, before: Pod | None, now: Pod) -> bool:
        """The first has its turn."""
        return bool(before and before.spec.scheduling_gates and not now.spec.scheduling_gates)


FAULTS: tuple[type[Table], ...] = (Table, Lagging, Refused, DiesDeciding, DiesEvicting, DiesAdmitting)
PLAYS = [
    pytest.param(scenario, broken, id=f"{broken.__name__}-{scenario.name}")
    for scenario in (*RECLAIMS, *MEANWHILE)
    for broken in FAULTS
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("scenario", "broken"), PLAYS)
def test_it_is_as_the_table_says_whatever_goes_wrong(
    scenario: Scenario, broken: type[Table], evictions: Evictions
) -> None:
    """After each step; who is asked is asked once, by whichever leader."""
    told = broken(scenario, scale=SCALE)
    if isinstance(told, Refused):
        told.evictions = evictions
    told.dies()
    assert max(Counter(evictions.taken).values(), default=0) <= 1, evictions.taken
    if isinstance(told, Beheaded):
        somebody_goes = any(step.goes or step.ignores for step in scenario.steps)
        assert told.deaths > 0 or not somebody_goes, "it showed nothing: nobody died"
