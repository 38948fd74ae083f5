"""What Prometheus is told: names, labels and units that hold, and nothing of what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from aliquot_agent.isolation.allowance import Allowed
from aliquot_agent.isolation.gpu_modes import Seat, Told, Use
from aliquot_agent.web.call_times import PRESTART
from aliquot_agent.web.exposition import write
from aliquot_agent.web.figures import Figures, Sampled
from aliquot_agent.web.metrics import FiguresCollector, SlicesCollector
from aliquot_core.inventory import Health
from support.node_figures import FULL, MIB, ON_A, ON_B, SLICE, A, B

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def told(figures: Figures) -> Samples:
    """What a Prometheus would read."""
    slices = SlicesCollector(figures.sampled.accounts.slices)
    text = write(chain(FiguresCollector(figures).collect(), slices.collect())).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def at(found: Samples, name: str, labels: Mapping[str, str] | None = None) -> float | None:
    """One sample, if it is there."""
    return found.get((f"aliquot_{name}", frozenset((labels or {}).items())))


def test_gpus_are_told_in_base_units_with_the_labels_of_dcgm_exporter() -> None:
    """So that a join needs no arithmetic."""
    found = told(FULL)
    assert at(found, "gpu_memory_total_bytes", ON_A) == 1000 * MIB
    assert at(found, "gpu_memory_reserved_bytes", ON_A) == 100 * MIB
    assert at(found, "gpu_memory_used_bytes", ON_A) == 300 * MIB
    assert at(found, "gpu_memory_granted_bytes", ON_A) == 256 * MIB
    assert at(found, "gpu_compute_granted_ratio", ON_A) == 0.29
    assert at(found, "gpu_compute_used_ratio", ON_A) == 0.57
    assert at(found, "gpu_power_watts", ON_A) == 61.5
    assert at(found, "gpu_pods", ON_A) == 1
    assert at(found, "gpu_pods", ON_B) == 0


def test_a_gpu_of_which_a_context_is_set_to_take_all_is_told_apart() -> None:
    """An alert hangs on it: nothing is placed there, and no pod is told why."""
    replace = msgspec.structs.replace
    gpus = [replace(gpu, context=context) for gpu, context in zip(FULL.inventory.gpus, (899, 900), strict=True)]
    found = told(replace(FULL, inventory=replace(FULL.inventory, gpus=tuple(gpus))))
    assert [at(found, "gpu_context_too_large", labels) for labels in (ON_A, ON_B)] == [0, 1]


def test_what_a_gpu_does_not_tell_is_absent() -> None:
    """No zero stands for unknown."""
    found = told(FULL)
    assert at(found, "gpu_temperature_celsius", ON_A) is None
    assert at(found, "gpu_memory_used_bytes", ON_B) is None
    assert at(found, "gpu_processes_without_grant", {**ON_B, "owner": "host"}) is None


def test_slices_are_told_by_container() -> None:
    """Granted always, used where it is known."""
    found = told(FULL)
    other = {**SLICE, "pod": "p2", "UUID": B}
    assert at(found, "slice_memory_granted_bytes", SLICE) == 256 * MIB
    assert at(found, "slice_memory_used_bytes", SLICE) == 200 * MIB
    assert at(found, "slice_compute_granted_ratio", SLICE) == 0.29
    assert at(found, "slice_compute_limit_ratio", SLICE) == 1
    assert at(found, "slice_compute_used_ratio", SLICE) == 0.12
    assert at(found, "slice_memory_granted_bytes", other) == 64 * MIB
    assert at(found, "slice_memory_used_bytes", other) is None
    assert at(found, "slice_compute_used_ratio", other) is None


def test_modes_are_told_of_gpus_and_of_slices() -> None:
    """One sample for each mode that a GPU offers, one for the mode that holds a slice, none where none is known."""
    found = told(FULL)
    modes = "observe", "interposer", "mig"
    assert [at(found, "gpu_isolation", {**ON_A, "isolation": mode}) for mode in modes] == [1, 1, None]
    assert at(found, "slice_isolation", {**SLICE, "isolation": "interposer"}) == 1
    told_of = [labels for name, labels in found if name == "aliquot_slice_isolation"]
    assert [dict(labels)["pod"] for labels in told_of] == ["p1"]


@pytest.mark.parametrize(
    ("seat", "ready"),
    [
        (Seat(wanted=Use.SHARED, told=Told(use=Use.SHARED, clients=3, most_clients=48)), 1),
        (Seat(wanted=Use.SHARED, told=Told(use=Use.SHARED, clients=3, most_clients=48), kept=False), 0),
        (Seat(wanted=Use.SHARED, told=Told(use=Use.SHARED, clients=3, most_clients=48, problem="it fell")), 0),
        (Seat(wanted=Use.EXCLUSIVE, told=Told(use=Use.SHARED, clients=3, most_clients=48)), 0),
        (Seat(wanted=Use.SHARED), 0),
    ],
    ids=["ready", "nobody-keeps-it", "problem", "changing", "nothing-told"],
)
def test_gpus_of_mps_tell_whether_containers_can_start(seat: Seat, ready: int) -> None:
    """And how full the daemon is, where its keeper says so; a GPU that MPS does not share tells nothing of it."""
    found = told(msgspec.structs.replace(FULL, sampled=msgspec.structs.replace(FULL.sampled, seats={B: seat})))
    assert at(found, "gpu_mps_ready", ON_B) == ready
    assert at(found, "gpu_mps_use", {**ON_B, "use": seat.wanted}) == 1
    full = [at(found, f"gpu_mps_{name}", ON_B) for name in ("clients", "most_clients")]
    assert full == ([3, 48] if seat.told else [None, None])
    assert at(found, "gpu_mps_ready", ON_A) is None


def test_who_uses_too_much_is_told_with_its_rung() -> None:
    """And nobody else is told of."""
    found = told(FULL)
    over = {labels: value for (name, labels), value in found.items() if name == "aliquot_slice_over_use"}
    assert over == {frozenset({**SLICE, "rung": "warn"}.items()): 1}


def test_launches_that_passed_unpaid_are_told_of_slices_that_are_paced() -> None:
    """Also where there were none: between nothing and a first one there is no increase."""
    found = told(FULL)
    passed = {labels: value for (name, labels), value in found.items() if name == "aliquot_slice_unpaid_launches_total"}
    assert passed == {frozenset(SLICE.items()): 4}
    none = told(msgspec.structs.replace(FULL, unpaid={("u1", "main", A): 0}))
    assert at(none, "slice_unpaid_launches_total", SLICE) == 0


def test_what_slices_may_have_now_is_told_where_it_is_less_than_granted() -> None:
    """With how much of what is granted on a GPU is not there; of others there is no sample."""
    found = told(FULL)
    lowered = {name for name, _ in found if name.endswith(("_allowed_bytes", "_allowed_ratio"))}
    assert lowered == {"aliquot_slice_memory_allowed_bytes"}
    assert at(found, "slice_memory_allowed_bytes", SLICE) == 220 * MIB
    assert at(found, "gpu_memory_lacking_bytes", ON_A) == 36 * MIB
    assert at(found, "gpu_memory_lacking_bytes", ON_B) is None
    held_back = {("u1", "main", A): Allowed(memory=256, limit=40)}
    found = told(msgspec.structs.replace(FULL, allowed=held_back))
    assert at(found, "slice_compute_allowed_ratio", SLICE) == 0.4
    assert at(found, "slice_memory_allowed_bytes", SLICE) is None


def test_health_is_one_of_three() -> None:
    """With the time since when, and each XID counted."""
    found = told(FULL)
    states = {state: at(found, "gpu_health", {**ON_B, "health": state}) for state in ("healthy", "degraded", "sick")}
    assert states == {"healthy": 0, "degraded": 0, "sick": 1}
    assert at(found, "gpu_health_since_timestamp_seconds", ON_B) == 7.5
    assert at(found, "gpu_xid_errors_total", {**ON_B, "xid": "48"}) == 2
    assert at(found, "gpu_xid_errors_total", {"gpu": "", "UUID": "", "modelName": "", "xid": "79"}) == 1
    assert at(found, "gpu_processes_without_grant", {**ON_A, "owner": "host"}) == 3
    assert at(found, "gpu_processes_without_grant", {**ON_A, "owner": "pod"}) == 0


def test_a_gpu_that_is_out_for_the_driver_s_sake_has_no_time_of_its_own() -> None:
    """What is wrong with the whole node began with none of its GPUs."""
    out = msgspec.structs.replace(FULL.inventory.gpus[0], health=Health.SICK)
    figures = msgspec.structs.replace(
        FULL, inventory=msgspec.structs.replace(FULL.inventory, gpus=(out,)), trouble="mismatch"
    )
    found = told(figures)
    assert at(found, "gpu_health_since_timestamp_seconds", ON_A) is None
    assert at(found, "driver_trouble", {"kind": "mismatch"}) == 1


def test_the_agent_tells_of_itself() -> None:
    """Door, kubelet, mirrors, heart-beat, calls."""
    found = told(FULL)
    assert at(found, "endpoint_connected") == 1
    assert at(found, "kubelet_listening", {"resource": "aliquot.dev/compute"}) == 1
    assert at(found, "kubelet_listening", {"resource": "aliquot.dev/best-effort"}) == 0
    assert at(found, "kubelet_registrations_total") == 4
    assert at(found, "mirror_age_seconds", {"kind": "pods"}) == 1.5
    assert at(found, "last_heartbeat_timestamp_seconds") == 99
    assert at(found, "usage_sampled_timestamp_seconds") == 100
    assert not [name for name, _ in found if name.startswith("aliquot_pacing_faults")]
    failed = told(msgspec.structs.replace(FULL, pacing_faults={"ZeroDivisionError": 3}))
    assert at(failed, "pacing_faults_total", {"kind": "ZeroDivisionError"}) == 3
    labels = {"version": "1.2.3", "node": "n1", "driver": "580.1", "cuda": ""}
    assert at(found, "build_info", labels) == 1
    call = {"rpc": PRESTART, "outcome": "ready"}
    buckets = {
        bound: at(found, "rpc_duration_seconds_bucket", {**call, "le": bound})
        for bound in ("0.001", "0.003", "30.0", "+Inf")
    }
    assert buckets == {"0.001": 1, "0.003": 3, "30.0": 3, "+Inf": 4}
    assert at(found, "rpc_duration_seconds_sum", call) == 40
    assert at(found, "rpc_duration_seconds_count", call) == 4


def test_an_agent_that_knows_nothing_yet_tells_nothing_of_it() -> None:
    """It has a version, and no GPU, no slice, no kubelet."""
    names = {name for name, _ in told(Figures(node="n1", version="1"))}
    assert names == {"aliquot_build_info", "aliquot_endpoint_connected"}


def test_without_knowledge_of_who_holds_what_nothing_is_granted_in_the_metrics() -> None:
    """Zero would say that the GPU is free."""
    blind = Sampled(at=1.0, usages=FULL.sampled.usages)
    found = told(msgspec.structs.replace(FULL, sampled=blind))
    assert at(found, "gpu_memory_granted_bytes", ON_A) is None
    assert at(found, "gpu_processes_without_grant", {**ON_A, "owner": "host"}) is None
    assert at(found, "gpu_memory_used_bytes", ON_A) == 300 * MIB


_VALUES = st.floats(allow_nan=False)
_LABELS = st.text(max_size=20).filter(lambda text: "\r" not in text)


@given(st.lists(st.tuples(_LABELS, _LABELS, _VALUES), max_size=5, unique_by=lambda row: row[:2]), _LABELS)
def test_what_is_written_is_what_the_library_s_parser_reads(rows: list[tuple[str, str, float]], help_text: str) -> None:
    """Whatever stands in labels."""
    gauge = GaugeMetricFamily("aliquot_one", help_text, labels=("a", "b"))
    counter = CounterMetricFamily("aliquot_two", "two", labels=("a", "b"))
    for first, second, value in rows:
        gauge.add_metric((first, second), value)
        counter.add_metric((first, second), value)
    histogram = HistogramMetricFamily("aliquot_three", "three", labels=("a",))
    histogram.add_metric(("x",), [("0.5", 1.0), ("+Inf", 2.0)], 3.0)
    families: list[Metric] = [gauge, counter, histogram]
    read = {family.name: family for family in text_string_to_metric_families(write(families).decode())}
    for family in families:
        if family.samples:
            found = [(sample.name, sample.labels, sample.value) for sample in read[family.name].samples]
            assert found == [(sample.name, sample.labels, sample.value) for sample in family.samples]
            assert read[family.name].type == family.type
        else:
            assert family.name not in read
