"""A GPU of MPS changes its mode only when nobody holds it, and lets nobody in before it has changed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.gpu_modes import Seat, Told, Use, hindrance, next_use, use_of
from aliquot_core.claims import Claim
from aliquot_core.quantities import MiB, Percent

uses = st.sampled_from([Use.SHARED, Use.EXCLUSIVE])


@given(st.sampled_from(list(Use)), uses, st.lists(uses))
def test_a_mode_is_not_left_while_somebody_holds_it(now: Use, held: Use, coming: Sequence[Use]) -> None:
    """Whoever comes: it stays with the holders', and is theirs where an agent forgot what it was."""
    assert next_use(now, held={held}, coming=coming) is held


@given(st.sampled_from(list(Use)), st.lists(uses))
def test_an_empty_gpu_goes_to_the_first_who_comes(now: Use, coming: Sequence[Use]) -> None:
    """And is free where nobody does, so that its daemon ends."""
    assert next_use(now, held=(), coming=coming) is (coming[0] if coming else Use.FREE)


def test_holders_of_two_modes_leave_the_mode_as_it_is() -> None:
    """It can't be, unless an older agent did it: then nothing is ended under anybody."""
    both = {Use.SHARED, Use.EXCLUSIVE}
    assert next_use(Use.SHARED, held=both, coming=()) is Use.SHARED
    assert next_use(Use.EXCLUSIVE, held=both, coming=()) is Use.EXCLUSIVE


@pytest.mark.parametrize(("closes", "use"), [(True, Use.EXCLUSIVE), (False, Use.SHARED)], ids=["at 100 %", "a part"])
def test_who_has_the_gpu_alone_needs_no_daemon(closes: bool, use: Use) -> None:
    """All others share it through one."""
    assert use_of(Claim(compute=Percent(100 if closes else 30), memory=MiB(1), closes=closes)) is use


READY = Told(use=Use.SHARED, clients=3, most_clients=48)


@pytest.mark.parametrize(
    ("seat", "use", "why"),
    [
        (Seat(wanted=Use.SHARED, told=READY), Use.SHARED, ""),
        (Seat(wanted=Use.EXCLUSIVE, told=Told(use=Use.EXCLUSIVE)), Use.EXCLUSIVE, ""),
        (Seat(wanted=Use.SHARED, told=READY), Use.EXCLUSIVE, "only once nobody holds it so"),
        (Seat(wanted=Use.EXCLUSIVE, told=READY), Use.EXCLUSIVE, "being made exclusive"),
        (Seat(wanted=Use.SHARED), Use.SHARED, "being made shared"),
        (Seat(wanted=Use.SHARED, told=READY, kept=False), Use.SHARED, "does not run"),
        (Seat(wanted=Use.SHARED, told=Told(use=Use.SHARED, problem="it burns")), Use.SHARED, "it burns"),
        (Seat(wanted=Use.SHARED, told=Told(use=Use.SHARED, clients=48, most_clients=48)), Use.SHARED, "48 processes"),
        (Seat(wanted=Use.FREE, told=Told(use=Use.FREE)), Use.SHARED, "it is free"),
    ],
)
def test_a_container_waits_until_its_gpu_is_as_it_needs_it(seat: Seat, use: Use, why: str) -> None:
    """What is in the way is said in words; nothing is, only where the keeper has said that it is done."""
    found = hindrance(seat, use=use)
    assert (why in found) if why else (found == "")
