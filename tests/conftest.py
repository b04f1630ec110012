"""Seeds are fixed, and varied on request: `pytest --seed 7`."""

from zlib import crc32

import hypothesis
import numpy as np
import pytest

# How long an example takes depends on what else the machine does; examples of earlier runs would
# make a run depend on them.
hypothesis.settings.register_profile(
    "suite",
    deadline=None,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")

LONG = ("test_ray", "test_flights", "test_figures", "test_chaos", "test_faults", "test_cases")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="seed of all randomness in tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests first, so that no core waits at the end for another's last one."""
    items.sort(key=lambda item: item.path.stem not in LONG)


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
