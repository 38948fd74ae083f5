"""What an agent's pages are given, as its process puts them together."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import msgspec
import pytest

from aliquot_agent.isolation.beyond import Owner
from aliquot_agent.isolation.limits_file import ACCOUNT_MAGIC
from aliquot_agent.isolation.pacemaker import BEAT_S, Pacemaker
from aliquot_agent.isolation.slice_files import SliceFiles
from aliquot_agent.web.accounts import Accounts, SliceUse
from aliquot_agent.web.figures import Sampled
from aliquot_agent.web.slice_metrics import of_unpaid_launches
from aliquot_cli.agent import make_status
from aliquot_core.grant import ContainerGrant, Slice
from aliquot_core.names import Names
from aliquot_core.quantities import MiB, Percent
from support.clocks import VirtualClock

UUID = "GPU-a0a0a0a0-0000-4000-8000-000000000000"
ONE = SliceUse(namespace="t", pod="p", uid="u", container="c", gpu=UUID, compute=20, limit=20, memory_mib=100)
# Where an account says how many launches of its first GPU passed unpaid.
ESCAPES_AT = 4096 + 24


@pytest.mark.parametrize(("paced", "told"), [(True, [0, 7]), (False, [])])
async def test_what_the_pacemaker_counts_is_in_the_metric(
    tmp_path: Path,
    paced: bool,
    told: list[float],
) -> None:
    """Of the very slice, as it is when somebody asks; where nothing paces there is no sample."""
    files, clock = SliceFiles(folder=tmp_path, library=tmp_path / "none"), VirtualClock()
    part = Slice(gpu=UUID, compute=Percent(20), limit=Percent(20), memory=MiB(100))
    own = files.write(
        token="one",
        owner=Owner(pod="u", container="c"),
        grant=ContainerGrant(slices=(part,), isolation="interposer"),
        driver="/driver",
        contexts={UUID: 0},
    )
    pacemaker = Pacemaker(files=files, clock=clock)
    status = make_status(MagicMock(), pacemaker=pacemaker if paced else None, names=Names(), clock=clock)
    found = []
    for said in (0, 7):
        with (own / "account").open("r+b") as account:
            account.write(ACCOUNT_MAGIC)
            account.seek(ESCAPES_AT)
            account.write(said.to_bytes(8, "little"))
        await clock.advance(BEAT_S)
        pacemaker.beat()
        figures = msgspec.structs.replace(status.figures(), sampled=Sampled(accounts=Accounts(slices=(ONE,))))
        found += [sample.value for family in of_unpaid_launches(figures) for sample in family.samples]
    assert found == told
