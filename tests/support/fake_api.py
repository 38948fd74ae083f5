"""An API server in a dictionary: versions, conflicts, merge patches; faults on command. No network, no time."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aliquot_kube.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from aliquot_kube.transport import Question, Response

Json = dict[str, Any]
Fault = Callable[[Question], None]


class FakeApi:
    """A `Transport` whose objects tests read and write directly, by path."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.asked: list[Question] = []
        self.before: list[ApiError | Fault] = []
        self.after: list[ApiError | Fault] = []
        self.streams: list[Callable[[Question], AsyncIterator[bytes]]] = []
        # What its answers bear beside their bodies.
        self.headers: dict[str, str] = {}
        self._version = 0

    @property
    def writes(self) -> list[Question]:
        """What was asked that changes something."""
        return [question for question in self.asked if question.method != "GET"]

    def put(self, path: str, thing: Json) -> None:
        """Write an object as somebody else would."""
        self._version += 1
        metadata = {**thing.get("metadata", {}), "resourceVersion": str(self._version)}
        self.objects[path] = {**thing, "metadata": metadata}

    async def request(self, question: Question) -> Response:
        """Answer, with what `before` and `after` hold done around it."""
        self.asked.append(question)
        self._do(self.before, question)
        answer = self._answer(question)
        self._do(self.after, question)
        # A real request lets others run meanwhile.
        await asyncio.sleep(0)
        return Response(status=200, headers=dict(self.headers), body=json.dumps(answer).encode())

    @asynccontextmanager
    async def stream(self, question: Question) -> AsyncIterator[AsyncIterator[bytes]]:
        """Play the next of `streams`."""
        self.asked.append(question)
        self._do(self.before, question)
        yield self.streams.pop(0)(question)

    @staticmethod
    def _do(faults: list[ApiError | Fault], question: Question) -> None:
        if not faults:
            return
        fault = faults.pop(0)
        if isinstance(fault, ApiError):
            raise fault
        fault(question)

    def _answer(self, question: Question) -> Json:
        body = json.loads(question.body) if question.body else {}
        if question.method == "POST":
            return self._create(f"{question.path}/{body['metadata']['name']}", body)
        if question.path not in self.objects:
            raise NotFoundError("not found", where=question.where, status=404)
        if question.method == "DELETE":
            return self.objects.pop(question.path)
        if question.method == "PATCH":
            self._patch(question.path, body)
        return self.objects[question.path]

    def _create(self, path: str, thing: Json) -> Json:
        if path in self.objects:
            raise AlreadyExistsError("already exists", where=path, status=409)
        self.put(path, thing)
        return self.objects[path]

    def _patch(self, path: str, change: Json) -> None:
        now = self.objects[path]
        wanted = change.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != now["metadata"]["resourceVersion"]:
            raise ConflictError("the object has been modified", where=path, status=409)
        self.put(path, _merged(now, change))


def _merged(now: Any, change: Any) -> Any:
    if not isinstance(change, dict) or not isinstance(now, dict):
        return change
    result = copy.deepcopy(now)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def no_fault(_: Question) -> None:
    """Stand for a request that goes well among others that do not."""
