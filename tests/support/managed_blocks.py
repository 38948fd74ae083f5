"""Blocks of managed memory in plain sets, and what places them."""

from __future__ import annotations

from dataclasses import dataclass, field

GRANULE = 2 << 20
UNIT = GRANULE // 4
Spot = tuple[int, int]  # a granule, and a GPU


@dataclass(kw_only=True, eq=False)
class Block:
    """One that was taken: by units, where it really lies, and what the rules say of it."""

    at: int
    size: int
    home: int
    lies: set[Spot] = field(default_factory=set)
    advised: set[Spot] = field(default_factory=set)  # where the driver may bring it at any time
    # Of the rules: charged; those that leave with the passage; those that none leaves; calls that are under way, by
    # granule; granules that none takes anything from until they are over.
    on: set[Spot] = field(default_factory=set)
    leaves: set[Spot] = field(default_factory=set)
    preferred: set[Spot] = field(default_factory=set)
    passage: int | None = None
    busy: dict[int, list[tuple[Call, int]]] = field(default_factory=dict)
    crossed: set[int] = field(default_factory=set)
    brought_by: int | None = None
    copied: bool = False
    handle: int | None = None
    vacated: int = 0  # when the driver was last to be asked to free it

    def overlaps(self, other: Block) -> bool:
        """Whether they can't both be there."""
        return self.at < other.at + other.size and other.at < self.at + self.size

    def own(self) -> set[int]:
        """Granules of it that no other block can lie in."""
        return set(range(-(-self.at * UNIT // GRANULE), (self.at + self.size) * UNIT // GRANULE))

    def touched(self, where: Where) -> set[int]:
        """Granules of it that a range touches."""
        units = range(max(self.at, where.at), min(self.at + self.size, where.at + where.size))
        return {unit * UNIT // GRANULE for unit in units}

    def covered(self, where: Where) -> set[int]:
        """Granules of which a range leaves out nothing that is the block's."""
        rest = set(range(self.at, self.at + self.size)) - set(range(where.at, where.at + where.size))
        return self.touched(where) - {unit * UNIT // GRANULE for unit in rest}


@dataclass(frozen=True, kw_only=True)
class Where:
    """A range that goes to a GPU, or to none (-1)."""

    at: int
    size: int
    gpu: int

    def brings(self, block: Block) -> bool:
        """Whether it is charged there."""
        return self.gpu not in (-1, block.home)

    def to(self, block: Block) -> int:
        """Where it is charged."""
        return self.gpu if self.brings(block) else -1


@dataclass(kw_only=True, eq=False)
class Call:
    """One that places ranges, from before the driver is asked until after it."""

    wheres: list[Where]
    lane: int
    by: int
    copies: bool
    placing: object
    prefers: bool = False  # it says where what it names is preferred to lie
    issued: bool = False
    ended_stream: bool = False  # while it was under way: nobody knows which one of that number it came to
    done: bool = True
    ended: int | None = None  # when
    found: list[Block] = field(default_factory=list)  # what was there when the driver was asked
