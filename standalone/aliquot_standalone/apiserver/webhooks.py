"""Webhooks as Kubernetes calls them.

Mutating ones one after another, some of them again where others changed the object; validating ones all at once. What
always holds: nothing is stored before all were asked; a webhook that fails refuses the write unless its
configuration says `Ignore`; what the server writes by itself is asked of nobody. Not done: calls about bindings and
evictions, conversion between versions (`matchPolicy`), and audit annotations.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aliquot_core.cel.values import CelError

from .catalogue import NAMESPACES
from .consulting import WebhookCall
from .copying import copied
from .failures import forbidden, internal_because
from .hooks import Hook, hooks_of
from .reviews import BadReviewError, answer, patched, question, refusal, request_of
from .served import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .acts import Act, Caller
    from .catalogue import Resource
    from .consulting import Asking, WebhookResult
    from .metadata import Fresh
    from .store import Json, Store

_log = logging.getLogger(__name__)
_LONGEST_WARNING = 256


class Webhooks:
    """All webhooks of one server, from the configurations in its store."""

    def __init__(self, *, store: Store, fresh: Fresh) -> None:
        self._store = store
        self._fresh = fresh
        # By table: the version whose webhooks these are.
        self._read: dict[str, tuple[int, list[Hook]]] = {}

    def mutate(self, act: Act, *, again: Callable[[Act], None]) -> Asking[None]:
        """Let webhooks change what is written; `again` is what the server itself fills in after each of them."""
        hooks = self._about(act, MUTATING_WEBHOOKS)
        seen: list[tuple[Hook, Json]] = []
        for hook in hooks:
            if (yield from self._mutate_by(hook, act)):
                again(act)
                if hook.webhook.reinvocation_policy == "IfNeeded":
                    seen.append((hook, copied(act.fresh)))
        for hook, then in seen:
            if act.obj != then and (yield from self._mutate_by(hook, act)):
                again(act)

    def _mutate_by(self, hook: Hook, act: Act) -> Asking[bool]:
        caller = act.caller
        if caller is None or (asked := self._question(hook, act, caller)) is None:
            return False
        call, uid = asked
        result = (yield (call,))[0]
        try:
            response = answer(_body(result), uid=uid)
            if response.allowed and act.obj is not None:
                changed = patched(act.with_kind(act.obj) or {}, response)
                act.obj = {key: value for key, value in changed.items() if key not in {"kind", "apiVersion"}}
        except BadReviewError as error:
            _failed(hook, error)
            return False
        _warn(caller, response.warnings)
        if not response.allowed:
            raise refusal(response, webhook=hook.webhook.name)
        return True

    def validate(self, act: Act) -> Asking[None]:
        """Let webhooks refuse what is written."""
        caller = act.caller
        hooks = self._about(act, VALIDATING_WEBHOOKS)
        if caller is None or not hooks:
            return
        asked = [(hook, *found) for hook in hooks if (found := self._question(hook, act, caller)) is not None]
        if not asked:
            return
        results = yield tuple(call for _, call, _ in asked)
        for (hook, _, uid), result in zip(asked, results, strict=True):
            _judge(hook, result, uid=uid, caller=caller)

    def _about(self, act: Act, configurations: Resource) -> list[Hook]:
        # Configurations are not asked about themselves: a webhook that is gone could never be mended.
        if act.caller is None or act.resource.group == configurations.group:
            return []
        hooks = self._hooks(configurations.table)
        if not hooks:
            return []
        labels = self._namespace_labels(act)
        return [hook for hook in hooks if hook.is_about(act, namespace_labels=labels)]

    def _hooks(self, table: str) -> list[Hook]:
        newest = self._store.table(table).newest
        version, hooks = self._read.get(table, (-1, []))
        if version != newest:
            hooks = [hook for one in self._store.snapshot(table) for hook in hooks_of(one.decode())]
            self._read[table] = newest, hooks
        return hooks

    def _namespace_labels(self, act: Act) -> Mapping[str, str] | None:
        if act.resource.table == NAMESPACES.table:
            return dict((act.obj or act.old or {}).get("metadata", {}).get("labels", {}))
        if not act.resource.namespaced:
            return None
        found = self._store.get(NAMESPACES.table, act.target.namespace)
        return found.labels if found else {}

    def _question(self, hook: Hook, act: Act, caller: Caller) -> tuple[WebhookCall, str] | None:
        uid, webhook = self._fresh.uid(), hook.webhook
        request = request_of(act, caller, uid=uid)
        try:
            if not hook.wants(request):
                return None
        except CelError as error:
            if webhook.failure_policy == "Ignore":
                return None
            why = f'a match condition of webhook "{webhook.name}" can\'t be evaluated: {error}'
            raise forbidden(act.resource, act.name, why) from error
        body = question(request)
        call = WebhookCall(
            webhook=webhook.name, endpoint=webhook.client_config, body=body, timeout=webhook.timeout_seconds
        )
        return call, uid


def _body(result: WebhookResult) -> bytes:
    if result.trouble:
        raise BadReviewError(result.trouble)
    return result.body


def _judge(hook: Hook, result: WebhookResult, *, uid: str, caller: Caller) -> None:
    try:
        response = answer(_body(result), uid=uid)
    except BadReviewError as error:
        _failed(hook, error)
        return
    _warn(caller, response.warnings)
    if not response.allowed:
        raise refusal(response, webhook=hook.webhook.name)


def _failed(hook: Hook, error: BadReviewError) -> None:
    webhook = hook.webhook
    if webhook.failure_policy == "Fail":
        raise internal_because(f'failed calling webhook "{webhook.name}": {error}') from error
    _log.warning("a webhook failed and is ignored", extra={"webhook": webhook.name, "error": str(error)})


def _warn(caller: Caller, warnings: list[str]) -> None:
    caller.warnings.extend(one[:_LONGEST_WARNING] for one in warnings)
