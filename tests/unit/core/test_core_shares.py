"""How a slice is divided over GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.quantities import WHOLE, MiB, Percent
from aliquot_core.shares import Share, divide, memory_of

# compute, limit, memory, gpus → per GPU: compute, limit, memory
ROWS = [
    (30, 30, 8_000, None, [(30, 30, 8_000)]),
    (30, 80, 8_000, None, [(30, 80, 8_000)]),
    (30, 30, None, None, [(30, 30, None)]),
    (0, 100, 8_000, None, [(0, 100, 8_000)]),
    (0, 40, 8_000, None, [(0, 40, 8_000)]),
    (100, 100, 8_000, None, [(100, 100, 8_000)]),
    (101, 101, 1_010, None, [(100, 100, 1_000), (1, 1, 10)]),
    (200, 200, 16_000, None, [(100, 100, 8_000), (100, 100, 8_000)]),
    (250, 250, 1_000, None, [(100, 100, 400), (100, 100, 400), (50, 50, 200)]),
    (250, 250, 1_001, None, [(100, 100, 401), (100, 100, 401), (50, 50, 201)]),
    (250, 250, 1, None, [(100, 100, 1), (100, 100, 1), (50, 50, 1)]),
    (250, 250, None, None, [(100, 100, None), (100, 100, None), (50, 50, None)]),
    (250, 280, 1_000, None, [(100, 100, 400), (100, 100, 400), (50, 80, 200)]),
    (250, 300, 1_000, None, [(100, 100, 400), (100, 100, 400), (50, 100, 200)]),
    (60, 60, 8_000, 2, [(30, 30, 4_000), (30, 30, 4_000)]),
    (101, 101, 1_001, 2, [(51, 51, 501), (50, 50, 500)]),
    (250, 250, 1_000, 3, [(84, 84, 334), (83, 83, 333), (83, 83, 333)]),
    (250, 300, 1_000, 3, [(84, 100, 334), (83, 100, 333), (83, 100, 333)]),
    (5, 6, 4, 2, [(3, 3, 2), (2, 3, 2)]),
    (8, 8, None, 8, [(1, 1, None)] * 8),
    (200, 200, 5, 2, [(100, 100, 3), (100, 100, 2)]),
]


@pytest.mark.parametrize(("compute", "limit", "memory", "gpus", "shares"), ROWS)
def test_a_slice_is_divided_as_the_contract_says(
    compute: int, limit: int, memory: int | None, gpus: int | None, shares: list[tuple[int, int, int | None]]
) -> None:
    """Whole GPUs first and memory as compute is; with `gpus` both evenly, remainders to the first."""
    held = None if memory is None else MiB(memory)
    assert list(divide(compute=Percent(compute), limit=Percent(limit), memory=held, gpus=gpus)) == [
        Share(compute=Percent(c), limit=Percent(most), memory=None if m is None else MiB(m)) for c, most, m in shares
    ]


@st.composite
def slices(draw: st.DrawFn) -> tuple[int, int, int, int | None]:
    """Numbers that fit each other, as the parser lets them through."""
    gpus = draw(st.none() | st.integers(1, 16))
    compute = draw(st.integers(gpus or 0, 100 * (gpus or 16)))
    cards = gpus or max(1, -(-compute // 100))
    limit = draw(st.integers(max(compute, 1), 100 * cards))
    return compute, limit, draw(st.integers(gpus or 1, 200_000)), gpus


@given(slices())
def test_nothing_is_lost_and_no_gpu_is_asked_for_more_than_it_has(numbers: tuple[int, int, int, int | None]) -> None:
    """Compute and limit add up exactly, memory to what was asked and less than one MiB a GPU more."""
    compute, limit, memory, gpus = numbers
    shares = divide(compute=Percent(compute), limit=Percent(limit), memory=MiB(memory), gpus=gpus)
    computes = [share.compute.value for share in shares]
    memories = [share.memory.value for share in shares if share.memory]
    assert len(memories) == len(shares) == (gpus or max(1, -(-compute // 100)))
    assert sum(computes) == compute
    assert sum(share.limit.value for share in shares) == limit
    assert all(share.compute <= share.limit <= WHOLE for share in shares)
    assert memory <= sum(memories) < memory + len(shares)
    assert computes == sorted(computes, reverse=True)
    assert memories == sorted(memories, reverse=True)
    if gpus:
        assert sum(memories) == memory
        assert max(computes) - min(computes) <= 1
        assert max(memories) - min(memories) <= 1
    else:
        assert all(part == 100 for part in computes[:-1])


@pytest.mark.parametrize(
    ("compute", "card", "memory"),
    [(100, 81_286, 81_286), (50, 81_286, 40_643), (1, 81_286, 812), (33, 100, 33), (1, 50, 1), (99, 1, 1)],
)
def test_memory_left_out_is_computes_share_of_the_card(compute: int, card: int, memory: int) -> None:
    """A whole GPU has all of it; less is rounded down, and never nothing."""
    assert memory_of(Percent(compute), card=MiB(card)) == MiB(memory)


@given(parts=st.lists(st.integers(1, 100), min_size=1, max_size=100), card=st.integers(100, 300_000))
def test_slices_without_memory_that_fit_by_compute_fit_by_memory(parts: list[int], card: int) -> None:
    """However a GPU is cut up by percent, the memory that goes with it is there."""
    fitting = [part for position, part in enumerate(parts) if sum(parts[: position + 1]) <= 100]
    assert sum(memory_of(Percent(part), card=MiB(card)).value for part in fitting) <= card
