"""GPUs as bars cut into slices, for a terminal: pure text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

WIDTH = 40
_FULL, _EMPTY, _CUT = "█", "·", "▏"


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU: its name, and who holds how many percent and MiB of it."""

    name: str
    memory: int
    slices: tuple[tuple[str, int, int], ...] = ()


def drawn(bars: Iterable[Bar]) -> str:
    """A line a GPU."""
    return "\n".join(_line(bar) for bar in bars)


def _line(bar: Bar) -> str:
    compute = sum(percent for _, percent, _ in bar.slices)
    memory = sum(mib for _, _, mib in bar.slices)
    who = ", ".join(f"{pod} {percent} %" if percent else f"{pod} best effort" for pod, percent, _ in bar.slices)
    return f"  {bar.name}  {_blocks(bar.slices)} {compute:>3} %  {memory:>6} of {bar.memory} MiB  {who}".rstrip()


def _blocks(slices: Sequence[tuple[str, int, int]]) -> str:
    filled = "".join(_CUT + _FULL * max(0, round(percent * WIDTH / 100) - 1) for _, percent, _ in slices if percent)
    return filled[:WIDTH].ljust(WIDTH, _EMPTY)
