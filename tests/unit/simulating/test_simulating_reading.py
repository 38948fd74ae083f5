"""Traces as people have them: what is read, and what is refused with its line."""

from __future__ import annotations

import msgspec
import pytest

from aliquot_scheduler.simulating.reading import TraceError, read_line, read_nodes, read_order, read_pods
from aliquot_scheduler.simulating.workload import Machine, Need

NODES = ["sn,cpu_milli,memory_mib,gpu,model", "n1,64000,262144,2,P100", "n2,8000,1024,0,"]
POD_HEADING = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos"
POD = "p,6000,12288,1,460,,LS"
MACHINES = read_nodes(NODES, name="nodes")


def pods(*lines: str, heading: str = POD_HEADING) -> tuple[Need, ...]:
    """The distinct needs of a list."""
    return read_pods([heading, *lines], name="pods", machines=MACHINES).needs


def test_a_list_is_read_whatever_wrote_it() -> None:
    """CRLF, a byte-order mark, spaces, columns in another order, whole numbers with a point, empty lines."""
    heading = "\ufeffgpu_spec, num_gpu ,gpu_milli,memory_mib,cpu_milli\r\n"
    assert pods(",1,460,12288.0,6000\r\n", "\r\n", heading=heading) == pods(POD)
    assert MACHINES[0] == Machine(name="n1", cores=64_000, memory=262_144, gpus=2, model="P100")


def test_models_are_read_with_or_without_spaces_between_them() -> None:
    """People write a bar as they write a comma; and pods without GPUs name whatever they like."""
    (need, plain) = pods("p,6000,12288,1,460, P100 | P100,LS", "p,6000,12288,0,0,H900,LS")
    assert (need.models, plain.gpus) == (("P100", "P100"), 0)


def test_card_memory_is_read_where_it_is_given() -> None:
    """A column that the published lists don't have."""
    machines = [msgspec.structs.replace(one, card=16_384) for one in MACHINES]
    asked = [POD_HEADING + ",gpu_memory_mib", POD + ",9000"]
    assert read_pods(asked, name="pods", machines=machines).needs[0].card == 9_000


def test_memory_is_not_asked_of_cards_of_which_nothing_is_said() -> None:
    """Neither of a share nor of a whole GPU; pods without GPUs and nodes without them do not matter."""
    heading = POD_HEADING + ",gpu_memory_mib"
    for asked in ("460", "1000"):
        with pytest.raises(TraceError, match=r"pods, line 3: gpu_memory_mib is asked for, and node 'n1' does not say"):
            pods(POD + ",", POD.replace("460", asked) + ",9000", heading=heading)
    assert pods("p,6000,12288,0,0,,LS,9000", heading=heading)
    silent = [MACHINES[1], msgspec.structs.replace(MACHINES[0], card=16_384)]
    assert read_pods([heading, POD + ",9000"], name="pods", machines=silent).needs[0].card == 9_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("p,nan,12288,1,460,,LS", "cpu_milli 'nan' is not a whole number"),
        ("p,inf,12288,1,460,,LS", "cpu_milli 'inf' is not a whole number"),
        ("p,,12288,1,460,,LS", "cpu_milli '' is not a whole number"),
        ("p,6000.5,12288,1,460,,LS", "cpu_milli '6000.5' is not a whole number"),
        ("p,6000,-1,1,460,,LS", "memory_mib -1 is not between 0 and"),
        ("p,6000,12288,1,1001,,LS", "gpu_milli 1001 is not between 0 and 1000"),
        ("p,6000,12288,99999999999999999999999,460,,LS", "is not between 0 and 64"),
        ("p,6000,12288,1,0,,LS", "num_gpu is 1 and gpu_milli 0"),
        ("p,6000,12288,0,460,,LS", "num_gpu is 0 and gpu_milli 460"),
        ("p,6000,12288,1,460,H900,LS", "gpu_spec names 'H900', which is no model of the nodes; known: P100"),
        ("p,6000,12288,1,460,P100|H900|p100,LS", "gpu_spec names 'H900, p100', which is no model of the nodes"),
        ("p,6000,12288,1,460", "it has 5 cells, the heading has 7"),
        ("p,6000,12288,1,460,,LS,more", "it has 8 cells"),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused_by_its_number(line: str, said: str) -> None:
    """Rather than read wrongly."""
    with pytest.raises(TraceError) as caught:
        pods(POD, line)
    assert "pods, line 3: " in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.remedy


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    """The wrong file is the usual mistake."""
    with pytest.raises(TraceError, match=r"pods, line 1: column num_gpu, gpu_spec is missing; it has: cpu_milli"):
        pods("1,2,3", heading="cpu_milli,memory_mib,gpu_milli")
    with pytest.raises(TraceError, match=r"line 1: column sn, .* is missing; it has: nothing"):
        read_nodes([], name="nodes")


def test_nodes_are_there_once_and_have_a_model() -> None:
    """Or results could not be told apart."""
    with pytest.raises(TraceError, match=r"nodes, line 4: node 'n1' is there twice"):
        read_nodes([*NODES, "n1,1,1,1,T4"], name="nodes")
    with pytest.raises(TraceError, match=r"line 4: a node with GPUs names no model"):
        read_nodes([*NODES, "n3,1,1,1,"], name="nodes")


def test_an_order_names_pods_of_the_list_and_ends_once() -> None:
    """Columns of other seeds may be longer."""
    lines = ["seed1,seed2", "0,1", "1,0", ",1"]
    assert read_order(lines, name="order", seed=1, pods=2).tolist() == [0, 1]
    with pytest.raises(TraceError, match=r"column seed3 is missing; it has: seed1, seed2"):
        read_order(lines, name="order", seed=3, pods=2)
    with pytest.raises(TraceError, match=r"order, line 2: pod 1 is not between 0 and 0"):
        read_order(lines, name="order", seed=2, pods=1)
    with pytest.raises(TraceError, match=r"line 4: column seed1 goes on behind an empty cell"):
        read_order(["seed1,x", "0,", ",", "1,"], name="order", seed=1, pods=2)
    with pytest.raises(TraceError, match="it has places for 3 nodes, not for 5"):
        read_line(["seed1", "0", "2", "1"], name="line", seed=1, nodes=5)


def test_a_hundred_thousand_lines_are_read_at_once() -> None:
    """Each distinct need is looked at once, so a million take seconds."""
    many = read_pods([POD_HEADING, *[POD] * 100_000], name="pods", machines=MACHINES)
    assert (len(many.pods), len(many.needs)) == (100_000, 1)
