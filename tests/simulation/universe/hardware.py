"""The GPUs of a node, which outlive the processes that look at them, and the clumsy hands that pull them out."""

from __future__ import annotations

from aliquot_agent.gpus.driver import DriverFailedError
from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.simulated import SimulatedDriver, simulated_uuid
from simulation.universe.loop import LoopClock


class Hardware:
    """What is the matter with each GPU; each agent gets a driver that says so."""

    def __init__(self, *, node: str, gpus: int, clock: LoopClock, model: str = "A100-40GB") -> None:
        self._node = node
        self._clock = clock
        card = KNOWN_MODELS[model]
        self._models = (card,) * gpus
        self.uuids = [simulated_uuid(node=node, index=index) for index in range(gpus)]
        self.memory = card.memory_total_mib - card.memory_reserved_mib
        self.lost_since: dict[str, float] = {}
        self._slow: dict[int, float] = {}
        self._refused = False
        self._driver = self._make()

    def driver(self) -> SimulatedDriver:
        """Give the driver as a process that starts now finds it."""
        self._driver = self._make()
        for index, uuid in enumerate(self.uuids):
            if uuid in self.lost_since:
                self._driver.lose(gpu=index)
        for index, seconds in self._slow.items():
            self._driver.slow(gpu=index, seconds=seconds)
        self.refuse(refused=self._refused)
        return self._driver

    def lose(self, index: int) -> None:
        """Pull a GPU out."""
        self.lost_since.setdefault(self.uuids[index], self._clock.monotonic())
        self._driver.lose(gpu=index)

    def recover(self, index: int) -> None:
        """Put it back."""
        self.lost_since.pop(self.uuids[index], None)
        self._driver.recover(gpu=index)

    def slow(self, index: int, seconds: float) -> None:
        """Let a GPU answer late; 0 for as fast as ever."""
        self._slow[index] = seconds
        self._driver.slow(gpu=index, seconds=seconds)

    def refuse(self, *, refused: bool) -> None:
        """Let the whole driver fail, or work again."""
        self._refused = refused
        self._driver.refuse(DriverFailedError("a fault of the simulation", where=self._node) if refused else None)

    def mend(self) -> None:
        """Let all be well."""
        for index in range(len(self.uuids)):
            self.recover(index)
            self.slow(index, 0.0)
        self.refuse(refused=False)

    def _make(self) -> SimulatedDriver:
        return SimulatedDriver(node=self._node, models=self._models, clock=self._clock)
