"""What must hold at every start of a container, by an account of its own: what was granted, and what the runtime saw.

Nothing here is computed by the code under test: the grants are the placer's own numbers, what a container got is read
from its environment, and the sums are made anew at every start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from simulation.universe.hardware import Hardware
from simulation.universe.runtime import Part, Running, SimRuntime

# An agent that was told of a lost GPU may have let a container pass that is still being made.
STILL_ON_ITS_WAY = 20.0
WHOLE = 100


class BrokenError(AssertionError):
    """Something that must always hold does not."""


class Deed(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod was really granted: parts by container; none of them may run where `bad` says why."""

    pod: str
    parts: dict[str, tuple[Part, ...]]
    grant: str = ""
    bad: str = ""
    overcommitted: bool = False


class Judge:
    """Watches one node's starts."""

    def __init__(
        self,
        *,
        hardware: Hardware,
        runtime: SimRuntime,
        now: Callable[[], float],
        trace: Callable[[str], None],
        deeds: dict[str, Deed] | None = None,
    ) -> None:
        """`deeds` is shared by the judges of several nodes."""
        self._hardware = hardware
        self._runtime = runtime
        self._now = now
        self._trace = trace
        self._bearers: dict[str, tuple[str, str]] = {}
        self.deeds: dict[str, Deed] = {} if deeds is None else deeds
        self.starts = 0
        self.broken: BrokenError | None = None
        runtime.on_start = self._started

    def forget(self, uids: Collection[str]) -> None:
        """Drop what is known of pods that are gone."""
        for uid in uids:
            del self.deeds[uid]
        self._bearers = {name: bearer for name, bearer in self._bearers.items() if bearer[0] not in uids}

    def _started(self, one: Running, cdi_names: Sequence[str]) -> None:
        self.starts += 1
        deed = self.deeds.get(one.uid)
        self._trace(f"{deed.pod if deed else one.uid} {one.container} runs with {_said(one.parts)}")
        try:
            self._check(one, deed, cdi_names)
        except BrokenError as error:
            self.broken = self.broken or error
            raise

    def _check(self, one: Running, deed: Deed | None, cdi_names: Sequence[str]) -> None:
        if deed is None:
            raise BrokenError(f"a container of a pod that was never granted anything runs: {one.uid}")
        what = f"{deed.pod} container {one.container}"
        granted = deed.parts.get(one.container, ())
        if deed.bad and (granted or one.parts):
            raise BrokenError(f"{what} runs, though its grant is bad: {deed.bad}")
        if granted != one.parts:
            raise BrokenError(f"{what} was granted {_said(granted)} and runs with {_said(one.parts)}")
        if len(cdi_names) != (1 if granted else 0):
            raise BrokenError(f"{what} has {len(cdi_names)} CDI names")
        for name in cdi_names:
            if self._bearers.setdefault(name, (one.uid, one.container)) != (one.uid, one.container):
                raise BrokenError(f"{name} of {what} was given to another container before")
        self._check_health(what, one)
        self._check_sums(what)

    def _check_health(self, what: str, one: Running) -> None:
        for part in one.parts:
            since = self._hardware.lost_since.get(part.gpu)
            if since is not None and self._now() - since > STILL_ON_ITS_WAY:
                raise BrokenError(f"{what} starts on {part.gpu}, which is lost for {self._now() - since:.0f} s")

    def _check_sums(self, what: str) -> None:
        for gpu, parts in self._holders().items():
            compute = sum(part.compute for part in parts)
            memory = sum(part.memory for part in parts)
            whole = any(part.compute == WHOLE for part in parts)
            if compute > WHOLE or memory > self._hardware.memory or (whole and len(parts) > 1):
                raise BrokenError(
                    f"with {what}, GPU {gpu} is over-granted: {compute} %, {memory} of {self._hardware.memory} MiB, "
                    f"{len(parts)} containers{', one of them has it whole' if whole else ''}"
                )

    def _holders(self) -> Mapping[str, list[Part]]:
        holders: dict[str, list[Part]] = {}
        for one in self._runtime.running.values():
            for part in one.parts:
                holders.setdefault(part.gpu, []).append(part)
        return holders


def _said(parts: Sequence[Part]) -> str:
    return ", ".join(f"{part.gpu[4:10]}:{part.compute}%:{part.memory}" for part in parts) or "nothing"
