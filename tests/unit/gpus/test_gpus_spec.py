"""What to simulate, as a person writes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_agent.gpus.spec import GpuSpecError, models_by_node, parse_gpu_spec


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("T4", [(1, 1, "T4")]),
        ("8xA100-80GB", [(1, 8, "A100-80GB")]),
        ("2x8xA100-80GB,4x4xL40S", [(2, 8, "A100-80GB"), (4, 4, "L40S")]),
        (" 1xh200 , 16xrtx-4090 ", [(1, 1, "H200"), (1, 16, "RTX-4090")]),
        ("2xa30:1G.6gb+2g.12gb,T4", [(1, 2, "A30:1g.6gb+2g.12gb"), (1, 1, "T4")]),
    ],
)
def test_specs_are_read(text: str, groups: list[tuple[int, int, str]]) -> None:
    """Nodes and GPUs default to one, models are found in any case, spaces around commas don't matter."""
    assert [(group.nodes, group.gpus, group.model.key) for group in parse_gpu_spec(text)] == groups


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not understood"),
        ("8x", "not understood"),
        ("2x8xA100-80GB,", "not understood"),
        ("-1xT4", "not understood"),
        ("1x2x3xT4", "not understood"),
        ("8*T4", "not understood"),
        ("8xA100", "known: P100.*A100-40GB, A100-80GB"),
        ("0xT4", "0 GPUs"),
        ("0x1xT4", "0 nodes"),
        ("17xT4", "write 1 to 16"),
        ("999999x1xT4", "write 1 to 50000"),
        ("50000x1xT4,1xT4", "too many"),
        ("T4:1g.2gb", "T4 can't be cut.*it has no MIG.*known: A30"),
        ("A100-80GB:", "'' is no instance of it; write some of 1g.10gb, 2g"),
        ("A100-80GB:1g.5gb", "'1g.5gb' is no instance of it"),
        ("A100-80GB:0x1g.10gb", "'0x1g.10gb' is no instance"),
        ("A100-80GB:3g.40gb+5x1g.10gb", "8 of 7 slices of compute and 9 of 8 of memory"),
        ("A100-80GB:2x3g.40gb+1g.10gb", "7 of 7 slices of compute and 9 of 8 of memory"),
        ("A30:4g.24gb+1g.6gb", "5 of 4 slices"),
    ],
)
def test_what_can_t_be_meant_is_refused(text: str, says: str) -> None:
    """A spec that can't be meant is an error that quotes it and says what can be written."""
    with pytest.raises(GpuSpecError, match=says) as caught:
        parse_gpu_spec(text)
    assert caught.value.remedy


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes anything but groups or that one error."""
    try:
        groups = parse_gpu_spec(text)
    except GpuSpecError:
        return
    assert all(group.nodes >= 1 and group.gpus >= 1 for group in groups)


def test_a_cut_card_is_the_same_when_it_is_written_once_more() -> None:
    """What a node's shape says of its GPUs is read back by its agent."""
    (group,) = parse_gpu_spec("A100-80GB:3g.40gb+2x1g.10gb")
    assert [(one.kind, one.slices, one.memory_slices) for one in group.model.instances] == [
        ("3g.40gb", 3, 4),
        ("1g.10gb", 1, 1),
        ("1g.10gb", 1, 1),
    ]
    assert parse_gpu_spec(group.model.key) == (group,)


groups = st.tuples(st.integers(1, 9), st.integers(1, 16), st.sampled_from(sorted(KNOWN_MODELS)))


@given(st.lists(groups, min_size=1, max_size=4))
def test_nodes_come_in_the_order_written(written: list[tuple[int, int, str]]) -> None:
    """Written out and read back, every node is there with its GPUs, in order."""
    text = ",".join(f"{nodes}x{gpus}x{model}" for nodes, gpus, model in written)
    expected = [(KNOWN_MODELS[model],) * gpus for nodes, gpus, model in written for _ in range(nodes)]
    assert models_by_node(parse_gpu_spec(text)) == expected


@pytest.mark.parametrize("key", KNOWN_MODELS)
def test_known_models_make_sense(key: str) -> None:
    """Every known model can be read from a spec and has more memory than its driver keeps."""
    (group,) = parse_gpu_spec(key)
    assert 0 < group.model.memory_reserved_mib < group.model.memory_total_mib // 10
    assert float(group.model.compute_capability) >= 6.0
