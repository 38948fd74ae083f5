"""Paces the containers of a fake GPU as the agent does: reads accounts, writes limits, every 100 ms."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Self

import msgspec

from aliquot_agent.isolation.limits_file import WHOLE, Meter, decode_account
from aliquot_agent.isolation.pacing import Pace, Seen, Share, next_beat
from support.isolation import Container

BEAT_S = 0.1


class Pacer:
    """A thread that paces some containers of GPU 0 until it is told to stop."""

    def __init__(self, shares: Mapping[Container, Share], *, told: bool = True) -> None:
        """`told` is whether the driver tells use, as none does on whom the agent could rely."""
        self._told = told
        self._containers = {str(container.number): container for container in shares}
        self._shares = {str(container.number): share for container, share in shares.items()}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        paces: dict[str, Pace] = {}
        since = time.monotonic_ns()
        while not self._stop.wait(BEAT_S):
            now = time.monotonic_ns()
            told = {name: _seen(container, told=self._told) for name, container in self._containers.items()}
            seen = {name: one for name, one in told.items() if one is not None}
            paces = next_beat(self._shares, paces, seen, now=now, since=since)
            since = now
            for name, container in self._containers.items():
                _write(container, paces[name], now=now)


def _seen(container: Container, *, told: bool) -> Seen | None:
    """None while no process of the container has opened its account."""
    account = decode_account(container.account_path.read_bytes(), gpus=1)
    if account is None:
        return None
    return seen_of(account.meters[0], used=container.world.busy_ns(container.number) if told else None)


def seen_of(meter: Meter, *, used: int | None = None) -> Seen:
    """A meter's counters as pacing takes them."""
    return Seen(
        in_flight=meter.in_flight,
        busy=meter.busy,
        moments=meter.moments,
        charged=meter.charged,
        held=meter.held,
        wanted=meter.wanted,
        used=used,
    )


def _write(container: Container, pace: Pace, *, now: int) -> None:
    limits = msgspec.structs.replace(
        container.gpus[0], rate=round(pace.rate * WHOLE), weight=round(pace.weight * WHOLE), beat=now
    )
    container.set(limits)
