"""How often the leader renews its Lease reaches whoever judges by it that nobody is heard: the leader, and `top`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from aliquot_cli.replica_decides import centre_of
from aliquot_cli.replica_settings import Settings
from aliquot_cli.top.onlooker import Onlooker, renewed_every
from aliquot_core.names import LEADER_LEASE
from aliquot_core.objects import Lease, LeaseSpec, ObjectMeta
from aliquot_kube.election import ElectionSettings
from aliquot_kube.leadership import Leadership
from aliquot_scheduler.picture.hearing import deaf_after
from aliquot_scheduler.queues.said.settings import QueueSettings
from support.centre import NAMES, make_lease
from support.clocks import VirtualClock
from support.fake_api import FakeApi

ELECTION = ElectionSettings(duration=20.0, renew=4.5)


def test_the_leader_judges_by_the_election_s_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the process is put together; and once it has read all, the next need not look for what was before."""
    said: list[str] = []
    monkeypatch.setattr("gc.freeze", lambda: said.append("frozen"))
    leadership = SimpleNamespace(beat_before=1_000.0, has_read=lambda: said.append("read"))
    centre = centre_of(
        Settings(election=ELECTION),
        transport=FakeApi(),
        leadership=cast("Leadership", leadership),
        clock=VirtualClock(),
        random=lambda: 0.5,
    )
    reign = centre._new_reign()
    assert (reign.picture._hearing._after, reign._watches._deaf) == (deaf_after(4.5), deaf_after(4.5))
    # What was told until then it does not tell again.
    assert 900.0 < reign.clerks.by_priority._told_until < 1_000.0
    assert said == []
    reign._settled()
    assert said == ["read", "frozen"]


def leading(seconds: int | None) -> Lease:
    """The leader's Lease, good for so long."""
    return Lease(metadata=ObjectMeta(name=LEADER_LEASE), spec=LeaseSpec(lease_duration_seconds=seconds))


@pytest.mark.parametrize(
    ("leases", "renew"),
    [
        ([leading(10)], 2.0),
        # So seldom it may be by now, as far as that can be told.
        ([make_lease("n1"), leading(20)], 12.0),
        ([leading(3)], 2.0),
        ([leading(None)], 2.0),
        ([make_lease("n1")], 2.0),
        ([], 2.0),
    ],
)
def test_top_judges_by_the_leader_s_lease(leases: list[Lease], renew: float) -> None:
    """Which says for how long it is good; settings of its own it has none."""
    found = renewed_every(leases)
    assert found == renew
    onlooker = Onlooker(
        transport=FakeApi(),
        clock=VirtualClock(),
        random=lambda: 0.5,
        names=NAMES,
        settings=QueueSettings(),
        renew=found,
    )
    assert (onlooker._picture._hearing._after, onlooker._watches._deaf) == (deaf_after(renew), deaf_after(renew))
