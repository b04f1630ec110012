"""Merging: draws of the posterior from draws of its subposteriors.

Each combination rule has a file of its own and is called the same way: draws of every shard in,
(n_s, d) each, `Combined` out. What schemes merge with lives here too: weights, pairing, fits of
warm-up, and the ESS of merged draws. Nothing here may know of models, workers or messages.
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
    """Combine draws of subposteriors, from any sampler, into draws of the posterior.

    Subposterior s must be p(θ)^(1/K) times the likelihood of shard s. Here p is the density of the
    prior on the scale of the draws. Rules work on that scale, so a positive variable may come out
    negative. To combine its logarithm u = log θ instead, let shards draw u with the prior
    (p(θ)·θ)^(1/K).

    Parameters
    ----------
    subposterior_draws
        For each shard an array (n_s, d), or an xarray Dataset, DataTree or InferenceData with a
        group `posterior`. Chains are concatenated.
    rule
        One of `consensus`, `gaussian`, `swiss`, `semiparametric`, `weierstrass`; or a function of
        `ShardDraws`, a seed and options that returns `Combined`.
    seed
        Seed of the rule's random numbers.
    variables
        Names of the variables to combine, if the draws have names; all by default.
    options
        Options of the rule: `weights` of consensus; `n_draws` of gaussian, semiparametric and
        weierstrass; `bandwidth` of the last two.
    """
    function = RULES[rule] if isinstance(rule, str) else rule
    _check_options(function, seed, options)
    given, layout = list(subposterior_draws), None
    if given and has_names(given[0]):
        given, layout = named_draws(given, variables)
    else:
        no_names = f"variables={variables!r} needs draws with names. Select columns of the arrays."
        require(variables is None, no_names)
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
