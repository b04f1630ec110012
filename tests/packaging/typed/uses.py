"""Uses the public names as a typed program would: mypy --strict must accept every line."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, assert_type

import numpy as np
from numpy.typing import NDArray

import quorate
from quorate.data.write import ShardSet, write_shards
from quorate.models import Positive, Real, from_functions, logistic

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

rows = {"y": np.zeros(10)}


def log_prior(p: dict[str, float]) -> float:
    return -p["sigma"]


def log_likelihood(p: dict[str, float], shard: dict[str, NDArray[np.float64]]) -> float:
    return -float(np.sum((shard["y"] - p["mu"]) ** 2)) / p["sigma"]


model = from_functions(log_prior, log_likelihood, {"mu": Real(), "sigma": Positive()})
assert_type(model.dim, int)
assert_type(logistic(3).names, tuple[str, ...])

result = quorate.sample(
    model,
    rows,
    workers=4,
    draws=100,
    scheme=quorate.Adaptive(redundancy=2),
    engine=quorate.Processes(2, restarts=0),
    until=quorate.Until(time=60, ess=400),
    by=quorate.Cut("shuffle"),
    faults="slow:1x10",
    method="exact",
    seed=1,
)
assert_type(result, quorate.Result)
assert_type(result.variables, dict[str, NDArray[np.float64]])
assert_type(result.n_draws, int)
assert_type(result.verdict, quorate.Verdict | None)
tree: "xr.DataTree" = result.posterior
figure: "Figure" = result.plot(["mu"])
assert_type(quorate.stream(model, rows, workers=2), Iterator[quorate.Result])
assert_type(quorate.resume("run", draws=200, engine="process"), quorate.Result)

verdict = quorate.check("run", points=500)
word: Literal["good", "usable", "do not trust", "not checked"] = verdict.verdict

plan = quorate.plan("pareto:0.1,1.2", workers=[4, 8], schemes=["cmc", quorate.Coded(redundancy=2)])
assert_type(plan, quorate.Plan)
assert_type(plan.command, str)
assert_type(quorate.simulate("cmc", 4, realisations=5).median, float)
assert_type(quorate.combine([np.zeros((9, 2))] * 2, rule="swiss"), quorate.Combined)
assert_type(write_shards(rows, 2, "shards", by="group:y"), ShardSet)

try:
    quorate.sample(model, rows)
except quorate.BadInputError as error:
    known: quorate.QuorateError = error
