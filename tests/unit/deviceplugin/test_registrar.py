"""The registrar does what the registration's state machine decides."""

from __future__ import annotations

import asyncio

from aliquot_deviceplugin.endpoint import registration as reg
from aliquot_deviceplugin.endpoint.registrar import Registrar, RegistrationError
from support.clocks import VirtualClock


class Kubelet:
    """Holds Register calls until a test answers them."""

    def __init__(self) -> None:
        self.calls: list[asyncio.Future[None]] = []

    async def register(self) -> None:
        """Wait for the test's answer."""
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.calls.append(call)
        await call

    def taken(self) -> list[bool]:
        """Of each call so far, whether it was cancelled."""
        return [call.cancelled() for call in self.calls]


def registrar(kubelet: Kubelet, clock: VirtualClock, seen: list[reg.Phase] | None = None) -> Registrar:
    """One resource's."""
    phases = seen if seen is not None else []
    made = Registrar(
        resource="aliquot.dev/compute",
        pace=reg.Pace(),
        register=kubelet.register,
        end_streams=lambda _: None,
        on_change=lambda: phases.append(made.state.phase),
        clock=clock,
        chance=lambda: 0.0,
    )
    return made


async def test_a_new_kubelet_ends_the_call_to_the_old() -> None:
    """There is one call at most: the one to a kubelet that is no more is cancelled before the next begins."""
    kubelet, clock = Kubelet(), VirtualClock()
    at_work = registrar(kubelet, clock)
    at_work.tell(reg.SocketSeen(reg.SocketId(1, 1)))
    await clock.advance(0)
    at_work.tell(reg.SocketSeen(reg.SocketId(2, 2)))
    await clock.advance(0)
    both = kubelet.taken()
    at_work.tell(reg.SocketGone())
    await clock.advance(0)

    assert both == [True, False]
    assert kubelet.taken() == [True, True]


async def test_refused_then_taken() -> None:
    """A refusal is followed by another call after the wait, and every new state is told."""
    kubelet, clock, phases = Kubelet(), VirtualClock(), list[reg.Phase]()
    at_work = registrar(kubelet, clock, phases)
    at_work.tell(reg.SocketSeen(reg.SocketId(1, 1)))
    await clock.advance(0)
    kubelet.calls[0].set_exception(RegistrationError("not today"))
    await clock.advance(0.004)
    too_early = len(kubelet.calls)
    await clock.advance(0.002)
    kubelet.calls[1].set_result(None)
    await clock.advance(0)

    assert too_early == 1
    assert phases == [
        reg.Phase.REGISTERING,
        reg.Phase.BACKING_OFF,
        reg.Phase.REGISTERING,
        reg.Phase.AWAITING_STREAM,
    ]


async def test_closed() -> None:
    """After it is closed nothing is under way, and nothing begins."""
    kubelet, clock = Kubelet(), VirtualClock()
    at_work = registrar(kubelet, clock)
    at_work.tell(reg.SocketSeen(reg.SocketId(1, 1)))
    await clock.advance(0)
    await at_work.close()
    at_work.tell(reg.SocketSeen(reg.SocketId(2, 2)))
    await clock.advance(20)

    assert kubelet.taken() == [True]
