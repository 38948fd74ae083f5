"""Time as it is handed in: nothing in Aliquot reads a clock that it was not given."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """What the system asks of time; a simulated clock answers the same questions without waiting."""

    def monotonic(self) -> float:
        """Seconds since some instant, never backwards: for deadlines and ages."""
        ...

    def wall(self) -> float:
        """Seconds since 1970 UTC: only for what people and other machines read."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Give others their turn for so long."""
        ...
