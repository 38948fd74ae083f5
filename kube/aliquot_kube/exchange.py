"""One question to the API server and its answer, in a thread of its own: the blocking part of the transport."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, SSLError

from aliquot_kube.conveyor import Conveyor
from aliquot_kube.cutting import Cutter, current_cutter
from aliquot_kube.errors import GarbledError, UnreachableError, error_from_response
from aliquot_kube.questions import Question, Response
from aliquot_kube.spoken import said

if TYPE_CHECKING:
    # It brings the official client, which those need not have who only name the types of this module's.
    from aliquot_kube.credentials import Access, Credentials

_CHUNK = 64 * 1024
# A page of 500 pods is about 2 MB; what is larger than this is no answer to any question of ours.
_LONGEST_BODY = 256 * 1024 * 1024


class Exchange:
    """A question on its way; `cut` may be called from any thread, the rest from one that may block."""

    def __init__(self, *, credentials: Credentials, question: Question, user_agent: str) -> None:
        self._credentials = credentials
        self._question = question
        self._user_agent = user_agent
        self._cutter = Cutter()

    def cut(self) -> None:
        """Let the exchange end now; its thread gets an `UnreachableError`."""
        self._cutter.cut()

    def fetch(self) -> Response:
        """Ask, and read the whole answer."""
        with self._named_errors(), self._answer() as answer:
            return Response(status=answer.status, headers=_headers(answer), body=self._body(answer))

    def pump(self, conveyor: Conveyor) -> None:
        """Ask, and lay the answer on the belt as it comes, until it ends or nobody wants more."""
        try:
            with self._named_errors(), self._answer() as answer:
                conveyor.started()
                while (chunk := answer.read1(_CHUNK)) and conveyor.put(chunk):
                    pass
        except Exception as error:  # noqa: BLE001 - a defect too must reach whoever waits at the belt's other end
            conveyor.finish(error)
        else:
            conveyor.finish(None)

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (HTTPError, OSError) as error:
            raise UnreachableError(_told(error), where=self._question.where) from error

    @contextlib.contextmanager
    def _answer(self) -> Iterator[urllib3.BaseHTTPResponse]:
        current_cutter.set(self._cutter)
        answer = self._ask_again_if_unknown()
        try:
            if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
                raise error_from_response(
                    code=answer.status, headers=_headers(answer), body=self._body(answer), where=self._question.where
                )
            yield answer
        finally:
            self._cutter.let_go()
            # A connection whose answer was read to its end is back in the pool by now, and this does nothing to it.
            answer.close()

    def _ask_again_if_unknown(self) -> urllib3.BaseHTTPResponse:
        access = self._credentials.access()
        try:
            answer = self._ask(access)
        except SSLError:
            # The CA or our certificate may have been rotated.
            self._credentials.distrust(access)
            raise
        if answer.status != HTTPStatus.UNAUTHORIZED:
            return answer
        answer.close()
        self._credentials.distrust(access)
        return self._ask(self._credentials.access())

    def _ask(self, access: Access) -> urllib3.BaseHTTPResponse:
        question = self._question
        query = f"?{urlencode(question.query)}" if question.query else ""
        headers = urllib3.HTTPHeaderDict({"Accept": "application/json", "User-Agent": self._user_agent})
        headers.extend(access.headers)
        if question.content_type:
            headers["Content-Type"] = question.content_type
        return access.pools.urlopen(
            question.method,
            f"{access.host}{question.path}{query}",
            body=question.body,
            headers=headers,
            timeout=urllib3.Timeout(connect=question.timeouts.connect, read=question.timeouts.silence),
            # The callers know what may be asked twice, and a redirect would carry our token elsewhere.
            retries=False,
            redirect=False,
            preload_content=False,
        )

    def _body(self, answer: urllib3.BaseHTTPResponse) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while chunk := answer.read1(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > _LONGEST_BODY:
                raise GarbledError(f"an answer longer than {_LONGEST_BODY} bytes", where=self._question.where)
        return b"".join(chunks)


def _told(error: Exception) -> str:
    """What has happened, for people: urllib3 says it of objects of its own, and keeps what it was beneath them."""
    beneath = (error.__cause__, error.__context__, *error.args)
    cause = next((one for one in beneath if isinstance(one, OSError)), error)
    # What could not be connected is a kind of it too.
    return f"{'no connection' if isinstance(error, ConnectTimeoutError) else 'no whole answer'}: {said(cause)}"


def _headers(answer: urllib3.BaseHTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}
