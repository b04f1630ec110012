"""Seeds are fixed, and varied on request: `pytest --seed 7`."""

import numpy as np
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="seed of all randomness in tests")


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--seed"))


@pytest.fixture(scope="session")
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def _seed_of_hypothesis(seed: int) -> None:
    import hypothesis

    hypothesis.core.global_force_seed = seed
