"""CPU time of merging draws of shards, beside the bare matrix product and a loop."""

import numpy as np

from quorate.merging.consensus import merge
from timing import cpu_seconds

N_SHARDS, N_DRAWS, DIM = 40, 10_000, 100
_LOOPED = 1_000  # draws that the loop is timed on


def main() -> None:
    """40 shards, 10,000 draws, 100 dimensions: 8 Gflop."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((N_SHARDS, DIM, DIM)) / DIM
    draws = rng.standard_normal((N_DRAWS, N_SHARDS, DIM))
    side_by_side = draws.reshape(N_DRAWS, N_SHARDS * DIM)
    stacked = np.ascontiguousarray(np.swapaxes(weights, 1, 2).reshape(N_SHARDS * DIM, DIM))
    assert np.allclose(merge(weights, draws)[:50], loop(weights, draws[:50]))
    bare = cpu_seconds(lambda: side_by_side @ stacked, repeat=5)
    ours = cpu_seconds(lambda: merge(weights, draws), repeat=5)
    looped = cpu_seconds(lambda: loop(weights, draws[:_LOOPED])) * N_DRAWS / _LOOPED
    print(f"Merging {N_SHARDS} shards x {N_DRAWS:,} draws x {DIM} dimensions; CPU seconds")
    print(f"  merge                    {ours:6.3f}")
    print(f"  bare matrix product      {bare:6.3f}  merge runs at {bare / ours:.0%} of its speed")
    print(f"  loop over draws, shards  {looped:6.3f}  {looped / ours:.0f} times as long")


def loop(weights: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """The same, one draw and one shard at a time."""
    merged = np.zeros((len(draws), DIM))
    for draw in range(len(draws)):
        for shard in range(N_SHARDS):
            merged[draw] += weights[shard] @ draws[draw, shard]
    return merged


if __name__ == "__main__":
    main()
