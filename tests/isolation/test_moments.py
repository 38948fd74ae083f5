"""When a container's processes had work in flight, as the interposer writes it down: isolation/moments.c."""

from __future__ import annotations

import ctypes
import functools

import pytest

from aliquot_agent.isolation.turns import PLACES, WINDOW_NS
from support.pure_c import ROOT, compiled

pytestmark = [pytest.mark.native, pytest.mark.timeout(120)]

LATER = 1000 * WINDOW_NS
_Places = ctypes.c_uint64 * PLACES


@functools.cache
def _library() -> ctypes.CDLL:
    loaded = compiled(ROOT / "isolation" / "moments.c")
    loaded.moments_add.argtypes = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64
    return loaded


class Moments:
    """The places of one GPU of one container."""

    def __init__(self) -> None:
        self._places = _Places()

    def add(self, since: float, until: float) -> None:
        """Work was in flight, in windows from `LATER` on."""
        _library().moments_add(self._places, round(LATER + since * WINDOW_NS), round(LATER + until * WINDOW_NS))

    def told(self) -> dict[int, float]:
        """By window, for how many windows' time."""
        words = [word for word in self._places if word]
        return {(word >> 32) - LATER // WINDOW_NS: (word & 0xFFFFFFFF) / WINDOW_NS for word in words}


@pytest.mark.parametrize(
    ("spans", "told"),
    [
        ([(0.25, 0.75)], {0: 0.5}),
        ([(0.5, 3.25)], {0: 0.5, 1: 1.0, 2: 1.0, 3: 0.25}),
        # Two processes, one after the other and at once.
        ([(0, 0.5), (0.5, 1), (0, 1)], {0: 2.0}),
        ([(1, 1)], {}),
        # A window's place is another's in due time, and whoever then comes too late is of nobody's any more.
        ([(0, 1), (PLACES, PLACES + 0.5), (0, 1)], {PLACES: 0.5}),
    ],
)
def test_work_is_noted_in_the_windows_it_was_in_flight_in(
    spans: list[tuple[float, float]], told: dict[int, float]
) -> None:
    """Each span by its parts, and those of all processes together."""
    moments = Moments()
    for since, until in spans:
        moments.add(since, until)
    assert moments.told() == told


def test_what_lasted_longer_than_there_are_places_is_noted_as_far_as_it_is_asked_for() -> None:
    """A process that was stopped pays for a second at once: the last windows say so, each once."""
    moments = Moments()
    moments.add(-500, 0.5)
    assert moments.told() == {0: 0.5, **dict.fromkeys(range(2 - PLACES, 0), 1.0), 1 - PLACES: 0.5}


def test_a_window_is_full_and_never_another_one() -> None:
    """Whatever is added to it, its number stays."""
    moments = Moments()
    for _ in range(5000):
        moments.add(0, 1)
    assert moments.told() == {0: pytest.approx(2**32 / WINDOW_NS)}
