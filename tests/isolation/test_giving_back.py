"""What is idle is used by who may burst, and given back within 200 ms: on a GPU whose time is the test's own."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import pytest

from aliquot_agent.isolation.pacing import Share
from support.virtual_gpu import Program, Slice, VirtualGpu

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

WITHIN_S = 0.2
# By processes of who bursts: of so many tenths of a second in a row, so many points of its share the owner may lack.
# Who gives way still uses what was launched: up to 12 ms of the GPU, or 8 ms of each process where it has several.
# So much may be gone of a single tenth, and the next ones make up for it.
LACKS = {1: {1: 12, 3: 5}, 8: {1: 45, 3: 16, 5: 8}}


def lent(*, guarantee: float, processes: int, owner: float) -> VirtualGpu:
    """A GPU on which somebody may burst without end, and its neighbour does nothing yet."""
    burst = Slice(share=Share(guarantee=guarantee, limit=1.0), programs=[Program()] * processes)
    return VirtualGpu(slices=[burst, Slice(share=Share(guarantee=owner, limit=owner))])


def poorest(tenths: Sequence[float], *, row: int) -> float:
    """What was had in the worst stretch of so many in a row, on the average."""
    return min(mean(tenths[start : start + row]) for start in range(len(tenths) - row + 1))


CASES = [
    # Guarantee and processes of who bursts; guarantee and processes of who comes back.
    (0.0, 1, 0.9, 1),
    (0.0, 8, 0.9, 1),
    (0.0, 8, 0.9, 8),
    (0.1, 1, 0.9, 1),
    (0.1, 8, 0.9, 1),
    (0.1, 1, 0.9, 8),
    (0.3, 1, 0.7, 1),
    (0.3, 8, 0.7, 1),
]


# How long after a beat the owner comes back: at once, and with the next beat almost due.
@pytest.mark.parametrize("late", [0.0, 0.05, 0.0998])
@pytest.mark.parametrize(("guarantee", "processes", "owner", "programs"), CASES)
def test_an_idle_gpu_is_used_and_given_back(
    guarantee: float, processes: int, owner: float, programs: int, late: float
) -> None:
    """All of it while the neighbour is idle; from 200 ms after it began the neighbour has its share, soon both."""
    gpu = lent(guarantee=guarantee, processes=processes, owner=owner)
    gpu.run(2.0 + late)
    assert gpu.run(1.0)[0] >= 99.0
    for _ in range(programs):
        gpu.begin(1, Program())
    gpu.run(WITHIN_S)
    tenths = [gpu.run(0.1) for _ in range(15)]
    owned = [second for _, second in tenths]
    for row, points in LACKS[processes].items():
        assert poorest(owned, row=row) >= 100 * owner - points
    assert mean(owned[:10]) >= 100 * owner - 5
    assert mean(first for first, _ in tenths[5:]) >= 100 * guarantee - 5


@pytest.mark.parametrize("late", [0.0, 0.05, 0.0998])
def test_a_slice_that_had_the_whole_gpu_keeps_its_guarantee_beside_others(late: float) -> None:
    """Eight processes that begin at once are charged for eight GPUs until the first beat: nobody lacked anything."""
    gpu = lent(guarantee=0.3, processes=8, owner=0.7)
    gpu.run(2.0 + late)
    gpu.begin(1, Program())
    gpu.run(WITHIN_S)
    for _ in range(10):
        assert gpu.run(0.2)[0] >= 10.0
