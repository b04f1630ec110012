"""Seeds are fixed, and varied on request: `pytest --seed 7`."""

import os
from zlib import crc32

import cloudpickle
import hypothesis
import numpy as np
import pytest

try:
    from _pytest.nodeid import coerce_node_id
except ImportError:  # before pytest 9.2, where xdist names groups itself
    coerce_node_id = None

# How long an example takes depends on what else the machine does; examples of earlier runs would
# make a run depend on them.
hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")

# Slow tests start first, so that no core waits at the end for another's last one: beginnings of
# their names, in the order of the seconds that `--durations=60` gave for the slowest of each.
SLOW = (
    "tests/docs/test_docs.py::test_blocks_of_a_page",
    "tests/models/test_nested_programs.py",
    "tests/docs/test_notebooks.py::test_a_notebook_runs",
    "tests/results/test_axes.py",
    "tests/engines/test_template.py",
    "tests/models/test_programs.py",
    "tests/packaging/test_types.py",
    "tests/api/test_eight_schools.py",
    "tests/run/test_chaos.py",
    "tests/run/test_slow_workers.py",
    "tests/models/test_rows.py",
    "tests/api/test_languages_of_groups.py",
    "tests/api/test_in_place",
    "tests/results/test_predictive.py",
    "tests/models/test_many_points.py",
    "tests/models/test_groups_",
    "tests/models/test_bambi.py",
    "tests/run/test_faults",
    "tests/merging/test_weights.py",
    "tests/cli/test_commands.py",
    "tests/run/test_learning_in_place.py",
    "tests/run/test_strangers_files.py",
    "tests/models/test_calibration.py",
    "tests/lab/test_figures.py::test_published",
    "tests/run/test_left_behind.py",
    "tests/engines/test_devices.py",
    "tests/models/test_nested_regression.py",
    "tests/models/test_grouped_regression.py",
    "tests/run/test_local.py",
    "tests/run/test_user_errors.py",
    "tests/trust/test_trust.py",
    "tests/samplers/",
    "tests/models/test_compiled_glm.py",
    "tests/merging/test_centres.py",
    "tests/models/test_supports.py",
    "tests/passes/test_centring.py",
    "tests/api/",
    "tests/data/",
    "tests/journal/",
)
# Fixtures of a module that take a second or more. All tests that use one go to the same core,
# before any other test: groups come first in `--dist loadgroup`.
SHARED = {
    "apart",
    "both_runs",
    "built",
    "checked",
    "client",
    "compiled",
    "complaints",
    "crowded",
    "few",
    "finished",
    "fitted",
    "grouped",
    "groups",
    "killed",
    "models",
    "of_arrays",
    "old",
    "page",
    "plain",
    "result",
    "undisturbed",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="seed of all randomness in tests")
    parser.addoption("--cluster", action="store_true", help="run tests that build whole clusters")


def pytest_configure(config: pytest.Config) -> None:
    """Let all processes share what JAX has compiled: test processes, workers, notebooks, and later
    runs of the suite. The key of an entry is the program, its options and the version of JAX."""
    if hasattr(config, "cache"):  # not with -p no:cacheprovider
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("jax")))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


@pytest.hookimpl(tryfirst=True)  # before groups are made of the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by SLOW, and group those that share a fixture."""
    items.sort(key=_rank)
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        # Workers that get a function of a test need not import its module, with pytest and all.
        cloudpickle.register_pickle_by_value(module)
    for item in items:
        if item.get_closest_marker("cluster") and not item.config.getoption("--cluster"):
            item.add_marker(pytest.mark.skip(reason="builds a cluster: make cluster-test runs it"))
    for item in items:
        has_group = item.get_closest_marker("xdist_group") is not None
        if not has_group and SHARED & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        _name_group(item)


def _name_group(item: pytest.Item) -> None:
    """Put the group of a test where xdist looks for it: at the end of the test's id.

    xdist 3.8 means to do that itself, but writes to an attribute that pytest 9.2 does not read, and
    so forgets all groups without a word (pytest-xdist, issue 1386).
    """
    group = item.get_closest_marker("xdist_group")
    is_asked_for = getattr(item.config.option, "loadgroup", False)  # in processes of xdist
    if group and is_asked_for and not hasattr(item, "_nodeid"):
        item._id = coerce_node_id(f"{item.nodeid}@{group.args[0]}")


def _rank(item: pytest.Item) -> int:
    ranks = (rank for rank, name in enumerate(SLOW) if item.nodeid.startswith(name))
    return next(ranks, len(SLOW))


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--seed"))


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> np.random.Generator:
    """Of every test its own, whatever ran before it and in which process."""
    return np.random.default_rng([seed, crc32(request.node.name.encode())])


@pytest.fixture(autouse=True)
def _seed_of_hypothesis(seed: int) -> None:
    hypothesis.core.global_force_seed = seed
