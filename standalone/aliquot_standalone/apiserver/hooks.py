"""Webhook configurations: which webhook is asked about what."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from aliquot_core.cel.compiling import CelError, Program, compile_cel

from .consulting import Endpoint
from .failures import Cause, required, unsupported, wrong
from .rules import Rules
from .shapes import Metadata, Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .acts import Act
    from .store import Json


_LONGEST_S = 30
_CHOICES = MappingProxyType(
    {
        "failurePolicy": ("Ignore", "Fail"),
        "matchPolicy": ("Exact", "Equivalent"),
        "reinvocationPolicy": ("Never", "IfNeeded"),
        "sideEffects": ("None", "NoneOnDryRun"),
    }
)


class Expression(Shape, frozen=True):
    """One requirement of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class LabelSelector(Shape, frozen=True):
    """Which objects are meant, by their labels."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[Expression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an object with these labels is meant."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _holds(one, labels) for one in self.match_expressions
        )


def _holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value in expression.values
        case "NotIn":
            return value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


class MatchRule(Shape, frozen=True):
    """Which requests are meant, by their address."""

    api_groups: list[str]
    api_versions: list[str]
    operations: list[Literal["CREATE", "UPDATE", "DELETE", "CONNECT", "*"]]
    resources: list[str]
    scope: Literal["*", "Cluster", "Namespaced"] = "*"

    def matches(self, act: Act) -> bool:
        """Tell whether a write is meant."""
        resource = act.resource
        return (
            _among(act.operation, self.operations)
            and _among(resource.group, self.api_groups)
            and _among(resource.version, self.api_versions)
            and self.scope in {"*", "Namespaced" if resource.namespaced else "Cluster"}
            and any(_is_resource(one, act) for one in self.resources)
        )


def _among(value: str, listed: list[Any]) -> bool:
    return "*" in listed or value in listed


def _is_resource(said: str, act: Act) -> bool:
    plural, _, part = said.partition("/")
    return plural in {"*", act.resource.plural} and part in {act.target.subresource, "*"}


class MatchCondition(Shape, frozen=True):
    """A condition in CEL."""

    name: str
    expression: str


class Webhook(Shape, frozen=True):
    """One webhook of a configuration."""

    name: str
    client_config: Endpoint
    rules: tuple[MatchRule, ...] = ()
    failure_policy: str = "Fail"
    side_effects: str = ""
    timeout_seconds: int = 10
    namespace_selector: LabelSelector = LabelSelector()
    object_selector: LabelSelector = LabelSelector()
    match_conditions: tuple[MatchCondition, ...] = ()
    reinvocation_policy: str = "Never"
    admission_review_versions: tuple[str, ...] = ("v1",)


class Configuration(Shape, frozen=True):
    """A mutating or validating configuration: both have the same fields but one."""

    kind: str = ""
    api_version: str = ""
    metadata: Metadata = Metadata()
    webhooks: tuple[Webhook, ...] = ()


class Hook:
    """A webhook with its conditions ready to be evaluated."""

    def __init__(self, webhook: Webhook) -> None:
        self.webhook = webhook
        self._conditions = [compile_cel(one.expression) for one in webhook.match_conditions]

    def is_about(self, act: Act, *, namespace_labels: Mapping[str, str] | None) -> bool:
        """Tell whether a write is meant by rules and selectors; of no namespace the labels are None."""
        webhook = self.webhook
        if not any(rule.matches(act) for rule in webhook.rules):
            return False
        if namespace_labels is not None and not webhook.namespace_selector.matches(namespace_labels):
            return False
        return any(
            webhook.object_selector.matches(one.get("metadata", {}).get("labels", {}))
            for one in (act.obj, act.old)
            if one is not None
        )

    def wants(self, request: Json) -> bool:
        """Tell whether all conditions hold of a request; raises `CelError` where that can't be said."""
        names = {"request": request, "object": request.get("object"), "oldObject": request.get("oldObject")}
        troubles: list[CelError] = []
        for program in self._conditions:
            if (held := _held(program, names, troubles)) is not None and not held:
                return False
        if troubles:
            raise troubles[0]
        return True


def _held(program: Program, names: Json, troubles: list[CelError]) -> bool | None:
    # One condition that says no outweighs others that can't be evaluated.
    try:
        return program.holds(names)
    except CelError as error:
        troubles.append(error)
        return None


def hooks_of(obj: Json) -> list[Hook]:
    """Give the webhooks of a configuration."""
    return [Hook(webhook) for webhook in msgspec.convert(obj, Configuration).webhooks]


class WebhookRules(Rules):
    """Configurations of webhooks: what can't be evaluated is refused when it is written."""

    shape = Configuration

    def prepare_new(self, obj: Json, *, now: float) -> None:  # noqa: ARG002 - a rule's signature
        """Fill in what the API fills in."""
        _fill(obj)

    def prepare_update(self, new: Json, old: Json) -> None:  # noqa: ARG002 - a rule's signature
        """Fill in what the API fills in."""
        _fill(new)

    def causes(self, obj: Json) -> list[Cause]:
        """Check metadata, where each webhook is, and the conditions."""
        found = super().causes(obj)
        for index, one in enumerate(obj.get("webhooks", [])):
            found += _webhook_causes(one, at=f"webhooks[{index}]")
        return found


def _webhook_causes(webhook: Json, *, at: str) -> Iterator[Cause]:
    where = webhook["clientConfig"]
    if bool(where.get("url")) == bool(where.get("service")):
        yield wrong(f"{at}.clientConfig", where, "exactly one of url or service is required")
    for field, allowed in _CHOICES.items():
        if field in webhook and webhook[field] not in allowed:
            yield unsupported(f"{at}.{field}", webhook[field], allowed)
    if "sideEffects" not in webhook:
        yield required(f"{at}.sideEffects", "must specify one of None, NoneOnDryRun")
    if "v1" not in webhook.get("admissionReviewVersions", []):
        yield wrong(f"{at}.admissionReviewVersions", webhook.get("admissionReviewVersions"), "must include v1")
    if not 1 <= webhook.get("timeoutSeconds", 10) <= _LONGEST_S:
        why = f"the timeout must be 1 to {_LONGEST_S} seconds"
        yield wrong(f"{at}.timeoutSeconds", webhook["timeoutSeconds"], why)
    for number, condition in enumerate(webhook.get("matchConditions", [])):
        try:
            compile_cel(condition["expression"])
        except CelError as error:
            yield wrong(f"{at}.matchConditions[{number}].expression", condition["expression"], str(error))


def _fill(obj: Json) -> None:
    for webhook in obj.get("webhooks", []):
        for field, value in (("failurePolicy", "Fail"), ("matchPolicy", "Equivalent"), ("timeoutSeconds", 10)):
            webhook.setdefault(field, value)
        for field in ("namespaceSelector", "objectSelector"):
            webhook.setdefault(field, {})
        for rule in webhook.get("rules", []):
            rule.setdefault("scope", "*")
        if service := webhook.get("clientConfig", {}).get("service"):
            service.setdefault("port", 443)
