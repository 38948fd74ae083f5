"""What is wrong with a pod that asks for slices, all of it at once, in sentences that say what to write instead.

The request itself is read by the one parser there is (aliquot_core.request). Here stands what only the centre can
tell: what a CUDA context needs at least, which models there are, and what may no longer change.
"""

from __future__ import annotations

from collections.abc import Iterator

from aliquot_core.counting import listed
from aliquot_core.errors import AliquotError
from aliquot_core.impostors import names_our_device, sets_our_variables
from aliquot_core.modes import MODES
from aliquot_core.names import Names
from aliquot_core.node_rules import why_absent
from aliquot_core.objects import Pod
from aliquot_core.problems import Problems
from aliquot_core.request import ContainerRequest, PodRequest, asks, read_request
from aliquot_core.restraint import Restraint, restraint_of
from aliquot_scheduler.admission.profile import who_asks
from aliquot_scheduler.admission.restraints import restraints_of_a_grant, restraints_of_a_request
from aliquot_scheduler.admission.settings import AdmissionSettings
from aliquot_scheduler.admission.strangers import unknown_notes, unknown_resources
from aliquot_scheduler.admission.verdict import AdmissionError, Verdict
from aliquot_scheduler.fit.demand import least_memory
from aliquot_scheduler.fit.ground import host_ask
from aliquot_scheduler.picture.there import There, told_models

# Of a pod that holds a slice; for others it waits less (`queues.max_grace`).
_LONGEST_GRACE = 7 * 86_400
# Nothing is known of what there is.
_UNKNOWN = There()


def judge(pod: Pod, *, names: Names, settings: AdmissionSettings, there: There = _UNKNOWN) -> Verdict:
    """Judge what a pod asks for, whoever fills in the rest."""
    problems = Problems()
    request = read_request(pod, names=names, problems=problems)
    problems.reading(lambda: restraint_of(pod, names=names), otherwise=Restraint())
    strange = tuple(unknown_resources(pod, names=names))
    annotations = (*_annotations(names), *_live(names))
    unread = unknown_notes(pod, names=names, labels=_labels(names), annotations=annotations)
    if not asks(pod, names=names):
        return Verdict(problems=(*problems.found, *strange), warnings=(*_said_in_vain(pod, names=names), *unread))
    contexts = there.context_span(otherwise=settings.least_memory)
    return Verdict(
        problems=(
            *problems.found,
            *strange,
            *_too_little_memory(request, names=names, contexts=contexts),
            *_unknown_isolation(request, names=names),
            *_foreign_devices(pod, names=names),
            *_endless_grace(pod),
        ),
        warnings=(*_warnings(pod, request, names=names, settings=settings, there=there), *unread)
        if request.containers
        else (),
    )


def judge_bound(pod: Pod, *, old: Pod, names: Names, settings: AdmissionSettings, there: There = _UNKNOWN) -> Verdict:
    """Judge a change of a pod whose request was judged when it came."""
    context, _ = there.context_span(otherwise=settings.least_memory)
    return Verdict(warnings=tuple(restraints_of_a_grant(pod, old=old, names=names, context=context)))


def judge_entry(pod: Pod, *, names: Names, settings: AdmissionSettings) -> Iterator[AliquotError]:
    """A pod that comes in as the mutating webhook does not leave it, or for a scheduler that knows no slices."""
    if (scheduler := pod.spec.scheduler_name) and scheduler != who_asks(scheduler, settings):
        yield AdmissionError(
            f"{scheduler} is not known to ask Aliquot: it would bind the pod without a slice, or evict others for it",
            where="spec.schedulerName",
            remedy=f"leave it out, which means {settings.scheduler_name}; where the profile {scheduler} has Aliquot's"
            " extender, an operator names it in admission.other_schedulers",
        )
    if names.gate in {gate.name for gate in pod.spec.scheduling_gates} and not pod.spec.node_name:
        return
    yield AdmissionError(
        "asks for a slice, but does not wait behind its gate",
        where=f"scheduling gate {names.gate}",
        remedy="an operator must install Aliquot's mutating webhook, or find what removes the gate",
    )


def judge_change(pod: Pod, *, old: Pod, names: Names) -> Iterator[AliquotError]:
    """What let a pod in stands once its gate is gone, what decided its place and price once it is bound."""
    if not old.spec.node_name:
        yield from _declined_late(pod, old=old, names=names)
        if all(gate.name != names.gate for gate in old.spec.scheduling_gates):
            yield from _changed(
                pod, old, labels=(names.group,), notes=_of_turns(names), because="the pod has had its turn"
            )
        return
    problems = Problems()
    problems.reading(lambda: restraint_of(pod, names=names), otherwise=Restraint())
    yield from problems.found
    yield from _changed(pod, old, labels=_labels(names), notes=_annotations(names), because="the pod has its place")


def _changed(
    pod: Pod, old: Pod, *, labels: tuple[str, ...], notes: tuple[str, ...], because: str
) -> Iterator[AdmissionError]:
    for kind, keys, before, after in (
        ("label", labels, old.metadata.labels, pod.metadata.labels),
        ("annotation", notes, old.metadata.annotations, pod.metadata.annotations),
    ):
        for key in keys:
            if before.get(key) != after.get(key):
                yield AdmissionError(
                    f"can't change any more: {because}",
                    where=f"{kind} {key}",
                    remedy="delete the pod, and create it anew",
                )


def _declined_late(pod: Pod, *, old: Pod, names: Names) -> Iterator[AliquotError]:
    """Its containers name our resources for good, so it would stand behind our gate with nobody to lift it."""
    if asks(pod, names=names) and pod.metadata.labels.get(names.use) != old.metadata.labels.get(names.use):
        yield AdmissionError(
            "is read when a pod is created, and this one asks for a slice",
            where=f"label {names.use}",
            remedy="delete the pod, and create it anew",
        )


def _labels(names: Names) -> tuple[str, ...]:
    return (names.use, names.queue, names.group)


def _of_turns(names: Names) -> tuple[str, ...]:
    """By which a pod is let in, beside what it asks for: who may never be evicted comes in within a guarantee alone."""
    return (names.preemptible, names.group_size, names.group_min, names.group_topology)


def _annotations(names: Names) -> tuple[str, ...]:
    of_gpus = (names.gpus, names.gpu_model, names.gpu_uuid, names.placement, names.isolation)
    return (*of_gpus, names.compute_limit, *_of_turns(names))


def _live(names: Names) -> tuple[str, ...]:
    """What a pod may say otherwise at any time: it only takes from what it has."""
    return (names.compute_now, names.memory_now)


# --- problems --------------------------------------------------------------------------------------------------------


def _too_little_memory(request: PodRequest, *, names: Names, contexts: tuple[int, int]) -> Iterator[AliquotError]:
    """Nowhere a context leaves it anything; told is what is enough on all nodes, lest the next try waits for ever."""
    for asked in request.containers:
        parts = _memory_of_each(asked)
        if min(parts, default=contexts[0]) >= contexts[0]:
            continue
        on = "" if len(parts) == 1 else f", and leaves {min(parts)} on one of its {len(parts)} GPUs"
        yield AdmissionError(
            f"{asked.memory} is less than a CUDA context needs, {_span(contexts)}{on}",
            where=f"container {asked.name}, {names.memory}",
            remedy=_enough(asked, contexts=contexts),
        )


def _memory_of_each(asked: ContainerRequest) -> list[int]:
    """MiB that it asks of each of its GPUs; nothing where it leaves that to compute."""
    return [share.memory.value for share in asked.shares if share.memory]


def _span(contexts: tuple[int, int]) -> str:
    least, most = contexts
    return f"{least} MiB on each GPU" if least == most else f"{least} to {most} MiB by node on each GPU"


def _enough(asked: ContainerRequest, *, contexts: tuple[int, int]) -> str:
    least, most = (least_memory(asked, least=one) for one in contexts)
    return f"write at least {least}" if least == most else f"write at least {least}; {most} to lie anywhere"


def _unknown_isolation(request: PodRequest, *, names: Names) -> Iterator[AliquotError]:
    """No node that may come offers it: modes are Aliquot's own, other than models of GPUs."""
    if request.isolation and request.isolation not in MODES:
        yield AdmissionError(
            f"{request.isolation!r} is no mode of isolation",
            where=f"annotation {names.isolation}",
            remedy=f"write one of {listed(MODES)}, or leave it out",
        )


def _foreign_devices(pod: Pod, *, names: Names) -> Iterator[AliquotError]:
    for named in names_our_device(pod, names=names):
        yield AdmissionError(
            "names a slice, but slices are given by their grant", where=f"annotation {named}", remedy="remove it"
        )


def _endless_grace(pod: Pod) -> Iterator[AliquotError]:
    """The API server takes any 64-bit number, and then such a pod never leaves its card to whoever deletes it."""
    seconds = pod.spec.termination_grace_period_seconds
    if seconds is not None and seconds > _LONGEST_GRACE:
        yield AdmissionError(
            f"{seconds} s is longer than a week",
            where="spec.terminationGracePeriodSeconds",
            remedy=f"write at most {_LONGEST_GRACE}",
        )


# --- warnings --------------------------------------------------------------------------------------------------------


def _said_in_vain(pod: Pod, *, names: Names) -> Iterator[str]:
    for kind, keys, found in (
        ("label", (names.group,), pod.metadata.labels),
        ("annotation", (*_annotations(names), *_live(names)), pod.metadata.annotations),
    ):
        for key in keys:
            if key in found:
                yield f"{kind} {key} does nothing: no container asks for {names.compute} or {names.memory}"


def _warnings(
    pod: Pod, request: PodRequest, *, names: Names, settings: AdmissionSettings, there: There
) -> Iterator[str]:
    for variable in sets_our_variables(pod, names=names):
        yield f"container {variable} is set in vain: what the slice says wins"
    contexts = there.context_span(otherwise=settings.least_memory)
    yield from _not_there(pod, request, names=names, there=there, contexts=contexts)
    yield from _not_everywhere(request, names=names, contexts=contexts)
    yield from restraints_of_a_request(pod, request, names=names, context=contexts[0])


def _not_there(
    pod: Pod, request: PodRequest, *, names: Names, there: There, contexts: tuple[int, int]
) -> Iterator[str]:
    """It may come, so the pod may wait; but most often it is miswritten."""
    if there.nodes is not None and (absent := why_absent(host_ask(pod, names=names).wanted, nodes=there.nodes)):
        yield f"{absent}, so the pod may wait for ever"
    if told := list(_no_such_gpu(request, names=names, there=there)):
        yield from told
    elif not any(_too_little_memory(request, names=names, contexts=contexts)) and (nowhere := there.nowhere(request)):
        yield f"no node could take it, even if it were empty: {nowhere}"


def _no_such_gpu(request: PodRequest, *, names: Names, there: There) -> Iterator[str]:
    models = there.models
    if models and not any(request.models.admits(*aliases) for aliases in models):
        there_are = told_models(models, asked=request.models)
        yield f"annotation {names.gpu_model}: no GPU of this cluster will do; {there_are}"
    if not there.has_gpu(request.uuids):
        yield f"annotation {names.gpu_uuid}: no GPU of this cluster will do, so the pod may wait for ever"
    largest = there.largest(request.models)
    for asked in request.containers if largest else ():
        if (most := max(_memory_of_each(asked), default=0)) > largest:
            yield (
                f"container {asked.name}, {names.memory}: it asks {most} MiB of one GPU, and the largest that it may"
                f" have has {largest} MiB, so the pod may wait for ever"
            )


def _not_everywhere(request: PodRequest, *, names: Names, contexts: tuple[int, int]) -> Iterator[str]:
    """Some nodes take it, and if these are full or not for it, it waits however empty the others are."""
    least, most = contexts
    for asked in request.containers:
        if least <= min(_memory_of_each(asked), default=most) < most:
            yield (
                f"container {asked.name}, {names.memory}: {asked.memory} is less than a CUDA context needs on some"
                f" nodes, {_span(contexts)}: write at least {least_memory(asked, least=most)} to lie anywhere"
            )
