"""The interface of a model: log densities of an unconstrained vector, and names."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from quorate._types import Array
from quorate._warnings import warn
from quorate.errors import DeviceWarning

Shard = Mapping[str, NDArray[Any]]  # the rows of one shard: arrays of equal length, rows first


class Model(Protocol):
    """A posterior that factors over rows, on unconstrained points x of shape (dim,)."""

    @property
    def dim(self) -> int:
        """Number of coordinates d."""

    @property
    def names(self) -> tuple[str, ...]:
        """One name for each unconstrained coordinate."""

    def initial(self) -> Array:
        """The start of the search for the mode, shape (dim,)."""

    def log_prior(self, x: Array) -> float:
        """Log prior of the unconstrained point, Jacobian included."""

    def log_likelihood(self, x: Array, shard: Shard) -> float:
        """Log-likelihood of the rows of a shard."""

    def constrain(self, draws: Array) -> dict[str, Array]:
        """Named variables on their natural scale: (n, dim) to `(n, *shape)` each."""


def compiles(model: Model) -> bool:
    """Whether a worker compiles the model before its first answer, which may take long."""
    return bool(getattr(model, "is_compiled", False))


def runs_in_threads(model: Model) -> bool:
    """Whether several threads may evaluate the model at the same time, each on another shard."""
    return bool(getattr(model, "runs_in_threads", False))


def for_workers(model: Model) -> Model:
    """The model without what workers do not need: the encoding of a formula brings pandas along."""
    lighter: Callable[[], Model] | None = getattr(model, "without_encoding", None)
    return model if lighter is None else lighter()


def on_device(model: Model) -> Model:
    """The model for a worker that computes on a device of JAX; with a warning if it cannot."""
    moved: Callable[[], Model] | None = getattr(model, "on_device", None)
    if moved is None and not compiles(model):
        warn(
            f"{type(model).__name__} is evaluated by numpy, on a core: a device is of no use to "
            "it. Write it for JAX, as with `from_functions(..., backend='jax')`.",
            DeviceWarning,
        )
    return model if moved is None else moved()


class DifferentiableModel(Model, Protocol):
    """A model with gradients."""

    def log_prior_and_gradient(self, x: Array) -> tuple[float, Array]:
        """The log prior and its gradient, shape (dim,)."""

    def log_likelihood_and_gradient(self, x: Array, shard: Shard) -> tuple[float, Array]:
        """The log-likelihood and its gradient, shape (dim,)."""


class BatchedModel(Model, Protocol):
    """A model that is evaluated at many points at once: `points` is (n, dim).

    Values may be NaN or infinite at some points, where the one-point functions would raise. An
    error that is raised is one of all points together.
    """

    def log_prior_many(self, points: Array) -> Array:
        """`log_prior` of each point, shape (n,)."""

    def log_likelihood_many(self, points: Array, shard: Shard) -> Array:
        """`log_likelihood` of each point, shape (n,)."""


class BatchedDifferentiableModel(DifferentiableModel, Protocol):
    """A model whose gradients, too, are evaluated at many points at once."""

    def log_prior_and_gradient_many(self, points: Array) -> tuple[Array, Array]:
        """Log priors, shape (n,), and their gradients, shape (n, dim)."""

    def log_likelihood_and_gradient_many(self, points: Array, shard: Shard) -> tuple[Array, Array]:
        """Log-likelihoods, shape (n,), and their gradients, shape (n, dim)."""


@runtime_checkable
class SearchingModel(Protocol):
    """A model that fits each shard by itself.

    A recipe is an array that says how a shard was prepared. A holder that follows it need not
    search, and its answers have the same bits.
    """

    def rough_fit(self, shard: Shard, n_shards: float) -> tuple[Array, Array]:
        """Mode (dim,) and covariance (dim, dim) of the subposterior of a shard."""

    def recipe(self, shard: Shard) -> Array | None:
        """How the shard was prepared; None if that takes no search."""

    def prepare_by(self, recipe: Array, shard: Shard) -> None:
        """Prepare a shard as another holder did, unless it is prepared."""


class TraceableModel(Model, Protocol):
    """A model whose log densities JAX can trace, compile and differentiate."""

    def jax_log_prior(self, x: Any) -> Any:
        """`log_prior` of a JAX array."""

    def jax_log_likelihood(self, x: Any, shard: Mapping[str, Any]) -> Any:
        """`log_likelihood` of JAX arrays."""
