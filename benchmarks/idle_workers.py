"""What a pass costs the coordinator: workers with nothing to compute, which share a few processes.

The run is a real one, with its journal, its supervisor and its draws: 128 chains of exact draws, so
that a pass is a question of 64 points to each of two ensembles. Only the model takes no time. CPU
seconds are those of the coordinator's process with all its threads. From many runs the cost of a
pass is fitted as a constant, a part for each process and a part for each worker.

With `--ray`, workers live in actors of a Ray cluster on this machine. With `--nodes`, the cluster
has several nodes, all on this machine, and each has one actor with processes of its own.
"""

import os
import resource
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import quorate
from quorate.run.progress import Progress

DIM, DRAWS = 10, 12_800
RUNS = ((16, 4), (16, 16), (100, 4), (100, 32), (400, 4), (400, 32), (1000, 2), (1000, 4),
        (1000, 16), (1000, 32), (1000, 64))  # fmt: skip
ON_RAY = ((16, 2), (16, 16), (48, 4), (200, 4), (200, 8), (1000, 4))
# Workers, nodes, and processes of each node
ON_NODES = ((200, 1, 2), (200, 1, 8), (1000, 1, 4), (1000, 2, 2), (1000, 2, 4), (1000, 4, 2))
ON_LOOPBACK = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Idle:
    """A standard normal prior, and rows that say nothing."""

    dim = DIM
    names = tuple(f"x{i}" for i in range(DIM))

    def initial(self):
        return np.zeros(DIM)

    def log_prior(self, x):
        return float(-0.5 * x @ x)

    def log_likelihood(self, x, shard):
        return 0.0

    def log_prior_many(self, points):
        return -0.5 * np.einsum("ij,ij->i", points, points)

    def log_likelihood_many(self, points, shard):
        return np.zeros(len(points))

    def rough_fit(self, shard, n_shards):
        """Spares the survey its search for a mode."""
        return np.zeros(DIM), n_shards * np.eye(DIM)

    def recipe(self, shard):
        return None

    def prepare_by(self, recipe, shard):
        """Nothing is to be prepared."""

    def constrain(self, draws):
        return {"x": draws}


def cpu() -> float:
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak() -> float:
    """MB of memory that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def per_pass(n_workers: int, engine: quorate.Processes | quorate.Ray) -> tuple[float, float]:
    """CPU ms and elapsed ms of a pass while chains draw."""
    looks: list[tuple[float, float, float]] = []

    def look(progress: Progress) -> None:
        if progress.draws:
            looks.append(((progress.passes or 0) / 2, cpu(), progress.seconds))

    folder = tempfile.mkdtemp()
    try:
        quorate.sample(
            Idle(),
            {"y": np.zeros(n_workers)},
            workers=n_workers,
            draws=DRAWS,
            method="exact",
            engine=engine,
            run_dir=f"{folder}/run",
            progress=look,
            check=False,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (first, *start), (last, *end) = looks[0], looks[-1]
    spent, elapsed = (1000 * (b - a) / (last - first) for a, b in zip(start, end, strict=True))
    return spent, elapsed


@contextmanager
def cluster_of(n_nodes: int) -> Iterator[str]:
    """The address of a Ray cluster of so many nodes, which are all this machine."""
    os.environ.update(ON_LOOPBACK)
    from ray.cluster_utils import Cluster  # reads the environment

    node = {"node_ip_address": "127.0.0.1", "num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        for _ in range(1, n_nodes):
            cluster.add_node(**node)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()


def on_nodes() -> None:
    """Runs with one actor on each node, which adds up the sums of its processes."""
    print("  workers  nodes  processes of each   CPU ms   cores at 10 passes a second   MB")
    for workers, nodes, processes in ON_NODES:
        with cluster_of(nodes) as address:
            engine = quorate.Ray(address, actor_per_node=True, processes_per_node=processes)
            spent, _ = per_pass(workers, engine)
        print(
            f"  {workers:7,}  {nodes:5}  {processes:17}  {spent:7.1f}  {spent / 100:28.2f}"
            f"  {peak():4.0f}",
            flush=True,
        )


def main() -> None:
    """All runs, and the fit."""
    if "--nodes" in sys.argv:
        on_nodes()
        return
    is_ray = "--ray" in sys.argv
    print(f"Idle workers, passes of 2 x 64 points, {DIM} parameters, r = 2")
    print("  workers  processes   CPU ms   elapsed ms   cores at 10 passes a second   MB")
    rows, found = [], []
    for workers, processes in ON_RAY if is_ray else RUNS:
        engine = quorate.Ray(actors=processes) if is_ray else quorate.Processes(processes)
        spent, elapsed = per_pass(workers, engine)
        print(
            f"  {workers:7,}  {processes:9,}  {spent:7.1f}  {elapsed:11.0f}  {spent / 100:28.2f}"
            f"  {peak():4.0f}",
            flush=True,
        )
        rows.append([1.0, processes, workers])
        found.append(spent)
    weights = 1 / np.array(found)  # relative errors are alike
    fit, *_ = np.linalg.lstsq(np.array(rows) * weights[:, None], np.ones(len(found)), rcond=None)
    print(
        "CPU ms of a pass: {:.2f} + {:.3f} for each process + {:.4f} for each worker".format(*fit)
    )


if __name__ == "__main__":
    main()
