"""What pods request of their nodes' CPU and memory: as Kubernetes writes it, and as kube-scheduler counts it."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.errors import UserError
from aliquot_core.hosts import MOST, host_request, quantity
from aliquot_core.objects import Container, Pod, PodSpec, Quantity, ResourceRequirements
from aliquot_core.request import Kind, most_at_once


def container(cpu: str = "", memory: str = "", *, always: bool = False) -> Container:
    """A container that requests so much."""
    asked: dict[str, Quantity] = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    return Container(
        name="c", resources=ResourceRequirements(requests=asked), restart_policy="Always" if always else None
    )


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("64", 64),
        ("500m", Fraction(1, 2)),
        ("512Gi", 512 * 2**30),
        ("1.5k", 1500),
        ("2e3", 2000),
        (0.25, Fraction(1, 4)),
    ],
)
def test_a_quantity_is_read_exactly(text: str | float, amount: Fraction) -> None:
    """With suffixes of both kinds, exponents and fractions."""
    assert quantity(text, where="here") == amount


@pytest.mark.parametrize("text", ["", "many", "-1", "1 Gi", "1Xi", "Gi", "1.2.3", ".5"])
def test_what_is_no_quantity_is_refused_with_what_to_write(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(UserError, match=r"is no quantity; write one such as 64, 500m or 512Gi"):
        quantity(text, where="here")


def test_a_pod_requests_the_most_that_runs_at_one_time() -> None:
    """Sidecars that have started stay beside each init container that comes after them, and beside app containers."""
    pod = Pod(
        spec=PodSpec(
            init_containers=[container("4"), container("1", "1Mi", always=True), container("3500m")],
            containers=[container("2"), container("500m", "1Ki")],
        )
    )
    assert host_request(pod) == (4500, 2**20 + 2**10)


def test_a_limit_stands_in_for_a_request_and_what_cannot_be_read_counts_nothing() -> None:
    """The API server has taken it, so no pod is failed for it."""
    limited = Container(name="a", resources=ResourceRequirements(limits={"cpu": "2"}))
    assert host_request(Pod(spec=PodSpec(containers=[limited, container("odd")]))) == (2000, 0)


KINDS = st.sampled_from(list(Kind))


@given(containers=st.lists(st.tuples(KINDS, st.integers(min_value=0, max_value=9)), max_size=8))
def test_the_most_at_one_time_is_that_of_some_instant(containers: list[tuple[Kind, int]]) -> None:
    """Instants are each container's start: then all those before it run that do not end, and it itself."""
    instants = [
        sum(before for other, before in containers[:number] if other is not Kind.INIT) + amount
        for number, (_, amount) in enumerate(containers)
    ]
    assert most_at_once(containers, nothing=0) == max(instants, default=0)


def test_a_request_beyond_all_nodes_is_counted_as_more_than_any_has() -> None:
    """The API server takes it of anybody, and nobody's arrays may overflow for it."""
    pod = Pod(spec=PodSpec(containers=[container("10P", "7Ei"), container("10P", "7Ei")]))
    assert host_request(pod) == (MOST, MOST)
