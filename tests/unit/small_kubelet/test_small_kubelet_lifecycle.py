"""What a pod's containers do next, and the word on its status."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from aliquot_core.objects import Pod
from aliquot_standalone.kubelet import lifecycle
from aliquot_standalone.kubelet.lifecycle import Decision, Exited, Life, Process, Running, Starting, Waiting
from aliquot_standalone.kubelet.settings import Settings

SETTINGS = Settings()
NOW = 1_000.0


def pod(*apps: str, inits: tuple[str, ...] = (), sidecars: tuple[str, ...] = (), policy: str = "Always") -> Pod:
    """A pod of these containers; sidecars come before ordinary init containers."""
    init = [{"name": name, "restartPolicy": "Always"} for name in sidecars] + [{"name": name} for name in inits]
    spec = {"containers": [{"name": name} for name in apps], "initContainers": init, "restartPolicy": policy}
    return msgspec.convert({"spec": spec}, Pod)


def runs() -> Life:
    """A container that runs."""
    return Life(state=Running(process=Process(id="p", pid=1, born="b"), since=NOW - 5), starts=1)


def exited(code: int = 0, *, ends: int = 1, until: float = NOW) -> Life:
    """A container that has ended."""
    return Life(state=Exited(id="p", since=until - 5, until=until, code=code, reason=""), starts=ends, ends=ends)


def decide(of: Pod, lives: dict[str, Life], *, now: float = NOW, going: bool = False) -> Decision:
    """The next step."""
    return lifecycle.decide(of, lives, now=now, going=going, settings=SETTINGS)


def phase(of: Pod, lives: dict[str, Life], *, going: bool = False) -> str:
    """The word on the status."""
    return lifecycle.phase(of, lives, going=going, settings=SETTINGS)


@pytest.mark.parametrize(
    ("lives", "start"),
    [
        ({}, ["side"]),
        ({"side": Life(state=Starting())}, []),
        ({"side": runs()}, ["one"]),
        ({"side": runs(), "one": runs()}, []),
        ({"side": runs(), "one": exited(0)}, ["two"]),
        ({"side": runs(), "one": exited(0), "two": exited(0)}, ["main", "other"]),
        ({"side": exited(1), "one": runs()}, ["side"]),
        ({"side": runs(), "one": exited(0), "two": exited(0), "main": runs()}, ["other"]),
    ],
)
def test_containers_start_in_order(lives: dict[str, Life], start: list[str]) -> None:
    """Sidecars have to run, ordinary init containers to end well, before the next; app containers go together."""
    made = pod("main", "other", inits=("one", "two"), sidecars=("side",))
    assert decide(made, lives).start == start


@pytest.mark.parametrize(
    ("policy", "code", "start", "over", "word"),
    [
        ("Always", 0, ["main"], False, "Running"),
        ("Always", 1, ["main"], False, "Running"),
        ("OnFailure", 0, [], True, "Succeeded"),
        ("OnFailure", 1, ["main"], False, "Running"),
        ("Never", 0, [], True, "Succeeded"),
        ("Never", 1, [], True, "Failed"),
    ],
)
def test_restart_policy_says_what_follows_an_end(
    policy: str, code: int, start: list[str], *, over: bool, word: str
) -> None:
    """Who starts again, who has succeeded and who has failed is the restart policy's word."""
    made = pod("main", policy=policy)
    decision = decide(made, {"main": exited(code)})
    assert (decision.start, decision.over) == (start, over)
    assert phase(made, {"main": exited(code)}) == word


@pytest.mark.parametrize(("policy", "start", "word"), [("Never", [], "Failed"), ("OnFailure", ["init"], "Pending")])
def test_failed_init_container(policy: str, start: list[str], word: str) -> None:
    """With Never it fails the pod and no app container ever starts; otherwise it is tried again."""
    made = pod("main", inits=("init",), policy=policy)
    lives = {"init": exited(3)}
    assert decide(made, lives).start == start
    assert decide(made, lives).over == (policy == "Never")
    assert phase(made, lives) == word


def test_back_off_doubles_up_to_five_minutes() -> None:
    """The first restart comes at once, then 10 s, 20 s … 300 s."""
    waits = [lifecycle.back_off(ends, SETTINGS) for ends in (1, 2, 3, 6, 7, 500)]
    assert waits == [0.0, 10.0, 20.0, 160.0, 300.0, 300.0]


def test_back_off_is_waited_for() -> None:
    """Before its time nothing starts, and the pod is looked at again just then."""
    made = pod("main")
    lives = {"main": exited(1, ends=3, until=NOW)}
    assert decide(made, lives) == Decision(wake_at=NOW + 20.0)
    assert decide(made, lives, now=NOW + 20.0).start == ["main"]


def test_ten_quiet_minutes_forgive() -> None:
    """Who ran for more than ten minutes starts at once again."""
    quiet = msgspec.structs.replace(runs(), ends=7)
    ended = lifecycle.ended(quiet, code=1, reason="Error", now=NOW + 596, settings=SETTINGS)
    assert ended.ends == 1
    assert lifecycle.ended(quiet, code=1, reason="Error", now=NOW + 595, settings=SETTINGS).ends == 8


def test_refused_start_waits_and_is_no_restart() -> None:
    """A refusal is tried again after 0.6 s, then every 12 s; it counts neither as a start nor as an end."""
    life = lifecycle.starting(Life())
    first = lifecycle.refused(life, reason="R", message="m", now=NOW, settings=SETTINGS)
    second = lifecycle.refused(lifecycle.starting(first), reason="R", message="m", now=NOW, settings=SETTINGS)
    third = lifecycle.refused(lifecycle.starting(second), reason="R", message="m", now=NOW, settings=SETTINGS)
    times = [life.state.not_before - NOW for life in (first, second, third) if isinstance(life.state, Waiting)]
    assert times == pytest.approx([0.6, 12.0, 12.0])
    assert (third.starts, third.ends) == (0, 0)
    assert decide(pod("main"), {"main": first}) == Decision(wake_at=NOW + 0.6)
    begun = lifecycle.started(lifecycle.starting(third), process=Process(id="p", pid=1, born="b"), now=NOW)
    assert (begun.starts, begun.refusals) == (1, 0)


def test_going_pod_stops_apps_then_sidecars_backwards() -> None:
    """Sidecars outlive the app containers, and the first one outlives the second."""
    made = pod("main", "other", sidecars=("s1", "s2"))
    everything = {name: runs() for name in ("s1", "s2", "main", "other")}
    assert decide(made, everything, going=True).stop == ["main", "other"]
    assert decide(made, everything | {"main": exited(), "other": exited()}, going=True).stop == ["s2"]
    assert decide(made, {"s1": runs(), "s2": exited()}, going=True).stop == ["s1"]
    assert decide(made, {"s1": exited(), "s2": exited()}, going=True).over


def test_sidecars_end_with_the_last_app_container() -> None:
    """A pod whose app containers are done stops its sidecars; how they end is not its word."""
    made = pod("main", sidecars=("side",), policy="Never")
    lives = {"side": runs(), "main": exited(0)}
    assert decide(made, lives).stop == ["side"]
    assert phase(made, lives) == "Running"
    assert phase(made, lives | {"side": exited(143)}) == "Succeeded"


def test_sidecar_in_back_off_does_not_hold_up_others() -> None:
    """One that has run once lets the next container start while it waits for its own restart."""
    made = pod("main", sidecars=("side",))
    decision = decide(made, {"side": exited(1, ends=4)})
    assert decision.start == ["main"]
    assert decision.wake_at == NOW + 40.0


@pytest.mark.parametrize(
    ("lives", "word"),
    [
        ({}, "Failed"),
        ({"main": exited(143)}, "Failed"),
        ({"main": exited(0)}, "Succeeded"),
        ({"main": runs()}, "Running"),
    ],
)
def test_phase_of_a_pod_that_goes(lives: dict[str, Life], word: str) -> None:
    """It has succeeded only if all its app containers ended well."""
    assert phase(pod("main"), lives, going=True) == word


def test_pod_is_pending_until_all_app_containers_have_started() -> None:
    """One that still waits for its first start keeps the pod from Running."""
    assert phase(pod("main", "other"), {"main": runs()}) == "Pending"
    assert phase(pod("main", "other"), {"main": runs(), "other": exited(1)}) == "Running"


lives_drawn = st.one_of(
    st.just(Life()),
    st.just(Life(state=Starting())),
    st.just(runs()),
    st.builds(exited, st.sampled_from([0, 1]), ends=st.integers(1, 9), until=st.floats(0, NOW)),
    st.builds(lambda at: Life(state=Waiting(reason="x", not_before=at)), st.floats(0, 2 * NOW)),
)


@given(
    st.dictionaries(st.sampled_from(["s1", "i1", "i2", "a1", "a2"]), lives_drawn),
    st.sampled_from(["Always", "OnFailure", "Never"]),
    st.booleans(),
)
def test_decisions_are_safe(lives: dict[str, Life], policy: str, going: bool) -> None:
    """Nothing starts in a pod that goes, twice, or before its turn; and a pod that is not over always goes on."""
    made = pod("a1", "a2", inits=("i1", "i2"), sidecars=("s1",), policy=policy)
    decision = decide(made, lives, going=going)
    running = {name for name, life in lives.items() if isinstance(life.state, Running | Starting)}
    assert running.isdisjoint(decision.start)
    assert running.issuperset(decision.stop)
    assert not (decision.start and decision.stop)
    if going:
        assert not decision.start
    if {"a1", "a2"} & set(decision.start):
        assert all(isinstance(state := lives[name].state, Exited) and state.code == 0 for name in ("i1", "i2"))
    assert decision.over or decision.start or decision.stop or decision.wake_at is not None or running
    if decision.over:
        assert not running
