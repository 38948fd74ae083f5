"""Telling each of many: what goes wrong with the words of one is not to keep theirs from the others.

Here nothing is guarded; whoever tells hands in what guards it (`centre/put_off.py`), and whoever only asks hears of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Whose_contra = TypeVar("Whose_contra", contravariant=True)
Made = TypeVar("Made")


class Attempt(Protocol[Whose_contra]):
    """One try to make something for somebody."""

    def __call__(self, whose: Whose_contra, make: Callable[[], Made], /) -> Made | None:
        """What was made; None where that failed, or is not to be tried now."""
        ...


def unguarded(whose: object, make: Callable[[], Made], /) -> Made | None:
    """Whoever asks hears what goes wrong."""
    del whose
    return make()
