"""Combination rules on a skewed, a banana-shaped and a two-mode posterior.

`python docs/figures/choosing.py` draws the pictures of docs/how-to/combine.md and writes its
tables, in about a minute. Posteriors are computed on a grid; draws of subposteriors are
independent.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

import quorate
from quorate.errors import CombinationWarning
from quorate.merging import RULES

Array = NDArray[np.float64]
FOLDER = Path(__file__).with_suffix("")
PAGE = Path(__file__).parents[1] / "how-to" / "combine.md"
SHARDS, DRAWS, SEED = 4, 5000, 1
DIMENSIONS, REPETITIONS = (1, 2, 5, 10, 20), 10
TRUTH, RULE, SHARD = "#222222", "#0072b2", "#999999"


@dataclass(frozen=True)
class Case:
    """A model with few rows, cut into shards.

    Parameters
    ----------
    axes
        The grid, one array for each coordinate.
    log_prior, log_likelihood
        Functions of points (..., d); the likelihood is that of one row.
    rows
        The data; every shard gets equally many.
    limits
        Range of each coordinate in the pictures.
    """

    name: str
    axes: tuple[Array, ...]
    log_prior: Callable[[Array], Array]
    log_likelihood: Callable[[Array, float], Array]
    rows: tuple[float, ...]
    limits: tuple[tuple[float, float], ...]

    def masses(self, rows: tuple[float, ...], share: float) -> Array:
        """Probabilities of the grid's cells, with the prior raised to `share`."""
        points = np.stack(np.meshgrid(*self.axes, indexing="ij"), axis=-1)
        log_density = share * self.log_prior(points)
        log_density = log_density + sum(self.log_likelihood(points, row) for row in rows)
        masses = np.exp(log_density - log_density.max())
        return np.asarray(masses / masses.sum())

    def posterior(self) -> Array:
        """Probabilities of the grid's cells under the posterior of all rows."""
        return self.masses(self.rows, 1.0)

    def draws(self, masses: Array, rng: np.random.Generator) -> Array:
        """Independent draws, spread evenly over the cells they fall into."""
        cells = rng.choice(masses.size, size=DRAWS, p=masses.ravel())
        index = np.unravel_index(cells, masses.shape)
        jitter = rng.uniform(-0.5, 0.5, (len(self.axes), DRAWS))
        columns = zip(self.axes, index, jitter, strict=True)
        return np.stack([axis[i] + (axis[1] - axis[0]) * u for axis, i, u in columns], axis=1)

    def subposteriors(self, rng: np.random.Generator) -> list[Array]:
        """Draws of every shard."""
        parts = [self.rows[shard::SHARDS] for shard in range(SHARDS)]
        return [self.draws(self.masses(part, 1 / SHARDS), rng) for part in parts]


SKEWED = Case(
    "skewed",
    (np.linspace(0.0, 14.0, 5602)[1:],),
    lambda x: np.log(x[..., 0]) - x[..., 0] / 2,
    lambda x, row: np.log(x[..., 0]) - x[..., 0] * row,
    (0.9, 0.25, 0.4, 0.1),
    ((0.0, 7.0),),
)
SKEWED_LOGARITHM = Case(
    "skewed",
    (np.linspace(-4.0, 3.0, 5601),),
    lambda u: 2 * u[..., 0] - np.exp(u[..., 0]) / 2,
    lambda u, row: u[..., 0] - np.exp(u[..., 0]) * row,
    SKEWED.rows,
    ((-2.0, 2.0),),
)
BANANA = Case(
    "banana",
    (np.linspace(-4.0, 4.0, 321), np.linspace(-4.0, 4.0, 321)),
    lambda x: -np.square(x).sum(axis=-1) / 2,
    lambda x, row: -np.square(row - x[..., 0] - np.square(x[..., 1])) / (2 * 1.2**2),
    (0.4, 1.6, 2.1, 0.2, 1.1, 0.7, 1.9, 1.4),
    ((-3.2, 2.8), (-2.6, 2.6)),
)
TWO_MODES = Case(
    "two modes",
    (np.linspace(-4.0, 4.0, 3201),),
    lambda x: -np.square(x[..., 0] - 0.7) / (2 * 1.5**2),
    lambda x, row: -np.square(row - np.square(x[..., 0])) / (2 * 1.5**2),
    (1.1, 2.6, 3.4, 1.9, 2.9, 2.2, 0.8, 3.1),
    ((-2.8, 2.8),),
)


def main() -> None:
    """Write pictures and tables."""
    FOLDER.mkdir(exist_ok=True)
    table = ["| posterior | draws | distance | mean, off by | sd, times |", "|---|---|--:|--:|--:|"]
    for case in (SKEWED, BANANA, TWO_MODES):
        rng = np.random.default_rng(SEED)
        shards = case.subposteriors(rng)
        found = {rule: quorate.combine(shards, rule, seed=SEED).draws for rule in RULES}
        picture(case, shards, found).savefig(FOLDER / f"{case.name.replace(' ', '_')}.png", dpi=110)
        if case is SKEWED:
            logarithms = SKEWED_LOGARITHM.subposteriors(rng)
            found["consensus of logarithms"] = np.exp(quorate.combine(logarithms).draws)
        found["of the posterior itself"] = case.draws(case.posterior(), rng)
        table += [line(case, name, draws) for name, draws in found.items()]
    put("shapes", table)
    put("dimensions", price_of_dimensions())


def put(name: str, table: list[str]) -> None:
    """Replace the table between the two comments with this name in the page."""
    begin, end = f"<!-- {name}: written by docs/figures/choosing.py -->", f"<!-- end of {name} -->"
    before, _, rest = PAGE.read_text().partition(begin)
    after = rest.partition(end)[2]
    PAGE.write_text("\n".join([before + begin, "", *table, "", end + after]))


def price_of_dimensions() -> list[str]:
    """A table of errors on Gaussians, where noise is the only error of every rule."""
    heads = " | ".join(f"d = {dim}" for dim in DIMENSIONS)
    table = [f"| rule | {heads} |", "|---|" + "--:|" * len(DIMENSIONS)]
    for rule in RULES:
        errors = [noise(rule, dim) for dim in DIMENSIONS]
        table.append(f"| {rule} | " + " | ".join(f"{error:.2f}" for error in errors) + " |")
    return table


def noise(rule: str, dim: int) -> float:
    """RMS error of the mean, in sds of the posterior, over coordinates and repetitions."""
    errors = []
    for repetition in range(REPETITIONS):
        rng = np.random.default_rng((dim, repetition))
        roots = rng.normal(size=(SHARDS, dim, 2 * dim)) / np.sqrt(2 * dim)
        covs = roots @ roots.swapaxes(1, 2) + 0.3 * np.eye(dim)
        means = 0.5 * rng.normal(size=(SHARDS, dim))
        precisions = np.linalg.inv(covs)
        cov = np.linalg.inv(precisions.sum(axis=0))
        mean = cov @ np.einsum("sij,sj->i", precisions, means)
        shards = [
            rng.multivariate_normal(*moments, 2000) for moments in zip(means, covs, strict=True)
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CombinationWarning)
            found = quorate.combine(shards, rule, seed=repetition).draws.mean(axis=0)
        errors.append((found - mean) / np.sqrt(np.diagonal(cov)))
    return float(np.sqrt(np.square(errors).mean()))


def line(case: Case, name: str, draws: Array) -> str:
    """A line of the table: total variation and errors of moments."""
    masses = case.posterior()
    others = [tuple(set(range(masses.ndim)) - {j}) for j in range(masses.ndim)]
    exact = [masses.sum(axis=axes) for axes in others]
    means = np.array([p @ axis for p, axis in zip(exact, case.axes, strict=True)])
    squares = np.array([p @ axis**2 for p, axis in zip(exact, case.axes, strict=True)])
    sds = np.sqrt(squares - means**2)
    off = np.abs(draws.mean(axis=0) - means) / sds
    ratios = draws.std(axis=0) / sds
    shown = [" ".join(f"{x:.2f}" for x in values) for values in (off, ratios)]
    return f"| {case.name} | {name} | {distance(case, draws):.2f} | {shown[0]} sd | {shown[1]} |"


def distance(case: Case, draws: Array) -> float:
    """Total variation between posterior and draws over bins of the picture: 30, or 15 x 15."""
    n_bins = 30 if len(case.axes) == 1 else 15
    edges = [np.linspace(*limits, n_bins + 1) for limits in case.limits]
    points = np.stack(np.meshgrid(*case.axes, indexing="ij"), axis=-1).reshape(-1, len(edges))
    exact = np.histogramdd(points, edges, weights=case.posterior().ravel())[0]
    drawn = np.histogramdd(draws, edges)[0] / len(draws)
    outside = abs(exact.sum() - drawn.sum())
    return float(np.abs(exact - drawn).sum() + outside) / 2


def picture(case: Case, shards: list[Array], found: dict[str, Array]) -> Figure:
    """Subposteriors, and the result of each rule, against the posterior."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey=True).ravel()
    draw = draw_line if len(case.axes) == 1 else draw_plane
    for axes, (name, draws) in zip(panels[1:], found.items(), strict=True):
        draw(axes, case, [draws], RULE)
        axes.set_title(name, fontsize=11)
    draw(panels[0], case, shards, SHARD)
    panels[0].set_title("subposteriors, and the posterior", fontsize=11)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_line(axes: Axes, case: Case, sets: list[Array], colour: str) -> None:
    """Histograms of one coordinate; the posterior's density as a line."""
    (grid,), limits = case.axes, case.limits[0]
    edges = np.linspace(*limits, 61)
    for draws in sets:
        heights = np.histogram(draws[:, 0], edges)[0] / len(draws) / (edges[1] - edges[0])
        if len(sets) == 1:
            axes.stairs(heights, edges, fill=True, color=colour, alpha=0.45)
        else:
            axes.stairs(heights, edges, color=colour, lw=1.0)
    density = case.posterior() / (grid[1] - grid[0])
    axes.plot(grid, density, color=TRUTH, lw=1.5)
    axes.set(xlim=limits, ylim=(0, 1.2 * density.max()), yticks=[])
    axes.spines["left"].set_visible(False)


def draw_plane(axes: Axes, case: Case, sets: list[Array], colour: str) -> None:
    """Points of two coordinates; lines around 50 % and 95 % of the posterior."""
    for draws in sets:
        some = draws[:: max(1, len(sets) * len(draws) // 1000)]
        axes.plot(*some.T, ".", color=colour, ms=3.5, mew=0, alpha=0.6)
    masses = case.posterior()
    ranked = np.sort(masses, axis=None)[::-1]
    levels = [ranked[np.searchsorted(np.cumsum(ranked), share)] for share in (0.95, 0.5)]
    axes.contour(*case.axes, masses.T, levels=levels, colors=TRUTH, linewidths=1.2)
    axes.set(xlim=case.limits[0], ylim=case.limits[1])


if __name__ == "__main__":
    main()
