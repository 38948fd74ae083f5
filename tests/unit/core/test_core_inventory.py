"""What a node publishes of its GPUs, on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot_core.inventory import (
    LARGEST_TEXT,
    MOST_GPUS,
    Gpu,
    Health,
    Inventory,
    InventoryError,
    decode_inventory,
    encode_inventory,
)
from aliquot_core.quantities import LARGEST, MiB

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
GPUS = st.builds(
    Gpu,
    uuid=TEXTS.filter(bool),
    index=st.integers(0, 63),
    model=TEXTS,
    memory=st.integers(0, LARGEST),
    capability=TEXTS,
    numa=st.none() | st.integers(0, 7),
    mig=st.booleans(),
    links=st.dictionaries(TEXTS, TEXTS, max_size=3),
    health=st.sampled_from(Health),
    reason=TEXTS,
    isolation=st.lists(TEXTS, max_size=3),
    context=st.none() | st.integers(0, LARGEST),
)
INVENTORIES = st.builds(
    Inventory,
    driver=TEXTS,
    cuda=TEXTS,
    gpus=st.lists(GPUS, max_size=4, unique_by=lambda gpu: gpu.uuid).map(tuple),
    problem=TEXTS,
)


@given(INVENTORIES)
def test_an_inventory_comes_back_as_it_was_written(inventory: Inventory) -> None:
    """And equal inventories are equal texts, so that nothing is written that has not changed."""
    text = encode_inventory(inventory)
    assert decode_inventory(text) == inventory
    assert encode_inventory(decode_inventory(text)) == text


def test_the_order_in_which_links_were_found_does_not_count() -> None:
    """A dictionary remembers it; the annotation must not change for it."""
    texts = {
        encode_inventory(Inventory(gpus=(Gpu(uuid="a", index=0, model="m", memory=1, links=dict(links)),)))
        for links in ((("b", "NV12"), ("c", "SYS")), (("c", "SYS"), ("b", "NV12")))
    }
    assert len(texts) == 1


def test_the_text_says_its_version_and_leaves_out_what_is_not_known() -> None:
    """A reader of a later version must not take this one for its own."""
    assert encode_inventory(Inventory(problem="no driver")) == '{"v":1,"problem":"no driver"}'
    assert encode_inventory(Inventory(gpus=(Gpu(uuid="a", index=0, model="T4", memory=9),))) == (
        '{"v":1,"gpus":[{"uuid":"a","index":0,"model":"T4","memory":9,"isolation":["observe"]}]}'
    )


GPU = '{"uuid":"a","index":0,"model":"m","memory":9}'
REFUSED = {
    "nothing": ("", "not readable"),
    "not JSON": ("{", "not readable"),
    "a list": ("[]", "not readable"),
    "no version": ('{"gpus":[]}', "not readable"),
    "version 2": ('{"v":2,"gpus":"elsewhere"}', "version 2 is not understood, only 1"),
    "a version as text": ('{"v":"1"}', "not readable"),
    "an unknown entry of a GPU": ('{"v":1,"gpus":[' + GPU.replace("index", "indexes") + "]}", "not readable"),
    "an unknown health": ('{"v":1,"gpus":[' + GPU.replace("}", ',"health":"fine"}') + "]}", "not readable"),
    "a context of less than nothing": ('{"v":1,"gpus":[' + GPU.replace("}", ',"context":-1}') + "]}", "not readable"),
    "negative memory": ('{"v":1,"gpus":[' + GPU.replace("9", "-9") + "]}", "not readable"),
    "memory with a point": ('{"v":1,"gpus":[' + GPU.replace("9", "9.0") + "]}", "not readable"),
    "memory of many digits": ('{"v":1,"gpus":[' + GPU.replace("9", "9" * 5_000) + "]}", "not readable"),
    "a negative index": ('{"v":1,"gpus":[' + GPU.replace("0", "-1") + "]}", "not readable"),
    "a GPU twice": ('{"v":1,"gpus":[' + GPU + "," + GPU + "]}", "names a GPU twice"),
    "a GPU without uuid": ('{"v":1,"gpus":[' + GPU.replace('"a"', '""') + "]}", "without a uuid"),
    "more GPUs than a node has": (
        '{"v":1,"gpus":[' + ",".join(GPU.replace('"a"', f'"{n}"') for n in range(MOST_GPUS + 1)) + "]}",
        "names 257 GPUs, and a node has 256 at the most",
    ),
    "not UTF-8": ('{"v":1,"driver":"\ud800"}', "not readable"),
    "deep": ('{"v":1,"x":' + "[" * 60_000, "not readable"),
    "too long": ('{"v":1}' + " " * LARGEST_TEXT, "characters are more than"),
}


@pytest.mark.parametrize("row", REFUSED)
def test_what_no_agent_writes_is_refused(row: str) -> None:
    """The scheduler places nothing by an inventory that it does not understand."""
    text, reason = REFUSED[row]
    with pytest.raises(InventoryError) as caught:
        decode_inventory(text)
    assert reason in caught.value.what
    assert caught.value.where == "inventory"
    assert caught.value.remedy
    assert len(str(caught.value)) < 500


def test_agent_and_centre_need_not_be_upgraded_at_one_instant() -> None:
    """What a later agent says beside is passed over, and an earlier one does not say what a context takes."""
    later = '{"v":1,"mood":{"a":[1]},"gpus":[' + GPU.replace("}", ',"hue":["red"],"context":512}') + "]}"
    earlier = '{"v":1,"gpus":[' + GPU + "]}"
    assert [gpu.context for text in (later, earlier) for gpu in decode_inventory(text).gpus] == [512, None]
    assert "context" not in encode_inventory(decode_inventory(earlier))
    assert '"context":0' in encode_inventory(Inventory(gpus=(Gpu(uuid="a", index=0, model="m", memory=9, context=0),)))


def test_a_sick_gpu_gives_nothing_a_degraded_one_all() -> None:
    """What the node grants is the sum of what its GPUs can."""
    gpus = tuple(Gpu(uuid=health, index=0, model="m", memory=100, health=health) for health in Health)
    assert {gpu.health: gpu.usable for gpu in gpus} == {
        Health.HEALTHY: MiB(100),
        Health.DEGRADED: MiB(100),
        Health.SICK: MiB(0),
    }
    assert Inventory(gpus=gpus).memory == MiB(200)
    assert Inventory().memory == MiB(0)


def test_a_gpu_is_found_by_its_uuid() -> None:
    """And only by all of it."""
    inventory = Inventory(gpus=tuple(Gpu(uuid=uuid, index=0, model="m", memory=1) for uuid in ("GPU-1", "GPU-12")))
    found = inventory.gpu("GPU-12")
    assert found is inventory.gpus[1]
    assert inventory.gpu("GPU-") is None


def test_sixteen_gpus_that_all_know_each_other_fit() -> None:
    """The largest machine's annotation stays far below what Kubernetes and we allow."""
    uuids = [f"GPU-8f2a0c6e-3b1d-4c55-9a7e-0123456789{number:02d}" for number in range(16)]
    gpus = tuple(
        Gpu(
            uuid=uuid,
            index=number,
            model="NVIDIA H100 80GB HBM3",
            memory=81_000,
            links={other: "NV18" for other in uuids if other != uuid},
        )
        for number, uuid in enumerate(uuids)
    )
    assert len(encode_inventory(Inventory(gpus=gpus))) < LARGEST_TEXT / 4
