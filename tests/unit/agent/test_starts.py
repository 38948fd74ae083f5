"""May this container start? Which one it is, whether enough is known, and what is remembered of those that did."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.isolation.gpu_modes import Seat, Told, Use
from aliquot_agent.pods.standing import decode_claims, encode_claims
from aliquot_agent.starting.decision import Decision, Known, Refuse, Start, Wait
from aliquot_agent.starting.kubelet_view import Listed, Recorded
from aliquot_agent.starting.starts import decide
from aliquot_core.claims import Claim
from aliquot_core.door import PreStart
from aliquot_core.grant import decode_grant, encode_grant
from aliquot_core.quantities import MiB, Percent
from support.starts import BASE, CARDS, NAMES, ask, edited, make_pod, record


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
