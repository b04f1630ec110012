"""Rules that combine draws of subposteriors into draws of the posterior, one file each.

All are called alike: draws of every shard in, (n_s, d) each, `Combined` out.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

from quorate._registry import Registry
from quorate.errors import require
from quorate.merging.combined import Combined
from quorate.merging.consensus import consensus
from quorate.merging.gaussian import gaussian
from quorate.merging.layout import has_names, named_draws
from quorate.merging.semiparametric import semiparametric
from quorate.merging.shard_draws import ShardDraws
from quorate.merging.swiss import swiss
from quorate.merging.weierstrass import weierstrass

Rule = Callable[..., Combined]
RULES: Registry[Rule] = Registry(
    "rule",
    "quorate.rules",
    {
        "consensus": consensus,
        "gaussian": gaussian,
        "swiss": swiss,
        "semiparametric": semiparametric,
        "weierstrass": weierstrass,
    },
)


def combine(
    subposterior_draws: Sequence[Any],
    rule: str | Rule = "consensus",
    *,
    seed: int = 1,
    variables: Sequence[str] | None = None,
    **options: Any,
) -> Combined:
    """Draws of the posterior from draws of its subposteriors, wherever they were drawn.

    Subposterior s must be p(θ)^(1/K) times the likelihood of shard s, with p the density of the
    prior on the scale the draws are given in. They are combined on that scale: a positive variable
    may come out negative. To combine its logarithm u = log θ, let shards draw with the prior of u,
    p(θ)·θ, to the power 1/K.

    Parameters
    ----------
    subposterior_draws
        For each shard an array (n_s, d), or an xarray Dataset, DataTree or InferenceData with a
        group `posterior`, whose chains are put one after the other.
    rule
        One of `consensus`, `gaussian`, `swiss`, `semiparametric`, `weierstrass`; or a function of
        `ShardDraws`, a seed and options that returns `Combined`.
    seed
        Of all that is random.
    variables
        Which ones to combine, where they have names; all by default.
    options
        Of the rule: `weights` of consensus, `n_draws` of gaussian, semiparametric and weierstrass,
        `bandwidth` of the last two.
    """
    function = RULES[rule] if isinstance(rule, str) else rule
    _check_options(function, seed, options)
    given, layout = list(subposterior_draws), None
    if given and has_names(given[0]):
        given, layout = named_draws(given, variables)
    else:
        require(variables is None, "variables", variables, "arrays have no names: give columns")
    shards = ShardDraws.of(given, layout.names if layout else None)
    return replace(function(shards, seed=seed, **options), layout=layout)


def _check_options(rule: Rule, seed: int, options: dict[str, Any]) -> None:
    known = [name for name in signature(rule).parameters if name not in ("draws", "seed")]
    unknown = [name for name in options if name not in known]
    require(
        not unknown,
        f"The rule has no option {' or '.join(unknown)}. It has {', '.join(known) or 'none'}.",
    )
    require(seed >= 0, f"seed must be 0 or more, not {seed}.")
    n_draws = options.get("n_draws")
    require(n_draws is None or n_draws > 1, f"n_draws must be at least 2, not {n_draws}.")
