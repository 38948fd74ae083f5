"""When a replica of the centre is not to be asked: nobody leads, or who leads hears no API server."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot_cli.replica_answers import unready
from aliquot_cli.replica_settings import Settings
from aliquot_kube.election import ElectionSettings, Leader


class Replica(msgspec.Struct):
    """As far as it is asked here: who leads, and for how long nothing was heard by it."""

    leader: Leader | None = Leader(identity="me", address="")
    silent: float = 0.0

    def why_deaf(self, *, after: float) -> str:
        """As the leader's watches say it."""
        return f"not heard for {self.silent:.0f} s" if self.silent > after else ""


LONG = 17.0


@pytest.mark.parametrize(
    ("replica", "missing"),
    [
        (Replica(), []),
        (Replica(silent=LONG - 1), []),
        (Replica(silent=LONG + 1), [f"not heard for {LONG + 1:.0f} s"]),
        (Replica(leader=None), ["nobody leads, as far as this replica knows"]),
    ],
)
def test_what_is_missing_is_a_sentence(replica: Any, missing: list[str]) -> None:
    """A moment without a word is no reason: calls would find nobody for it."""
    settings = Settings(election=ElectionSettings(duration=LONG))
    assert unready(replica, centre=replica, settings=settings) == missing
