"""A node of its own for each of a group: nobody with the choice takes one that others of it can't do without.

Those who ask the same are one kind. One after the other gets a node: a free one, or one that another kind gives up
because it can have a free one itself, over as many steps as it takes (augmenting paths). So as many get one as can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from aliquot_scheduler.picture.grid import Bools

NOWHERE = -1

_Owners = npt.NDArray[np.int64]


def apart(kinds: Sequence[int], able: Mapping[int, Bools]) -> list[int]:
    """A row for each, by its kind, of those that are able to take that; `NOWHERE` for who is one too many."""
    owners: _Owners = np.full(len(next(iter(able.values()))), NOWHERE, dtype=np.int64)
    for kind in kinds:
        _settle(kind, able, owners)
    rows = {kind: np.flatnonzero(owners == kind).tolist() for kind in able}
    return [rows[kind].pop(0) if rows[kind] else NOWHERE for kind in kinds]


def _settle(kind: int, able: Mapping[int, Bools], owners: _Owners) -> None:
    """One more of this kind has a row, if there is any way."""
    # Who would take over one of whose rows, and which one.
    after: dict[int, tuple[int, int]] = {}
    looked_at = [kind]
    for one in looked_at:
        if (free := np.flatnonzero(able[one] & (owners == NOWHERE))).size:
            _shift(one, int(free[0]), after, owners)
            return
        for other in able:
            if other in after or other == kind:
                continue
            if (theirs := np.flatnonzero(able[one] & (owners == other))).size:
                after[other] = one, int(theirs[0])
                looked_at.append(other)


def _shift(one: int, row: int, after: Mapping[int, tuple[int, int]], owners: _Owners) -> None:
    """It takes the row; whoever was waiting for one of its rows takes that, and so on."""
    owners[row] = one
    while one in after:
        one, row = after[one]
        owners[row] = one
