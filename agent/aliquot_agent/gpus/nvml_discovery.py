"""Looks at all GPUs afresh: NVML's answers on one side, a `Discovery` on the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from aliquot_agent.gpus.driver import gpu_lost, no_gpu
from aliquot_agent.gpus.event_book import EventBook
from aliquot_agent.gpus.model import Discovery, Fault, GpuFacts, GpuProblem
from aliquot_agent.gpus.nvml_asking import Asking
from aliquot_agent.gpus.nvml_facts import Reach, join_links
from aliquot_agent.gpus.nvml_session import NvmlSession


class Explorer:
    """Finds the GPUs and remembers every one it ever saw, with the index it had last."""

    def __init__(self, *, asking: Asking, session: NvmlSession, book: EventBook) -> None:
        self._asking = asking
        self._session = session
        self._book = book
        self.known: dict[str, int] = {}
        # The instances of each GPU in MIG mode. They are as well as their GPU, so nothing else is remembered of them.
        self.instances: dict[str, tuple[str, ...]] = {}

    async def discover(self) -> Discovery:
        """Ask every index, then name those that were there once and are no more."""
        driver, count = await self._asking.system(self._session.system)
        if count == 0 and not self.known:
            raise no_gpu(where="NVML")
        answers = [await self._look(index) for index in range(count)]
        found = [answer for answer in answers if isinstance(answer, GpuFacts)]
        problems = [answer for answer in answers if isinstance(answer, GpuProblem)]
        problems = name_problems(problems, found=found, known=self.known)
        problems += gone(found=found, problems=problems, known=self.known)
        self._take_in(found, problems)
        reaches = {gpu.uuid: await self._reach(gpu, found) for gpu in found}
        parts = {gpu.uuid: await self._parts(gpu) for gpu in found if gpu.mig_enabled}
        self._take_parts(found, parts)
        return Discovery(
            driver=driver,
            gpus=(*_linked(found, reaches), *_all_of(parts)),
            problems=(*problems, *_troubles([*reaches.values(), *parts.values()])),
        )

    async def _look(self, index: int) -> GpuFacts | GpuProblem:
        # Whose trouble it is is decided when all have answered: after a reboot of NVML indexes may have moved.
        return await self._asking.gpu(partial(self._session.look, index=index), index=index, uuid=None)

    async def _reach(self, gpu: GpuFacts, found: Sequence[GpuFacts]) -> Reach | GpuProblem:
        others = [other.uuid for other in found if other is not gpu]
        work = partial(self._session.reach, uuid=gpu.uuid, others=others)
        return await self._asking.gpu(work, index=gpu.index, uuid=gpu.uuid)

    async def _parts(self, gpu: GpuFacts) -> tuple[GpuFacts, ...] | GpuProblem:
        return await self._asking.gpu(partial(self._session.instances, facts=gpu), index=gpu.index, uuid=gpu.uuid)

    def _take_parts(self, found: Sequence[GpuFacts], parts: Mapping[str, tuple[GpuFacts, ...] | GpuProblem]) -> None:
        """Of a GPU that does not tell, what is known of its instances stands."""
        for gpu in found:
            told = parts.get(gpu.uuid, ())
            if not isinstance(told, GpuProblem):
                self.instances[gpu.uuid] = tuple(one.uuid for one in told)

    def _take_in(self, found: Sequence[GpuFacts], problems: Sequence[GpuProblem]) -> None:
        for gpu in found:
            self.known[gpu.uuid] = gpu.index
            self._book.observe(uuid=gpu.uuid, fault=None)
        for problem in problems:
            if problem.uuid is not None:
                self._book.observe(uuid=problem.uuid, fault=problem.fault)


def _all_of(parts: Mapping[str, tuple[GpuFacts, ...] | GpuProblem]) -> list[GpuFacts]:
    return [one for told in parts.values() if not isinstance(told, GpuProblem) for one in told]


def _troubles(answers: Iterable[object]) -> list[GpuProblem]:
    return [answer for answer in answers if isinstance(answer, GpuProblem)]


def _linked(found: Sequence[GpuFacts], answers: Mapping[str, Reach | GpuProblem]) -> tuple[GpuFacts, ...]:
    """Give the GPUs that told how they reach each other their links."""
    reaches = {uuid: answer for uuid, answer in answers.items() if isinstance(answer, Reach)}
    links = join_links(reaches, bus_ids={gpu.uuid: gpu.pci_bus_id for gpu in found})
    return tuple(msgspec.structs.replace(gpu, links=links[gpu.uuid]) for gpu in found if gpu.uuid in reaches)


def name_problems(
    problems: Sequence[GpuProblem], *, found: Sequence[GpuFacts], known: dict[str, int]
) -> list[GpuProblem]:
    """Tell whose index a problem is at: the GPU that had it last, unless that one was found elsewhere."""
    elsewhere = {gpu.uuid for gpu in found}
    owners = {index: uuid for uuid, index in known.items() if uuid not in elsewhere}
    return [msgspec.structs.replace(problem, uuid=owners.get(problem.index or 0)) for problem in problems]


def gone(*, found: Sequence[GpuFacts], problems: Sequence[GpuProblem], known: dict[str, int]) -> list[GpuProblem]:
    """GPUs that were there once and that the driver does not count any more."""
    accounted = {gpu.uuid for gpu in found} | {problem.uuid for problem in problems}
    return [
        gpu_lost(where=uuid).problem(uuid=uuid, index=index) for uuid, index in known.items() if uuid not in accounted
    ]


def to_watch(*, known: dict[str, int], book: EventBook) -> frozenset[str]:
    """The GPUs to register for events: a lost one would spoil the set, a silent one hang the registration."""
    return frozenset(uuid for uuid in known if book.presence.of(uuid) not in (Fault.LOST, Fault.SILENT))
