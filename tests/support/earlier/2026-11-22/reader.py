"""What a version of Aliquot understands of texts that another one wrote: the one by whose packages this is run.

Reads an object of JSON, from kinds to texts, and writes one from kinds to what was understood; null where nothing was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from aliquot_core.grant import decode_grant
from aliquot_core.inventory import decode_inventory
from aliquot_core.names import LEADER_LEASE, MIX, MIX_KEY, PACE_LEASE, Names
from aliquot_core.objects import Lease, ObjectMeta
from aliquot_scheduler.in_force import told_in_force
from aliquot_scheduler.queues.room import recalling
from aliquot_scheduler.queues.said.spec import QueueSpec
from aliquot_scheduler.queues.telling.status import read_status
from aliquot_scheduler.worth.page import decode_page

NAMES = Names()


def _in_force(text: str) -> Any:
    pace = Lease(metadata=ObjectMeta(name=PACE_LEASE, annotations={NAMES.settings: text}))
    return told_in_force([pace], names=NAMES)


def _names() -> dict[str, str]:
    of_domain = {name: getattr(NAMES, name) for name, kind in vars(Names).items() if isinstance(kind, property)}
    of_objects = {"leader": LEADER_LEASE, "pace": PACE_LEASE, "mix": MIX, "page": MIX_KEY, "n1": NAMES.lease("n1")}
    return of_domain | of_objects


READERS: dict[str, Callable[[str], Any]] = {
    "grant": decode_grant,
    "inventory": decode_inventory,
    "room": recalling._read,
    "mix": lambda text: decode_page(text, now=4e9),
    "queue": lambda text: msgspec.json.decode(text, type=QueueSpec),
    "queue's status": lambda text: read_status(msgspec.json.decode(text)),
    "settings in force": _in_force,
    "names": lambda _: _names(),
}


def main() -> None:
    """Between standard input and output."""
    texts = msgspec.json.decode(sys.stdin.buffer.read(), type=dict[str, str])
    understood = {kind: READERS[kind](text) for kind, text in texts.items()}
    sys.stdout.buffer.write(msgspec.json.encode(understood))


if __name__ == "__main__":
    main()
