"""May this container start? Each rule of `starts` as a row, and the one that matters most as a property."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.gpu_modes import Seat, Told, Use
from aliquot_agent.pods.standing import Standing, decode_claims, encode_claims
from aliquot_agent.starting.decision import Decision, Known, Refuse, Start, Wait
from aliquot_agent.starting.kubelet_view import Listed, Recorded
from aliquot_agent.starting.room import totals
from aliquot_agent.starting.starts import decide
from aliquot_core.claims import Claim
from aliquot_core.door import PreStart
from aliquot_core.grant import ContainerGrant, Grant, Slice, decode_grant, encode_grant
from aliquot_core.inventory import Gpu, Health, Inventory
from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_core.quantities import MiB, Percent

NAMES = Names()
CARDS = Inventory(
    gpus=(
        Gpu(uuid="GPU-a", index=0, model="A100", memory=80_000),
        Gpu(uuid="GPU-b", index=1, model="A100", memory=80_000, health=Health.SICK, reason="XID 79"),
    )
)
Asked = dict[str, tuple[int, int]]


def slice_of(compute: int, memory: int, gpu: str = "GPU-a") -> Slice:
    """A slice without burst."""
    return Slice(gpu=gpu, compute=Percent(compute), limit=Percent(compute), memory=MiB(memory))


def make_pod(uid: str, *, app: Asked, init: Asked | None = None, node: str = "n1", **more: Any) -> Pod:
    """A pod bound here, with a grant on GPU-a for what each container asks (percent, MiB)."""

    def containers(asked: Asked) -> list[dict[str, Any]]:
        return [
            {"name": name, "resources": {"limits": {NAMES.compute: str(c), NAMES.memory: str(m)}}}
            for name, (c, m) in asked.items()
        ]

    granted = {
        name: ContainerGrant(slices=(slice_of(c, m),), isolation="observe")
        for name, (c, m) in ({**(init or {}), **app}).items()
    }
    grant = encode_grant(Grant(node=node, pod=uid, containers=granted))
    annotations = {NAMES.grant: grant} | more.pop("annotations", {})
    return msgspec.convert(
        {
            "metadata": {"name": f"pod-{uid}", "namespace": "team", "uid": uid, "annotations": annotations},
            "spec": {"nodeName": node, "containers": containers(app), "initContainers": containers(init or {})},
            "status": {"phase": more.get("phase", "Pending")},
        },
        Pod,
    )


def record(uid: str, container: str, ids: set[str], name: str = "") -> Recorded:
    """A line of the kubelet's own record."""
    full = NAMES.cdi_name(name or f"{uid}-{container}")
    return Recorded(uid=uid, container=container, resource=NAMES.compute, ids=frozenset(ids), names=(full,))


def ask(
    ids: set[str],
    *,
    pods: list[Pod],
    recorded: list[Recorded] | None,
    listed: tuple[Listed, ...] = (),
    names: tuple[str, ...] = (),
    standing: dict[str, Standing] | None = None,
    inventory: Inventory = CARDS,
) -> Decision:
    """Decide on a call for these ids."""
    known = Known(
        node="n1",
        names=NAMES,
        inventory=inventory,
        pods={pod.metadata.uid: pod for pod in pods},
        recorded=None if recorded is None else tuple(recorded),
        listed=listed,
        standing=standing or {},
        record_problem="" if recorded is not None else "no record",
    )
    return decide(PreStart(call=1, resource=NAMES.compute, ids=sorted(ids), names=list(names)), known=known)


def test_a_granted_container_starts_under_the_name_that_the_kubelet_recorded() -> None:
    """The spec goes where the runtime will look for it, with the container's own slice."""
    pod = make_pod("u1", app={"main": (30, 8_000)})
    decision = ask({"x1", "x2"}, pods=[pod], recorded=[record("u1", "main", {"x1", "x2"}, "tok")])
    assert isinstance(decision, Start)
    (spec,) = decision.specs
    assert (spec.cdi_name, spec.container, spec.grant.memory) == ("aliquot.dev/slice=tok", "main", MiB(8_000))
    assert decision.claims == {"GPU-a": Claim(compute=Percent(30), memory=MiB(8_000))}


@pytest.mark.parametrize("compute", [30, 100])
def test_a_container_of_mps_waits_for_its_gpus_mode(compute: int) -> None:
    """A part waits for the daemon, a whole GPU for nobody else; until the keeper says so it is held, not refused."""
    pod = make_pod("u1", app={"main": (compute, 8_000)})
    grant = decode_grant(pod.metadata.annotations[NAMES.grant])
    held = {"main": msgspec.structs.replace(grant.containers["main"], isolation="mps")}
    pod = edited(pod, encode_grant(msgspec.structs.replace(grant, containers=held)))
    cards = tuple(msgspec.structs.replace(gpu, isolation=["mps"]) for gpu in CARDS.gpus)
    use = Use.EXCLUSIVE if compute == 100 else Use.SHARED

    def start(seats: dict[str, Seat]) -> Decision:
        known = Known(
            node="n1",
            names=NAMES,
            inventory=msgspec.structs.replace(CARDS, gpus=cards),
            pods={"u1": pod},
            recorded=(record("u1", "main", {"x1"}),),
            seats=seats,
        )
        return decide(PreStart(call=1, resource=NAMES.compute, ids=["x1"], names=[]), known=known)

    assert isinstance(start({}), Wait)
    assert start({"GPU-a": Seat(wanted=use)}) == Wait(reason=f"container main: GPU GPU-a: it is being made {use}")
    assert isinstance(start({"GPU-a": Seat(wanted=use, told=Told(use=use))}), Start)


def test_init_and_app_containers_that_share_ids_get_a_spec_each() -> None:
    """Nobody needs to know which of the two runs next: each finds its own memory under its own name."""
    pod = make_pod("u1", init={"prepare": (30, 8_000)}, app={"main": (30, 16_000)})
    shared = {"x1", "x2"}
    decision = ask(shared, pods=[pod], recorded=[record("u1", "prepare", shared), record("u1", "main", shared)])
    assert isinstance(decision, Start)
    assert {spec.cdi_name: spec.grant.memory for spec in decision.specs} == {
        "aliquot.dev/slice=u1-prepare": MiB(8_000),
        "aliquot.dev/slice=u1-main": MiB(16_000),
    }


def edited(pod: Pod, text: str | None) -> Pod:
    """The pod with another grant, or none."""
    annotations = {} if text is None else {NAMES.grant: text}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def regranted(pod: Pod, *, node: str = "n1", uid: str = "u1", container: str = "main", part: Slice) -> Pod:
    """The pod with a grant of one slice."""
    grant = Grant(node=node, pod=uid, containers={container: ContainerGrant(slices=(part,), isolation="observe")})
    return edited(pod, encode_grant(grant))


BASE = make_pod("u1", app={"main": (30, 8_000)})
REACHES = {"cdi.k8s.io/mine": "aliquot.dev/slice=0123456789abcdef"}
REFUSALS = {
    "no grant": (edited(BASE, None), "bound without a grant"),
    "not JSON": (edited(BASE, "{"), "not readable"),
    "unknown version": (edited(BASE, '{"v":7}'), "a later version of Aliquot wrote it: its format is 7"),
    "oversized": (edited(BASE, '{"v":1,' + " " * 70_000), "more than 65536"),
    "another node": (regranted(BASE, node="n2", part=slice_of(30, 8_000)), "is for node n2"),
    "another pod": (regranted(BASE, uid="u9", part=slice_of(30, 8_000)), "belongs to another pod"),
    "less than asked": (regranted(BASE, part=slice_of(20, 8_000)), "compute 20 where 30 was asked"),
    "more memory than asked": (regranted(BASE, part=slice_of(30, 9_000)), "memory 9000 MiB where 8000 MiB"),
    "another container": (regranted(BASE, container="other", part=slice_of(30, 8_000)), "ask for nothing: other"),
    "unknown GPU": (regranted(BASE, part=slice_of(30, 8_000, "GPU-z")), "GPU-z is not on node n1"),
    "sick GPU": (regranted(BASE, part=slice_of(30, 8_000, "GPU-b")), "GPU-b is sick: XID 79"),
    "names a slice itself": (make_pod("u1", app={"main": (30, 8_000)}, annotations=REACHES), "remove the annotation"),
    "more than the GPU has": (make_pod("u1", app={"main": (30, 90_000)}), "90000 MiB of 80000 MiB memory"),
}


@pytest.mark.parametrize("row", REFUSALS)
def test_a_bad_grant_is_refused_with_its_reason(row: str) -> None:
    """The kubelet shows the reason in the pod's Event; nothing starts."""
    pod, reason = REFUSALS[row]
    decision = ask({"x1"}, pods=[pod], recorded=[record("u1", "main", {"x1"})])
    assert isinstance(decision, Refuse)
    assert reason in decision.reason


def test_an_isolation_that_the_gpu_does_not_hold_is_refused() -> None:
    """A pod that was promised more than this GPU can hold must not run unprotected."""
    grant = Grant(
        node="n1",
        pod="u1",
        containers={"main": ContainerGrant(slices=(slice_of(30, 8_000),), isolation="mig")},
    )
    decision = ask({"x1"}, pods=[edited(BASE, encode_grant(grant))], recorded=[record("u1", "main", {"x1"})])
    assert isinstance(decision, Refuse)
    assert "does not hold isolation mig" in decision.reason


def test_a_grant_in_no_mode_is_refused_where_modes_are_offered() -> None:
    """Nothing would keep such a container inside: the mode that its GPU has is not its own."""
    held = ContainerGrant(slices=(slice_of(30, 8_000),))
    grant = Grant(node="n1", pod="u1", containers={"main": held})
    decision = ask({"x1"}, pods=[edited(BASE, encode_grant(grant))], recorded=[record("u1", "main", {"x1"})])
    assert isinstance(decision, Refuse)
    assert "is to be held in no mode, and offers observe" in decision.reason


@pytest.mark.parametrize(
    ("memory", "context", "isolation", "starts"),
    [
        (400, 512, "interposer", False),
        (511, 512, "interposer", False),
        (512, 512, "interposer", True),
        (400, None, "interposer", True),
        (400, 512, "observe", True),
    ],
)
def test_a_slice_in_which_no_program_could_begin_is_refused_with_words(
    memory: int, context: int | None, isolation: str, *, starts: bool
) -> None:
    """Where a limit holds it: by a grant from before the centre knew of contexts, or of a node told otherwise since."""
    card = msgspec.structs.replace(CARDS.gpus[0], context=context, isolation=["observe", "interposer"])
    held = ContainerGrant(slices=(slice_of(30, memory),), isolation=isolation)
    pod = edited(
        make_pod("u1", app={"main": (30, memory)}),
        encode_grant(Grant(node="n1", pod="u1", containers={"main": held})),
    )
    inventory = msgspec.structs.replace(CARDS, gpus=(card, CARDS.gpus[1]))
    decision = ask({"x1"}, pods=[pod], recorded=[record("u1", "main", {"x1"})], inventory=inventory)
    assert isinstance(decision, Start if starts else Refuse)
    if isinstance(decision, Refuse):
        assert decision.reason.startswith(
            f"container main: GPU GPU-a takes 512 MiB for a CUDA context, more than the {memory} MiB granted there: "
        )
        assert "ask for more" in decision.reason


def test_a_slice_that_others_hold_is_refused() -> None:
    """The node has the last word: two grants for one place never run together."""
    pods = [make_pod("u1", app={"main": (60, 8_000)}), make_pod("u2", app={"main": (60, 8_000)})]
    decision = ask({"y"}, pods=pods, recorded=[record("u1", "main", {"x"}), record("u2", "main", {"y"})])
    assert isinstance(decision, Refuse)
    assert "120 % of 100 % compute" in decision.reason


@pytest.mark.parametrize(("others", "words"), [(1, ", 1 other pod holds slices"), (2, ", 2 other pods hold slices")])
def test_a_refusal_counts_the_others_in_plain_words(others: int, words: str) -> None:
    """The sentence stands in the pod's Event, where its author reads it."""
    standing = {
        f"o{number}": Standing(pod="team/o", claims={"GPU-a": Claim(compute=Percent(40), memory=MiB(1))})
        for number in range(others)
    }
    pod = make_pod("u1", app={"main": (70, 8_000)})
    decision = ask({"x"}, pods=[pod], recorded=[record("u1", "main", {"x"})], standing=standing)
    assert isinstance(decision, Refuse)
    assert words in decision.reason


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_holds_nothing(phase: str) -> None:
    """A slice is free when its pod ended, though the kubelet still remembers the ids."""
    pods = [make_pod("u1", app={"main": (60, 8_000)}, phase=phase), make_pod("u2", app={"main": (60, 8_000)})]
    decision = ask({"y"}, pods=pods, recorded=[record("u1", "main", {"x"}), record("u2", "main", {"y"})])
    assert isinstance(decision, Start)


@pytest.mark.parametrize("last", ["gone", "Failed", "Running"])
def test_whoever_waits_for_the_last_process_of_a_pod_is_told_of_which(last: str) -> None:
    """After a restart, say: by all that the author sees the slice is free; of one that runs there is no more to say."""
    before = [] if last == "gone" else [make_pod("u1", app={"main": (60, 8_000)}, phase=last)]
    recorded = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
    pods = [*before, make_pod("u2", app={"main": (60, 8_000)})]
    decision = ask({"y"}, pods=pods, recorded=recorded, standing=standing(60, 8_000))
    assert isinstance(decision, Refuse)
    told = "1 other pod holds slices of it"
    if last != "Running":
        told += "; of team/pod-u1, over already, a process still runs: this starts when that has ended"
    assert decision.reason.endswith(told)


def test_a_pod_whose_object_is_gone_still_holds_what_it_had() -> None:
    """A forced deletion removes the object at once; the kubelet still holds the containers."""
    standing = {"u1": Standing(pod="team/gone", claims={"GPU-a": Claim(compute=Percent(60), memory=MiB(1))})}
    pod = make_pod("u2", app={"main": (60, 8_000)})
    recorded = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
    assert isinstance(ask({"y"}, pods=[pod], recorded=recorded, standing=standing), Refuse)
    assert isinstance(ask({"y"}, pods=[pod], recorded=recorded[1:], standing=standing), Refuse)
    assert isinstance(ask({"y"}, pods=[pod], recorded=recorded), Start)


def half_elsewhere() -> Pod:
    """A pod of two containers, of which one is granted a GPU that is not here."""
    pod = make_pod("u1", app={"here": (60, 8_000), "there": (1, 1)})
    parts = {"here": slice_of(60, 8_000), "there": slice_of(1, 1, "GPU-z")}
    containers = {name: ContainerGrant(slices=(part,), isolation="observe") for name, part in parts.items()}
    return edited(pod, encode_grant(Grant(node="n1", pod="u1", containers=containers)))


BAD_GRANTS = {
    "half on a GPU that is not here": half_elsewhere(),
    "another pod's": regranted(make_pod("u1", app={"main": (60, 8_000)}), uid="u9", part=slice_of(60, 8_000)),
    "another node's": regranted(make_pod("u1", app={"main": (60, 8_000)}), node="n2", part=slice_of(60, 8_000)),
    "more than asked": regranted(make_pod("u1", app={"main": (1, 8_000)}), part=slice_of(60, 8_000)),
}


@pytest.mark.parametrize("row", BAD_GRANTS)
def test_a_pod_whose_grant_is_bad_keeps_nobody_out(row: str) -> None:
    """It will never start, so a grant copied from another pod must not block a GPU."""
    pods = [BAD_GRANTS[row], make_pod("u2", app={"main": (60, 8_000)})]
    decision = ask({"y"}, pods=pods, recorded=[record("u1", "main", {"x"}), record("u2", "main", {"y"})])
    assert isinstance(decision, Start)


def standing(compute: int, memory: int) -> dict[str, Standing]:
    """What pod u1 held when it started."""
    return {"u1": Standing(pod="team/pod-u1", claims={"GPU-a": Claim(compute=Percent(compute), memory=MiB(memory))})}


def test_a_smaller_grant_written_over_that_of_a_running_pod_frees_nothing() -> None:
    """Its containers run with what they were given, whatever stands in the annotation now."""
    pods = [make_pod("u1", app={"main": (10, 100)}), make_pod("u2", app={"main": (60, 8_000)})]
    recorded = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
    assert isinstance(ask({"y"}, pods=pods, recorded=recorded, standing=standing(60, 8_000)), Refuse)
    assert isinstance(ask({"y"}, pods=pods, recorded=recorded), Start)


def test_a_container_starts_only_under_the_grant_that_its_pod_started_with() -> None:
    """A second grant would be counted instead of the first, under which other containers of the pod still run."""
    pod, recorded = make_pod("u1", app={"main": (30, 8_000)}), [record("u1", "main", {"x"})]
    decision = ask({"x"}, pods=[pod], recorded=recorded, standing=standing(60, 8_000))
    assert isinstance(decision, Refuse)
    assert "another than the one" in decision.reason
    assert isinstance(ask({"x"}, pods=[pod], recorded=recorded, standing=standing(30, 8_000)), Start)


def test_an_ended_pod_of_which_a_process_lives_still_holds() -> None:
    """The kubelet fails a pod that it can't admit again and ends its processes afterwards."""
    pods = [make_pod("u1", app={"main": (60, 8_000)}, phase="Failed"), make_pod("u2", app={"main": (60, 8_000)})]
    recorded = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
    assert isinstance(ask({"y"}, pods=pods, recorded=recorded, standing=standing(60, 8_000)), Refuse)


def test_a_whole_gpu_is_closed_to_best_effort_too() -> None:
    """100 % is nobody else's, even for a pod that asks for no compute."""
    whole = make_pod("u1", app={"main": (100, 8_000)})
    guest = make_pod("u2", app={"main": (10, 10)})
    decision = ask({"y"}, pods=[whole, guest], recorded=[record("u1", "main", {"x"}), record("u2", "main", {"y"})])
    assert isinstance(decision, Refuse)
    assert "granted whole" in decision.reason


def test_a_pod_that_the_api_server_has_not_shown_yet_is_waited_for() -> None:
    """The kubelet may know a pod before our watch does."""
    assert isinstance(ask({"x"}, pods=[], recorded=[record("u1", "main", {"x"})]), Wait)


def test_an_agent_that_does_not_know_all_pods_yet_lets_none_start() -> None:
    """Half blind it would give what another pod holds."""
    known = Known(
        node="n1",
        names=NAMES,
        inventory=CARDS,
        pods={"u1": BASE},
        recorded=(record("u1", "main", {"x"}),),
        complete=False,
    )
    call = PreStart(call=1, resource=NAMES.compute, ids=["x"])
    assert isinstance(decide(call, known=known), Wait)
    assert isinstance(decide(call, known=msgspec.structs.replace(known, complete=True)), Start)


def test_a_static_pod_is_told_why_it_gets_nothing() -> None:
    """Its UID on the node is the mirror pod's hash annotation."""
    mirror = make_pod("m1", app={"main": (10, 10)}, annotations={"kubernetes.io/config.hash": "hash"})
    decision = ask({"x"}, pods=[mirror], recorded=[record("hash", "main", {"x"})])
    assert isinstance(decision, Refuse)
    assert "static pods get no slice" in decision.reason


def test_an_answer_that_was_not_ours_is_refused() -> None:
    """Ids recorded with another plugin's answer would start a container without its slice."""
    entry = Recorded(uid="u1", container="main", resource=NAMES.compute, ids=frozenset({"x"}), names=("other.dev/a=b",))
    assert isinstance(ask({"x"}, pods=[BASE], recorded=[entry]), Refuse)


class TestWithoutTheKubeletsRecord:
    """PodResources knows no UIDs, no init containers and no CDI names: it serves where it leaves no doubt."""

    LISTED = (Listed(namespace="team", name="pod-u1", container="main", ids={NAMES.compute: frozenset({"x"})}),)

    def test_one_container_with_one_name_starts(self) -> None:
        """Listed once, remembered once: no doubt."""
        decision = ask({"x"}, pods=[BASE], recorded=None, listed=self.LISTED, names=("aliquot.dev/slice=t",))
        assert isinstance(decision, Start)
        assert decision.specs[0].cdi_name == "aliquot.dev/slice=t"

    @pytest.mark.parametrize("names", [(), ("aliquot.dev/slice=t", "aliquot.dev/slice=u")])
    def test_an_unsure_name_waits(self, names: tuple[str, ...]) -> None:
        """Under the wrong name the spec would serve somebody else, or nobody."""
        assert isinstance(ask({"x"}, pods=[BASE], recorded=None, listed=self.LISTED, names=names), Wait)

    def test_a_pod_with_an_init_container_waits(self) -> None:
        """It may be the init container that is about to run."""
        pod = make_pod("u1", init={"prepare": (30, 1)}, app={"main": (30, 8_000)})
        assert isinstance(
            ask({"x"}, pods=[pod], recorded=None, listed=self.LISTED, names=("aliquot.dev/slice=t",)), Wait
        )

    def test_an_unlisted_container_waits(self) -> None:
        """Nobody is known to hold these ids."""
        assert isinstance(ask({"q"}, pods=[BASE], recorded=None, listed=self.LISTED), Wait)


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 80_000)), min_size=1, max_size=12),
    st.permutations(range(12)),
)
def test_whatever_is_granted_no_gpu_ever_holds_more_than_it_has(asked: list[tuple[int, int]], order: list[int]) -> None:
    """However wrong the grants and in whatever order they come: the pods that were let start fit together."""
    pods = [make_pod(f"u{number}", app={"main": one}) for number, one in enumerate(asked)]
    recorded = [record(f"u{number}", "main", {f"id{number}"}) for number in range(len(asked))]
    started: dict[str, Standing] = {}
    for number in [one for one in order if one < len(asked)]:
        decision = ask({f"id{number}"}, pods=pods, recorded=recorded, standing=started)
        if isinstance(decision, Start):
            started[f"u{number}"] = Standing(pod=decision.pod.key, claims=decision.claims)
    total, holders = totals(one.claims for one in started.values())["GPU-a"]
    assert total.compute <= Percent(100)
    assert total.memory <= MiB(80_000)
    assert not total.closes or holders == 1


def test_of_two_grants_for_one_place_the_older_pod_starts() -> None:
    """Two grants for one place are a scheduler's mistake; each waiting for the other would be two pods lost."""
    pods = [make_pod("u1", app={"main": (60, 8_000)}), make_pod("u2", app={"main": (60, 8_000)})]
    recorded = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
    assert isinstance(ask({"y"}, pods=pods, recorded=recorded), Refuse)
    assert isinstance(ask({"x"}, pods=pods, recorded=recorded), Start)


RUNS = [
    {"phase": "Running"},
    {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]},
    {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {}}}]},
    {"phase": "Pending", "containerStatuses": [{"name": "a", "state": {"running": {}}}, {"name": "b", "state": {}}]},
]
OLDER, YOUNGER = (make_pod(uid, app={"main": (60, 8_000)}) for uid in ("u1", "u2"))
BOTH = [record("u1", "main", {"x"}), record("u2", "main", {"y"})]
HOLDS = {"GPU-a": Claim(compute=Percent(60), memory=MiB(8_000))}


def with_status(pod: Pod, status: dict[str, Any]) -> Pod:
    """The pod as its kubelet reports it."""
    return msgspec.structs.replace(pod, status=msgspec.convert(status, type(pod.status)))


@pytest.mark.parametrize("status", RUNS)
def test_a_younger_pod_that_runs_is_not_put_out_by_an_older_one(status: dict[str, Any]) -> None:
    """Where our own word was lost with the folder, what its status tells counts."""
    pods = [OLDER, with_status(YOUNGER, status)]
    assert isinstance(ask({"x"}, pods=pods, recorded=BOTH), Refuse)
    assert isinstance(ask({"y"}, pods=pods, recorded=BOTH), Start)


@pytest.mark.parametrize("elder", [{"phase": "Pending"}, {"phase": "Running"}])
def test_our_own_word_goes_before_age_and_status(elder: dict[str, Any]) -> None:
    """Who was let start is there for certain; a status may be from before a reboot."""
    held = {"u2": Standing(pod="team/pod-u2", claims=HOLDS)}
    pods = [with_status(OLDER, elder), YOUNGER]
    assert isinstance(ask({"x"}, pods=pods, recorded=BOTH, standing=held), Refuse)
    assert isinstance(ask({"y"}, pods=pods, recorded=BOTH, standing=held), Start)


def test_of_two_that_ran_before_a_reboot_one_starts() -> None:
    """Both are Running by their status, and neither is: a grant was altered while its pod ran."""
    pods = [with_status(pod, {"phase": "Running"}) for pod in (OLDER, YOUNGER)]
    assert isinstance(ask({"x"}, pods=pods, recorded=BOTH), Start)
    assert isinstance(ask({"y"}, pods=pods, recorded=BOTH), Refuse)


def test_a_slice_that_is_free_within_seconds_is_waited_for() -> None:
    """A refusal would cost 12 s; but what is held for who knows how long is told at once."""
    held = {"gone": Standing(pod="team/gone", claims=HOLDS)}

    def asked(coming: set[str]) -> Decision:
        known = Known(
            node="n1",
            names=NAMES,
            inventory=CARDS,
            pods={"u1": OLDER},
            recorded=tuple(BOTH),
            standing=held,
            coming=frozenset(coming),
        )
        return decide(PreStart(call=1, resource=NAMES.compute, ids=["x"]), known=known)

    assert isinstance(asked({"gone"}), Wait)
    assert isinstance(asked(set()), Refuse)


def test_an_agent_that_can_not_read_what_was_given_lets_none_start() -> None:
    """Pods that were deleted by force while no agent was there are known from the folder alone."""
    known = Known(
        node="n1",
        names=NAMES,
        inventory=CARDS,
        pods={"u1": BASE},
        recorded=(record("u1", "main", {"x"}),),
        remembered=False,
    )
    assert isinstance(decide(PreStart(call=1, resource=NAMES.compute, ids=["x"]), known=known), Wait)


@given(st.dictionaries(st.text(max_size=20), st.tuples(st.integers(0, 200), st.integers(0, 10**9), st.booleans())))
def test_claims_beside_a_slice_are_read_as_they_were_written(parts: dict[str, tuple[int, int, bool]]) -> None:
    """An agent that starts anew knows what the one before it gave."""
    claims = {gpu: Claim(compute=Percent(c), memory=MiB(m), closes=whole) for gpu, (c, m, whole) in parts.items()}
    assert decode_claims(encode_claims(claims)) == claims


@given(st.text(max_size=60))
def test_claims_that_are_not_ours_are_not_guessed(text: str) -> None:
    """Whatever stands there, it is read whole or not at all."""
    found = decode_claims(text)
    assert found is None or encode_claims(found) is not None
