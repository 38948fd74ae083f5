"""Asks NVML with a deadline, and keeps one GPU's trouble from being everybody's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from aliquot_agent.gpus.driver import DriverSilentError, OneGpuError, gpu_silent
from aliquot_agent.gpus.event_book import EventBook
from aliquot_agent.gpus.model import GpuProblem
from aliquot_agent.gpus.nvml_calls import CallDesk, OverdueError

T = TypeVar("T")
_NVML = "NVML"


class Asking:
    """Questions to the driver; what it says of a GPU's presence goes into the book."""

    def __init__(self, *, desk: CallDesk, book: EventBook, call_s: float) -> None:
        self._desk = desk
        self._book = book
        self._call_s = call_s

    async def system(self, work: Callable[[], T], *, within_s: float | None = None) -> T:
        """Ask what is not about one GPU; trouble is raised."""
        seconds = within_s or self._call_s
        try:
            return await self._desk.call(work, about=_NVML, within_s=seconds)
        except OverdueError:
            raise DriverSilentError(
                f"the driver did not answer within {seconds:g} s",
                where=_NVML,
                remedy="run nvidia-smi on the node: if it hangs too, look at the kernel log and reboot",
            ) from None

    async def gpu(self, work: Callable[[], T], *, index: int, uuid: str | None) -> T | GpuProblem:
        """Ask about one GPU; its trouble is the answer, trouble of the whole driver is raised."""
        about = f"GPU {index}"
        try:
            answer = await self._desk.call(work, about=about, within_s=self._call_s)
        except OverdueError:
            return self._trouble(gpu_silent(where=about, seconds=self._call_s), index=index, uuid=uuid)
        except OneGpuError as error:
            return self._trouble(error, index=index, uuid=uuid)
        if uuid is not None:
            self._book.observe(uuid=uuid, fault=None)
        return answer

    def _trouble(self, error: OneGpuError, *, index: int, uuid: str | None) -> GpuProblem:
        if uuid is not None:
            self._book.observe(uuid=uuid, fault=error.trouble)
        return error.problem(uuid=uuid, index=index)
