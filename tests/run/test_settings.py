"""The one list of settings: shorthand, the journal, and the command line made from it."""

import json

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quorate
from quorate._registry import option_names
from quorate.cli.options import options_of, parameter_texts
from quorate.cli.sampling import sample_command
from quorate.engines.options import ENGINES
from quorate.errors import BadInputError
from quorate.protocol.schemes import SCHEMES
from quorate.run.settings import Settings, described

ridges = st.sampled_from([0.0, 0.5, 10.0])
schemes = st.one_of(
    st.builds(quorate.CMC, pairing=st.sampled_from(["paper", "all"]), cov_ridge=ridges),
    st.builds(quorate.Grouped, redundancy=st.integers(1, 4), cov_ridge=ridges),
    st.builds(quorate.Adaptive, redundancy=st.integers(1, 4), gap=st.none() | st.integers(0, 9)),
    st.builds(
        quorate.Coded,
        redundancy=st.integers(1, 4),
        code=st.sampled_from(["grouped", "reed-solomon", "cyclic"]),
        checked=st.none() | st.booleans(),
    ),
)
engines = st.one_of(
    st.builds(quorate.Processes, st.none() | st.integers(1, 9), st.integers(0, 9)),
    st.builds(quorate.Ray, st.none() | st.text(), st.integers(0, 9)),
)
positive = st.none() | st.floats(1e-3, 1e9)
all_settings = st.builds(
    Settings,
    workers=st.integers(4, 50),
    scheme=schemes,
    engine=engines,
    draws=st.integers(1, 10**9),
    seed=st.integers(0, 2**32),
    until=st.builds(quorate.Until, positive, positive),
    faults=st.builds(quorate.Faults, st.sampled_from([None, "1x10"]), st.none(), st.none()),
)


@given(all_settings)
def test_settings_survive_the_journal(settings):
    kept = json.loads(json.dumps(settings.as_json()))
    again = Settings.from_json(kept)
    assert again.as_json() == settings.as_json()
    assert again.scheme_options == settings.scheme_options
    assert again.engine_options == settings.engine_options


@pytest.mark.parametrize(
    "kept", [None, 3, {}, {"workers": 2}, {"scheme": {"name": "cmc"}}, {"workers": 10**7, "x": 1}]
)
def test_settings_that_no_run_has_are_refused(kept):
    with pytest.raises(BadInputError, match="not the settings of a run"):
        Settings.from_json(kept)


def test_a_scheme_that_is_not_installed_is_named():
    kept = Settings(scheme="cmc").as_json()
    kept["scheme"] = {"name": "elsewhere", "redundancy": 2}
    with pytest.raises(BadInputError, match=r"No scheme is named 'elsewhere'\. Choose cmc, "):
        Settings.from_json(kept)


def test_strings_are_shorthand():
    short = Settings(scheme="coded", redundancy=3, engine="ray", until="time:60,ess:400")
    long = Settings(
        scheme=quorate.Coded(redundancy=3),
        engine=quorate.Ray(),
        until=quorate.Until(time=60, ess=400),
    )
    assert short.as_json() == long.as_json()
    assert Settings(faults="slow:1x10,straggle:1.5").chosen_faults == quorate.Faults(
        slow="1x10", straggle=1.5
    )
    assert Settings(by="files").cut == quorate.Cut("files")


def walk(target, rng):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ({}, "exact"),
        ({"scheme": "coded"}, "exact"),
        ({"method": "merge"}, "merge"),
        ({"sampler": "ellipse"}, "merge"),
        ({"sampler": walk}, "merge"),
        ({"on_lost_shard": "exclude"}, "merge"),
    ],
)
def test_runs_are_exact_unless_only_a_merge_has_what_is_asked_for(given, method):
    assert Settings(**given).chosen_method == method
    assert Settings(**given).as_json()["method"] == method


@pytest.mark.parametrize("given", [{"sampler": "ellipse"}, {"on_lost_shard": "exclude"}])
def test_what_only_merges_have_is_refused_for_exact_runs(given):
    with pytest.raises(BadInputError, match="method='merge'"):
        Settings(method="exact", **given)


def test_the_first_journals_name_no_method():
    kept = Settings(method="merge").as_json()
    del kept["method"]
    assert Settings.from_json(kept).chosen_method == "merge"


def test_settings_in_words():
    shown = described(Settings(scheme=quorate.Coded(redundancy=3)).as_json())
    assert shown["scheme"] == "coded"
    assert shown["redundancy"] == 3
    assert "floor" not in shown


def test_every_setting_is_an_option_of_the_command_line():
    flags = {option for parameter in sample_command.params for option in parameter.opts}
    of_objects = {"until", "faults", "progress"}  # taken apart: --max-time, --slow, --json
    for name in Settings.__dataclass_fields__:
        assert name in of_objects or f"--{name.replace('_', '-')}" in flags
    for registry in (SCHEMES, ENGINES):
        for name in registry:
            for option in option_names(registry[name]):
                flag = {"address": "ray-address"}.get(option, option.replace("_", "-"))
                assert f"--{flag}" in flags


def test_every_option_says_what_it_does():
    options = [p for p in sample_command.params if isinstance(p, click.Option)]
    assert all(option.help for option in options)
    for made_of in (Settings, quorate.Until, quorate.Faults, quorate.Cut):
        assert set(parameter_texts(made_of)) == set(made_of.__dataclass_fields__)


def test_an_option_has_the_type_of_its_field():
    @click.command()
    @options_of(quorate.Processes)
    def command(processes, restarts, devices):
        """Nothing."""

    kinds = {option.name: option.type for option in command.params}
    assert kinds == {"processes": click.INT, "restarts": click.INT, "devices": click.STRING}
