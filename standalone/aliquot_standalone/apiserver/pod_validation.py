"""What is valid in a pod, as far as Aliquot's users meet it: names, quantities, gates, and what may change later.

Volumes' sources, probes, security contexts and affinity terms pass unread.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from . import names, quantities
from .amounts import of_containers, read
from .failures import Cause, duplicate, forbidden_field, required, unsupported, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .store import Json

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
# What a pod may say for all its containers together.
_OF_ALL = ("cpu", "hugepages-", "memory")
_ENV_NAME = re.compile(r"[ -<>-~]+")
# In this order, so that of two containers of one name the init container is named as the second.
_LISTS = ("containers", "initContainers")
_WAITS_FOR_GATES = "can't be set until all schedulingGates have been cleared"
_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, "
    "`spec.activeDeadlineSeconds`, `spec.tolerations` (only additions), `spec.schedulingGates` (only removals)"
)


def causes(pod: Json) -> list[Cause]:
    """Name all that is wrong with a pod's spec; quantities are brought into their one form."""
    spec = pod["spec"]
    found: list[Cause] = []
    if not spec.get("containers"):
        found.append(required("spec.containers"))
    if spec.get("restartPolicy") not in _RESTART_POLICIES:
        found.append(unsupported("spec.restartPolicy", spec.get("restartPolicy", ""), _RESTART_POLICIES))
    found += _gate_causes(spec)
    found += _number_causes(spec)
    found += names.label_causes(spec.get("nodeSelector", {}), at="spec.nodeSelector")
    found += _volume_causes(spec)
    found += _container_list_causes(spec)
    # Sums are of what can be read.
    return found or _of_all_causes(spec)


def _gate_causes(spec: Json) -> list[Cause]:
    gates = [gate.get("name", "") for gate in spec.get("schedulingGates", [])]
    found = [
        wrong(f"spec.schedulingGates[{index}]", name, "a gate is named [domain/]name")
        for index, name in enumerate(gates)
        if not names.is_qualified(name)
    ]
    found += [duplicate("spec.schedulingGates", name) for name in sorted({g for g in gates if gates.count(g) > 1})]
    if gates and spec.get("nodeName"):
        found.append(forbidden_field("spec.nodeName", _WAITS_FOR_GATES))
    if spec.get("nodeName") and not names.is_subdomain(spec["nodeName"]):
        found.append(wrong("spec.nodeName", spec["nodeName"], "not a node's name"))
    return found


def _number_causes(spec: Json) -> list[Cause]:
    found = []
    deadline = spec.get("activeDeadlineSeconds", 1)
    if deadline < 1:
        found.append(wrong("spec.activeDeadlineSeconds", deadline, "must be 1 or more"))
    return found


def _volume_causes(spec: Json) -> list[Cause]:
    found: list[Cause] = []
    seen: set[str] = set()
    for index, volume in enumerate(spec.get("volumes", [])):
        name, at = volume.get("name", ""), f"spec.volumes[{index}].name"
        found += _label_causes(name, at=at)
        if name in seen:
            found.append(duplicate(at, name))
        seen.add(name)
    return found


def _label_causes(name: str, *, at: str) -> list[Cause]:
    if not name:
        return [required(at)]
    if not names.is_label(name):
        return [wrong(at, name, "lower case letters, digits and '-', at most 63, a letter or digit at each end")]
    return []


def _each_container(spec: Json) -> Iterator[tuple[str, str, Json]]:
    for part in _LISTS:
        for index, container in enumerate(spec.get(part, [])):
            yield part, f"spec.{part}[{index}]", container


def _container_list_causes(spec: Json) -> list[Cause]:
    found: list[Cause] = []
    seen: set[str] = set()
    volumes = {volume.get("name", "") for volume in spec.get("volumes", [])}
    for part, at, container in _each_container(spec):
        name = container.get("name", "")
        found += _label_causes(name, at=f"{at}.name")
        if name in seen:
            found.append(duplicate(f"{at}.name", name))
        seen.add(name)
        found += _container_causes(container, at=at, volumes=volumes)
        policy = container.get("restartPolicy")
        if policy and part == "initContainers" and policy != "Always":
            found.append(unsupported(f"{at}.restartPolicy", policy, ("Always",)))
    return found


def _container_causes(container: Json, *, at: str, volumes: set[str]) -> list[Cause]:
    found = []
    if not container.get("image"):
        found.append(required(f"{at}.image"))
    for index, variable in enumerate(container.get("env", [])):
        if not _ENV_NAME.fullmatch(variable.get("name", "")):
            found.append(wrong(f"{at}.env[{index}].name", variable.get("name", ""), "printable, without '='"))
    for index, mount in enumerate(container.get("volumeMounts", [])):
        if mount.get("name") not in volumes:
            found.append(Cause(f"{at}.volumeMounts[{index}].name", "FieldValueNotFound", "Not found: no such volume"))
    return found + _resource_causes(container.get("resources", {}), at=f"{at}.resources")


def _resource_causes(resources: Json, *, at: str) -> list[Cause]:
    # A pod is written five times in its life, with the same amounts, and many pods ask the same.
    said = (tuple(resources.get("limits", {}).items()), tuple(resources.get("requests", {}).items()))
    return [] if _are_settled(*said) else _amount_causes_of(resources, at=at)


@lru_cache(maxsize=1024)
def _are_settled(limits: tuple[tuple[str, Any], ...], requests: tuple[tuple[str, Any], ...]) -> bool:
    """Tell whether amounts are right, and in their one form."""
    amounts = {"limits": dict(limits), "requests": dict(requests)}
    right = not _amount_causes_of(amounts, at="")
    return right and (tuple(amounts["limits"].items()), tuple(amounts["requests"].items())) == (limits, requests)


def _of_all_causes(spec: Json) -> list[Cause]:
    """Check what a pod says for all its containers together."""
    resources = spec.get("resources", {})
    found = [
        unsupported(f"spec.resources.{part}[{name}]", name, _OF_ALL)
        for part in ("limits", "requests")
        for name in resources.get(part, {})
        if not name.startswith(_OF_ALL[1]) and name not in _OF_ALL
    ] or _resource_causes(resources, at="spec.resources")
    if found:
        return found
    of_all = read(resources.get("requests", {}))
    return [
        wrong(f"spec.resources.requests[{name}]", resources["requests"][name], f"its containers ask for {asked}")
        for name, asked in of_containers(spec, "requests").items()
        if name in of_all and asked > of_all[name]
    ]


def _amount_causes_of(resources: Json, *, at: str) -> list[Cause]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    found = []
    for part, amounts in (("limits", limits), ("requests", requests)):
        names.rewrite_quantities(amounts, thousandths=True)
        found += names.whole_causes(amounts, at=f"{at}.{part}[{{}}]".format)
        for name, amount in amounts.items():
            found += _amount_causes(name, amount, field=f"{at}.{part}[{name}]")
    for name, amount in requests.items():
        found += _pair_causes(name, amount, limits.get(name), at=at)
    return found


def _amount_causes(name: str, amount: str, *, field: str) -> list[Cause]:
    value = quantities.parse(amount)
    found = []
    if not names.is_qualified(name):
        found.append(wrong(field, name, "a resource is named [domain/]name"))
    elif "/" not in name and not _is_native(name):
        found.append(wrong(field, name, "must be a standard resource for containers, or have a domain"))
    if value is not None and value < 0:
        found.append(wrong(field, amount, "must be greater than or equal to 0"))
    return found


def _pair_causes(name: str, request: str, limit: str | None, *, at: str) -> list[Cause]:
    extended = names.is_extended(name)
    if limit is None:
        return (
            [required(f"{at}.limits", f"Limit must be set for {name}, which is not overcommitted")] if extended else []
        )
    asked, most = quantities.parse(request), quantities.parse(limit)
    if asked is None or most is None or asked == most:
        return []
    if extended:
        return [wrong(f"{at}.requests", request, f"must be equal to {name} limit of {limit}")]
    if asked <= most:
        return []
    return [wrong(f"{at}.requests", request, f"must be less than or equal to {name} limit of {limit}")]


def _is_native(name: str) -> bool:
    return name in {"cpu", "memory", "ephemeral-storage"} or name.startswith("hugepages-")


def update_causes(new: Json, old: Json) -> list[Cause]:
    """Refuse what a pod keeps for life; a gated pod's place may still be narrowed."""
    was, now = old["spec"], new["spec"]
    if was == now:
        return []
    gates_before = [gate["name"] for gate in was.get("schedulingGates", [])]
    gates_now = [gate.get("name", "") for gate in now.get("schedulingGates", [])]
    added = [name for name in gates_now if name not in gates_before]
    if added:
        return [forbidden_field("spec.schedulingGates", f"only deletion is allowed, but found new: {added}")]
    found = _deadline_causes(was, now)
    if not _tolerations_kept(was, now):
        found.append(forbidden_field("spec.tolerations", "existing toleration can not be modified except its seconds"))
    if found:
        return found
    if _fixed_part(now, gated=bool(gates_before)) != _fixed_part(was, gated=bool(gates_before)):
        return [forbidden_field("spec", _MAY_CHANGE)]
    return _narrowing_causes(was, now) if gates_before else []


def _deadline_causes(was: Json, now: Json) -> list[Cause]:
    before, after = was.get("activeDeadlineSeconds"), now.get("activeDeadlineSeconds")
    if before is None or (after is not None and after <= before):
        return []
    return [wrong("spec.activeDeadlineSeconds", after, "must be less than or equal to previous value")]


def _tolerations_kept(was: Json, now: Json) -> bool:
    def without_seconds(spec: Json) -> list[Any]:
        return [{k: v for k, v in one.items() if k != "tolerationSeconds"} for one in spec.get("tolerations", [])]

    kept = without_seconds(now)
    return all(one in kept for one in without_seconds(was))


def _fixed_part(spec: Json, *, gated: bool) -> Json:
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates", *_LISTS}
    if gated:
        free |= {"nodeSelector", "affinity"}
    fixed = {key: value for key, value in spec.items() if key not in free}
    if gated:
        fixed["affinity"] = {k: v for k, v in spec.get("affinity", {}).items() if k != "nodeAffinity"}
    for part in _LISTS:
        fixed[part] = [{k: v for k, v in one.items() if k != "image"} for one in spec.get(part, [])]
    return fixed


def _narrowing_causes(was: Json, now: Json) -> list[Cause]:
    before, after = was.get("nodeSelector", {}), now.get("nodeSelector", {})
    found = []
    if any(after.get(key) != value for key, value in before.items()):
        found.append(wrong("spec.nodeSelector", after, "only additions are allowed (no mutations or deletions)"))
    if not _terms_narrowed(_required_terms(was), _required_terms(now)):
        found.append(
            wrong("spec.affinity.nodeAffinity", _required_terms(now), "only additions inside terms are allowed")
        )
    return found


def _required_terms(spec: Json) -> list[Json] | None:
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required_part = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required_part is None else required_part.get("nodeSelectorTerms", [])


def _terms_narrowed(before: list[Json] | None, after: list[Json] | None) -> bool:
    if before is None:
        return True
    if after is None or len(after) != len(before):
        return False
    return all(
        all(one in new.get(part, []) for one in old.get(part, []))
        for old, new in zip(before, after, strict=True)
        for part in ("matchExpressions", "matchFields")
    )
