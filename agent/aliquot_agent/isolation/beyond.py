"""What a container holds of a GPU beyond what stands in its account, by the driver's word. Pure.

The driver tells of processes, and so also of those that went round the interposer; the account only of what came by
it. The two are not read at the same instant, and a false excess would refuse memory to a pod that may have it. So the
account counts with the most that it said around the time of the sample, what one process lends to another counts
for both, a granule of each process is let pass, and an excess counts when the last three samples all had it.

What must always hold: never negative; nothing where the driver's word is not known for every process.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot_agent.isolation.limits_file import Account

LOOKS = 3
# The driver rounds what each process holds, and a context is not the same to the last byte everywhere.
GRANULE = 2 * 1024 * 1024

# Pod (its UID), container, GPU.
Whose = tuple[str, str, str]
# Bytes by the driver's word; None: some process of it can't be told to be whose.
Measured = Mapping[Whose, int | None]


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose limits and account lie in a folder."""

    pod: str
    container: str


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """What the last samples had beyond the account, the newest last."""

    looks: tuple[int, ...] = (0,) * (LOOKS - 1)

    @property
    def lasting(self) -> int:
        """What all of them had."""
        return min(self.looks)

    def then(self, *, driver: int | None, account: int) -> Excess:
        """One sample later."""
        if driver is None:
            return Excess()
        return Excess(looks=(*self.looks, max(0, driver - account))[-LOOKS:])


def since_restart(unaccounted: int) -> Excess:
    """What the agent before us found stands until a sample has less."""
    return Excess(looks=(unaccounted,) * (LOOKS - 1))


def accounted(account: Account, *, gpu: int) -> int:
    """The most that the account can be said to have of a GPU."""
    used = sum(each[gpu] + GRANULE for each in account.processes.values())
    return used + account.borrowed[gpu]
