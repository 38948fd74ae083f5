"""What waits for a queue's guarantee, in one dimension, by how much of it is let in at once.

A pod is let in as a whole, and so is what a gang needs to start. What is larger than all that is missing of a guarantee
can't be served by it, whatever is kept free: it would have to borrow the rest. So it demands nothing of that guarantee
until enough of it is missing again, and what is idle meanwhile is lent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort


class Portions:
    """How many there are of each size."""

    __slots__ = ("_counts", "_sizes", "_total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._sizes: list[int] = []
        self._total = 0

    def add(self, size: int, *, times: int) -> None:
        """So many more of one size; a negative number takes them away."""
        count = self._counts.get(size, 0) + times
        if not count:
            del self._counts[size]
            del self._sizes[bisect_left(self._sizes, size)]
        else:
            if size not in self._counts:
                insort(self._sizes, size)
            self._counts[size] = count
        self._total += size * times

    def fitting(self, most: int, *, but: int = 0) -> int:
        """The sum of those that are no larger than `most`, and at most that; without one of the size `but`."""
        if most <= 0 or not self._sizes:
            return 0
        without = but if but <= most and but in self._counts else 0
        if self._sizes[-1] <= most:
            return min(most, self._total - without)
        return min(most, self._sum(most, enough=most + without) - without)

    def any_between(self, one: int, other: int) -> bool:
        """Whether there is one above the lower of these, and no larger than the other."""
        low, high = sorted((one, other))
        return bisect_right(self._sizes, low) < bisect_right(self._sizes, high)

    def _sum(self, most: int, *, enough: int) -> int:
        """Of those no larger than `most`, as far as `enough`: small sums end soon, of large ones little is left out."""
        sizes, counts = self._sizes, self._counts
        place = bisect_right(sizes, most)
        if 2 * place > len(sizes):
            return self._total - sum(size * counts[size] for size in sizes[place:])
        found = 0
        for size in sizes[:place]:
            found += size * counts[size]
            if found >= enough:
                break
        return found
