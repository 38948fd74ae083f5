"""Which nodes `aliquot up` has, where it listens, what it sums up, and who appears in its demonstration."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_agent.gpus.known_models import KNOWN_MODELS
from aliquot_core.grant import ContainerGrant, Grant, Slice, encode_grant
from aliquot_core.inventory import Gpu, Instance, Inventory, encode_inventory
from aliquot_core.names import Names
from aliquot_core.objects import Node, ObjectMeta, Pod, PodSpec, PodStatus
from aliquot_core.quantities import MiB, Percent
from aliquot_standalone import ports
from aliquot_standalone.demo.cast import TEAMS, Act, played_pod, real_pod
from aliquot_standalone.demo.crowd import Crowd
from aliquot_standalone.demo.playing import NoStageError, check_stage
from aliquot_standalone.demo.stage import Stage
from aliquot_standalone.home import LONGEST_NODE
from aliquot_standalone.plan import SIMULATED, gpus_here, plan
from aliquot_standalone.ports import LOOPBACK, Keep, PortTakenError, any_port, choose_port, choose_ports
from aliquot_standalone.settings import UpSettings
from aliquot_standalone.simulated.loads import SimNames, load_of
from aliquot_standalone.summary import Portion, summarise
from support.clocks import VirtualClock

NAMES = Names()
CUT = ["A30:1g.6gb", "A100-80GB-PCIe:3g.40gb+4x1g.10gb", "A100-80GB-PCIe:7x1g.10gb"]
MODELS = st.sampled_from([*sorted(KNOWN_MODELS), *CUT])
SPECS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 16), MODELS), min_size=1, max_size=4)


@given(parts=SPECS, full=st.integers(0, 4))
def test_every_node_is_there_once_under_a_name_that_sockets_bear(parts: list[tuple[int, int, str]], full: int) -> None:
    """The first are on the full path, all others simulated; names are of their models, and as Kubernetes wants them."""
    found = plan(",".join(f"{nodes}x{gpus}x{model}" for nodes, gpus, model in parts), full=full, host="box")
    shapes = [*found.full, *found.simulated]
    assert len(found.full) == min(full, len(shapes))
    assert len(found.names) == len(shapes) == sum(nodes for nodes, _, _ in parts)
    assert [len(shape.models) for shape in shapes] == [gpus for nodes, gpus, _ in parts for _ in range(nodes)]
    assert [shape.models[0].key for shape in shapes] == [model for nodes, _, model in parts for _ in range(nodes)]
    assert all(len(name) <= LONGEST_NODE and name == name.lower() for name in found.names)


@pytest.mark.parametrize(
    ("host", "name"),
    [("Box.Example.ORG", "box-example-org"), ("x" * 60, "x" * LONGEST_NODE), ("___", "this-machine")],
)
def test_a_machine_with_gpus_is_one_node_of_its_own_name(host: str, name: str) -> None:
    """Whatever the machine is called."""
    (shape,) = plan("nvml", full=0, host=host).full
    assert (shape.name, shape.gpus) == (name, "nvml")


def test_gpus_that_the_driver_lists_are_taken_before_simulated_ones(tmp_path: Path) -> None:
    """A driver without any GPU is as good as none."""
    assert gpus_here(driver=tmp_path / "none") == SIMULATED
    assert gpus_here(driver=tmp_path) == SIMULATED
    (tmp_path / "0000:01:00.0").mkdir()
    assert gpus_here(driver=tmp_path) == "nvml"


@pytest.fixture
def keep() -> Iterator[Keep]:
    """Ports are kept to the end of the test."""
    with contextlib.ExitStack() as kept:
        yield kept.enter_context


def test_a_port_that_was_named_is_insisted_on_and_a_usual_one_is_not(keep: Keep) -> None:
    """Who listens there already keeps it."""
    port = any_port(keep=keep)
    with socket.create_server((LOOPBACK, port)):
        assert choose_port(port, keep=keep) != port
        with pytest.raises(PortTakenError, match=rf"{port}: can't listen: .*another one with --page-port"):
            choose_ports(UpSettings(page_port=port), keep=keep)
    assert choose_ports(UpSettings(page_port=port, port=0), keep=keep).page == port


def test_any_port_is_one_that_no_connection_is_given_meanwhile(keep: Keep) -> None:
    """Systems take the ports of outgoing connections from 32,768 on."""
    assert all(20_000 <= any_port(keep=keep) < 32_768 for _ in range(20))


def test_a_port_is_kept_for_whoever_is_to_listen_there(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else gets it before that process listens, nor while it starts again; then it is anybody's."""
    with contextlib.ExitStack() as until_it_ends:
        port = any_port(keep=until_it_ends.enter_context)
        monkeypatch.setattr(ports, "_ANY", range(port, port + 1))
        for _ in range(2):
            assert any_port(keep=keep) != port
            with socket.create_server((LOOPBACK, port)) as server, socket.create_connection((LOOPBACK, port)):
                # Whoever ends a connection first keeps its port closing for a minute.
                server.accept()[0].close()
    assert choose_port(port, keep=keep) == port


def test_only_what_holds_slices_now_is_summed_up() -> None:
    """Pods that have ended hold none, a grant that can't be read counts for nothing, and who has no node waits."""
    gpus = tuple(Gpu(uuid=f"GPU-{one}", index=one, model="T4", memory=15_000) for one in range(2))
    node = Node(metadata=ObjectMeta(name="n", annotations={NAMES.inventory: encode_inventory(Inventory(gpus=gpus))}))
    part = Slice(gpu="GPU-0", compute=Percent(30), limit=Percent(30), memory=MiB(4_000))
    grant = encode_grant(Grant(node="n", pod="u", containers={"main": ContainerGrant(slices=(part,))}))

    def pod(phase: str, *, text: str = grant, on: str = "n") -> Pod:
        metadata = ObjectMeta(name="p", uid="u", annotations={NAMES.grant: text} if text else {})
        return Pod(metadata=metadata, spec=PodSpec(node_name=on), status=PodStatus(phase=phase))

    pods = [pod("Running"), pod("Succeeded"), pod("Running", text="{"), pod("", text="", on=""), pod("Failed", on="")]
    found = summarise(
        nodes=[node, Node()], pods=pods, names=NAMES, ready_seconds=1.23456, api="http://a", page="http://p"
    )
    assert (found.nodes, found.gpus) == (2, 2)
    assert found.compute == Portion(granted=30, of=200)
    assert found.memory == Portion(granted=4_000, of=30_000)
    assert found.pods == {"Failed": 1, "Pending": 1, "Running": 2, "Succeeded": 1}
    assert (found.waiting, found.ready_seconds) == (1, 1.235)


def _part(number: int) -> Instance:
    return Instance(parent="GPU-0", gpu_instance=number, compute_instance=0, compute=14)


def test_an_instance_counts_as_what_it_is_of_its_card() -> None:
    """Two of 14 percent are 28, and no two GPUs."""
    gpus = tuple(Gpu(uuid=f"MIG-{one}", index=0, model="A", memory=9_856, instance=_part(one)) for one in range(2))
    node = Node(metadata=ObjectMeta(name="n", annotations={NAMES.inventory: encode_inventory(Inventory(gpus=gpus))}))
    found = summarise(nodes=[node], pods=[], names=NAMES, ready_seconds=1, api="http://a", page="http://p")
    assert found.compute == Portion(granted=0, of=28)


@pytest.mark.parametrize(
    ("gpus", "full", "remembered", "reason"),
    [
        ("8xT4", 1, "", "needs 4 GPUs on simulated nodes, and here are 0"),
        ("8xT4,3xT4", 1, "", "and here are 3"),
        ("nvml", 1, "", "and here are 0"),
        (SIMULATED, 1, "nvml", "the machine's own GPUs"),
    ],
)
def test_a_stage_that_will_not_do_is_refused(gpus: str, full: int, remembered: str, reason: str) -> None:
    """Before anything is started."""
    with pytest.raises(NoStageError, match=reason):
        check_stage(plan(gpus, full=full, host="box"), remembered=remembered)


@pytest.mark.parametrize(("gpus", "full"), [(SIMULATED, 1), ("4xT4", 0), ("8xT4,4xT4", 1)])
def test_a_stage_that_will_do_is_taken(gpus: str, full: int) -> None:
    """Four GPUs that can break are enough."""
    check_stage(plan(gpus, full=full, host="box"), remembered="8xT4")
    assert plan(gpus, full=full, host="box").played_gpus >= 4


def test_who_is_to_run_for_real_says_nothing_of_playing() -> None:
    """A pod that says how it is to be played may go to simulated nodes, and one that prints its slice must not."""
    act = Act(team="vision", name="one", compute=30, memory=1_000, seconds=5.0, group="gang", size=3)
    sim = SimNames(NAMES)
    real, played = real_pod(act, names=NAMES), played_pod(act, names=NAMES)
    assert not any(note.startswith("sim.") for note in real["metadata"]["annotations"])
    assert played["metadata"]["annotations"][sim.duration] == "5"
    assert played["metadata"]["annotations"][NAMES.group_size] == "3"
    assert played["metadata"]["labels"][NAMES.group] == "gang"


@given(seed=st.integers(0, 2**32), number=st.integers(1, 9_999))
def test_the_crowd_asks_for_what_can_be_had(seed: int, number: int) -> None:
    """Whatever chance says: a team's job, of a part of a GPU or a few, that ends."""
    transport = None  # nothing is asked of it
    stage = Stage(transport=transport, names=NAMES, clock=VirtualClock())  # type: ignore[arg-type]  # a double
    act = Crowd(stage=stage, chance=random.Random(seed)).act(number)
    pod = played_pod(act, names=NAMES)
    notes = pod["metadata"]["annotations"]
    load = load_of(Pod(metadata=ObjectMeta(annotations=notes)), names=SimNames(NAMES))
    assert act.team in TEAMS
    assert 0 < act.compute <= 200
    assert act.memory <= 1_000 + 100 * act.compute
    assert load.seconds is not None
    assert 5 <= load.seconds <= 60
