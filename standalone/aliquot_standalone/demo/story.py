"""The story that `aliquot up --demo` tells: slices, borrowing, a gang, a GPU that fails. It tells what it has seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from aliquot_core.inventory import Health
from aliquot_core.objects import Pod
from aliquot_standalone.demo.cast import (
    ALL_TEAMS,
    ONLOOKERS,
    SPEECH,
    TEAMS,
    VISION,
    Act,
    namespace,
    played_pod,
    queue,
    real_pod,
)
from aliquot_standalone.demo.stage import Stage, tally

Say = Callable[[str], None]
# GPUs on simulated nodes; with fewer there is no gang to wait for.
LEAST = 4
_LARGEST_GANG = 8
# How long jobs of the burst are at work: half of them make room while one looks on, half outlast the story.
_SHORT, _LONG = 6.0, 60.0
_MEMORY = 4_000

NOTEBOOKS = (
    Act(team=VISION, name="notebook-anna", compute=30, memory=4_000, packed=True),
    Act(team=VISION, name="notebook-ben", compute=30, memory=6_000, packed=True),
    Act(team=SPEECH, name="inference", compute=40, memory=8_000, packed=True),
)


class Breaking(Protocol):
    """Who can break GPUs that are not there."""

    def break_gpu(self, node: str, index: int) -> None:
        """Let a GPU fall off the bus."""

    async def mend_gpu(self, node: str, index: int) -> None:
        """Let it be there again."""


class Story:
    """Tells it once."""

    def __init__(
        self, *, stage: Stage, breaking: Breaking, simulated: Collection[str], played: int, real: int, say: Say
    ) -> None:
        """`simulated` are nodes whose GPUs can break, `played` so many; there are `real` ones where commands run."""
        self._stage = stage
        self._breaking = breaking
        self._simulated = simulated
        # What whoever looks on types must run at once, whatever the teams do: their GPUs stay free for that. Of those
        # where commands run the three programs have one.
        self._kept = max(real - 1, 0) if real else 1
        self._jobs = played if real else played - self._kept
        self._gpus = played + real
        self._real = real > 0
        self._say = say

    @property
    def _half(self) -> int:
        """Of the GPUs on which jobs are played."""
        return self._jobs // 2

    async def tell(self) -> None:
        """From two queues to a GPU that is mended."""
        await self._stage.clear()
        chapters: list[Callable[[], Awaitable[None]]] = [self._teams, self._burst, self._gang, self._fault]
        if self._real:
            chapters.insert(1, self._share)
        for number, chapter in enumerate(chapters, start=1):
            self._say("")
            self._number = number
            await chapter()

    async def _teams(self) -> None:
        half, shared, names = self._half, self._gpus - self._kept, self._stage.names
        self._head(
            f"Two teams share {shared} of {self._gpus} GPUs: each is guaranteed {half}, and may borrow what is idle."
        )
        self._line(f"What you run waits in queue {ONLOOKERS}, which is guaranteed the other {self._kept}")
        await self._stage.have(
            queue(ALL_TEAMS, limit=100 * shared, names=names),
            queue(ONLOOKERS, guarantee=100 * self._kept, names=names),
        )
        for team in TEAMS:
            own = queue(team, parent=ALL_TEAMS, guarantee=100 * half, names=names)
            await self._stage.have(own, namespace(team, names=names))

    async def _share(self) -> None:
        self._head(
            "Three programs ask for parts of a GPU. They run on this machine, and each prints what it was given:"
        )
        for act in NOTEBOOKS:
            await self._run(act)
        names = {act.name for act in NOTEBOOKS}
        ours = [pod for pod in await self._stage.pods() if pod.metadata.name in names]
        shared = {one.gpu for pod in ours for one in self._stage.slices(pod)}
        self._line(f"{len(ours)} programs, {len(shared)} GPU")

    async def _run(self, act: Act) -> None:
        await self._stage.submit(real_pod(act, names=self._stage.names))
        pods, took = await self._stage.until(lambda pods: tally(pods, beginning=act.name).running == 1)
        pod = next(one for one in pods if one.metadata.name == act.name)
        said = await self._stage.printed(pod)
        self._line(f"{act.name:<14} runs after {took * 1000:3.0f} ms and says: {said}")

    async def _burst(self) -> None:
        many, more = self._jobs, self._gpus // 8
        self._head(f"Team speech submits {many + more} jobs of a whole GPU. Nobody else wants them, so it may borrow:")
        # Half of them are short: what they leave is what the next chapter is about.
        acts = (
            self._played(SPEECH, f"burst-{number:02}", seconds=_LONG if number % 2 else _SHORT)
            for number in range(many)
        )
        await self._stage.submit(*acts)
        await self._stage.submit(*(self._played(SPEECH, f"later-{number}", seconds=_LONG) for number in range(more)))
        pods, took = await self._stage.until(lambda pods: tally(pods, beginning="burst-").running == many)
        running, waiting = tally(pods, beginning="burst-").running, tally(pods, beginning="later-").waiting
        borrowed = max(0, running - self._half)
        self._line(f"{running} run after {took:.1f} s, {borrowed} more than its guarantee; {waiting} wait")

    async def _gang(self) -> None:
        size = min(_LARGEST_GANG, max(1, self._jobs // 3))
        self._head(f"Team vision starts a training of {size} pods, a gang: none of them begins without the others.")
        names = self._stage.names
        acts = (
            Act(team=VISION, name=f"training-{one}", compute=100, memory=_MEMORY, group="training", size=size, use=97)
            for one in range(size)
        )
        await self._stage.submit(*(played_pod(act, names=names) for act in acts))
        pods, _ = await self._stage.until(lambda pods: tally(pods, beginning="training-").waiting > 0)
        waiting = tally(pods, beginning="training-").waiting
        self._line(f"{waiting} wait: all GPUs of the teams are taken. It is inside its guarantee,")
        self._line("so what speech gives back is vision's first, though speech has waited longer")
        pods, took = await self._stage.until(lambda pods: tally(pods, beginning="training-").running > 0)
        pods, spread = await self._stage.until(lambda pods: tally(pods, beginning="training-").running == size)
        running = tally(pods, beginning="training-").running
        self._line(f"{running} run after {took:.1f} s, the last {spread:.1f} s after the first")

    async def _fault(self) -> None:
        pods = await self._stage.pods()
        pod = next((one for one in pods if _may_break(one) and one.spec.node_name in self._simulated), None)
        if pod is None:
            return
        node, uuid = pod.spec.node_name, self._stage.slices(pod)[0].gpu
        index = [gpu.uuid for gpu in await self._stage.gpus(node)].index(uuid)
        self._head(f"GPU {index} of {node} falls off the bus under {pod.metadata.name}:")
        others = sum(one.status.phase == "Running" for one in pods) - 1
        self._breaking.break_gpu(node, index)
        gpu = await self._stage.until_gpu(node, index, holds=lambda gpu: gpu.health == Health.SICK)
        pods, _ = await self._stage.until(lambda pods: _phase(pods, pod) not in {"Running", "Pending"})
        self._line(f"it is {gpu.health.value} ({gpu.reason}); nobody is placed there any more")
        self._line(f"{pod.metadata.name} is {_phase(pods, pod) or 'gone'}, {others} others go on")
        await self._breaking.mend_gpu(node, index)
        gpu = await self._stage.until_gpu(node, index, holds=lambda gpu: gpu.health == Health.HEALTHY)
        self._line(f"mended and cleared by an operator, it is {gpu.health.value} again")

    def _played(self, team: str, name: str, *, seconds: float) -> dict[str, object]:
        act = Act(team=team, name=name, compute=100, memory=_MEMORY, seconds=seconds)
        return played_pod(act, names=self._stage.names)

    def _head(self, text: str) -> None:
        self._say(f"{self._number}. {text}")

    def _line(self, text: str) -> None:
        self._say(f"     {text}")


def _may_break(pod: Pod) -> bool:
    return pod.metadata.name.startswith("burst-") and pod.status.phase == "Running"


def _phase(pods: Collection[Pod], pod: Pod) -> str:
    return next((one.status.phase for one in pods if one.metadata.uid == pod.metadata.uid), "")
