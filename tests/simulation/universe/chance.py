"""All luck of a run, from one seed; each part has a stream of its own, so one more draw here changes none there."""

from __future__ import annotations

import random


class Chance(random.Random):
    """Luck with a few words for it."""

    def __init__(self, seed: int, purpose: str) -> None:
        super().__init__(f"{seed}/{purpose}")

    def happens(self, probability: float) -> bool:
        """Whether something of that probability happens now."""
        return self.random() < probability

    def about(self, seconds: float) -> float:
        """Mostly less, seldom much more."""
        return min(self.expovariate(1.0 / seconds), 8.0 * seconds) if seconds > 0 else 0.0
