"""What a pod says of the load that it is to play on a simulated node. Pure.

sim.aliquot.dev/duration: "30"   seconds until its containers end by themselves; without it they run on
sim.aliquot.dev/use: "80"        percent of what it was granted that it really uses
sim.aliquot.dev/exit: "0"        the code with which its containers end
sim.aliquot.dev/stop: "0"        seconds that it takes to end once it is asked to
"""

from __future__ import annotations

import math

import msgspec

from aliquot_core.errors import UserError
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import QUOTED

# More than its grant a pod can only use of compute.
MOST_USE = 400
_MOST_CODE = 255
# A year: what is longer is written as nothing.
_LONGEST = 366 * 86_400.0
_USE = 80


class LoadError(UserError):
    """An annotation that can't be played."""


class SimNames:
    """The names by which simulated nodes and the loads of their pods are described."""

    def __init__(self, names: Names) -> None:
        self._domain = names.played

    @property
    def duration(self) -> str:
        """Pod annotation: seconds until it ends."""
        return f"{self._domain}/duration"

    @property
    def use(self) -> str:
        """Pod annotation: percent of its grant that it uses."""
        return f"{self._domain}/use"

    @property
    def exit(self) -> str:
        """Pod annotation: its exit code."""
        return f"{self._domain}/exit"

    @property
    def stop(self) -> str:
        """Pod annotation: seconds that it takes to stop."""
        return f"{self._domain}/stop"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How a pod's containers behave."""

    seconds: float | None = None
    use: int = _USE
    code: int = 0
    stop: float = 0.0


def load_of(pod: Pod, *, names: SimNames) -> Load:
    """Read a pod's annotations."""
    notes = pod.metadata.annotations

    def number(name: str, otherwise: float, *, most: float) -> float:
        return _number(notes[name], where=f"annotation {name}", most=most) if name in notes else otherwise

    return Load(
        seconds=number(names.duration, 0.0, most=_LONGEST) if names.duration in notes else None,
        use=int(number(names.use, _USE, most=MOST_USE)),
        code=int(number(names.exit, 0, most=_MOST_CODE)),
        stop=number(names.stop, 0.0, most=_LONGEST),
    )


def _number(text: str, *, where: str, most: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        raise LoadError(f"{text[:QUOTED]!r} can't be played", where=where, remedy=f"write a number from 0 to {most:g}")
    return number
