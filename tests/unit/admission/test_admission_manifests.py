"""The webhook's manifests and its code mean the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from aliquot_core.cel.compiling import compile_cel
from aliquot_core.names import Names
from aliquot_scheduler.admission.routes import MUTATE, VALIDATE, VALIDATE_QUEUE
from aliquot_scheduler.admission.sparing import PATIENCE as SPARES_WITHIN
from aliquot_scheduler.admission.sparing import SPARE
from support.admitting import Json

MANIFESTS = Path(__file__).parents[3] / "daemonset" / "manifests"
NAMES = Names()


def webhooks() -> dict[str, Json]:
    """Each webhook by its name."""
    found = yaml.safe_load_all((MANIFESTS / "60-webhook.yaml").read_text())
    return {webhook["name"]: webhook for each in found for webhook in each["webhooks"]}


def test_each_webhook_asks_the_address_that_answers() -> None:
    """In Aliquot's own namespace, which is never asked about: the centre must be able to start."""
    paths = {
        "mutate.aliquot.dev": MUTATE,
        "validate.aliquot.dev": VALIDATE,
        EVICTIONS: SPARE,
        "queues.aliquot.dev": VALIDATE_QUEUE,
    }
    assert {kind: each["clientConfig"]["service"]["path"] for kind, each in webhooks().items()} == paths
    for name, each in webhooks().items():
        assert each["clientConfig"]["service"]["namespace"] == NAMES.namespace
        assert each["failurePolicy"] == ("Ignore" if name == EVICTIONS else "Fail")
        if name == EVICTIONS:
            # It outlasts what the centre may take, so that nobody goes for that it is slow.
            assert each["timeoutSeconds"] > SPARES_WITHIN
        if name in {"queues.aliquot.dev", EVICTIONS}:
            continue  # queues lie in no namespace, and slices are spared in all
        (spared,) = each["namespaceSelector"]["matchExpressions"]
        assert spared == {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", NAMES.namespace],
        }


def test_a_limit_range_has_not_the_last_word() -> None:
    """Asked again after webhooks that come later, the mutating one strips once more what was put back."""
    assert webhooks()["mutate.aliquot.dev"]["reinvocationPolicy"] == "IfNeeded"


EVICTIONS = "evictions.aliquot.dev"
ASKS: Json = {"resources": {"limits": {NAMES.compute: "30"}}}


def is_asked(webhook: Json, *, user: str, note: str, asks: Json = ASKS, new: bool = False) -> bool:
    """Whether a change of a waiting pod's annotation by somebody, or a new pod that has it, is sent to a webhook."""
    before: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"} | asks]}}
    after = before | {"metadata": {"name": "p", "annotations": {note: "x"}}}
    operation = "CREATE" if new else "UPDATE"
    request = {"operation": operation, "userInfo": {"username": user, "groups": ["system:authenticated"]}}
    given = {"request": request, "object": after, "oldObject": None if new else before}
    return all(compile_cel(one["expression"]).holds(given) for one in webhook["matchConditions"])


def test_the_centre_is_not_asked_about_what_it_writes_itself() -> None:
    """Each pod that is let through says by which queue; what anybody else changes is looked at."""
    validate = webhooks()["validate.aliquot.dev"]
    centre = f"system:serviceaccount:{NAMES.namespace}:aliquot-scheduler"
    assert not is_asked(validate, user=centre, note=NAMES.charged)
    assert is_asked(validate, user=f"{centre}s", note=NAMES.charged)
    assert is_asked(validate, user="ann", note=NAMES.gpus)
    assert not is_asked(validate, user="ann", note="example.org/gpus")


@pytest.mark.parametrize("kind", ["mutate", "validate"])
def test_nobody_is_asked_about_a_pod_that_asks_for_nothing(kind: str) -> None:
    """Whatever it says: a dead webhook would keep it out. Who asks is sent, by limits or by requests alone."""
    webhook = webhooks()[f"{kind}.aliquot.dev"]
    for new in (True, False):
        assert not is_asked(webhook, user="ann", note=NAMES.gpus, asks={}, new=new)
    for asks in (ASKS, {"resources": {"requests": {NAMES.memory: "800"}}}):
        assert is_asked(webhook, user="ann", note="example.org/any", asks=asks, new=True)


def test_the_guarded_gate_is_the_one_that_is_set() -> None:
    """A policy for another gate would guard nothing."""
    assert f"g.name == '{NAMES.gate}'" in (MANIFESTS / "25-guards.yaml").read_text()
