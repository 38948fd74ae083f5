"""What slices used over time, as advice on what to ask needs it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aliquot_scheduler.page.past import FORGOTTEN, Pasts
from aliquot_scheduler.page.usage import Usage, Use

KEY = ("n1", "GPU-1", "team/a")


def seen(pasts: Pasts, *uses: Use, since: float = 0.0, every: float = 10.0) -> Use:
    """What is said at the last of these looks."""
    for number, use in enumerate(uses):
        said = pasts.with_past(Usage(at=since + number * every, slices={KEY: use}))
    return said.slices[KEY]


def test_the_most_memory_and_the_compute_of_most_looks_are_told() -> None:
    """One moment at full speed among many is no need; one moment full of memory is."""
    uses = [Use(compute=12, memory=500)] * 39 + [Use(compute=100, memory=3_000), Use(compute=3, memory=10)]
    now = seen(Pasts(), *uses)
    assert now == Use(compute=3, memory=10, since=0.0, most_memory=3_000, high_compute=15)


@given(uses=st.lists(st.integers(0, 100), min_size=1, max_size=60))
def test_most_looks_kept_within_what_is_told(uses: list[int]) -> None:
    """Nineteen of twenty, and the next smaller step holds fewer."""
    high = seen(Pasts(), *(Use(compute=one) for one in uses)).high_compute
    assert high is not None
    assert sum(one <= high for one in uses) >= 0.95 * len(uses)
    assert not high or sum(one <= high - 5 for one in uses) < 0.95 * len(uses)


def test_what_is_not_known_leaves_the_past_as_it_was() -> None:
    """A look without a figure is no look at zero, and of one without any nothing is said."""
    now = seen(Pasts(), Use(compute=50, memory=700), *[Use()] * 50)
    assert (now.high_compute, now.most_memory, now.compute) == (50, 700, None)
    assert seen(Pasts(), Use()) == Use(since=0.0)


def test_a_slice_that_is_away_for_a_while_goes_on_and_one_long_gone_begins_anew() -> None:
    """A page that failed, or a pod that started again under its name, has its past; after an hour nobody remembers."""
    pasts = Pasts()
    seen(pasts, Use(memory=900))
    pasts.with_past(Usage(at=FORGOTTEN / 2))
    assert seen(pasts, Use(memory=1), since=FORGOTTEN - 1) == Use(memory=1, since=0.0, most_memory=900)
    assert seen(pasts, *[Use(memory=2)] * 9, since=FORGOTTEN, every=FORGOTTEN / 2).since == 0.0
    pasts.with_past(Usage(at=9 * FORGOTTEN))
    assert seen(pasts, Use(memory=1), since=9 * FORGOTTEN + 1).most_memory == 1
