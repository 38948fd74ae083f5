"""What is asked beside what was measured; who falls short of anything ends with 1."""

from __future__ import annotations

import sys


class Asked:
    """The figures of one benchmark that somebody asked for."""

    def __init__(self) -> None:
        self._short: list[str] = []

    def at_most(self, what: str, found: float, most: float) -> None:
        """No more than so much."""
        self._told(what, found, f"at most {most:g}", good=found <= most)

    def at_least(self, what: str, found: float, least: float) -> None:
        """No less than so much."""
        self._told(what, found, f"at least {least:g}", good=found >= least)

    def end(self) -> None:
        """Say what fell short, if anything did."""
        if self._short:
            sys.exit(f"short of what is asked: {', '.join(self._short)}")

    def _told(self, what: str, found: float, bound: str, *, good: bool) -> None:
        sys.stdout.write(f"  {'asked' if good else 'SHORT'}: {what} {bound}; measured {found:.6g}\n")
        if not good:
            self._short.append(what)
