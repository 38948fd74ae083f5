"""Whether a node is silent or nobody is heard, however seldom the leader renews its Lease."""

from __future__ import annotations

import pytest

from aliquot_scheduler.picture.hearing import Hearing, deaf_after, told_all
from aliquot_scheduler.picture.picture import Picture
from aliquot_scheduler.picture.signs import SILENT, UNHEARD
from support.centre import NAMES, WALL, gpus, make_lease, make_node

# Tenths of a second.
MINUTE = 600


@pytest.mark.parametrize(
    ("every", "after", "told"),
    [
        (20, deaf_after(2.0), SILENT),
        (45, deaf_after(4.5), SILENT),
        (90, deaf_after(9.0), SILENT),
        # Its renewals come later than it means them to.
        (45, deaf_after(2.0), SILENT),
        (90, deaf_after(2.0), SILENT),
        (2 * MINUTE, deaf_after(2.0), UNHEARD),
    ],
)
def test_of_a_node_that_dies_it_is_told_where_others_are_heard(every: int, after: float, told: str) -> None:
    """Of those the leader is enough, which renews its Lease every so many tenths."""
    tenth = heard = 0
    picture = Picture(names=NAMES, hearing=Hearing(silence=lambda: (tenth - heard) / 10, after=after))
    picture.tell_time(0.0)
    picture.node_seen(make_node("n1", gpus("n1", 1)))
    picture.lease_seen(make_lease("n1"), wall=WALL)
    for tenth in range(1, MINUTE):
        heard = tenth // every * every
        picture.tell_time(tenth / 10)
    assert picture.nodes["n1"].out == told


@pytest.mark.parametrize("renew", [2.0, 4.5, 20.0])
def test_where_the_leader_is_heard_as_often_as_it_means_to_be_nobody_is_deaf(renew: float) -> None:
    """Its renewals may be two seconds late."""
    late, later = (
        Hearing(silence=lambda by=by: renew + by, after=deaf_after(renew))  # type: ignore[misc]
        for by in (1.9, 2.1)
    )
    assert (late.deaf(100.0), later.deaf(100.0)) == (False, True)


def test_an_hour_without_a_word_is_no_node_s_silence() -> None:
    """Nor are the ten seconds in which agents are heard again."""
    tenth, heard = 0, 0
    hearing = Hearing(silence=lambda: (tenth - heard) / 10, after=deaf_after(2.0))
    deaf = set[int]()
    for tenth in range(1, 62 * MINUTE):
        heard = tenth if tenth >= 60 * MINUTE else 0
        deaf |= {tenth} if hearing.deaf(tenth / 10) else set()
    assert deaf == set(range(41, 60 * MINUTE + 99))


def test_who_is_told_all_there_is_is_never_deaf() -> None:
    """A file that is replayed has no words that may come yet: whose beat was old then was silent."""
    hearing = told_all()
    assert not any(hearing.deaf(float(second)) for second in range(3_600))
