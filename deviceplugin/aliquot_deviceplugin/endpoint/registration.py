"""When one resource registers with the kubelet: a pure state machine.

How it works. The kubelet forgets every plugin when it restarts; its new kubelet.sock is the sign to register again, and
there are about 0.8 s before pods are admitted (facts: 839 to 941 ms in 19 restarts). While it lives, it listens on our
ListAndWatch stream, and when that ends it counts all devices as unhealthy until we register again.

What must always hold:
- At most one Register call is under way. The kubelet keeps one client per resource name, and when *any* stream of that
  name ends it disconnects whichever client is newest. So we wait until all our streams have ended, then `settle`
  seconds more, so that the kubelet is done with the old client before it hears of a new one.
- A new kubelet is told at once: no wait of an old kubelet delays it, and no answer of an old one counts.

`epoch` numbers calls and timers; whatever carries an older number is stale and changes nothing.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class SocketId(msgspec.Struct, frozen=True):
    """What tells one kubelet.sock from the next; inode numbers alone are used again at once."""

    inode: int
    modified_ns: int


class Phase(Enum):
    """Where a resource stands with the kubelet."""

    NO_KUBELET = "no kubelet"
    REGISTERING = "registering"
    BACKING_OFF = "waiting to try again"
    AWAITING_STREAM = "registered, not yet listened to"
    LISTENING = "listened to"
    SETTLING = "stream lost, about to register again"


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long each wait takes, in seconds."""

    # connect() is refused for an instant between the socket's appearance and the kubelet's listen().
    first_retry: float = 0.005
    longest_retry: float = 2.0
    settle: float = 0.02
    longest_settle: float = 5.0
    # None: wait for ever. The kubelet opens its stream within milliseconds of answering Register.
    stream_expected: float | None = 10.0
    # A stream that lived so long was no part of a quarrel between two registrations.
    proven: float = 10.0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to know about one resource's registration."""

    phase: Phase = Phase.NO_KUBELET
    socket: SocketId | None = None
    epoch: int = 0
    # Failures, or streams lost soon, in a row: the wait doubles with each.
    setbacks: int = 0
    streams: frozenset[int] = frozenset()
    # Whether the kubelet opened a stream since the Register call of this epoch began.
    opened: bool = False
    registrations: int = 0


class SocketSeen(msgspec.Struct, frozen=True):
    """kubelet.sock is there."""

    socket: SocketId


class SocketGone(msgspec.Struct, frozen=True):
    """kubelet.sock is not there."""


class Registered(msgspec.Struct, frozen=True):
    """The kubelet took our registration."""

    epoch: int


class RegisterFailed(msgspec.Struct, frozen=True):
    """The kubelet did not answer, or refused."""

    epoch: int


class StreamOpened(msgspec.Struct, frozen=True):
    """The kubelet began to listen."""

    stream: int


class StreamEnded(msgspec.Struct, frozen=True):
    """The kubelet listens no longer."""

    stream: int


class TimerFired(msgspec.Struct, frozen=True):
    """A wait is over."""

    epoch: int


class Register(msgspec.Struct, frozen=True):
    """Call the kubelet's Register; report the outcome with this epoch. An earlier call or timer is to be given up."""

    epoch: int


class GiveUp(msgspec.Struct, frozen=True):
    """Cancel the Register call and the timer that may be under way."""


class Wait(msgspec.Struct, frozen=True):
    """Report `TimerFired` with this epoch after so long; an earlier call or timer is to be given up."""

    epoch: int
    seconds: float


class EndStreams(msgspec.Struct, frozen=True):
    """End these streams: a kubelet that is no more opened them."""

    streams: frozenset[int]


Event = SocketSeen | SocketGone | Registered | RegisterFailed | StreamOpened | StreamEnded | TimerFired
Action = Register | GiveUp | Wait | EndStreams
Step = tuple[State, tuple[Action, ...]]


def step(state: State, event: Event, *, pace: Pace, chance: float) -> Step:
    """Decide what follows; `chance` in [0, 1) spreads the waits."""
    match event:
        case Registered() | RegisterFailed() | TimerFired():
            return _outcome(state, event, pace, chance) if event.epoch == state.epoch else (state, ())
        case StreamOpened(stream=stream):
            return _stream_opened(state, stream, pace)
        case StreamEnded(stream=stream):
            return _stream_ended(state, stream, pace, chance)
        case SocketSeen(socket=socket):
            return _socket_seen(state, socket)
        case SocketGone():
            return _socket_gone(state)


def _outcome(state: State, event: Registered | RegisterFailed | TimerFired, pace: Pace, chance: float) -> Step:
    match event:
        case Registered():
            return _registered(state, pace, chance)
        case RegisterFailed():
            return _set_back(state, Phase.BACKING_OFF, pace.first_retry, pace.longest_retry, chance)
        case TimerFired() if state.phase is Phase.LISTENING:
            return msgspec.structs.replace(state, setbacks=0), ()
        case TimerFired():
            return _register(state)


def _socket_gone(state: State) -> Step:
    if state.socket is None:
        return state, ()
    gone = msgspec.structs.replace(state, phase=Phase.NO_KUBELET, socket=None, epoch=state.epoch + 1)
    return gone, (GiveUp(),)


def _socket_seen(state: State, socket: SocketId) -> Step:
    if socket == state.socket:
        return state, ()
    new, actions = _register(msgspec.structs.replace(state, socket=socket, setbacks=0, streams=frozenset()))
    return new, (EndStreams(state.streams), *actions) if state.streams else actions


def _register(state: State) -> Step:
    epoch = state.epoch + 1
    new = msgspec.structs.replace(state, phase=Phase.REGISTERING, epoch=epoch, opened=False)
    return new, (Register(epoch),)


def _registered(state: State, pace: Pace, chance: float) -> Step:
    done = msgspec.structs.replace(state, registrations=state.registrations + 1)
    if done.streams:
        return _listening(done, pace)
    if done.opened:
        return _set_back(done, Phase.SETTLING, pace.settle, pace.longest_settle, chance)
    if pace.stream_expected is None:
        return msgspec.structs.replace(done, phase=Phase.AWAITING_STREAM), ()
    return _wait(done, Phase.AWAITING_STREAM, pace.stream_expected)


def _stream_opened(state: State, stream: int, pace: Pace) -> Step:
    heard = msgspec.structs.replace(state, streams=state.streams | {stream}, opened=True)
    if state.phase in {Phase.REGISTERING, Phase.NO_KUBELET, Phase.LISTENING}:
        return heard, ()
    # Also after a Register that failed in our eyes only: it listens, so it knows us.
    return _listening(heard, pace)


def _stream_ended(state: State, stream: int, pace: Pace, chance: float) -> Step:
    left = msgspec.structs.replace(state, streams=state.streams - {stream})
    if state.phase is not Phase.LISTENING or left.streams:
        return left, ()
    return _set_back(left, Phase.SETTLING, pace.settle, pace.longest_settle, chance)


def _listening(state: State, pace: Pace) -> Step:
    return _wait(state, Phase.LISTENING, pace.proven)


def _set_back(state: State, phase: Phase, first: float, longest: float, chance: float) -> Step:
    seconds = min(first * 2.0 ** min(state.setbacks, 32), longest) * (1.0 + chance / 2)
    return _wait(msgspec.structs.replace(state, setbacks=state.setbacks + 1), phase, seconds)


def _wait(state: State, phase: Phase, seconds: float) -> Step:
    epoch = state.epoch + 1
    return msgspec.structs.replace(state, phase=phase, epoch=epoch), (Wait(epoch, seconds),)
