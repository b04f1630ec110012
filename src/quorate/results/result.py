"""The result of a run: draws by name, their summary, and what happened on the way."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate._extras import load
from quorate._types import Array, IntArray
from quorate.errors import BadInputError, named_shards, require
from quorate.merging.ess import are_enough, ess_and_rhat
from quorate.models.protocol import Model
from quorate.numerics.ess import bulk_ess, ess_and_rhat_of_chains, split_rhat
from quorate.numerics.names import named_scalars
from quorate.numerics.streams import Streams
from quorate.passes.inquiry import Evidence
from quorate.protocol.timeline import Timeline
from quorate.results import about_rows, notebook, predictive, saved
from quorate.results import tree as trees
from quorate.results.arviz import inference_data
from quorate.results.export import export
from quorate.results.local import LocalParameters, LocalWork
from quorate.results.marginals import FEWEST, Densities
from quorate.results.summary import gone_in_words, slow_in_words, summary_row
from quorate.trust.verdict import GOOD, Verdict

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure


_MOST_PANELS = 40


@dataclass(frozen=True, eq=False)
class Result:
    """Draws of the posterior, and the story of the run.

    Parameters
    ----------
    model
        The model whose posterior it is.
    unconstrained
        Global draws, shape (n_draws, dim).
    shard_draws
        All draws received of each shard, unconstrained, shape (n_received, dim) each; empty for
        coded runs, whose workers send sums over shards.
    weights
        W_s of the shards, shape (n_shards, dim, dim); None for coded and for corrected draws.
    timeline
        When blocks arrived and draws were released, in seconds.
    scheme, workers, redundancy
        What ran.
    excluded
        Shards whose rows have no part in the draws: no worker that holds them was left.
    lost
        Workers that were gone when the run ended: lost, and no block from them since.
    stopped
        Why the run ended: `done`, `time is up`, `enough effective draws`, `interrupted`,
        `workers lost` or `the disk failed`.
    run_dir
        Folder of its files.
    verdict
        Verdict of the check of the draws; None if they were not checked.
    method
        `exact` or `merge`.
    n_chains
        Chains that the draws come from, in turn: 1 for merged draws.
    n_passes
        Passes over the posterior that an exact run took.
    log_evidence
        Log of the marginal likelihood, with its standard error; None for merged draws. It counts
        the constants that the model leaves in its log densities.
    local_work
        Asks workers for the parameters of groups; None where there is no run to ask.
    row_work
        Asks workers about single rows; None where there is no run to ask.
    """

    model: Model
    unconstrained: Array
    shard_draws: Sequence[Array]
    weights: Array | None
    timeline: Timeline
    scheme: str
    workers: int
    redundancy: int
    excluded: tuple[int, ...]
    lost: frozenset[int]
    stopped: str
    run_dir: str
    verdict: Verdict | None = None
    method: str = "merge"
    n_chains: int = 1
    n_passes: int = 0
    log_evidence: Evidence | None = None
    local_work: LocalWork | None = None
    row_work: about_rows.RowWork | None = None

    log_likelihood = about_rows.log_likelihood
    loo = about_rows.loo
    waic = about_rows.waic
    predict = predictive.predict
    posterior_predictive = predictive.posterior_predictive
    prior_predictive = predictive.prior_predictive

    @cached_property
    def variables(self) -> dict[str, Array]:
        """Draws on the natural scale, by name: `(n_draws, *shape)` each."""
        return self.model.constrain(self.unconstrained)

    @property
    def n_draws(self) -> int:
        """Number of global draws."""
        return len(self.unconstrained)

    def blocks_of_workers(self) -> list[int]:
        """How many blocks each worker sent."""
        counts = Counter(self.timeline.block_workers)
        return [counts[worker] for worker in range(self.workers)]

    @cached_property
    def shard_variables(self) -> tuple[dict[str, Array], ...]:
        """The draws of each shard on the natural scale, by name; empty for coded runs."""
        return tuple(self.model.constrain(draws) for draws in self.shard_draws)

    @property
    def local(self) -> LocalParameters:
        """The parameters of the groups of a hierarchical model: summaries and draws."""
        work, folder = self.local_work, Path(self.run_dir)
        return LocalParameters.of(
            self.model, self.unconstrained, lambda: self.laid_out, self.chain_rows, folder, work
        )

    @cached_property
    def posterior(self) -> "xr.DataTree":
        """The draws in ArviZ's form, in groups.

        `posterior`: global draws in chains (`chain_rows`), with the dims and coords of the model.
        `sample_stats`: when each of them was complete, in seconds. `constant_data`: what a PyMC
        model holds besides its rows. `shard_posterior`: draws of the shards, padded with NaN where
        a shard has fewer than another; not for coded and exact runs. `run`: when blocks arrived,
        from which worker, with how many draws or points, and how many draws there are of each
        shard.
        """
        return trees.tree_of(self)

    @cached_property
    def laid_out(self) -> Array:
        """The draws of `posterior`, unconstrained, shape (n_draws, dim).

        They are `unconstrained`. Only if those are re-paired draws of shards, which have no order,
        they are merged again in step (`quorate.merging.in_step`), with the same means and sds.
        """
        return trees.laid_out(self.unconstrained, self.weights, self.shard_draws)

    @cached_property
    def chain_variables(self) -> dict[str, Array]:
        """`laid_out` on the natural scale, by name: `(n_draws, *shape)` each."""
        is_same = self.laid_out is self.unconstrained
        return self.variables if is_same else self.model.constrain(self.laid_out)

    @property
    def chain_rows(self) -> IntArray:
        """Chains of `posterior`: `[c, i]` is the row of `laid_out` that is draw i of chain c.

        In exact runs these are the chains of the ensemble; short ones are joined end to end.
        Merged draws are cut into chains.
        """
        return trees.chain_rows(self.n_draws, self.n_chains)

    def to_inference_data(self) -> Any:
        """`posterior` for the ArviZ that is installed: InferenceData before 1.0, else itself."""
        return inference_data(self.posterior)

    def summary(self) -> "pd.DataFrame":
        """Mean, sd, 94 % interval, ESS, MCSE and split R-hat of every scalar."""
        import pandas as pd

        return pd.DataFrame.from_dict(self.summary_rows(), orient="index")

    def summary_rows(self) -> dict[str, dict[str, float]]:
        """What `summary` shows, by name; empty if there are too few draws for a spread."""
        return self._summary

    @cached_property
    def _summary(self) -> dict[str, dict[str, float]]:
        if self.n_draws < FEWEST:
            return {}
        scalars = self.scalars()
        found = self._ess_and_rhat([values for _, values in scalars])
        return {
            name: {**summary_row(values, float(ess)), "r_hat": float(r_hat)}
            for (name, values), ess, r_hat in zip(scalars, *found, strict=True)
        }

    def _ess_and_rhat(self, functions: Sequence[Array]) -> tuple[Array, Array]:
        """ESS and R-hat of functions of the draws, (n_draws,) each; NaN of too few draws.

        Re-paired draws look independent, so the draws of the shards are judged where they are
        known. A coordinate has the ESS that `quorate.run.view.View.ess` tells.
        """
        if self.n_chains > 1:
            return ess_and_rhat_of_chains(functions, self.n_chains)
        shard_draws = () if self.weights is None else self.shard_draws
        n_draws, dim = self.unconstrained.shape
        if not are_enough(n_draws, map(len, shard_draws), dim):
            unknown = np.full(len(functions), np.nan)
            return unknown, unknown
        values = np.stack(functions, axis=1)
        if self.weights is None:
            return bulk_ess(values[None]), split_rhat(values[None])
        return ess_and_rhat(values, self.unconstrained, self.weights, shard_draws)

    def save(self) -> None:
        """Write draws by name, summary, densities, story and verdict to the run's folder.

        All of them are written, or none if one cannot be.
        """
        texts = {
            saved.DENSITIES: self._saved_densities,
            saved.SUMMARY: json.dumps(self.summary_rows(), indent=2),
            saved.STORY: f"{'; '.join(self._story())}\n",
        }
        if self.verdict is not None:
            texts[saved.VERDICT] = json.dumps(self.verdict.as_json(), indent=2)
        chains = None if self.laid_out is self.unconstrained else self.chain_variables
        saved.save(Path(self.run_dir), self.variables, texts, chains)

    def judged(self, verdict: Verdict | None) -> "Result":
        """A copy of this result with a verdict; what was computed from the draws is kept."""
        found = replace(self, verdict=verdict)
        computed = ("variables", "laid_out", "chain_variables", "_summary", "_saved_densities")
        vars(found).update({k: v for k, v in vars(self).items() if k in computed})
        return found

    def corrected(self) -> "Result":
        """Draws of the posterior itself: points of the check, resampled by importance weights.

        There are as many as the effective sample size of the weights, so that the ESS of `summary`
        is not too high. They are as good as the weights: look at `verdict.k_hat`. Draws with a good
        verdict stay as they are: to resample would only add noise.
        """
        weighted = None if self.verdict is None else self.verdict.weighted
        if weighted is None:
            raise BadInputError(
                "These draws were not checked, so they cannot be corrected. Sample with check=True."
            )
        if self.verdict is not None and self.verdict.in_short == GOOD:
            return self
        n_draws = min(max(round(weighted.ess), 1), self.n_draws)
        draws = weighted.points[weighted.resampled(Streams(1), n_draws)]
        scheme = f"{self.scheme}, corrected"
        return replace(self, unconstrained=draws, weights=None, n_chains=1, scheme=scheme)

    def scalars(self) -> list[tuple[str, Array]]:
        """Each scalar of each variable, named like `beta[2]`, with its draws."""
        return named_scalars(self.variables)

    def plot(self, names: Sequence[str] | None = None) -> "Figure":
        """Densities of the merged draws, with those of the shards in thin lines behind.

        Parameters
        ----------
        names
            Variables such as `beta`, or scalars such as `beta[2]`; all by default, the first 40
            if there are more.
        """
        require(
            self.n_draws >= FEWEST,
            f"{self.n_draws} draws are too few for a density. Draw at least {FEWEST}.",
        )
        shown = self._densities(self._chosen(names), _MOST_PANELS)
        title = self._story()[0] + (f"; {shown.n_more} more scalars" if shown.n_more else "")
        return shown.figure(title)

    @cached_property
    def _saved_densities(self) -> str:
        scalars = self.scalars() if self.n_draws >= FEWEST else []
        return json.dumps(self._densities(scalars).as_json())

    def _densities(
        self, scalars: Sequence[tuple[str, Array]], most: int | None = None
    ) -> Densities:
        """Densities of scalars, and of the shards behind them, without a restored prior."""
        has_model = not getattr(self.model, "is_stored", False)
        included = [s for s in range(self.workers) if has_model and s not in self.excluded]

        def named(draws: Array) -> dict[str, Array]:
            return dict(named_scalars(self.model.constrain(draws)))

        return Densities.of(scalars, zip(included, self.shard_draws, strict=False), named, most)

    def _chosen(self, names: Sequence[str] | None) -> list[tuple[str, Array]]:
        if names is None:
            return self.scalars()
        wanted = (names,) if isinstance(names, str) else names
        found = []
        for name in wanted:
            variable = named_scalars({name: self.variables[name]} if name in self.variables else {})
            scalars = variable or [scalar for scalar in self.scalars() if scalar[0] == name]
            known = ", ".join(self.variables)
            require(bool(scalars), f"No variable named `{name}`. The variables are {known}.")
            found += scalars
        return found

    def to_netcdf(self, path: str) -> None:
        """Write `posterior` to a NetCDF file that ArviZ reads."""
        load("h5netcdf", "netcdf")
        self.posterior.to_netcdf(path)

    def export(self, path: str | Path) -> None:
        """Write the draws to a file that ends in .nc, .zarr, .parquet or .csv.

        NetCDF and Zarr hold `posterior`. The others hold a table with a row for each draw.
        """
        export(self.posterior, Path(path))

    def __repr__(self) -> str:
        return f"<Result: {'; '.join(self._story())}>"

    def _repr_html_(self) -> str:
        return notebook.page(self._story(), self.summary_rows())

    def _story(self) -> list[str]:
        """What happened, sentence by sentence."""
        seconds = self.timeline.release_times[-1] if self.timeline.release_times else 0.0
        kind = "exact draws" if self.method == "exact" else "draws"
        ran = f"{self.n_draws} {kind} by {self.scheme} on {self.workers} workers"
        ran += f" (redundancy {self.redundancy}) in {seconds:.1f} s: {self.stopped}"
        events = ((note.worker, note.what) for _, note in self.timeline.notes)
        lost = gone_in_words(self.lost, events)
        if self.excluded:
            lost.append(f"WITHOUT THE ROWS OF {named_shards(self.excluded).upper()}")
        slow = slow_in_words(
            self.blocks_of_workers(), self.lost, self.method, self.timeline.spoken_for
        )
        checked = [] if self.verdict is None else [f"verdict: {self.verdict.in_short}"]
        return [ran, *lost, *slow, *checked]
