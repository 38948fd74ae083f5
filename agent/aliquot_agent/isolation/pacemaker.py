"""Ten times a second: reads what containers used, and writes how much each may use until the next time."""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path

import msgspec

from aliquot_agent.isolation.limits_file import (
    WHOLE,
    GpuLimits,
    Meter,
    decode_account,
    decode_limits,
    encode_live,
    live_offset,
)
from aliquot_agent.isolation.pacing import Pace, Seen, Share, next_beat
from aliquot_agent.isolation.slice_files import ACCOUNT, LIMITS, SliceFiles
from aliquot_core.clock import Clock

log = logging.getLogger(__name__)

BEAT_S = 0.1
_SECOND = 1_000_000_000


class _Slice(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of one container."""

    limits: GpuLimits
    path: Path
    index: int
    meter: Meter


class Pacemaker:
    """The paces of one node's slices."""

    def __init__(self, *, files: SliceFiles, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._paces: dict[str, dict[str, Pace]] = {}
        self._since = 0

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.beat()
            await self._clock.sleep(BEAT_S)

    def beat(self) -> None:
        """One beat for all GPUs."""
        now = round(self._clock.monotonic() * _SECOND)
        by_gpu: defaultdict[str, dict[str, _Slice]] = defaultdict(dict)
        for own in self._files.containers():
            for one in _slices(own):
                by_gpu[one.limits.uuid][own.name] = one
        self._paces = {
            gpu: self._paced(slices, before=self._paces.get(gpu, {}), now=now) for gpu, slices in by_gpu.items()
        }
        self._since = now

    def _paced(self, slices: dict[str, _Slice], *, before: dict[str, Pace], now: int) -> dict[str, Pace]:
        shares = {name: _share(one.limits) for name, one in slices.items()}
        seen = {name: _seen(one.meter) for name, one in slices.items()}
        paces = next_beat(shares, before, seen, now=now, since=self._since)
        for name, pace in paces.items():
            _write(slices[name], pace, now=now)
        return paces


def _slices(own: Path) -> list[_Slice]:
    """Files that are being replaced or removed are looked at with the next beat."""
    try:
        limits = decode_limits((own / LIMITS).read_bytes())
        account = decode_account((own / ACCOUNT).read_bytes(), gpus=len(limits))
    except OSError as error:
        log.debug("no account", extra={"container": own.name, "error": str(error)})
        return []
    if account is None:
        return []
    pairs = zip(limits, account.meters, strict=True)
    return [_Slice(limits=one, path=own / LIMITS, index=at, meter=meter) for at, (one, meter) in enumerate(pairs)]


def _share(limits: GpuLimits) -> Share:
    return Share(guarantee=limits.guarantee / WHOLE, limit=max(limits.limit, limits.guarantee) / WHOLE)


def _seen(meter: Meter) -> Seen:
    """What was used, no driver tells as often as this: until one does, the GPU is taken to serve in turns."""
    return Seen(in_flight=meter.in_flight, charged=meter.charged, held=meter.held, wanted=meter.wanted, used=None)


def _write(one: _Slice, pace: Pace, *, now: int) -> None:
    fresh = msgspec.structs.replace(
        one.limits, rate=round(pace.rate * WHOLE), weight=round(pace.weight * WHOLE), beat=now
    )
    try:
        with one.path.open("r+b", buffering=0) as file:
            file.seek(live_offset(one.index))
            file.write(encode_live(fresh))
    except OSError as error:
        log.debug("no limits", extra={"container": one.path.parent.name, "error": str(error)})
