"""The registration's state machine: when a resource tells the kubelet of itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_deviceplugin.endpoint import registration as reg
from aliquot_deviceplugin.endpoint.registration import Phase

PACE = reg.Pace()
FIRST = reg.SocketId(1, 100)
SECOND = reg.SocketId(1, 200)

step = functools.partial(reg.step, pace=PACE, chance=0.0)


def after(*events: reg.Event) -> tuple[reg.State, tuple[reg.Action, ...]]:
    """The state after these events, and what the last one led to."""
    state = reg.State()
    actions: tuple[reg.Action, ...] = ()
    for event in events:
        state, actions = step(state, event)
    return state, actions


SEEN = (reg.SocketSeen(FIRST),)
TAKEN = (*SEEN, reg.Registered(1))
LISTENING = (*TAKEN, reg.StreamOpened(1))
LOST = (*LISTENING, reg.StreamEnded(1))


@pytest.mark.parametrize(
    ("events", "phase", "actions"),
    [
        pytest.param((reg.SocketGone(),), Phase.NO_KUBELET, (), id="no kubelet yet"),
        pytest.param(SEEN, Phase.REGISTERING, (reg.Register(1),), id="a kubelet appears"),
        pytest.param((*SEEN, reg.SocketSeen(FIRST)), Phase.REGISTERING, (), id="the same one is seen again"),
        pytest.param(
            (*SEEN, reg.SocketSeen(SECOND)), Phase.REGISTERING, (reg.Register(2),), id="another one while registering"
        ),
        pytest.param((*SEEN, reg.RegisterFailed(1)), Phase.BACKING_OFF, (reg.Wait(2, 0.005),), id="refused"),
        pytest.param(
            (*SEEN, reg.RegisterFailed(1), reg.TimerFired(2), reg.RegisterFailed(3)),
            Phase.BACKING_OFF,
            (reg.Wait(4, 0.01),),
            id="refused again: twice the wait",
        ),
        pytest.param(
            (*SEEN, reg.RegisterFailed(1), reg.SocketSeen(SECOND)),
            Phase.REGISTERING,
            (reg.Register(3),),
            id="a new kubelet cuts the wait short",
        ),
        pytest.param(
            (*SEEN, reg.RegisterFailed(1), reg.SocketSeen(SECOND), reg.RegisterFailed(3)),
            Phase.BACKING_OFF,
            (reg.Wait(4, 0.005),),
            id="a new kubelet's first refusal counts as the first",
        ),
        pytest.param(
            (*SEEN, reg.SocketSeen(SECOND), reg.Registered(1)), Phase.REGISTERING, (), id="an old kubelet's answer"
        ),
        pytest.param(TAKEN, Phase.AWAITING_STREAM, (reg.Wait(2, 10.0),), id="taken"),
        pytest.param((*TAKEN, reg.TimerFired(2)), Phase.REGISTERING, (reg.Register(3),), id="taken but never heard"),
        pytest.param(LISTENING, Phase.LISTENING, (reg.Wait(3, 10.0),), id="heard"),
        pytest.param(
            (*SEEN, reg.StreamOpened(1), reg.Registered(1)),
            Phase.LISTENING,
            (reg.Wait(2, 10.0),),
            id="heard before the answer to Register came",
        ),
        pytest.param(
            (*SEEN, reg.StreamOpened(1), reg.StreamEnded(1), reg.Registered(1)),
            Phase.SETTLING,
            (reg.Wait(2, 0.02),),
            id="heard and lost before the answer came",
        ),
        pytest.param(
            (*SEEN, reg.RegisterFailed(1), reg.StreamOpened(1)),
            Phase.LISTENING,
            (reg.Wait(3, 10.0),),
            id="heard though the call failed",
        ),
        pytest.param(LOST, Phase.SETTLING, (reg.Wait(4, 0.02),), id="lost"),
        pytest.param((*LOST, reg.TimerFired(4)), Phase.REGISTERING, (reg.Register(5),), id="lost, and again"),
        pytest.param(
            (*LISTENING, reg.StreamOpened(2), reg.StreamEnded(1)), Phase.LISTENING, (), id="one of two streams lost"
        ),
        pytest.param((*LOST, reg.SocketGone()), Phase.NO_KUBELET, (reg.GiveUp(),), id="lost for good"),
        pytest.param(
            (*LISTENING, reg.SocketSeen(SECOND)),
            Phase.REGISTERING,
            (reg.EndStreams(frozenset({1})), reg.Register(4)),
            id="a new kubelet while the old one's stream seems alive",
        ),
    ],
)
def test_scenario(events: Iterable[reg.Event], phase: Phase, actions: tuple[reg.Action, ...]) -> None:
    """Each story ends in the phase and with the action that the table says."""
    state, done = after(*events)

    assert (state.phase, done) == (phase, actions)


def test_quarrel_slows_down() -> None:
    """Streams lost soon after one another make the waits grow; one that lived makes them short again."""
    state, _ = after(*LISTENING)
    waits = []
    for stream in range(2, 12):
        state, (wait,) = step(state, reg.StreamEnded(stream - 1))
        assert isinstance(wait, reg.Wait)
        waits.append(wait.seconds)
        for event in (reg.TimerFired(state.epoch), reg.Registered(state.epoch + 1), reg.StreamOpened(stream)):
            state, _ = step(state, event)

    assert waits == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.0, 5.0]
    proven, _ = step(state, reg.TimerFired(state.epoch))
    _, (wait,) = step(proven, reg.StreamEnded(11))
    assert wait == reg.Wait(proven.epoch + 1, 0.02)


def test_in_the_registry_the_kubelet_comes_when_it_likes() -> None:
    """With no time set, an offer that nobody took yet is left alone: making it anew could meet a starting kubelet."""
    patient = functools.partial(reg.step, pace=reg.Pace(stream_expected=None), chance=0.0)
    state, _ = patient(reg.State(), reg.SocketSeen(FIRST))

    state, actions = patient(state, reg.Registered(1))

    assert (state.phase, actions) == (Phase.AWAITING_STREAM, ())


@given(chance=st.floats(0, 1, exclude_max=True))
def test_chance_only_lengthens(chance: float) -> None:
    """Chance spreads a wait over half its length and never shortens it below what the kubelet needs."""
    state, _ = after(*LISTENING)

    _, (wait,) = reg.step(state, reg.StreamEnded(1), pace=PACE, chance=chance)

    assert isinstance(wait, reg.Wait)
    assert PACE.settle <= wait.seconds <= PACE.settle * 1.5


class Model:
    """A kubelet, the machine, and between them messages that may arrive in any order."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        self.draw = draw
        self.state = reg.State()
        self.mail: list[Callable[[], None]] = []
        self.slot: list[Callable[[], None]] = []
        self.sockets = 0
        self.alive: reg.SocketId | None = None
        self.newest: int | None = None
        self.open: set[int] = set()
        self.streams = 0

    # --- the kubelet
    def start(self) -> None:
        """A new kubelet, with a new socket."""
        self.stop()
        self.sockets += 1
        self.alive = reg.SocketId(1, self.sockets)
        seen = reg.SocketSeen(self.alive)
        self.mail.append(lambda: self.tell(seen))

    def stop(self) -> None:
        """The kubelet dies, and its connections with it."""
        for stream in list(self.open):
            self._close(stream)
        self.alive = self.newest = None

    def take(self, epoch: int, target: reg.SocketId) -> None:
        """A Register call arrives; an answer counts only while its caller waits."""
        if self.alive != target:
            self.slot.append(lambda: self.tell(reg.RegisterFailed(epoch)))
            return
        self.streams += 1
        stream = self.streams
        self.newest = stream
        self.open.add(stream)
        self.mail.append(lambda: self.tell(reg.StreamOpened(stream)))
        self.slot.append(lambda: self.tell(reg.Registered(epoch)))

    def hear_end(self) -> None:
        """A stream of this name ended: the kubelet drops whichever client is newest."""
        newest, self.newest = self.newest, None
        if newest is not None:
            self._close(newest)

    def _close(self, stream: int) -> None:
        if stream in self.open:
            self.open.discard(stream)
            self.mail += [lambda: self.tell(reg.StreamEnded(stream)), self.hear_end]

    # --- the shell
    def tell(self, event: reg.Event) -> None:
        """Hand an event to the machine and do as it says."""
        before = self.state
        self.state, actions = reg.step(before, event, pace=PACE, chance=0.0)
        for action in actions:
            self.perform(action, event)

    def perform(self, action: reg.Action, event: reg.Event) -> None:
        """A call or wait takes the place of the one before; what reached the kubelet already can't be called back."""
        match action:
            case reg.EndStreams(streams=streams):
                for stream in streams:
                    self._close(stream)
            case reg.Register(epoch=epoch):
                assert isinstance(event, reg.SocketSeen) or not self.state.streams, "two registrations race"
                assert self.state.socket is not None
                target = self.state.socket
                self.slot = []
                self.mail.append(lambda: self.take(epoch, target))
            case reg.Wait(epoch=epoch):
                self.slot = [lambda: self.tell(reg.TimerFired(epoch))]
            case reg.GiveUp():
                self.slot = []

    def turn(self) -> bool:
        """Let one thing happen, any one; tell whether there was any."""
        number = self.draw(len(self.mail) + len(self.slot)) if self.mail or self.slot else None
        if number is None:
            return False
        happening = self.mail.pop(number) if number < len(self.mail) else self.slot.pop(number - len(self.mail))
        happening()
        return True


@given(st.lists(st.integers(0, 10_000), max_size=200))
def test_the_kubelet_listens_in_the_end(choices: list[int]) -> None:
    """However restarts, messages and stream ends fall together, the newest client has an open stream in the end."""
    supply = iter(choices)
    model = Model(lambda count: next(supply, 0) % count)
    for choice in supply:
        (model.start, model.stop, model.turn, model.turn, model.turn, model.turn, model.hear_end)[choice % 7]()
    model.start()
    for _ in range(2_000):
        if model.state.phase is Phase.LISTENING and not model.mail:
            break
        model.turn()

    assert model.state.phase is Phase.LISTENING
    assert model.newest in model.open
    assert model.open == model.state.streams
