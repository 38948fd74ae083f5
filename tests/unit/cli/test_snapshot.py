"""A cluster written down replays to what the leader decides, and the command says so."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from aliquot_cli.main import main
from aliquot_cli.options import Call
from aliquot_cli.snapshot import read_snapshot
from aliquot_core.instants import second_time
from aliquot_core.objects import EnvVar, Pod
from aliquot_kube.clock import SystemClock
from aliquot_scheduler.centre.settings import CentreSettings
from aliquot_scheduler.in_force import InForce
from aliquot_scheduler.queues.room.recalling import words_for
from aliquot_scheduler.queues.said.settings import QueueSettings
from aliquot_scheduler.simulating.deciding import LetIn, Replayed, makes_room
from aliquot_scheduler.simulating.snapshot import Snapshot, packed, unpacked
from aliquot_scheduler.worth.mix import Shape as MixShape
from aliquot_scheduler.worth.page import Page, encode_page
from support.centre import WALL, asks, gpus, make_lease, make_node
from support.large_cluster import NAMES, NAMESPACE, pod_manifest
from support.queue_scenarios import Scenario, said_now, specs_of
from support.queue_stage import Stage, queue
from support.reclaim_scenarios import RECLAIMS
from support.reclaim_stage import A_WHILE, ReclaimStage, begun, gone, submit
from support.reigning import Reigning, until
from support.server_apart import PODS
from support.snapshots import CALL, GATES, queue_manifest, read_queue

QUEUES = f"/apis/{NAMES.domain}/v1alpha1/queues"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MANIFEST = Path(__file__).parents[3] / "daemonset" / "manifests" / "05-queue.yaml"
DEFINITION = next(one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "CustomResourceDefinition")


def _submit(on: Reigning, name: str, queue: str, *, compute: int, memory: int = 10_000) -> None:
    manifest = pod_manifest(name, compute=compute, memory=memory, schedulingGates=GATES)
    manifest["metadata"]["labels"] = {NAMES.queue: queue}
    on.create(PODS, manifest)


async def _filled(on: Reigning) -> None:
    """Borrowers lie on all cards of the first node but one, and then a leader is gone."""
    for node in ("node-a", "node-b"):
        on.join(node, cards=4)
    on.create(DEFINITIONS, DEFINITION)
    on.create(QUEUES, queue_manifest("red", guarantee=300))
    on.create(QUEUES, queue_manifest("blue"))
    reign = asyncio.ensure_future(on.reign.run())
    names = [f"blue-{number}" for number in range(7)]
    for name in names:
        _submit(on, name, "blue", compute=100 if name != "blue-6" else 50)
    # Whoever comes alone is let through by one write, and others by two.
    await until(lambda: all("PATCH pods" in on.writes.get(f"{NAMESPACE}/{name}", ()) for name in names))
    for name in names:
        await on.place(name)
    await until(lambda: len(on.reign.turns.register.inside.bound) == len(names))
    reign.cancel()
    await asyncio.gather(reign, return_exceptions=True)


async def test_a_file_replays_to_what_the_next_leader_decides() -> None:
    """Who is let in and on which cards, for whom room is made, on which cards, and who goes for it."""
    on = Reigning(CentreSettings())
    await _filled(on)
    for number in range(3):
        _submit(on, f"red-{number}", "red", compute=100)
    taken = await read_snapshot(on._client, call=CALL, wall=SystemClock().wall())
    told = Replayed(unpacked(packed(taken), where="memory")).decide()

    leader = on.new_reign()
    reign = asyncio.ensure_future(leader.run())
    turns = leader.turns
    try:
        await until(lambda: len(turns.register.clearings) == len(told.room) and len(turns.under_way()) > 0)
        live = {
            one.pod.key: LetIn(
                pod=one.pod.key,
                queue=one.queue,
                gpus=sorted(f"{node}/{gpu}" for node, gpu in leader.picture.holdings.of(one.uid)),
            )
            for one in turns.under_way()
        }
        room = [makes_room(one) for one in turns.register.clearings]
    finally:
        reign.cancel()
        await asyncio.gather(reign, return_exceptions=True)
    assert {one.pod: one for one in told.let_in} == live
    assert sorted(told.room, key=str) == sorted(room, key=str)
    assert len(told.room) >= 2
    assert len(told.let_in) >= 1
    assert sum(len(one.victims) for one in told.room) >= 2


def _half_full(*, mix: str) -> Snapshot:
    """One card has 50 % left and the other 70 %; somebody waits who wants 20 %, where it does least harm."""
    stage = Stage(nodes=(2,), memory=100_000)
    for card, compute in enumerate((50, 30)):
        stage.submit(f"there{card}", compute, 1_000 * compute, notes={"gpu-uuid": f"GPU-n0-{card}"})
    assert len(stage.run()) == 2
    stage.submit("new", 20, 20_000)
    nodes = [make_node("n0", gpus("n0", 2, memory=100_000))]
    return Snapshot(
        wall=WALL,
        names=NAMES,
        settings=InForce(),
        nodes=nodes,
        leases=[make_lease("n0")],
        pods=list(stage.pods.values()),
        mix=mix,
    )


@pytest.mark.parametrize(("usual", "card"), [(50, 1), (70, 0)])
def test_a_replay_places_by_what_the_leader_had_learnt(usual: int, card: int) -> None:
    """Room is left whole for what is usually asked: halves, or seven tenths."""
    page = Page(counts=[(MixShape(compute=usual, memory=usual, gpus=1), 10_000.0)], requests=10_000)
    told = _half_full(mix=encode_page(page))
    (let_in,) = Replayed(unpacked(packed(told), where="memory")).decide().let_in
    assert let_in.gpus == [f"n0/GPU-n0-{card}"]


def test_who_is_let_in_is_not_told_why_it_waits(tmp_path: Path) -> None:
    """The rest is: each pod is told once."""
    (tmp_path / "cluster.gz").write_bytes(packed(_half_full(mix="")))
    done = CliRunner().invoke(main, ["snapshot", "--replay", str(tmp_path / "cluster.gz"), "-o", "json"])
    told = msgspec.json.decode(done.stdout)
    assert ([one["pod"] for one in told["let_in"]], told["waiting"], told["pods"]) == (["team/pod-new"], 0, [])


def test_a_replay_tells_of_room_that_the_leader_was_making() -> None:
    """Its victim is on the way out: nobody else goes, and the room is on the same card."""
    stage = ReclaimStage({"red": queue(guarantee=100), "blue": queue()}, nodes=(2,))
    for number in range(2):
        stage.submit(f"blue{number}", 100, queue="blue")
    stage.run()
    pod = stage.submit("red0", 100, queue="red")
    (clearing,) = stage.decide()
    (leaving,) = stage.evict()
    notes = {**pod.metadata.annotations, NAMES.room: words_for(clearing, clearing.places[0])}
    stage.see(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=notes)))
    told = Snapshot(
        wall=WALL,
        names=NAMES,
        settings=InForce(),
        nodes=[make_node("n0", gpus("n0", 2))],
        leases=[make_lease("n0")],
        pods=list(stage.pods.values()),
        queues=[read_queue(queue_manifest("red", guarantee=100)), read_queue(queue_manifest("blue"))],
    )
    cards = [f"{node}/{gpu}" for node, gpu in stage.picture.holdings.of(leaving)]
    found = Replayed(unpacked(packed(told), where="memory")).decide()
    assert [(one.pods, one.gpus, one.victims) for one in found.room] == [([pod.key], cards, [])]


@pytest.mark.parametrize("scenario", RECLAIMS, ids=lambda one: one.name)
def test_what_is_left_out_changes_no_decision(scenario: Scenario) -> None:
    """Before each step's pods are decided on: those go whom the table says, by the file and by all that there was."""
    said = dict(scenario.queues)
    stage, made = ReclaimStage(specs_of(said), nodes=(4,), moves_per_hour=3_600), Counter[str]()
    for step in scenario.steps:
        said = said_now(said, step)
        stage.queues.queues_seen(specs_of(said))
        begun(stage, step)
        for pods in step.submit:
            submit(stage, pods, made)
        for name, count in step.end.items():
            stage.end(*[uid for uid, pod in stage.pods.items() if uid.startswith(name) and pod.spec.node_name][:count])
        stage.run(after=A_WHILE)
        whole = Snapshot(
            wall=stage.wall,
            names=NAMES,
            settings=InForce(queues=QueueSettings(moves_per_hour=3_600)),
            nodes=[make_node("n0", gpus("n0", 4))],
            leases=[make_lease("n0", renewed=second_time(stage.wall))],
            pods=[_with_secrets(pod) for pod in stage.pods.values()],
            queues=[
                read_queue({"metadata": {"name": name}, "spec": {**spec, "namespaces": ["*"]}})
                for name, spec in said.items()
            ],
        )
        data = packed(whole)
        told = Replayed(unpacked(data, where="memory")).decide()
        assert told == Replayed(whole).decide()
        going = [uid for one in told.room for uid in one.victims]
        labels = {pod.key: pod.metadata.labels[NAMES.queue] for pod in stage.pods.values()}
        wanted = Counter(step.goes) + Counter(step.ignores)
        assert Counter(labels[key] for key in going) == wanted
        assert b"hush" not in gzip.decompress(data)
        assert gone(stage, step) == wanted


def _with_secrets(pod: Pod) -> Pod:
    """What people put where they should not, and what may lie with any pod."""
    one = msgspec.structs.replace(
        pod.spec.containers[0], image="hush", args=["--token=hush"], env=[EnvVar(name="API_TOKEN", value="hush")]
    )
    meta = msgspec.structs.replace(
        pod.metadata, annotations={**pod.metadata.annotations, "vault.example.com/secret": "hush", "hush": "x"}
    )
    spec = msgspec.structs.replace(pod.spec, containers=[one, *pod.spec.containers[1:]], active_deadline_seconds=900)
    return msgspec.structs.replace(pod, metadata=meta, spec=spec)


def test_a_replay_is_printed(tmp_path: Path) -> None:
    """For people and for scripts, without a cluster."""
    pod = asks("u1", 50, 1_000, spec={"schedulingGates": GATES})
    empty = Snapshot(wall=WALL, names=NAMES, settings=InForce(), pods=[pod])
    (tmp_path / "cluster.gz").write_bytes(packed(empty))
    asked = ["snapshot", "--replay", str(tmp_path / "cluster.gz")]
    printed = CliRunner().invoke(main, asked).stdout
    assert printed.startswith("1 waits\n\nPLACE  POD ")
    assert "team/pod-u1" in printed
    told = msgspec.json.decode(CliRunner().invoke(main, [*asked, "-o", "json"]).stdout)
    (waits,) = told.pop("pods")
    assert told == {"let_in": [], "room": [], "moved": [], "waiting": 1}
    assert (waits["pod"], waits["compute"], waits["reason"], waits["never"]) == ("team/pod-u1", 50, "NeverFits", True)
    assert waits["why"] in printed
    assert "no GPU is there yet" in waits["why"]
    taken = CliRunner().invoke(main, ["snapshot", str(tmp_path / "cluster.gz")])
    assert (taken.exit_code, "it is there already" in taken.stderr) == (3, True)


def test_it_is_led_from_one_command_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed, on standard output and nothing else with it; and read from standard input."""
    made = Snapshot(wall=WALL, names=NAMES, settings=InForce(), unread=["disruption budgets"])

    async def taken(call: Call) -> Snapshot:
        del call
        return made

    monkeypatch.setattr("aliquot_cli.snapshot._taken", taken)
    monkeypatch.setattr("aliquot_cli.snapshot.make_call", lambda **_: CALL)
    done = CliRunner().invoke(main, ["snapshot", "-"])
    assert (done.exit_code, done.stdout_bytes) == (0, packed(made))
    assert "without disruption budgets" in done.stderr
    again = CliRunner().invoke(main, ["snapshot", "--replay", "-"], input=done.stdout_bytes)
    assert (again.exit_code, again.stdout) == (0, "0 wait\n")


def test_a_replay_says_what_its_file_is_without(tmp_path: Path) -> None:
    """Who took it could not list budgets: whom one would have kept may be named as a victim."""
    made = Snapshot(wall=WALL, names=NAMES, settings=InForce(), unread=["disruption budgets"])
    (tmp_path / "cluster.gz").write_bytes(packed(made))
    done = CliRunner().invoke(main, ["snapshot", "--replay", str(tmp_path / "cluster.gz")])
    assert done.stderr == (
        "aliquot: without disruption budgets, which this file's maker may not list: decisions may differ\n"
    )
    assert done.stdout == "0 wait\n"
