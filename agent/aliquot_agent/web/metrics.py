"""What Prometheus is told of a node: figures in, families of samples out. Pure, so any thread may do it.

Base units throughout: bytes, seconds, and ratios where 1 is one whole GPU. The labels `UUID`, `gpu`, `modelName`,
`namespace`, `pod` and `container` are dcgm-exporter's, so that its metrics and ours join. What is not known has no
sample; what is over (a pod, a container, a GPU's trouble) has none any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from aliquot_agent.starting.drift import Kind
from aliquot_agent.web.accounts import Owner, SliceUse
from aliquot_agent.web.call_times import BOUNDS, Histogram
from aliquot_agent.web.families import MIB, WHOLE, gauge
from aliquot_agent.web.figures import Figures
from aliquot_agent.web.slice_metrics import of_live_limits, of_over_use, of_slices, of_unpaid_launches
from aliquot_core.claims import NOTHING
from aliquot_core.inventory import Gpu, Health

_GPU = ("gpu", "UUID", "modelName")


class FiguresCollector(Collector):
    """One snapshot, as the library collects it; all but the slices."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """Every family of them."""
        yield from _of_gpus(self._figures)
        yield from _of_mps(self._figures)
        yield from _of_health(self._figures)
        yield from of_over_use(self._figures)
        yield from of_live_limits(self._figures)
        yield from of_unpaid_launches(self._figures)
        yield from _of_agent(self._figures)
        yield from _of_calls(self._figures)


class SlicesCollector(Collector):
    """The slices of one sample."""

    def __init__(self, slices: Sequence[SliceUse]) -> None:
        self._slices = slices

    def collect(self) -> Iterator[Metric]:
        """Every family of them."""
        yield from of_slices(self._slices)


def _only(name: str, text: str, value: float | None) -> Iterator[Metric]:
    """A figure of the node, if it is known."""
    if value is not None:
        family = gauge(name, text)
        family.add_metric((), value)
        yield family


def _labels(gpu: Gpu) -> tuple[str, str, str]:
    return str(gpu.index), gpu.uuid, gpu.model


# --- GPUs ------------------------------------------------------------------------------------------------------------
def _of_gpus(figures: Figures) -> Iterator[Metric]:
    total = gauge("gpu_memory_total_bytes", "Memory of the GPU, the driver's own share included.", _GPU)
    reserved = gauge("gpu_memory_reserved_bytes", "What the driver keeps of the GPU's memory.", _GPU)
    used = gauge("gpu_memory_used_bytes", "What processes hold of the GPU's memory.", _GPU)
    granted = gauge("gpu_memory_granted_bytes", "Memory granted to the pods that the kubelet holds here.", _GPU)
    compute = gauge("gpu_compute_granted_ratio", "Compute granted to the pods that the kubelet holds here.", _GPU)
    busy = gauge(
        "gpu_compute_used_ratio", "Share of time in which the GPU was busy, of the driver's last period.", _GPU
    )
    pods = gauge("gpu_pods", "Pods that hold slices of the GPU.", _GPU)
    modes = gauge("gpu_isolation", "1 for each mode of isolation that the GPU offers.", (*_GPU, "isolation"))
    thin = gauge(
        "gpu_context_too_large", "Whether a CUDA context is set to take all of the GPU: nothing is placed on it.", _GPU
    )
    heat = gauge("gpu_temperature_celsius", "Temperature of the GPU.", _GPU)
    power = gauge("gpu_power_watts", "Power that the GPU draws.", _GPU)
    for gpu in figures.inventory.gpus:
        labels = _labels(gpu)
        for mode in gpu.isolation:
            modes.add_metric((*labels, mode), 1)
        thin.add_metric(labels, gpu.takes_all)
        if (facts := figures.facts.get(gpu.uuid)) is not None:
            total.add_metric(labels, facts.memory_total_mib * MIB)
            reserved.add_metric(labels, facts.memory_reserved_mib * MIB)
        if figures.sampled.claims is not None:
            claim, holders = figures.sampled.claims.get(gpu.uuid, (NOTHING, 0))
            granted.add_metric(labels, claim.memory.value * MIB)
            compute.add_metric(labels, claim.compute.value / WHOLE)
            pods.add_metric(labels, holders)
        if (usage := figures.sampled.usages.get(gpu.uuid)) is not None:
            used.add_metric(labels, usage.memory_used_mib * MIB)
            for family, value, unit in (
                (busy, usage.utilization_percent, WHOLE),
                (heat, usage.temperature_celsius, 1),
                (power, usage.power_watts, 1),
            ):
                if value is not None:
                    family.add_metric(labels, value / unit)
    yield from (total, reserved, used, granted, compute, busy, pods, modes, thin)
    yield _of_cut_cards(figures, heat=heat, power=power)
    yield from (heat, power)


def _of_cut_cards(figures: Figures, *, heat: GaugeMetricFamily, power: GaugeMetricFamily) -> Metric:
    """The instances of MIG; and of each card that is cut what its instances have together, and none can tell."""
    parts = gauge("gpu_instance", "1 for each instance of MIG, with its card.", (*_GPU, "card", "GPU_I_ID"))
    cards = set[str]()
    for gpu in figures.inventory.gpus:
        if gpu.instance:
            cards.add(gpu.instance.parent)
            parts.add_metric((*_labels(gpu), gpu.instance.parent, str(gpu.instance.gpu_instance)), 1)
    for uuid in sorted(cards):
        card, usage = figures.facts.get(uuid), figures.sampled.usages.get(uuid)
        if card is None or usage is None:
            continue
        for family, value in ((heat, usage.temperature_celsius), (power, usage.power_watts)):
            if value is not None:
                family.add_metric((str(card.index), uuid, card.model), value)
    return parts


def _of_mps(figures: Figures) -> Iterator[Metric]:
    """Of GPUs that are shared by MPS; what the daemon's keeper has not told has no sample."""
    use = gauge("gpu_mps_use", "1 for how the GPU is to be used: free, shared, exclusive.", (*_GPU, "use"))
    ready = gauge("gpu_mps_ready", "Whether it is as it is to be: if not, containers wait there.", _GPU)
    clients = gauge("gpu_mps_clients", "Processes that use its MPS daemon.", _GPU)
    most = gauge("gpu_mps_most_clients", "How many of them the daemon takes.", _GPU)
    for gpu in figures.inventory.gpus:
        if (seat := figures.sampled.seats.get(gpu.uuid)) is None:
            continue
        labels, told = _labels(gpu), seat.told
        use.add_metric((*labels, seat.wanted), 1)
        ready.add_metric(labels, seat.kept and told is not None and told.use is seat.wanted and not told.problem)
        if told is not None and told.most_clients:
            clients.add_metric(labels, told.clients)
            most.add_metric(labels, told.most_clients)
    yield from (use, ready, clients, most)


def _of_health(figures: Figures) -> Iterator[Metric]:
    health = gauge("gpu_health", "1 for how the GPU is, 0 for how it is not.", (*_GPU, "health"))
    since = gauge("gpu_health_since_timestamp_seconds", "When what is wrong with the GPU began, or it was well.", _GPU)
    xids = CounterMetricFamily(
        "aliquot_gpu_xid_errors", "Errors that the driver reported since the agent began.", labels=(*_GPU, "xid")
    )
    alone = gauge(
        "gpu_processes_without_grant",
        "Processes on the GPU that use no slice: of a pod, of the node itself, or of nobody knows whom.",
        (*_GPU, "owner"),
    )
    lacks = gauge("gpu_memory_lacking_bytes", "Memory that is granted and not there: others hold it.", _GPU)
    by_uuid = {gpu.uuid: _labels(gpu) for gpu in figures.inventory.gpus}
    for gpu in figures.inventory.gpus:
        labels = by_uuid[gpu.uuid]
        for state in Health:
            health.add_metric((*labels, state), gpu.health is state)
        verdict = figures.verdicts.get(gpu.uuid)
        if verdict is not None and verdict.since is not None and verdict.health is gpu.health:
            since.add_metric(labels, verdict.since)
        if figures.sampled.claims is not None and gpu.uuid in figures.sampled.usages:
            for owner in Owner:
                count = figures.sampled.accounts.strangers.get((gpu.uuid, owner), 0)
                alone.add_metric((*labels, owner), count)
        if gpu.uuid in figures.lacks:
            lacks.add_metric(labels, figures.lacks[gpu.uuid] * MIB)
    for (uuid, number), count in sorted(figures.xids.items()):
        # The driver may not say which GPU it was: then the labels are empty, which is as if they were not there.
        xids.add_metric((*by_uuid.get(uuid, ("", uuid, "")), str(number)), count)
    yield from (health, since, xids, alone, lacks)


# --- the agent itself ------------------------------------------------------------------------------------------------
def _of_agent(figures: Figures) -> Iterator[Metric]:
    build = gauge("build_info", "The agent's version.", ("version", "node", "driver", "cuda"))
    build.add_metric((figures.version, figures.node, figures.inventory.driver, figures.inventory.cuda), 1)
    trouble = gauge("driver_trouble", "What is wrong with the driver as a whole; no sample while it works.", ("kind",))
    if figures.trouble:
        trouble.add_metric((figures.trouble,), 1)
    listening = gauge("kubelet_listening", "Whether the kubelet listens to what we offer of a resource.", ("resource",))
    registrations = CounterMetricFamily("aliquot_kubelet_registrations", "Registrations since the endpoint began.")
    if figures.kubelet is not None:
        for resource in figures.resources:
            listening.add_metric((resource,), resource in figures.kubelet.listening)
        registrations.add_metric((), figures.kubelet.registrations)
    drift = gauge("drift", "What runs here otherwise than granted, recorded or possible.", ("kind",))
    if figures.sampled.drifts is not None:
        for kind in Kind:
            drift.add_metric((kind,), sum(one.kind is kind for one in figures.sampled.drifts))
    faults = CounterMetricFamily(
        "aliquot_pacing_faults",
        "Beats in which a GPU's slices were left at their guarantees for a fault.",
        labels=("kind",),
    )
    for fault, count in figures.pacing_faults.items():
        faults.add_metric((fault,), count)
    yield from (build, trouble, listening, registrations, drift, faults)
    yield from _only("endpoint_connected", "Whether the endpoint has let the agent in.", figures.at_door)
    yield from _only("usage_sampled_timestamp_seconds", "When usage was looked at last.", figures.sampled.at)
    yield from _only(
        "last_heartbeat_timestamp_seconds", "When the API server last took our sign of life.", figures.heartbeat_at
    )
    yield from _of_mirrors(figures)


def _of_mirrors(figures: Figures) -> Iterator[Metric]:
    age = gauge("mirror_age_seconds", "Since when the API server has not been heard of these objects.", ("kind",))
    synced = gauge("mirror_synced", "Whether all of these objects were read once.", ("kind",))
    failures = gauge("mirror_failures", "Failed tries in a row to read these objects.", ("kind",))
    for kind, fresh in figures.mirrors.items():
        if fresh.contact_age is not None:
            age.add_metric((kind,), fresh.contact_age)
        synced.add_metric((kind,), fresh.synced)
        failures.add_metric((kind,), fresh.failures)
    yield from (age, synced, failures)


def _of_calls(figures: Figures) -> Iterator[Metric]:
    family = HistogramMetricFamily(
        "aliquot_rpc_duration_seconds",
        "How long the kubelet's calls took the agent to answer, by how they ended.",
        labels=("rpc", "outcome"),
    )
    for (rpc, outcome), histogram in figures.calls.items():
        family.add_metric((rpc, outcome), _buckets(histogram), histogram.seconds)
    yield family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus' buckets hold all that took no longer; ours only what took longer than the bound before."""
    found, so_far = [], 0
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), histogram.counts, strict=True):
        so_far += count
        found.append((bound, float(so_far)))
    return found
