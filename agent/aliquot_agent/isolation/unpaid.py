"""How many launches of a slice passed although its container owed, because what it had in flight might wait for them.

They are charged and paid for afterwards, so they are no over-use: that is judged by the driver's word. Who has many of
them runs a program that a part of a GPU makes slow. The number stands in the account, which the tenant may write: a
number that no library of ours can have counted up to counts for nothing. Pure.
"""

from __future__ import annotations

import msgspec

# isolation/patience.c: after one that passed, no other does for so long.
_LEAST_BETWEEN_NS = 1_000_000


class Unpaid(msgspec.Struct, frozen=True, kw_only=True):
    """Those of one slice since it was looked at first; what its account said last, and when."""

    count: int = 0
    said: int
    at: int

    def then(self, said: int, *, now: int) -> Unpaid:
        """One look later."""
        most = (now - self.at) // _LEAST_BETWEEN_NS + 1
        more = said - self.said if 0 < said - self.said <= most else 0
        return Unpaid(count=self.count + more, said=said, at=now)
