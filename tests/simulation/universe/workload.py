"""The users: pods of every shape come, work, end, are deleted gently or by force, and come again under their names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Protocol

import msgspec

from aliquot_core.names import Names
from aliquot_core.objects import Pod
from aliquot_kube.errors import ApiError
from aliquot_kube.patches import merge_patch
from aliquot_kube.resources import PODS
from simulation.universe.api import ApiServer
from simulation.universe.chance import Chance
from simulation.universe.judge import Deed
from simulation.universe.placer import BAD
from simulation.universe.runtime import Plan

Container = dict[str, Any]


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """What users do, and how often: means in seconds, shares of all pods."""

    between_pods: float = 4.0
    most_pods: int = 14
    place_every: float = 0.5
    work: float = 40.0
    # The most MiB that a container asks for.
    memory: int = 12_000
    bad: float = 0.12
    overcommitted: float = 0.05
    # Placed as if pods that are to go were gone.
    hasty: float = 0.3
    tampered: float = 0.04
    forced: float = 0.35
    forever: float = 0.4
    stubborn: float = 0.2
    lingering: float = 0.25


class Places(Protocol):
    """Who finds places for pods."""

    async def place(self, pod: Pod, *, bad: str, overcommit: bool, hasty: bool) -> bool:
        """Grant and bind, now or soon; False where nothing is free."""
        ...


class Workload:
    """Creates pods, has them placed, and takes them away again."""

    def __init__(
        self,
        *,
        names: Names,
        api: ApiServer,
        placer: Places,
        chance: Chance,
        habits: Habits,
        deeds: dict[str, Deed],
        trace: Callable[[str], None],
        gate: str = "",
    ) -> None:
        """`gate` is what pods come in behind, as the webhook would have it."""
        self._gates = [{"name": gate}] if gate else []
        self._names = names
        self._api = api
        self._placer = placer
        self._chance = chance
        self._habits = habits
        self._deeds = deeds
        self._trace = trace
        self._plans: dict[tuple[str, str], Plan] = {}
        self._calm = False
        self._waiting: dict[str, tuple[str, bool]] = {}
        self._tampering: list[asyncio.Task[None]] = []
        self.created = 0

    # --- what the node asks ------------------------------------------------------------------------------------------
    def plan_of(self, uid: str, container: str) -> Plan:
        """How a container's process behaves; when all is calm, none crashes and the work goes on."""
        plan = self._plans.get((uid, container), Plan())
        if not self._calm:
            return plan
        return msgspec.structs.replace(plan, code=0, seconds=None if container.startswith("app") else plan.seconds)

    # --- what users do -----------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Live, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._create_pods())
            tasks.create_task(self.place_waiting())
            tasks.create_task(self._delete_pods())

    async def _create_pods(self) -> None:
        chance = self._chance
        while True:
            await asyncio.sleep(chance.about(self._habits.between_pods))
            for _ in range(chance.choice((1, 1, 1, 2, 4))):
                if len(self._api.pods()) < self._habits.most_pods:
                    await self.create()

    async def create(self) -> None:
        """Create one pod of some shape."""
        chance, habits = self._chance, self._habits
        bad = chance.choice(BAD) if chance.happens(habits.bad) else ""
        overcommit = not bad and chance.happens(habits.overcommitted)
        spec = self._shape(plain=bool(bad))
        # Few names: a pod is often made again under the name of one that is just going.
        name = f"pod-{chance.randrange(12)}"
        try:
            pod: Pod = await self._api.create(
                PODS, {"metadata": {"name": name, **spec.pop("meta")}, "spec": spec}, namespace="default"
            )
        except ApiError:
            return
        self.created += 1
        self._lay_plans(pod)
        self._waiting[pod.metadata.uid] = (bad, overcommit)

    async def place_waiting(self) -> None:
        """Have pods bound as places become free, in the order of their coming."""
        while True:
            await asyncio.sleep(self._habits.place_every)
            unbound = {pod.metadata.uid: pod for pod in self._api.pods() if not pod.spec.node_name}
            for uid, (bad, overcommit) in list(self._waiting.items()):
                if uid not in unbound or unbound[uid].metadata.deletion_timestamp:
                    self._waiting.pop(uid)
                elif await self._placer.place(
                    unbound[uid], bad=bad, overcommit=overcommit and not self._calm, hasty=self._is_hasty()
                ):
                    self._waiting.pop(uid)
                    if not bad and not self._calm and self._chance.happens(self._habits.tampered):
                        self._tampering = [one for one in self._tampering if not one.done()]
                        self._tampering.append(asyncio.create_task(self._tamper(unbound[uid])))

    async def _tamper(self, pod: Pod) -> None:
        """Write another grant over a pod's own, some time after it was bound: smaller, or gone."""
        await asyncio.sleep(self._chance.about(15.0))
        if self._calm:
            return
        text = self._chance.choice((None, "{", '{"v":1,"node":"x","pod":"y","containers":{}}', self._smaller(pod)))
        self._trace(f"{pod.key} grant tampered with: {text}")
        patch = merge_patch({"metadata": {"annotations": {self._names.grant: text}, "uid": pod.metadata.uid}})
        try:
            await self._api.client.patch(PODS, name=pod.metadata.name, namespace="default", patch=patch)
        except ApiError:
            return

    def _smaller(self, pod: Pod) -> str:
        now = self._api.pod(pod.key)
        text = now.metadata.annotations.get(self._names.grant, "") if now else ""
        for compute in range(100, 1, -1):
            text = text.replace(f'"compute":{compute}', '"compute":1')
        return text

    async def _delete_pods(self) -> None:
        chance = self._chance
        while True:
            await asyncio.sleep(chance.about(self._habits.between_pods))
            pods = self._api.pods()
            if len(pods) <= self._habits.most_pods // 2:
                continue
            # Mostly those that hold something; those that wait are many, and their going shows little.
            holders = [pod for pod in pods if pod.spec.node_name and not pod.metadata.deletion_timestamp]
            chosen = chance.choice(holders if holders and chance.happens(0.8) else pods)
            await self.delete(chosen, force=chance.happens(self._habits.forced))

    async def delete(self, pod: Pod, *, force: bool) -> None:
        """Delete a pod, by force or with some grace."""
        grace = 0 if force else self._chance.choice((1, 5, 30))
        self._trace(f"{pod.key} deleted{' by force' if force else f' within {grace} s'}")
        meta = pod.metadata
        try:
            await self._api.client.delete(
                PODS, name=meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=grace
            )
        except ApiError:
            return

    async def calm_down(self) -> None:
        """Let nothing crash any more, and take away what was overcommitted or tampered with."""
        self._calm = True
        for pod in self._api.pods():
            deed = self._deeds.get(pod.metadata.uid)
            if deed and not deed.bad and self._is_odd(pod, deed):
                await self.delete(pod, force=False)

    def _is_hasty(self) -> bool:
        return self._chance.happens(self._habits.hasty)

    def _is_odd(self, pod: Pod, deed: Deed) -> bool:
        return deed.overcommitted or deed.grant != pod.metadata.annotations.get(self._names.grant, "")

    # --- shapes ------------------------------------------------------------------------------------------------------
    def _shape(self, *, plain: bool) -> dict[str, Any]:
        """A pod's spec, and under `meta` its annotations; a plain one asks for memory and compute on one GPU."""
        chance = self._chance
        shape = "fraction" if plain else chance.choice(("fraction", "fraction", "fraction", "several", "best effort"))
        maker = {"fraction": self._fraction, "several": self._several, "best effort": self._best_effort}[shape]
        inits, apps, meta = maker(plain)
        return {
            "meta": meta,
            "containers": [{"name": f"app-{number}", **app} for number, app in enumerate(apps)],
            "initContainers": [{"name": f"init-{number}", **init} for number, init in enumerate(inits)],
            "schedulingGates": self._gates,
            "restartPolicy": chance.choice(("Always", "Always", "Never", "OnFailure")),
            "terminationGracePeriodSeconds": chance.choice((1, 5, 30)),
        }

    def _fraction(self, plain: bool) -> tuple[list[Container], list[Container], dict[str, Any]]:
        chance = self._chance
        percent = chance.choice((5, 10, 20, 25, 30, 50, 60, 100))
        apps = [self._asks(percent, plain=plain)]
        if percent <= 30 and chance.happens(0.3):
            apps.append(self._asks(chance.choice((5, 10, percent)), plain=plain))
        inits: list[Container] = []
        if chance.happens(0.4):
            inits.append(self._asks(percent, plain=plain))
        if percent <= 30 and chance.happens(0.25):
            inits.append({**self._asks(chance.choice((5, 10)), plain=plain), "restartPolicy": "Always"})
        if chance.happens(0.2):
            inits.append(self._asks(chance.choice((5, percent)), plain=plain))
        if chance.happens(0.2):
            apps.append({"image": "x"})
        return inits, apps, {}

    def _several(self, _: bool) -> tuple[list[Container], list[Container], dict[str, Any]]:
        chance = self._chance
        percent, gpus = chance.choice(((150, None), (200, None), (40, 2), (200, 2)))
        annotations = {self._names.gpus: str(gpus)} if gpus else {}
        inits = [self._asks(percent, plain=True)] if chance.happens(0.4) else []
        return inits, [self._asks(percent, plain=True)], {"annotations": annotations}

    def _best_effort(self, _: bool) -> tuple[list[Container], list[Container], dict[str, Any]]:
        limits = {self._names.memory: str(self._chance.randrange(600, 9000)), self._names.best_effort: "1"}
        one: Container = {"image": "x", "resources": {"limits": limits}}
        return ([one] if self._chance.happens(0.3) else []), [one], {}

    def _asks(self, percent: int, *, plain: bool) -> Container:
        memory = self._chance.randrange(1_600, self._habits.memory)
        limits = {self._names.compute: str(percent), self._names.memory: str(memory)}
        if not plain and self._chance.happens(0.15):
            del limits[self._names.memory]
        return {"image": "x", "resources": {"limits": limits}}

    def _lay_plans(self, pod: Pod) -> None:
        chance, habits = self._chance, self._habits
        for container in pod.spec.init_containers:
            sidecar = container.restart_policy == "Always"
            seconds = None if sidecar else chance.about(3.0)
            self._plans[pod.metadata.uid, container.name] = Plan(seconds=seconds, code=int(chance.happens(0.1)))
        for container in pod.spec.containers:
            self._plans[pod.metadata.uid, container.name] = Plan(
                seconds=None if chance.happens(habits.forever) else chance.about(habits.work),
                code=int(chance.happens(0.2)),
                on_term=None if chance.happens(habits.stubborn) else chance.about(0.5),
                after_kill=chance.about(20.0) if chance.happens(habits.lingering) else 0.0,
            )

    def forget(self, uids: Collection[str]) -> None:
        """Drop what was planned for pods that are gone."""
        for key in [key for key in self._plans if key[0] in uids]:
            del self._plans[key]
