"""Runs of schemes for tests, as the paper's experiments run them unless said otherwise."""

from quorate.protocol.ledger import Merging
from quorate.protocol.patience import Limits
from quorate.protocol.scheme import Setup
from quorate.protocol.schemes import as_published
from quorate.protocol.schemes.adaptive import AdaptiveCMC
from quorate.protocol.schemes.cmc import PlainCMC
from quorate.protocol.schemes.grouped import GroupedCMC
from quorate.protocol.supervisor import Supervisor


def cmc(n_workers, cov_ridge, **merging):
    return PlainCMC(n_workers, Merging(cov_ridge, **merging))


def grouped(n_workers, redundancy, cov_ridge, **merging):
    return GroupedCMC(n_workers, redundancy, Merging(cov_ridge, **merging))


def adaptive(n_workers, redundancy, cov_ridge, block_size=1, gap=None, **merging):
    merged = Merging(cov_ridge, **{"pairing": "all", **merging})
    return AdaptiveCMC(n_workers, redundancy, merged, block_size=block_size, gap=gap)


def started(scheme, n_workers, redundancy, dim, cov_ridge, *, n_draws=None, seed=0, **options):
    """A run of any scheme by name."""
    given = {"redundancy": redundancy, **options}
    made = as_published(scheme, {"cov_ridge": cov_ridge}, given)
    return made.start(Setup(n_workers, dim, n_draws, seed=seed))


def supervisor_of(coordinator, dim, limits=Limits()):  # noqa: B008 (it is frozen)
    scheme = coordinator.scheme
    return Supervisor(
        coordinator, scheme.worker_side, dim, shares_starts=scheme.shares_starts, limits=limits
    )
