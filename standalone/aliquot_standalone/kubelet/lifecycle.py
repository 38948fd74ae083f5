"""What a pod's containers should do next, and what its status says. Pure: (spec, what is seen, now) → decision.

Init containers run one after another; an ordinary one must end with 0, a sidecar (an init container with restart
policy Always) only has to run. Then all app containers run at once. Who has ended is started again by the restart
policy, at once the first time, then after 10 s, 20 s … 300 s; ten quiet minutes and it counts anew. When no app
container will run again, sidecars are stopped, last first. A pod that is to go has its app containers stopped, then
its sidecars.

What must always hold: nothing starts in a pod that is going or has ended; an app container never starts before all
init containers have done their part; an ended pod stays ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from aliquot_core.objects import Container, Pod
from aliquot_standalone.kubelet.settings import Settings


class Waiting(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Not started: never yet, or the last attempt was refused."""

    reason: str = "PodInitializing"
    message: str = ""
    not_before: float = 0.0


class Starting(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Being started right now."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process by its number and birth, so that another one under the same number is never taken for it."""

    id: str
    pid: int
    born: str


class Running(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A live process."""

    process: Process
    since: float


class Exited(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A process that has ended."""

    id: str
    since: float
    until: float
    code: int
    reason: str


State: TypeAlias = Waiting | Starting | Running | Exited


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One container over its restarts."""

    state: State = Waiting()
    last: Exited | None = None
    # Processes started so far; restarts are one less.
    starts: int = 0
    # Ends in a row without ten quiet minutes between: what the back-off grows with.
    ends: int = 0
    # Starts refused in a row.
    refusals: int = 0


Lives: TypeAlias = Mapping[str, Life]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now, and when to look again at the latest."""

    start: list[str] = []
    stop: list[str] = []
    wake_at: float | None = None
    # Nothing runs and nothing will: the pod's devices are free.
    over: bool = False


def is_sidecar(container: Container) -> bool:
    """Whether an init container goes on beside the app containers."""
    return container.restart_policy == "Always"


def decide(pod: Pod, lives: Lives, *, now: float, going: bool, settings: Settings) -> Decision:
    """The next step of a pod."""
    view = _View(pod=pod, lives=lives, now=now, settings=settings)
    if going or view.apps_done or view.init_failed:
        return view.wind_down()
    return view.go_on()


def phase(pod: Pod, lives: Lives, *, going: bool, settings: Settings) -> str:
    """The word on the pod's status."""
    view = _View(pod=pod, lives=lives, now=0.0, settings=settings)
    if view.init_failed:
        return "Failed" if view.nothing_runs else "Pending"
    ended = [state for state in view.app_states if isinstance(state, Exited)]
    over = view.apps_done or (going and view.nothing_runs)
    if over and view.nothing_runs:
        return "Succeeded" if len(ended) == len(view.app_states) and not any(one.code for one in ended) else "Failed"
    begun = all(view.life(container.name).starts for container in pod.spec.containers)
    return "Running" if begun else "Pending"


class _View:
    """A pod's spec and lives, with the questions that both decisions and status ask."""

    def __init__(self, *, pod: Pod, lives: Lives, now: float, settings: Settings) -> None:
        self._policy = pod.spec.restart_policy or "Always"
        self._inits = pod.spec.init_containers
        self._apps = pod.spec.containers
        self._lives = lives
        self._now = now
        self._settings = settings
        self._wake: list[float] = []

    def life(self, name: str) -> Life:
        return self._lives.get(name, Life())

    @property
    def app_states(self) -> list[State]:
        return [self.life(container.name).state for container in self._apps]

    @property
    def nothing_runs(self) -> bool:
        return not any(isinstance(life.state, Running | Starting) for life in self._lives.values())

    @property
    def apps_done(self) -> bool:
        """Whether no app container will run again."""
        return all(isinstance(state, Exited) and not self._again(state) for state in self.app_states)

    @property
    def init_failed(self) -> bool:
        """Whether an ordinary init container has failed for good."""
        return self._policy == "Never" and any(
            isinstance(state := self.life(one.name).state, Exited) and state.code != 0
            for one in self._inits
            if not is_sidecar(one)
        )

    def _again(self, ended: Exited) -> bool:
        return self._policy == "Always" or (self._policy == "OnFailure" and ended.code != 0)

    def wind_down(self) -> Decision:
        """Stop what runs: app and init containers together, then sidecars from last to first."""
        running = {name for name, life in self._lives.items() if isinstance(life.state, Running | Starting)}
        sidecars = [one.name for one in self._inits if is_sidecar(one) and one.name in running]
        first = sorted(running - set(sidecars))
        return Decision(stop=first or sidecars[-1:], over=not running)

    def go_on(self) -> Decision:
        """Start what should run and may by now."""
        start: list[str] = []
        for container in self._inits:
            sidecar = is_sidecar(container)
            if self._wants_start(container.name, again=sidecar or None):
                start.append(container.name)
            if not self._lets_pass(container.name, sidecar=sidecar):
                return self._decision(start)
        start += [one.name for one in self._apps if self._wants_start(one.name, again=None)]
        return self._decision(start)

    def _decision(self, start: list[str]) -> Decision:
        return Decision(start=start, wake_at=min(self._wake, default=None))

    def _lets_pass(self, name: str, *, sidecar: bool) -> bool:
        life = self.life(name)
        if sidecar:
            # One that has run once does not hold the others up while it waits for its next start.
            return isinstance(life.state, Running) or life.last is not None or isinstance(life.state, Exited)
        return isinstance(life.state, Exited) and life.state.code == 0

    def _wants_start(self, name: str, *, again: bool | None) -> bool:
        life = self.life(name)
        state = life.state
        if isinstance(state, Running | Starting):
            return False
        if isinstance(state, Exited):
            ordinary_init = any(one.name == name for one in self._inits)
            wanted = again if again is not None else (state.code != 0 if ordinary_init else self._again(state))
            return wanted and self._due(state.until + back_off(life.ends, self._settings))
        return self._due(state.not_before)

    def _due(self, at: float) -> bool:
        if at <= self._now:
            return True
        self._wake.append(at)
        return False


def back_off(ends: int, settings: Settings) -> float:
    """Seconds to wait after so many ends in a row: none after the first."""
    if ends <= 1:
        return 0.0
    # Past 2 ** 30 the power only grows without need: the cap holds long before.
    return float(min(settings.crash_back_off * 2 ** min(ends - 2, 30), settings.crash_back_off_max))


def starting(life: Life) -> Life:
    """The container is being started."""
    last = life.state if isinstance(life.state, Exited) else life.last
    return msgspec.structs.replace(life, state=Starting(), last=last)


def started(life: Life, *, process: Process, now: float) -> Life:
    """The container's process runs."""
    return msgspec.structs.replace(life, state=Running(process=process, since=now), starts=life.starts + 1, refusals=0)


def refused(life: Life, *, reason: str, message: str, now: float, settings: Settings) -> Life:
    """The start was refused; it is tried again a little later."""
    pause = settings.start_retry[min(life.refusals, len(settings.start_retry) - 1)]
    state = Waiting(reason=reason, message=message, not_before=now + pause)
    return msgspec.structs.replace(life, state=state, refusals=life.refusals + 1)


def ended(life: Life, *, code: int, reason: str, now: float, settings: Settings) -> Life:
    """The container's process has ended."""
    if not isinstance(life.state, Running):
        return life
    since = life.state.since
    quiet = now - since > 2 * settings.crash_back_off_max
    state = Exited(id=life.state.process.id, since=since, until=now, code=code, reason=reason)
    return msgspec.structs.replace(life, state=state, ends=1 if quiet else life.ends + 1)
