"""Tells the kubelet, through the endpoint, which ids it may give out: the shell round the ids and their rotation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from aliquot_agent.door import AgentDoor
from aliquot_agent.signal import Signal
from aliquot_agent.starting.device_ids import device_tables
from aliquot_agent.starting.id_rotation import IdRotation, slot_of, spent_ids, with_recorded
from aliquot_agent.starting.starter import Starter
from aliquot_core.clock import Clock
from aliquot_core.door import Device
from aliquot_core.held_on_sick import Held
from aliquot_core.inventory import Inventory
from aliquot_core.names import Names

# Each new list makes the kubelet write its record; ids of pods that end together are replaced together.
PACE = 1.0
# The signal tells of pods and GPUs; the kubelet's record changes untold.
LOOK_AGAIN = 10.0


class Offer:
    """One node's ids, kept as they must be."""

    def __init__(
        self,
        *,
        names: Names,
        clock: Clock,
        door: AgentDoor,
        starter: Starter,
        inventory: Callable[[], Inventory],
        held: Callable[[Inventory], Mapping[str, Held] | None],
        best_effort_slots: int,
        changed: Signal,
    ) -> None:
        """`held` is what pods hold on sick GPUs; None before it is known which pods there are."""
        self._names = names
        self._clock = clock
        self._door = door
        self._starter = starter
        self._inventory = inventory
        self._held = held
        self._best_effort_slots = best_effort_slots
        self._changed = changed
        self._rotation = IdRotation()
        self._turned_at: float | None = None

    async def run(self) -> None:
        """Keep the offer right until cancelled; the door skips what it has told already."""
        while True:
            # Before any GPU is known there is nothing to take back: an empty list would fail pods that wait.
            if (inventory := self._inventory()).gpus:
                due = self._turned_at is None or self._clock.monotonic() - self._turned_at >= PACE
                if due:
                    await self._turn(inventory)
                self._door.publish(await self._told(inventory))
                await self._changed.wait(clock=self._clock, at_most=LOOK_AGAIN if due else PACE)
            else:
                await self._changed.wait(clock=self._clock, at_most=LOOK_AGAIN)

    async def _turn(self, inventory: Inventory) -> None:
        known = await self._starter.known_by_record()
        if known.recorded is None or not known.complete:
            return  # half blind, a living pod would be taken for an ended one
        living, spent = spent_ids(known.recorded, pods=known.pods, standing=known.standing.keys())
        slots = {slot_of(device.id) for table in self._table(inventory, id_of=str).values() for device in table}
        self._rotation.turn(slots, living=living, spent=spent)
        self._turned_at = self._clock.monotonic()

    async def _told(self, inventory: Inventory) -> dict[str, list[Device]]:
        """Before it is known who holds what, the ids of a GPU that is away are those of the kubelet's own record."""
        table = self._table(inventory, id_of=self._rotation.id_of)
        if self._held(inventory) is None:
            known = await self._starter.known_by_record()
            return with_recorded(table, known.recorded or ())
        return table

    def _table(self, inventory: Inventory, *, id_of: Callable[[str], str]) -> dict[str, list[Device]]:
        return device_tables(
            inventory,
            names=self._names,
            best_effort_slots=self._best_effort_slots,
            id_of=id_of,
            held=self._held(inventory),
        )
