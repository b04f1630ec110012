"""What the authors' scripts compute for Fig. 4, as plain loops over draws, workers and functions.

A straightforward translation, written to be compared with: same outputs, no protocol, no coding,
nothing vectorised beyond single vectors and matrices.
"""

import numpy as np

K, D, L = 40, 5, 30
ETA, BETA = 0.1, 1.2
COV_RIDGE, PRECISION_RIDGE = 10.0, 2.0


def covariances() -> list[np.ndarray]:
    """C_s of §VI."""
    return [
        np.array([[(s / K) ** abs(i - j) for j in range(D)] for i in range(D)]) for s in range(K)
    ]


def error(draws: list[np.ndarray], expected: np.ndarray) -> float:
    """Eq. (3) for the 25 test functions, one at a time."""
    total = 0.0
    for i in range(D):
        for j in range(D):
            average = sum(draw[i] * draw[j] for draw in draws) / len(draws)
            total += abs(average - expected[i, j]) / expected[i, j]
    return total / D**2


def ridged_covariance(draws: np.ndarray) -> np.ndarray:
    """Eq. (7)."""
    mean = draws.mean(axis=0)
    cov = COV_RIDGE * np.eye(D)
    for draw in draws:
        cov += np.outer(draw - mean, draw - mean) / len(draws)
    return cov


def consensus_errors(theta: np.ndarray, expected: np.ndarray) -> list[float]:
    """CMC and G-CMC: at each l, all draws so far are combined anew."""
    errors = []
    for n in range(1, L + 1):
        precisions = [np.linalg.inv(ridged_covariance(theta[s, :n])) for s in range(K)]
        total = np.linalg.inv(sum(precisions))
        draws = []
        for draw in range(n):
            phi = np.zeros(D)
            for s in range(K):
                phi += precisions[s] @ theta[s, draw]
            draws.append(total @ phi)
        errors.append(error(draws, expected))
    return errors


def coded_errors(theta: np.ndarray, expected: np.ndarray) -> list[float]:
    """C-CMC: φ summed directly, D̂ of eq. (14)."""
    errors, sums, draws = [], [], []
    for n in range(1, L + 1):
        phi = np.zeros(D)
        for s in range(K):
            phi += np.linalg.inv(ridged_covariance(theta[s, :n])) @ theta[s, n - 1]
        sums.append(phi)
        mean = sum(sums) / n
        estimate = PRECISION_RIDGE * np.eye(D)
        for earlier in sums:
            estimate += np.outer(earlier - mean, earlier - mean) / n
        draws.append(np.linalg.inv(estimate) @ phi)
        errors.append(error(draws, expected))
    return errors


def release_times(scheme: str, r: int, rng: np.random.Generator) -> np.ndarray:
    """T^1, …, T^L."""
    scale = ETA * r * (BETA - 1) / BETA
    arrivals = np.cumsum(scale * rng.random((K, L)) ** (-1 / BETA), axis=1)
    if scheme == "C-CMC":
        return np.sort(arrivals, axis=0)[K - r]
    groups = [np.sort(arrivals[g : g + r].ravel())[:L] for g in range(0, K, r)]
    return np.max(groups, axis=0)


def run(realisations: int = 50) -> dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]:
    """Mean times and errors of the five curves of Fig. 4."""
    rng = np.random.default_rng(0)
    covs = covariances()
    roots = [np.linalg.cholesky(cov) for cov in covs]
    expected = np.linalg.inv(sum(np.linalg.inv(cov) for cov in covs))
    curves = {}
    for scheme, r in [("CMC", 1), ("G-CMC", 2), ("G-CMC", 4), ("C-CMC", 2), ("C-CMC", 4)]:
        times, errors = [], []
        for _ in range(realisations):
            theta = np.array([[root @ rng.standard_normal(D) for _ in range(L)] for root in roots])
            times.append(release_times(scheme, r, rng))
            evaluate = coded_errors if scheme == "C-CMC" else consensus_errors
            errors.append(evaluate(theta, expected))
        curves[scheme, r] = np.mean(times, axis=0), np.mean(errors, axis=0)
    return curves
