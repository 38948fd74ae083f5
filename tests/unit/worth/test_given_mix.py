"""A mix that settings give: what it may say, where it comes from, and that the centre goes by it."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from aliquot_cli.simulate import simulate
from aliquot_core.patterns import Patterns
from aliquot_core.quantities import WHOLE
from aliquot_core.settings import Sources
from aliquot_scheduler.deciding.appraiser import Appraiser
from aliquot_scheduler.worth.given import PlacementSettings, as_settings, as_variable
from aliquot_scheduler.worth.mix import Mix, Shape
from support.centre import NAMES, asks, gpus, make_node, picture_with

QUARTER = Shape(cores=2.0, compute=25, memory=25, gpus=1)


def read(text: str) -> PlacementSettings:
    """What a settings file says of placement."""
    told = tomllib.loads(text).get("placement", {})
    return msgspec.convert(told, PlacementSettings, strict=False)


SHAPES = st.one_of(
    st.builds(Shape, cores=st.integers(0, 64).map(float)),
    st.builds(
        Shape,
        cores=st.integers(0, 64).map(float),
        compute=st.integers(1, 100),
        memory=st.integers(0, 100),
        gpus=st.integers(1, 8),
        models=st.builds(Patterns, allowed=st.sampled_from([(), ("a100*", "v100")]), forbidden=st.just(("p100",))),
    ),
)


@given(st.dictionaries(SHAPES, st.integers(1, 100), min_size=1, max_size=8))
def test_a_mix_survives_the_way_through_a_file(counts: dict[Shape, int]) -> None:
    """What is printed as settings is read as the same requests, as common as they were; so it is from the variable."""
    mix = Mix.of(counts)
    found = read(as_settings(mix)).given
    assert found is not None
    variable = {"ALIQUOT_PLACEMENT_MIX": as_variable(mix)}
    assert Sources(environment=variable).resolve("placement", PlacementSettings).value.given == found
    assert set(found.shapes) == set(mix.shapes)
    wanted = dict(zip(mix.shapes, mix.shares, strict=True))
    for shape, share in zip(found.shapes, found.shares, strict=True):
        assert share == pytest.approx(wanted[shape], rel=1e-4)


def test_memory_left_out_is_as_much_as_compute() -> None:
    """Most cards are shared in one proportion."""
    found = read("[[placement.mix]]\nshare = 1\ncores = 2\ngpus = 1\ncompute = 25").given
    assert found == Mix(shapes=(QUARTER,), shares=(1.0,), requests=math.inf)


def test_nothing_given_is_learnt() -> None:
    """Without the section the mix is learnt."""
    assert read("").given is None


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("share = 1\ngpus = 1", "a request has both"),
        ("share = 1\ncompute = 30", "a request has both"),
        ("share = 0", "> 0"),
        ("share = nan", "> 0"),
        ("share = 1\ngpus = 1\ncompute = 101", "<= 100"),
        ("share = 1\ncores = -1", ">= 0"),
        ("share = 1\nmodel = 'A100'", "unknown field `model`"),
        ("share = 1\ngpus = 1\ncompute = 30\nmodels = 'a,,b'", "empty entry"),
        ("cores = 1", "missing required field `share`"),
    ],
)
def test_what_nobody_can_ask_is_refused(entry: str, told: str) -> None:
    """What it is that can't be meant is said."""
    with pytest.raises(msgspec.ValidationError, match=told):
        read(f"[[placement.mix]]\n{entry}")


def test_the_centre_goes_by_what_is_given() -> None:
    """Whatever arrives, tables are those of the mix that was given, and none are to be worked out anew."""
    picture = picture_with(make_node("n1", gpus("n1", 2)))
    told = Appraiser(picture=picture, names=NAMES, given=Mix.of({QUARTER: 1.0}))
    learns = Appraiser(picture=picture, names=NAMES)
    pods = [asks(f"p{number}", 100, 1_000) for number in range(30)]
    first = told.look(pods[0]).tables
    learns.look(pods[0])
    for pod in pods:
        told.pod_seen(pod)
        learns.pod_seen(pod)
    assert learns.due() is not None
    assert told.due() is None
    assert told.look(pods[0]).tables is first
    assert list(first.core_levels) == [QUARTER.cores]
    assert first.mean_gpus == QUARTER.size / WHOLE.value


def test_a_recorded_list_tells_its_mix(tmp_path: Path) -> None:
    """`simulate --print-mix` prints what the settings of a centre take."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,8,A100\n")
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    rows = [*(f"p{at},2000,1000,1,250,\n" for at in range(3)), "q,4000,1000,2,1000,A100\n"]
    pods.write_text(head + "".join(rows))
    done = CliRunner().invoke(simulate, ["--nodes", str(nodes), "--pods", str(pods), "--print-mix"])
    assert done.exit_code == 0, done.output
    found = read(done.output).given
    assert found is not None
    whole = Shape(cores=4.0, compute=100, memory=100, gpus=2, models=Patterns(allowed=("a100",)))
    assert dict(zip(found.shapes, found.shares, strict=True)) == {QUARTER: 0.75, whole: 0.25}
