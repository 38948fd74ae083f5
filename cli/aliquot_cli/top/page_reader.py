"""The cluster as the centre's page tells it: with what is used, and in its leader's own words."""

from __future__ import annotations

import msgspec

from aliquot_cli.usage import ask_page
from aliquot_kube.errors import NOT_JSON
from aliquot_kube.questions import Transport
from aliquot_scheduler.page.model import State

_decoder = msgspec.json.Decoder(State)


class PageReader:
    """Asks the page."""

    title = "from the page"

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def look(self) -> State | None:
        """How it is now; None where nobody answers, or another version of us."""
        body = await ask_page(self._transport)
        try:
            return _decoder.decode(body) if body else None
        except NOT_JSON:
            return None
