"""ResourceQuota: what a namespace's objects use of it, kept up to date change by change, and who is refused by it.

Theory of operation. A quota's use is a running total; it is told of each change of a pod right after it and adds the
difference, so a new pod costs the same however many there are. As on a cluster: `requests.X` is what counts of an
extended resource, what waits behind a gate counts too, a pod that has ended counts no more, and where CPU or memory is
limited every container must say it. There is no window between check and write, so quotas are exact here.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from . import amounts
from .amounts import Amounts
from .catalogue import PODS, RESOURCE_QUOTAS
from .failures import forbidden
from .pod_rules import quality_of
from .shapes import ResourceQuotaSpec, ScopeRequirement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .acts import Act
    from .catalogue import Resource
    from .store import Change, Json, Revision, Store

_ONE = Fraction(1)
_ENDED = frozenset({"Succeeded", "Failed"})
# Where these are limited, each container must say how much it wants.
_MUST_BE_SAID = ("cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory")
# Counted by their plain names too, from the time before `count/`.
_OLD_COUNTS = frozenset({"configmaps", "pods", "resourcequotas", "secrets", "services"})
_POD_NAMES = frozenset({"pods", "count/pods"})


class PodUse(msgspec.Struct, frozen=True, gc=False):
    """What a pod counts for, and by what scopes choose it."""

    amounts: Amounts
    best_effort: bool
    terminating: bool
    priority_class: str


def use_of(pod: Json) -> PodUse:
    """Work out what a pod counts for."""
    spec = pod["spec"]
    found: Amounts = {"count/pods": _ONE}
    if pod.get("status", {}).get("phase") not in _ENDED:
        found |= {"pods": _ONE, **amounts.counted_names(spec)}
    return PodUse(
        found, quality_of(spec) == "BestEffort", "activeDeadlineSeconds" in spec, spec.get("priorityClassName", "")
    )


class Quota:
    """One ResourceQuota and what is used of it."""

    def __init__(self, revision: Revision) -> None:
        self.key = revision.key
        self.namespace, _, self.name = revision.key.partition("/")
        spec = msgspec.convert(revision.decode().get("spec", {}), ResourceQuotaSpec)
        self.hard = amounts.read(spec.hard)
        self.texts = {name: str(text) for name, text in spec.hard.items()}
        wanted = [ScopeRequirement(scope_name=scope, operator="Exists") for scope in spec.scopes]
        self._scopes = (*wanted, *spec.scope_selector.match_expressions)
        self.used: Amounts = {}

    def is_about(self, use: PodUse) -> bool:
        """Tell whether a pod is in all of its scopes."""
        return all(_in_scope(scope, use) for scope in self._scopes)

    @property
    def is_about_pods_alone(self) -> bool:
        """Whether it has scopes: those are of pods."""
        return bool(self._scopes)

    def add(self, use: PodUse, *, sign: int) -> None:
        """Add or take away what a pod counts for."""
        if self.is_about(use):
            amounts.add(self.used, {name: use.amounts[name] for name in self.hard if name in use.amounts}, sign=sign)

    def refusal(self, wanted: Mapping[str, Fraction]) -> str:
        """Say why so much more can't be had, if it can't."""
        over = [
            name for name in sorted(wanted) if self.used.get(name, amounts.NOTHING) + wanted[name] > self.hard[name]
        ]
        if not over:
            return ""
        asked = self._listed({name: wanted[name] for name in over})
        used = self._listed({name: self._of(name) for name in over})
        limited = self._listed({name: self.hard[name] for name in over})
        return f"exceeded quota: {self.name}, requested: {asked}, used: {used}, limited: {limited}"

    def status(self, counted: Mapping[str, Fraction]) -> Json:
        """Give what its status says."""
        known = {name: counted.get(name, self.used.get(name)) for name in self.hard}
        shown = {name: amount for name, amount in known.items() if amount is not None or _is_known(name)}
        used = {name: self._text(name, amount or amounts.NOTHING) for name, amount in shown.items()}
        return {"hard": dict(self.texts), "used": used}

    def _of(self, name: str) -> Fraction:
        return self.used.get(name, amounts.NOTHING)

    def _listed(self, found: Mapping[str, Fraction]) -> str:
        return ",".join(f"{name}={self._text(name, amount)}" for name, amount in found.items())

    def _text(self, name: str, amount: Fraction) -> str:
        return amounts.written(amount, like=self.texts[name])


def _is_known(name: str) -> bool:
    return name.startswith(("requests.", "count/")) or name in _OLD_COUNTS or name in _MUST_BE_SAID


def _in_scope(scope: ScopeRequirement, use: PodUse) -> bool:
    match scope.scope_name:
        case "BestEffort":
            return use.best_effort
        case "NotBestEffort":
            return not use.best_effort
        case "Terminating":
            return use.terminating
        case "NotTerminating":
            return not use.terminating
        case "PriorityClass":
            among = use.priority_class in scope.values
            choices = {"In": among, "NotIn": not among, "Exists": bool(use.priority_class)}
            return choices.get(scope.operator, not use.priority_class)
    return False


class Quotas:
    """All quotas of one server."""

    def __init__(self, *, store: Store) -> None:
        self._store = store
        self._by_namespace: dict[str, dict[str, Quota]] = {}
        # Of the pods of namespaces that have a quota, by key.
        self._uses: dict[str, PodUse] = {}
        self._stale: set[str] = set()
        for one in store.snapshot(RESOURCE_QUOTAS.table):
            self._quota_changed(one, gone=False)
        store.subscribe(self._changed)

    def check(self, act: Act) -> None:
        """Refuse a new object that a quota of its namespace has no room for."""
        quotas = self._by_namespace.get(act.target.namespace) if act.resource.namespaced else None
        if not quotas:
            return
        use = use_of(act.fresh) if act.resource.table == PODS.table else None
        for quota in quotas.values():
            if why := self._why_not(quota, act, use):
                raise forbidden(act.resource, act.name, why)

    def _why_not(self, quota: Quota, act: Act, use: PodUse | None) -> str:
        if use is None:
            if quota.is_about_pods_alone:
                return ""
            counted = self._counted(quota, only=act.resource)
            quota.used |= counted
            return quota.refusal(dict.fromkeys(counted, _ONE))
        if not quota.is_about(use):
            return ""
        if unsaid := _unsaid(act.fresh["spec"], [name for name in _MUST_BE_SAID if name in quota.hard]):
            return f"failed quota: {quota.name}: must specify {unsaid}"
        return quota.refusal({name: use.amounts[name] for name in quota.hard if name in use.amounts})

    def _counted(self, quota: Quota, *, only: Resource | None = None) -> Amounts:
        """Count the objects of the kinds that a quota names, other than pods."""
        found: Amounts = {}
        for name in quota.hard:
            table = name.removeprefix("count/")
            countable = (name.startswith("count/") or name in _OLD_COUNTS) and name not in _POD_NAMES
            if countable and (only is None or only.table == table):
                found[name] = Fraction(self._store.count_of(table, prefix=f"{quota.namespace}/"))
        return found

    def settle(self, write: Callable[[str, str, Json], None]) -> None:
        """Bring the statuses up to date of quotas whose use has changed."""
        while self._stale:
            key = self._stale.pop()
            namespace, _, name = key.partition("/")
            quota = self._by_namespace.get(namespace, {}).get(name)
            if quota is not None:
                write(namespace, name, quota.status({} if quota.is_about_pods_alone else self._counted(quota)))

    # --- what the store tells ----------------------------------------------------------------------------------------
    def _changed(self, table: str, change: Change) -> None:
        if table == RESOURCE_QUOTAS.table:
            self._quota_changed(change.revision, gone=change.type == "DELETED")
        if not self._by_namespace:
            return
        key = change.revision.key
        quotas = self._by_namespace.get(key.partition("/")[0])
        if not quotas:
            return
        if table == PODS.table:
            self._pod_changed(quotas, change.revision, gone=change.type == "DELETED")
        elif change.type != "MODIFIED":
            self._stale.update(quota.key for quota in quotas.values() if _counts(quota, table))

    def _pod_changed(self, quotas: Mapping[str, Quota], pod: Revision, *, gone: bool) -> None:
        before = self._uses.pop(pod.key, None)
        now = None if gone else use_of(pod.decode())
        if now is not None:
            self._uses[pod.key] = now
        if now == before:
            return
        for quota in quotas.values():
            if before is not None:
                quota.add(before, sign=-1)
            if now is not None:
                quota.add(now, sign=1)
            self._stale.add(quota.key)

    def _quota_changed(self, revision: Revision, *, gone: bool) -> None:
        namespace, _, name = revision.key.partition("/")
        here = self._by_namespace.setdefault(namespace, {})
        if gone:
            here.pop(name, None)
            if not here:
                del self._by_namespace[namespace]
                self._forget_pods(namespace)
            return
        quota = Quota(revision)
        old = here.get(name)
        here[name] = quota
        if old is not None and (old.hard, old.texts) == (quota.hard, quota.texts):
            # Its own status was written: nothing else is new.
            quota.used = old.used
            return
        self._learn_pods(namespace)
        for pod in self._store.snapshot(PODS.table, prefix=f"{namespace}/"):
            quota.add(self._uses[pod.key], sign=1)
        self._stale.add(quota.key)

    def _learn_pods(self, namespace: str) -> None:
        for pod in self._store.snapshot(PODS.table, prefix=f"{namespace}/"):
            if pod.key not in self._uses:
                self._uses[pod.key] = use_of(pod.decode())

    def _forget_pods(self, namespace: str) -> None:
        for pod in self._store.snapshot(PODS.table, prefix=f"{namespace}/"):
            self._uses.pop(pod.key, None)


def _counts(quota: Quota, table: str) -> bool:
    return f"count/{table}" in quota.hard or (table in _OLD_COUNTS and table in quota.hard)


def _unsaid(spec: Json, names: list[str]) -> str:
    found = []
    for name in names:
        part, _, resource = name.rpartition(".")
        lacking = [
            container.get("name", "")
            for container in [*spec.get("initContainers", []), *spec.get("containers", [])]
            if resource not in container.get("resources", {}).get(part or "requests", {})
        ]
        if lacking:
            found.append(f"{name} for: {','.join(lacking)}")
    return "; ".join(found)
