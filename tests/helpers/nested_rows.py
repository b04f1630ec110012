"""Simulated rows of groups within groups, and what brute force says of them."""

from dataclasses import dataclass

import numpy as np
from tests.helpers.grouped_rows import FAMILIES, NAMES, log_density, simulated_response

from quorate.models.groups.levels import Level


@dataclass(frozen=True)
class NestedCase:
    """A regression with two levels of groups, a shard of its rows, and the point behind them."""

    family: str
    model: object
    shard: dict
    truth: np.ndarray


def levels(q: int, q_inner: int) -> list[Level]:
    """`(1 | a) + (1 | a:b)` for 1 and 1; slopes of x for 2."""
    return [Level("a", NAMES[:q], (q,)), Level("a:b", NAMES[:q_inner], (q_inner,))]


def nested_case(
    family: str,
    q: int,
    q_inner: int,
    rng: np.random.Generator,
    n_outer: int = 5,
    n_inner: int = 14,
    n: int = 80,
) -> NestedCase:
    """Rows of inner groups that differ in size, in outer groups that differ in size."""
    within = np.concatenate([np.arange(n_outer), rng.integers(0, n_outer, n_inner - n_outer)])
    inner = np.concatenate([np.arange(n_inner), rng.integers(0, n_inner, n - n_inner)])
    columns = np.column_stack([np.ones(n), rng.normal(size=n)])
    shard = {
        "X": columns,
        "Z": columns[:, :q].copy(),
        "Z_inner": columns[:, :q_inner].copy(),
        "group": within[inner],
        "inner": inner,
    }
    u = rng.normal(size=(n_outer, q)) * [0.7, 0.4][:q]
    v = rng.normal(size=(n_inner, q_inner)) * [0.5, 0.3][:q_inner]
    eta = columns @ [0.2, 0.4]
    eta += (shard["Z"] * u[within[inner]]).sum(axis=1) + (shard["Z_inner"] * v[inner]).sum(axis=1)
    shard["y"] = simulated_response(family, eta, rng)
    for array in shard.values():
        array.flags.writeable = False
    scales = {"linear": [np.log(0.7)], "negative_binomial": [np.log(2.0)]}.get(family, [])
    outer = [np.log(0.7), np.log(0.4), 0.2][: 1 if q == 1 else 3]
    of_inner = [np.log(0.5), np.log(0.3), -0.2][: 1 if q_inner == 1 else 3]
    model = FAMILIES[family](NAMES, groups=levels(q, q_inner))
    return NestedCase(family, model, shard, np.array([0.2, 0.4, *scales, *outer, *of_inner]))


def nested_brute_force(case: NestedCase, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The integrated log-likelihood on grids, and means of u and v of all groups."""
    shard, (first, second) = case.shard, case.model.taken_apart(x[None]).covs
    (u, log_u), (v, log_v) = _grid(first[0]), _grid(second[0])
    total, of_outer, of_inner = 0.0, [], {}
    for outer in np.unique(shard["group"]):
        given = {
            code: _given_outer(case, x, shard["inner"] == code, u, v) + log_v
            for code in np.unique(shard["inner"][shard["group"] == outer])
        }
        terms = log_u + sum(np.logaddexp.reduce(each, axis=1) for each in given.values())
        integral = np.logaddexp.reduce(terms)
        shares = np.exp(terms - integral)
        total += integral
        of_outer.append(shares @ u)
        for code, each in given.items():
            within = np.exp(each - np.logaddexp.reduce(each, axis=1)[:, None])
            of_inner[code] = shares @ within @ v
    return float(total), np.array(of_outer), np.array([of_inner[code] for code in sorted(of_inner)])


def _grid(cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of N(0, cov), and logarithms of their weights."""
    q = len(cov)
    axis = np.linspace(-6.5, 6.5, 121 if q == 1 else 61)
    grid = np.stack(np.meshgrid(*[axis] * q, indexing="ij"), axis=-1).reshape(-1, q)
    log_weights = -0.5 * (grid**2).sum(axis=1)
    return grid @ np.linalg.cholesky(cov).T, log_weights - np.logaddexp.reduce(log_weights)


def _given_outer(case: NestedCase, x: np.ndarray, of: np.ndarray, u: np.ndarray, v: np.ndarray):
    """Log-likelihood of the rows of an inner group at all pairs of grid points."""
    total = np.zeros((len(u), len(v)))
    rows = (case.shard[name][of] for name in ("X", "Z", "Z_inner", "y"))
    for columns, outer, inner, y in zip(*rows, strict=True):
        eta = columns @ x[:2] + (u @ outer)[:, None] + v @ inner
        total += log_density(case.family, y, eta, x[2])
    return total
