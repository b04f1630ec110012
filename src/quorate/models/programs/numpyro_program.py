"""A NumPyro program as log densities of an unconstrained vector.

Log densities of sites are summed here. NumPyro adds the log-Jacobian of a latent site as a separate
factor, so scaling its latent sites by 1/K would leave the Jacobian at power 1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from quorate._extras import jax_in_float64, load
from quorate.errors import BadInputError, require
from quorate.models.arrays import AnyArray, Namespace, indexed
from quorate.models.checks import call
from quorate.models.programs.indexing import indexable
from quorate.models.splitting import Split, refuse_discrete


@dataclass(frozen=True)
class Site:
    """A latent variable: its name, the shape of its unconstrained value, names of coordinates."""

    name: str
    shape: tuple[int, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A NumPyro program on an unconstrained vector.

    Parameters
    ----------
    model, constants, split
        As the user gave them.
    example
        A few rows, for runs that need only the prior.
    sites
        Latent variables, in the order of the unconstrained vector.
    roles
        Role of each `numpyro.factor` site: prior or likelihood.
    """

    model: Callable[..., Any]
    constants: Mapping[str, Any]
    split: Split
    example: Mapping[str, Any]
    sites: tuple[Site, ...]
    roles: Mapping[str, str]

    def log_prior(self, x: AnyArray, xp: Namespace = np) -> AnyArray:
        """Log prior of the unconstrained point, Jacobian included."""
        trace, log_jacobian = self.run(x, self.example, xp)
        return log_jacobian + sum(
            (log_prob(site) for site in trace.values() if self._is_prior(site)), xp.zeros(())
        )

    def log_likelihood(self, x: AnyArray, shard: Any, xp: Namespace = np) -> AnyArray:
        """Log-likelihood of the rows of a shard."""

        def total(x: AnyArray, shard: Any) -> AnyArray:
            sites = self.likelihood_sites(x, shard, xp).values()
            return sum((log_prob(site) for site in sites), xp.zeros(()))

        return call("model", total, x, shard)

    def likelihood_sites(self, x: AnyArray, shard: Any, xp: Namespace) -> dict[str, Any]:
        """The sites of the likelihood at x, on the rows of a shard."""
        trace, _ = self.run(x, shard, xp)
        return {name: site for name, site in trace.items() if self._is_likelihood(site)}

    def natural(self, x: AnyArray, rows: Any, xp: Namespace) -> dict[str, AnyArray]:
        """Latent variables on their natural scale, and deterministic variables."""
        trace, _ = self.run(x, rows, xp)
        return {
            name: site["value"]
            for name, site in trace.items()
            if site["type"] == "deterministic" or is_latent(site)
        }

    def run(self, x: AnyArray, rows: Any, xp: Namespace) -> tuple[dict[str, Any], AnyArray]:
        """The trace of all sites at x, and the log-Jacobian."""
        trace, jacobians = run_at(self.model, self.arguments(rows, xp), self.free(x))
        return trace, sum((xp.sum(part) for part in jacobians.values()), xp.zeros(()))

    def arguments(self, rows: Any, xp: Namespace) -> dict[str, Any]:
        """What the program takes."""
        return {**self.constants, **self.split.restored(rows, xp)}

    def free(self, x: AnyArray) -> dict[str, AnyArray]:
        """Unconstrained values of the latent variables, by name."""
        free, start = {}, 0
        for site in self.sites:
            size = prod(site.shape)
            free[site.name] = x[start : start + size].reshape(site.shape)
            start += size
        return free

    def _is_prior(self, site: Mapping[str, Any]) -> bool:
        return is_latent(site) or self.roles.get(site["name"]) == "prior"

    def _is_likelihood(self, site: Mapping[str, Any]) -> bool:
        observed = site["type"] == "sample" and site["is_observed"]
        return bool(observed and self.roles.get(site["name"]) != "prior")


def run_at(
    model: Callable[..., Any], arguments: Mapping[str, Any], free: Mapping[str, AnyArray]
) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """The trace of a program at unconstrained values, and the log-Jacobian of each latent site."""
    handlers = load("numpyro.handlers", "numpyro")
    biject_to = load("numpyro.distributions", "numpyro").biject_to
    jacobians: dict[str, AnyArray] = {}

    def place(site: dict[str, Any]) -> AnyArray | None:
        if not is_latent(site):
            return None
        transform, name = biject_to(site["fn"].support), site["name"]
        value = transform(free[name])
        jacobians[name] = transform.log_abs_det_jacobian(free[name], value)
        return value

    placed = handlers.substitute(handlers.seed(model, 0), substitute_fn=place)
    given = indexable(arguments)
    trace = call("model", lambda given: handlers.trace(placed).get_trace(**given), given)
    return trace, jacobians


def drawn(
    model: Callable[..., Any],
    arguments: Mapping[str, Any],
    free: Mapping[str, AnyArray],
    key: AnyArray,
    natural: Mapping[str, AnyArray] | None = None,
) -> dict[str, Any]:
    """The trace of a program that draws what it observes, and all that is not given.

    Values of `free` are unconstrained; those of `natural` are on their natural scale.
    """
    handlers = load("numpyro.handlers", "numpyro")
    biject_to = load("numpyro.distributions", "numpyro").biject_to

    def place(site: dict[str, Any]) -> AnyArray | None:
        if natural is not None and site["name"] in natural:
            return natural[site["name"]]
        if not is_latent(site) or site["name"] not in free:
            return None
        return biject_to(site["fn"].support)(free[site["name"]])

    seeded = handlers.seed(handlers.uncondition(model), key)
    placed = handlers.substitute(seeded, substitute_fn=place)
    trace: dict[str, Any] = handlers.trace(placed).get_trace(**indexable(arguments))
    return trace


def unconstrained(sites: tuple[Site, ...], trace: Mapping[str, Any]) -> AnyArray:
    """The unconstrained vector of latent values in a trace."""
    biject_to = load("numpyro.distributions", "numpyro").biject_to
    xp = jax_in_float64().numpy
    parts = [
        biject_to(trace[site.name]["fn"].support).inv(trace[site.name]["value"]).reshape(-1)
        for site in sites
    ]
    return xp.concatenate(parts)


def discover(
    model: Callable[..., Any], constants: Mapping[str, Any], split: Split, rows: Any
) -> tuple[tuple[Site, ...], tuple[str, ...]]:
    """Latent sites and names of factors. Programs that can never be split are refused."""
    restored = split.restored(rows, jax_in_float64().numpy)
    found, trace = examine(model, {**constants, **restored})
    return found, factors_in(trace)


def examine(
    model: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[tuple[Site, ...], dict[str, Any]]:
    """Latent sites, and a trace of the program at 0. Programs that never split are refused."""
    handlers = load("numpyro.handlers", "numpyro")
    distributions = load("numpyro.distributions", "numpyro")
    jax = jax_in_float64()
    found: list[Site] = []

    def place(site: dict[str, Any]) -> AnyArray | None:
        if not is_latent(site):
            return None
        support, name = site["fn"].support, site["name"]
        if support is None or site["fn"].is_discrete:
            refuse_discrete(name)
        transform = distributions.biject_to(support)
        shape = tuple(transform.inverse_shape(site["fn"].shape()))
        found.append(Site(name, shape, _labels(name, shape, transform)))
        return transform(jax.numpy.zeros(shape))

    placed = handlers.substitute(handlers.seed(model, 0), substitute_fn=place)
    trace = call("model", lambda given: handlers.trace(placed).get_trace(**given), arguments)
    for name, site in trace.items():
        if site["type"] == "param":
            raise BadInputError(f"Param {name} has no prior. Make it a sample site.")
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            message = f"Plate {name} is subsampled. Shards do that job: omit `subsample_size`."
            raise BadInputError(message)
    return tuple(found), trace


def factors_in(trace: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the factors of a program."""
    unit = load("numpyro.distributions", "numpyro").Unit
    return tuple(
        name for name, s in trace.items() if s["type"] == "sample" and isinstance(s["fn"], unit)
    )


def frames_in(trace: Mapping[str, Any], local: str) -> tuple[int, dict[str, int]]:
    """Size of the plate of groups, and for each sample site within it, the plate's dimension."""
    plates = [name for name, site in trace.items() if site["type"] == "plate"]
    require(
        local in plates,
        f"The program has no plate named {local!r}. It has {', '.join(plates) or 'none'}.",
    )
    dims = {
        name: frame.dim
        for name, site in trace.items()
        if site["type"] == "sample"
        for frame in site["cond_indep_stack"]
        if frame.name == local
    }
    return int(trace[local]["args"][0]), dims


def _labels(name: str, shape: tuple[int, ...], transform: Any) -> tuple[str, ...]:
    kind = type(getattr(transform, "base_transform", transform)).__name__
    wrap = {"IdentityTransform": "{}", "ExpTransform": "log({})"}.get(kind, "free({})")
    return tuple(wrap.format(label) for label in indexed(name, shape))


def is_latent(site: Mapping[str, Any]) -> bool:
    """Whether a site is a latent variable."""
    return bool(site["type"] == "sample" and not site["is_observed"])


def log_prob(site: Mapping[str, Any]) -> AnyArray:
    """Log density of a whole site, with the scale that the program gives it."""
    return log_probs(site).sum()


def log_probs(site: Mapping[str, Any]) -> AnyArray:
    """Log densities of the entries of a site, with the scale that the program gives them."""
    value = site["fn"].log_prob(site["value"])
    return value if site["scale"] is None else site["scale"] * value
