"""Draws of the parameters of groups, given a point and the rows.

A chain for each group and point proposes from a Student t distribution, whatever its state. The
proposal is placed by the mean and covariance of the group's parameters, which quadrature gives, so
nearly all proposals are accepted, and after a dozen the chain has forgotten its start. All numbers
come from outside: draws do not depend on what else is drawn at the same time.
"""

from collections.abc import Callable

import numpy as np
from scipy import special

from quorate._types import Array

_STEPS = 12
_EXPONENTIALS = 3  # their sum is half a chi-squared number with twice as many degrees of freedom
_FREEDOM = 2 * _EXPONENTIALS


def numbers_needed(dim: int) -> int:
    """How many uniform numbers a draw of `dim` parameters takes."""
    return (_STEPS + 1) * (dim + _EXPONENTIALS) + _STEPS


def independence_draws(
    log_joint: Callable[[Array], Array], mean: Array, cov_factor: Array, uniforms: Array
) -> Array:
    """One draw for each of n points and m groups, from the density exp `log_joint`.

    Parameters
    ----------
    log_joint
        Log densities, up to a constant for each point and group: (n, m, q) to (n, m).
    mean
        Roughly the means of z, shape (n, m, q).
    cov_factor
        F with F Fᵀ roughly the covariance of z, shape (n, m, q, q).
    uniforms
        Uniform numbers in (0, 1), shape (n, m, `numbers_needed(q)`).

    Returns
    -------
    Array
        Shape (n, m, q).
    """
    dim = mean.shape[-1]
    n_each = dim + _EXPONENTIALS
    proposals, accepts = uniforms[..., :-_STEPS], np.log(uniforms[..., -_STEPS:])
    state, weight = _proposed(log_joint, mean, cov_factor, proposals[..., :n_each])
    for step in range(_STEPS):
        numbers = proposals[..., (step + 1) * n_each : (step + 2) * n_each]
        candidate, new = _proposed(log_joint, mean, cov_factor, numbers)
        with np.errstate(invalid="ignore"):  # two states of density 0
            accepted = accepts[..., step] < new - weight
        state = np.where(accepted[..., None], candidate, state)
        weight = np.where(accepted, new, weight)
    return state


def _proposed(
    log_joint: Callable[[Array], Array], mean: Array, cov_factor: Array, numbers: Array
) -> tuple[Array, Array]:
    """Points of a Student t distribution, and log joint density less that of the proposal."""
    dim = mean.shape[-1]
    chi_squared = -2.0 * np.log(numbers[..., dim:]).sum(axis=-1, keepdims=True)
    white = special.ndtri(numbers[..., :dim]) * np.sqrt(_FREEDOM / chi_squared)
    state = mean + np.einsum("nmij,nmj->nmi", cov_factor, white)
    log_proposal = -0.5 * (_FREEDOM + dim) * np.log1p((white**2).sum(axis=-1) / _FREEDOM)
    weight = np.asarray(log_joint(state)) - log_proposal
    return state, np.where(np.isnan(weight), -np.inf, weight)
