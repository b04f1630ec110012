"""C-CMC with decoded precisions in the paper's experiment: its error, its floats and its checks."""

from collections.abc import Callable

import numpy as np

from quorate.engines.latency import Pareto
from quorate.engines.virtual import engine as virtual
from quorate.lab.error import relative_error, second_moment
from quorate.merging.consensus import consensus_weights, merge
from quorate.models.gaussian import paper_subposteriors
from quorate.numerics.moments import Moments
from quorate.numerics.streams import Streams
from quorate.protocol.coding import code as coding
from quorate.protocol.coordinator import Coordinator
from quorate.protocol.ledger import Merging
from quorate.protocol.messages import Block, Task
from quorate.protocol.scheme import Scheme
from quorate.protocol.schemes.cmc import PlainCMC
from quorate.protocol.schemes.coded import CodedCMC
from quorate.protocol.schemes.exact_sums import ExactCodedCMC
from quorate.protocol.schemes.grouped import GroupedCMC

K, R, DIM, TIME = 40, 4, 5, 3.0
REALISATIONS = 200
RIDGES = (10.0, 1.0, 0.1, 0.0)
SUBPOSTERIORS = paper_subposteriors(K, DIM)
EXPECTED = SUBPOSTERIORS.posterior_second_moment()
CODE = coding.grouped(K, R)


def main() -> None:
    """Print all three."""
    errors()
    bandwidth()
    faults()


def cluster(realisation: int) -> virtual.Cluster:
    """That of the paper."""
    return virtual.Cluster(Pareto(0.1, 1.2), SUBPOSTERIORS, Streams(0, realisation))


def error(draws: np.ndarray) -> float:
    """Of eq. (3)."""
    return float(relative_error(second_moment(draws), EXPECTED))


def errors() -> None:
    """Beside what CMC's weights give on the released draws, all of them known."""
    print(f"Error at t = {TIME:g}, K = {K}, r = {R}, grouped code, {REALISATIONS} realisations")
    print("  ridge   exact   CMC's weights   ratio (target: at most 1.10)   the paper's D̂")
    for ridge in RIDGES:
        exact, cmc, paper, n_released = [], [], [], []
        for realisation in range(REALISATIONS):
            scheme = ExactCodedCMC(CODE, DIM, ridge)
            virtual.run(Coordinator(scheme), cluster(realisation), TIME)
            n_released.append(scheme.n_complete)
            if not scheme.n_complete:
                continue
            exact.append(error(scheme.global_draws()))
            lanes = [(shard, 0) for shard in range(K)]
            draws = SUBPOSTERIORS.draws(Streams(0, realisation), lanes, 0, scheme.n_complete)
            weights = consensus_weights(Moments.of(draws).covariance(ridge))
            cmc.append(error(merge(weights, np.swapaxes(draws, 0, 1))))
            if ridge:
                estimated = CodedCMC(CODE, DIM, ridge, K / ridge)
                virtual.run(Coordinator(estimated), cluster(realisation), TIME)
                paper.append(error(estimated.global_draws()))
        ratio = np.mean(exact) / np.mean(cmc)
        by_paper = f"{np.mean(paper):.3f}" if paper else "–"
        print(
            f"  {ridge:5g}   {np.mean(exact):.3f}   {np.mean(cmc):.3f}           "
            f"{ratio:.3f}                          {by_paper}"
        )
    below = sum(0 < n < scheme.floor for n in n_released)
    print(
        f"  released by then: {np.mean(np.array(n_released) > 0):.0%} of realisations; "
        f"{below} with fewer draws than the floor of {scheme.floor}"
    )


def bandwidth() -> None:
    """Counted from what was sent."""
    print(f"Floats received for each global draw, K = {K}, d = {DIM}; and for each worker's draw")
    variants: list[tuple[str, Callable[[int], Scheme]]] = [
        ("CMC", lambda n: PlainCMC(K, Merging(10.0))),
        (f"G-CMC, r = {R}", lambda n: GroupedCMC(K, R, Merging(10.0))),
        (f"C-CMC, r = {R}, estimated", lambda n: CodedCMC(CODE, DIM, 10.0, K / 10)),
        ("  exact, end known", lambda n: ExactCodedCMC(CODE, DIM, 10.0, last=n)),
        ("  exact, open end", lambda n: ExactCodedCMC(CODE, DIM, 10.0)),
        ("  exact, end known, checked", lambda n: ExactCodedCMC(CODE, DIM, last=n, checked=True)),
    ]
    for n_draws in (100, 1000):
        for name, make in variants:
            scheme = make(n_draws)
            coordinator = Coordinator(scheme, n_draws)
            timeline = virtual.run(coordinator, cluster(0), keep_blocks=True)
            n_floats = sum(block.n_floats for block in timeline.blocks)
            print(
                f"  {n_draws:5} draws   {name:30} {n_floats / n_draws:7.0f} "
                f"{n_floats / len(timeline.block_times):7.1f}"
            )


def faults() -> None:
    """How far holders of a shard may differ by rounding before it is taken for a fault."""
    print("Workers in quarantine or dispute, of 8 (r = 4) whose draws differ by relative noise;")
    print("covariances have condition numbers of up to 10000; means over 20 runs of 60 draws")
    rng = np.random.default_rng(0)
    for noise in (1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-6):
        n_found = [_n_found(noise, rng) for _ in range(20)]
        print(f"  {noise:7.0e}   {np.mean(n_found):.2f}")


def _n_found(noise: float, rng: np.random.Generator, n_draws: int = 60) -> int:
    code, dim = coding.grouped(8, 4), 3
    scheme = ExactCodedCMC(code, dim, checked=True)
    assert scheme.checks is not None
    scales = 10.0 ** rng.uniform(-1, 1, (8, 1, dim))
    rotations = np.linalg.qr(rng.standard_normal((8, dim, dim)))[0]
    draws = rng.standard_normal((8, n_draws, dim)) * scales @ rotations
    for worker, shards in enumerate(scheme.allocation.held):
        theirs = draws * (1 + noise * rng.uniform(-1, 1, draws.shape))
        side = scheme.worker_side
        processed, _ = side.process(theirs[list(shards)], side.start([None] * 4))
        task = Task(worker, shards, 0, 0, n_draws)
        scheme.receive(Block(task, 0, *side.encode(worker, processed)))
    in_dispute = {worker for who in scheme.checks.disputed for worker in who}
    return len(in_dispute | scheme.quarantined.keys())


if __name__ == "__main__":
    main()
