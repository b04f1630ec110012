"""The schemes: who holds what, what a worker sends, when a global draw is there.

One file for each algorithm box of the paper, in the order of the box: data allocation, at worker
k, at the server. A scheme is pure: it knows no engine, no clock and no process.
"""

from collections.abc import Callable

from quorate.allocation import check_sizes
from quorate.coding import make_code
from quorate.errors import require
from quorate.linalg import check_ridge
from quorate.scheme import Scheme
from quorate.schemes.cmc import CMC
from quorate.schemes.coded import CodedCMC
from quorate.schemes.exact import Covariance, ExactCodedCMC
from quorate.schemes.grouped import GroupedCMC

SCHEMES = ("cmc", "grouped", "coded")
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
    precision: str = "estimated",
    checked: bool = False,
    floor: int | None = None,
    last: int | None = None,
    covariance: Covariance | None = None,
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
        One of `quorate.coding.CODES`, for C-CMC.
    precision
        One of `PRECISIONS`, for C-CMC: whether ΣĈ⁻¹ is estimated, as in the paper, or decoded.
    checked, floor, last, covariance
        Of C-CMC with exact precision; see `quorate.schemes.exact.ExactCodedCMC`.
    """
    require(scheme in SCHEMES, "scheme", scheme, f"choose one of {', '.join(SCHEMES)}")
    check_sizes(n_workers, redundancy)
    check_ridge("cov_ridge", cov_ridge)
    if precision_ridge is None:
        precision_ridge = n_workers / cov_ridge if cov_ridge else 0.0
    check_ridge("precision_ridge", precision_ridge)
    if scheme == "cmc":
        return lambda: CMC(n_workers, cov_ridge)
    if scheme == "grouped":
        return lambda: GroupedCMC(n_workers, redundancy, cov_ridge)
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
            covariance=covariance,
        )
    require(not checked, "checked", checked, "answers are checked with precision='exact' only")
    return lambda: CodedCMC(gradient_code, dim, cov_ridge, precision_ridge)
