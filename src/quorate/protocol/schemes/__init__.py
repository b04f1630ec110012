"""The schemes: who holds what, what a worker sends, when a global draw is there.

One file for each algorithm box of the paper, and one for ours, in the order of the box: data
allocation, at worker k, at the server. A scheme is pure: it knows no engine, clock or process.
"""

from collections.abc import Callable

from quorate.errors import require
from quorate.merging.pairing import check_pairing
from quorate.numerics.linalg import check_ridge
from quorate.protocol.allocation import check_sizes
from quorate.protocol.coding.code import make_code
from quorate.protocol.scheme import Scheme
from quorate.protocol.schemes.adaptive import AdaptiveCMC
from quorate.protocol.schemes.cmc import CMC
from quorate.protocol.schemes.coded import CodedCMC
from quorate.protocol.schemes.exact_sums import ExactCodedCMC, shrunk
from quorate.protocol.schemes.grouped import GroupedCMC

SCHEMES = ("cmc", "grouped", "coded", "adaptive")
GENIE = "genie"  # `adaptive` with every shard at every worker: a limit, for simulations
PRECISIONS = ("exact", "estimated")
COV_RIDGE = 10.0  # the paper gives no σ²; this is its authors'


def scheme_maker(
    scheme: str,
    n_workers: int,
    redundancy: int,
    dim: int,
    cov_ridge: float,
    precision_ridge: float | None = None,
    code: str = "grouped",
    *,
    pairing: str | None = None,
    gap: int | None = None,
    block_size: int = 1,
    seed: int = 0,
    weights: str = "draws",
    precision: str = "estimated",
    checked: bool = False,
    floor: int | None = None,
    last: int | None = None,
) -> Callable[[], Scheme]:
    """A function that makes a new scheme for each run.

    Parameters
    ----------
    scheme
        One of `SCHEMES`.
    n_workers, redundancy
        K and r. CMC has r = 1, whatever is said here.
    dim
        d.
    cov_ridge
        σ² on every Ĉ.
    precision_ridge
        σ² on D̂ of C-CMC. By default K / `cov_ridge`, which is right for the first draw.
    code
        One of `quorate.protocol.coding.code.CODES`, for C-CMC.
    pairing
        One of `quorate.merging.pairing.PAIRINGS`. By default "all" for the adaptive scheme and
        "paper" for
        those of the paper, of which C-CMC knows no other.
    gap, block_size
        Of the adaptive scheme; see `quorate.protocol.schemes.adaptive.AdaptiveCMC`.
    seed
        Of all that a scheme does at random.
    precision
        One of `PRECISIONS`, for C-CMC: whether ΣĈ⁻¹ is estimated, as in the paper, or decoded.
    checked, floor, last
        Of C-CMC with exact precision; see `quorate.protocol.schemes.exact_sums.ExactCodedCMC`.
    weights
        What Ĉ is estimated from, one of `quorate.protocol.ledger.WEIGHTS`; not for estimated
        precision.
    """
    require(scheme in SCHEMES, "scheme", scheme, f"choose one of {', '.join(SCHEMES)}")
    check_sizes(n_workers, redundancy)
    check_ridge("cov_ridge", cov_ridge)
    if precision_ridge is None:
        precision_ridge = n_workers / cov_ridge if cov_ridge else 0.0
    check_ridge("precision_ridge", precision_ridge)
    pairing = pairing or ("all" if scheme == "adaptive" else "paper")
    check_pairing(pairing)
    require(
        gap is None or scheme == "adaptive", "gap", gap, "only the adaptive scheme has spare slots"
    )
    if scheme == "cmc":
        return lambda: CMC(n_workers, cov_ridge, pairing, seed, weights)
    if scheme == "grouped":
        return lambda: GroupedCMC(n_workers, redundancy, cov_ridge, pairing, seed, weights)
    if scheme == "adaptive":
        return lambda: AdaptiveCMC(
            n_workers,
            redundancy,
            cov_ridge,
            block_size=block_size,
            gap=gap,
            pairing=pairing,
            seed=seed,
            weights=weights,
        )
    require(
        pairing == "paper", "pairing", pairing, "coded draws are sums, which cannot be paired again"
    )
    gradient_code = make_code(code, n_workers, redundancy)
    require(precision in PRECISIONS, "precision", precision, f"choose {' or '.join(PRECISIONS)}")
    if precision == "exact":
        return lambda: ExactCodedCMC(
            gradient_code,
            dim,
            cov_ridge,
            floor=floor,
            last=last,
            checked=checked,
            estimate=shrunk if weights == "shrunk" else None,
        )
    require(not checked, "checked", checked, "answers are checked with precision='exact' only")
    return lambda: CodedCMC(gradient_code, dim, cov_ridge, precision_ridge)


def as_run(scheme: str, n_workers: int, redundancy: int) -> tuple[str, int]:
    """What is run in virtual time, with which redundancy: CMC has r = 1, the genie r = K."""
    if scheme == GENIE:
        return "adaptive", n_workers
    return scheme, 1 if scheme == "cmc" else redundancy
