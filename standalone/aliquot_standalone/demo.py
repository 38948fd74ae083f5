"""The demonstration of `aliquot up --demo`: slices are given, held back, and survive the agent's death.

The story is the node's alone, so it places its pods itself; all that happens on the node is real.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence

import msgspec

from aliquot_core.clock import Clock
from aliquot_core.errors import ClusterError
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Inventory, decode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent
from aliquot_standalone.bars import Bar, drawn
from aliquot_standalone.one_node import OneNode

Say = Callable[[str], None]

PRINT_SLICE = 'echo "$ALIQUOT_GPUS, $ALIQUOT_COMPUTE % of compute, $ALIQUOT_MEMORY MiB"'
_STAY = f"{PRINT_SLICE}; trap 'exit 0' TERM; sleep 1000 & wait"


# The story's GPUs, and the memory of the smallest card on which it is told as it is written here.
GPUS_NEEDED = 6
_CARD = MiB(80_000)
# Less than this of memory no container would start with.
_LEAST = 300


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of the story: where its slices lie, as (GPU's index, percent, MiB)."""

    name: str
    slices: tuple[tuple[int, int, int], ...]

    @property
    def compute(self) -> int:
        """Percent in all."""
        return sum(percent for _, percent, _ in self.slices)

    @property
    def memory(self) -> int:
        """MiB in all."""
        return sum(mib for _, _, mib in self.slices)

    def on(self, card: MiB) -> Wish:
        """The same wish, as much smaller as the card is."""
        if card.value >= _CARD.value:
            return self
        # All parts by the same step, for memory is divided as compute is.
        step = min(mib for _, _, mib in self.slices)
        smaller = max(_LEAST, step * card.value // _CARD.value)
        parts = ((gpu, percent, mib // step * smaller) for gpu, percent, mib in self.slices)
        return Wish(name=self.name, slices=tuple(parts))


WISHES = (
    Wish(name="notebook-anna", slices=((0, 30, 8_000),)),
    Wish(name="notebook-ben", slices=((0, 30, 24_000),)),
    Wish(name="inference", slices=((0, 40, 40_000),)),
    Wish(name="training", slices=((2, 100, 32_000), (3, 100, 32_000), (4, 50, 16_000))),
    Wish(name="batch", slices=((4, 0, 2_000),)),
)
GREEDY = Wish(name="greedy", slices=((4, 60, 1_000),))


class Demo:
    """Tells the story on a running node."""

    def __init__(self, *, node: OneNode, names: Names, clock: Clock, say: Say, gpus: str) -> None:
        self._node = node
        self._names = names
        self._clock = clock
        self._say = say
        self._gpus = gpus
        self._inventory = Inventory()
        self._running: list[tuple[Wish, Pod]] = []

    async def tell(self) -> None:
        """From a node that offers GPUs to one that has outlived its agent."""
        await self._offer()
        for wish in WISHES:
            await self._give(self._fitting(wish))
        self._say(f"\n{self._picture()}\n")
        await self._hold_back()
        await self._outlive()

    async def _offer(self) -> None:
        node = await self._node.until_offered(self._names)
        self._inventory = decode_inventory(node.metadata.annotations[self._names.inventory])
        status = node.status.allocatable
        self._say(
            f"Node {self._node.name} offers {len(self._inventory.gpus)} x {self._inventory.gpus[0].model}: "
            f"{self._names.compute}={status[self._names.compute]} "
            f"{self._names.memory}={self._inventory.memory.value}\n"
        )

    async def _give(self, wish: Wish) -> None:
        began = self._clock.monotonic()
        pod = await self._place(wish)
        now = await self._node.until_phase(pod, "Running", "Succeeded", "Failed")
        if now.status.phase == "Failed":
            raise ClusterError(f"{pod.key} failed: {now.status.message}", where=self._node.name)
        took = (self._clock.monotonic() - began) * 1000
        self._running.append((wish, pod))
        asked = f"{wish.compute:>3} % and {wish.memory:>5} MiB"
        self._say(f"  {wish.name:<14} asked {asked}; {took:4.0f} ms later it says: {await self._printed(pod)}")

    async def _hold_back(self) -> None:
        """The node has the last word, whatever a grant says."""
        self._say(f"A grant of {GREEDY.compute} % more on GPU 4, where 50 % are taken, must not start:")
        pod = await self._place(self._fitting(GREEDY))
        reason = await self._waiting_reason(pod)
        self._say(f"  {GREEDY.name:<14} is held: {reason}\n")

    async def _outlive(self) -> None:
        """The endpoint holds what arrives while the agent is dead."""
        self._say("The agent is killed (SIGKILL). A pod arrives all the same; two seconds later a new agent starts:")
        await self._node.stop("agent", number=signal.SIGKILL)
        began = self._clock.monotonic()
        wish = self._fitting(Wish(name="late", slices=((5, 25, 4_000),)))
        pod = await self._place(wish)
        await self._clock.sleep(2.0)
        await self._node.start("agent", environment=self._node.environment(gpus=self._gpus))
        await self._node.until_phase(pod, "Running")
        took = self._clock.monotonic() - began
        self._running.append((wish, pod))
        self._say(f"  {wish.name:<14} runs {took:.1f} s after it arrived: {await self._printed(pod)}")
        self._say(f"\n{self._picture()}\n")

    def _fitting(self, wish: Wish) -> Wish:
        return wish.on(MiB(self._inventory.gpus[0].memory))

    async def _place(self, wish: Wish) -> Pod:
        pod = await self._node.create(_pod(wish, names=self._names))
        grant = Grant(
            node=self._node.name,
            pod=pod.metadata.uid,
            containers={"main": ContainerGrant(slices=tuple(self._slices(wish)))},
        )
        await self._node.bind(pod, {self._names.grant: encode_grant(grant)})
        return pod

    def _slices(self, wish: Wish) -> Sequence[Slice]:
        return [
            Slice(
                gpu=self._inventory.gpus[index].uuid,
                compute=Percent(percent),
                limit=Percent(percent or 100),
                memory=MiB(mib),
            )
            for index, percent, mib in wish.slices
        ]

    async def _printed(self, pod: Pod) -> str:
        """A process says its first line a moment after it runs."""
        for _ in range(100):
            if text := self._node.output(pod, "main"):
                return text
            await self._clock.sleep(0.02)
        return "(nothing)"

    async def _waiting_reason(self, pod: Pod) -> str:
        for _ in range(500):
            now = await self._node.pod(pod)
            for status in now.status.container_statuses:
                if message := status.state.get("waiting", {}).get("message"):
                    return str(message)
            await self._clock.sleep(0.02)
        raise ClusterError("was not held", where=pod.key)

    def _picture(self) -> str:
        return drawn(
            Bar(
                name=f"GPU {gpu.index}",
                memory=gpu.memory,
                slices=tuple(
                    (wish.name, percent, mib)
                    for wish, _ in self._running
                    for index, percent, mib in wish.slices
                    if index == gpu.index
                ),
            )
            for gpu in self._inventory.gpus
        )


def _pod(wish: Wish, *, names: Names) -> Mapping[str, object]:
    asked = {names.compute: str(wish.compute)} if wish.compute else {names.best_effort: "1"}
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", _STAY],
        "resources": {"limits": asked | {names.memory: str(wish.memory)}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": wish.name, "namespace": "default"},
        "spec": {"containers": [container], "schedulerName": "aliquot", "terminationGracePeriodSeconds": 1},
    }
