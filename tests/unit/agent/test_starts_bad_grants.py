"""Under a bad grant no container starts, and its pod's author reads why."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_agent.starting.decision import Refuse, Start
from aliquot_core.grant import ContainerGrant, Grant, encode_grant
from support.starts import BASE, CARDS, ask, edited, make_pod, record, regranted, slice_of

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
