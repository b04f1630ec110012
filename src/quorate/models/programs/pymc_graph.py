"""The graph of a PyMC model on an unconstrained vector, with rows as inputs.

Data are shared variables or constants of the graph. They are replaced by fresh inputs before
anything is compiled; otherwise PyTensor would silently ignore rows that are passed as inputs.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quorate._extras import load
from quorate._types import Array
from quorate.errors import require
from quorate.models.arrays import indexed
from quorate.models.programs.jaxed_many import ManyPoints, rows_in
from quorate.models.protocol import Shard
from quorate.models.rows import Seeds
from quorate.models.splitting import PER_ROW, Split


@dataclass(frozen=True)
class Graph:
    """A PyMC model on an unconstrained vector, compiled at first use in each process.

    Parameters
    ----------
    model, split
        As the user gave them.
    roles
        Role of each potential: prior or likelihood.
    shapes
        Shape of the unconstrained value of each latent variable, in the order of the vector.
    mode
        PyTensor's compilation mode.
    """

    model: Any
    split: Split
    roles: Mapping[str, str]
    shapes: tuple[tuple[int, ...], ...]
    mode: str | None = None

    @cached_property
    def prior(self) -> Callable[..., Any]:
        """Function of x: the log prior and its gradient."""
        return self._compile([self.log_prior], self.mode, gradient=True)

    @cached_property
    def prior_alone(self) -> Callable[..., Any]:
        """Function of x: the log prior."""
        return self._compile([self.log_prior], self.mode)

    @cached_property
    def likelihood(self) -> Callable[..., Any]:
        """Function of x and rows: the log-likelihood and its gradient."""
        return self._compile([self.log_likelihood], self.mode, gradient=True, rows=True)

    @cached_property
    def likelihood_alone(self) -> Callable[..., Any]:
        """Function of x and rows: the log-likelihood."""
        return self._compile([self.log_likelihood], self.mode, rows=True)

    @cached_property
    def natural(self) -> tuple[tuple[str, ...], Callable[..., Any]]:
        """Names of variables, and the function of x with their values on the natural scale."""
        return self.names, self._compile(self._shown, self.mode)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables that do not depend on rows."""
        return tuple(str(variable.name) for variable in self._shown)

    @property
    def _shown(self) -> list[Any]:
        kept = {rv.name for rv in self.model.free_RVs}
        kept |= {variable.name for variable in self.model.deterministics}
        inputs = set(self.row_variables)
        return [
            variable
            for variable in self.model.unobserved_value_vars
            if variable.name in kept and not inputs & ancestors(variable)
        ]

    def many(self, name: str, points: Array, shard: Shard | None = None) -> list[Array]:
        """Outputs of the function `name` at `points` (n, d), for graphs in mode JAX."""
        compiled = getattr(self, name)
        arrays = [] if shard is None else list(self.split.restored(shard).values())
        shared = [cell.value for cell in compiled.input_storage[1 + len(arrays) :]]
        n_rows = 1 if shard is None else rows_in(shard)
        if name not in self._many:
            jitted = compiled.vm.jit_fn  # of x, rows, and arrays that are not cut
            self._many[name] = ManyPoints(lambda x, inputs: jitted(x, *inputs))
        return list(self._many[name](points, [*arrays, *shared], n_rows))

    @cached_property
    def _many(self) -> dict[str, ManyPoints]:
        return {}

    @property
    def log_prior(self) -> Any:
        """Symbolic log prior of the unconstrained point, Jacobian included."""
        return self.model.varlogp + self._potentials("prior")

    @property
    def log_likelihood(self) -> Any:
        """Symbolic log-likelihood of the data."""
        terms = observed_terms(self.model, self.fresh)
        return sum(term.sum() for term in terms) + self._potentials("likelihood")

    @property
    def likelihood_parts(self) -> list[Any]:
        """Symbolic potentials that belong to the likelihood, as arrays."""
        return self._potential_arrays("likelihood")

    def compiled(self, outputs: list[Any], *, random: bool = False) -> Callable[..., Any]:
        """Function of x and rows. One that draws is compiled in PyTensor's default mode."""
        return self._compile(outputs, None if random else self.mode, rows=True)

    @property
    def row_variables(self) -> list[Any]:
        """The variables of the graph that hold the data."""
        return [data_of(self.model)[name] for name in self.split.names]

    @cached_property
    def fresh(self) -> dict[Any, Any]:
        """Inputs that replace the data; the number of rows is left open."""
        named = zip(self.split.names, self.row_variables, strict=True)
        return {variable: open_input(variable, name) for name, variable in named}

    def _potentials(self, role: str) -> Any:
        return sum(potential.sum() for potential in self._potential_arrays(role))

    def _potential_arrays(self, role: str) -> list[Any]:
        potentials = self.model.replace_rvs_by_values(self.model.potentials)
        pairs = zip(self.model.potentials, potentials, strict=True)
        return [value for variable, value in pairs if self.roles[variable.name] == role]

    def _compile(
        self,
        outputs: list[Any],
        mode: str | None,
        *,
        gradient: bool = False,
        rows: bool = False,
    ) -> Callable[..., Any]:
        pytensor = load("pytensor", "pymc")
        tensor = pytensor.tensor
        x, replacements, start = tensor.vector("x", dtype="float64"), {}, 0
        for value, shape in zip(self.model.value_vars, self.shapes, strict=True):
            size = int(np.prod(shape))
            replacements[value] = x[start : start + size].reshape(shape).astype(value.dtype)
            start += size
        if rows:
            replacements |= self.fresh
        replacements |= widened(outputs)
        flat = replaced(outputs, replacements)
        if gradient:
            flat.append(pytensor.grad(flat[0], x, disconnected_inputs="ignore"))
        inputs = [x, *self.fresh.values()] if rows else [x]
        return compiled(inputs, flat, mode)

    def __getstate__(self) -> dict[str, Any]:
        compiled = {"fresh", "prior", "prior_alone", "likelihood", "likelihood_alone", "natural"}
        compiled.add("_many")
        return {name: value for name, value in vars(self).items() if name not in compiled}


def observed_terms(model: Any, fresh: Mapping[Any, Any]) -> list[Any]:
    """Symbolic log densities of observed variables, whose data are replaced by `fresh` inputs."""
    logprob = load("pymc.logprob.basic", "pymc")
    values = dict(model.rvs_to_values)
    observed = []
    for rv in observed_in(model):
        value = values.pop(rv)
        new = fresh.get(value, value)
        observed.append(rv if new is value else resized(rv, new))
        values[observed[-1]] = new
    transforms = dict(model.rvs_to_transforms) | dict.fromkeys(observed)
    terms: list[Any] = logprob.transformed_conditional_logp(
        observed, rvs_to_values=values, rvs_to_transforms=transforms
    )
    return terms


def open_input(variable: Any, name: str) -> Any:
    """An input of the same type as a variable, whose shape is left open but for axes of length 1.

    Such axes are stretched by the graph, which must therefore know them.
    """
    tensor = load("pytensor.tensor", "pymc")
    shape = tuple(1 if length == 1 else None for length in variable.type.shape)
    return tensor.TensorType(variable.dtype, shape=shape)(name)


def observed_in(model: Any) -> list[Any]:
    """Observed variables, each once.

    PyMC 5.28 appends to its own list of them when it predicts from draws with observed data.
    """
    return [rv for rv in dict.fromkeys(model.observed_RVs) if rv in model.rvs_to_values]


def data_of(model: Any) -> dict[str, Any]:
    """Arrays that may be cut: `pm.Data`, and observed values by the name of their variable."""
    shared = {variable.name: variable for variable in model.data_vars}
    observed = {
        rv.name: model.rvs_to_values[rv]
        for rv in observed_in(model)
        if model.rvs_to_values[rv] not in shared.values()
    }
    return {**observed, **shared}


def value_of(variable: Any) -> Any:
    """The value of a shared variable or a constant."""
    if hasattr(variable, "get_value"):
        return variable.get_value(borrow=True)
    return np.asarray(variable.eval())


def resized(rv: Any, value: Any) -> Any:
    """An observed variable, resized to the rows of its new value."""
    shapes = load("pymc.distributions.shape_utils", "pymc")
    n_axes = value.ndim - rv.owner.op.ndim_supp
    return shapes.change_dist_size(rv, [value.shape[axis] for axis in range(n_axes)])


def compiled(inputs: list[Any], outputs: list[Any], mode: str | None) -> Callable[..., Any]:
    """A PyTensor function, by PyMC's own compile: impossible parameters have log density -inf."""
    with warnings.catch_warnings():
        # PyTensor 3 warns in mode JAX that it cannot check shapes, which inputs leave open.
        warnings.filterwarnings("ignore", "Skipping .* Op", UserWarning)
        made: Callable[..., Any] = load("pymc", "pymc").compile(
            inputs, outputs, on_unused_input="ignore", allow_input_downcast=True, mode=mode
        )
    return made


def drawn(function: Any, seed: Seeds, *inputs: Any) -> Any:
    """The outputs of a function that draws, with its generators seeded."""
    values = {one: one.get_value(borrow=True) for one in function.get_shared()}
    generators = [one for one, of in values.items() if isinstance(of, np.random.Generator)]
    load("pymc.pytensorf", "pymc").reseed_rngs(generators, seed.tolist())
    return function(*inputs)


def prior_drawing(model: Any, latent: Sequence[Any], mode: str | None = None) -> Any:
    """The function that draws unconstrained values of latent variables from their prior."""
    outputs = []
    for rv in latent:
        transform = model.rvs_to_transforms[rv]
        outputs.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
    return load("pymc", "pymc").compile([], outputs, mode=mode)


def drawn_from_prior(function: Any, seed: Seeds) -> Array:
    """A draw by the function of `prior_drawing`, as a vector."""
    return np.concatenate([np.ravel(part) for part in drawn(function, seed)])


def replaced(outputs: list[Any], new: Mapping[Any, Any]) -> list[Any]:
    """Outputs of a graph in which some variables are replaced by others, of whatever shape."""
    replace = load("pytensor.graph.replace", "pymc")  # where PyTensor 2 and 3 both have it
    flat: list[Any] = replace.clone_replace(outputs, new, rebuild_strict=False)
    return flat


def widened(outputs: list[Any]) -> dict[Any, Any]:
    """Constants in full precision: PyTensor stores 2.5 as float32, so log 2.5 loses digits."""
    pytensor, traversal = (load(name, "pymc") for name in ("pytensor", "pytensor.graph.traversal"))
    wide = {"float32": "float64", "int8": "int64", "int16": "int64"}
    if pytensor.config.floatX != "float64":
        return {}
    return {
        constant: pytensor.tensor.constant(constant.data, dtype=wide[constant.dtype])
        for constant in traversal.ancestors(outputs)
        if isinstance(constant, pytensor.tensor.TensorConstant) and constant.dtype in wide
    }


def ancestors(variable: Any) -> set[Any]:
    """All variables that a variable is computed from."""
    return set(ancestors_in_order(variable))


def ancestors_in_order(variable: Any) -> list[Any]:
    """All variables that a variable is computed from, in an order that the graph decides."""
    return list(load("pytensor.graph.traversal", "pymc").ancestors([variable]))


def refuse_rows_in_prior(model: Any, latent: Sequence[Any], split: Split) -> None:
    """Refuse latent variables whose number or prior depends on what is cut."""
    data, dims = data_of(model), model.named_vars_to_dims
    row_dims = {dims[name][axis] for name, axis in split.axes if name in dims} - {None}
    lengths = {model.dim_lengths[dim] for dim in row_dims if dim in model.dim_lengths}
    sources = {data[name]: name for name in split.names}
    for rv in latent:
        above = ancestors(rv)
        per_row = row_dims & set(dims.get(rv.name, ())) or lengths & above
        require(not per_row, f"Latent variable {rv.name} is one per row. {PER_ROW}")
        used = sorted(name for variable, name in sources.items() if variable in above)
        require(
            not used,
            f"The size or the prior of latent variable {rv.name} depends on {', '.join(used)}, "
            "which is cut, so shards would have different latent variables or priors. Compute what "
            "it needs beforehand, as a number; integrate out latent variables per row.",
        )


def labels_of(
    latent: Sequence[Any], values: Sequence[Any], shapes: Sequence[tuple[int, ...]]
) -> tuple[str, ...]:
    """Names of the unconstrained coordinates of latent variables."""
    labels: list[str] = []
    for rv, value, shape in zip(latent, values, shapes, strict=True):
        kind = value.name.removeprefix(rv.name).strip("_")
        wrap = {"": "{}", "log": "log({})", "logodds": "logit({})"}.get(kind, "free({})")
        labels.extend(wrap.format(label) for label in indexed(rv.name, shape))
    return tuple(labels)
