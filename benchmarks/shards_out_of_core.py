"""Peak memory and time of sharding a Parquet file that is larger than the memory allowed for it.

The file is written to a temporary folder first. Each step is a process of its own, so that peaks
do not mix: `ru_maxrss` of a process counts what it was started from.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

N_ROWS, N_COLUMNS, N_SHARDS = 10_000_000, 20, 16
_CHUNK = 500_000
_LIMIT_MIB = 1024


def write_parquet(path: str) -> None:
    """Standard normals, in chunks."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    schema = pa.schema([(f"x{i}", pa.float64()) for i in range(N_COLUMNS)])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for _ in range(N_ROWS // _CHUNK):
            columns = [rng.standard_normal(_CHUNK) for _ in range(N_COLUMNS)]
            writer.write_table(pa.table(columns, schema=schema))


def shard(path: str, folder: str) -> None:
    """What is measured; prints it as JSON."""
    from quorate.data.write import write_shards

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    wall, cpu = time.perf_counter(), time.process_time()
    shards = write_shards(path, N_SHARDS, folder)
    measured = {
        "rows": sum(shards.n_rows),
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "before_mib": before,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(measured))


def main() -> None:
    """10 million rows of 20 floats: 1.5 GiB, sharded in less than 1 GiB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        in_process("write_parquet", str(path))
        size = path.stat().st_size / 2**20
        measured = json.loads(in_process("shard", str(path), str(Path(folder) / "shards")))
    print(f"{measured['rows']:,} rows x {N_COLUMNS} float64 into {N_SHARDS} shards, from Parquet")
    print(f"  file {size:,.0f} MiB; peak memory {measured['peak_mib']:,.0f} MiB", end=" ")
    print(f"({measured['before_mib']:,.0f} of it numpy and imports); limit {_LIMIT_MIB:,}")
    print(f"  wall {measured['wall_s']:.1f} s, CPU {measured['cpu_s']:.1f} s")
    sys.exit(measured["peak_mib"] >= _LIMIT_MIB)


def in_process(step: str, *arguments: str) -> str:
    """Run one of the steps above by itself; what it printed."""
    command = [sys.executable, __file__, step, *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603


if __name__ == "__main__":
    steps = {"write_parquet": write_parquet, "shard": shard}
    if sys.argv[1:]:
        steps[sys.argv[1]](*sys.argv[2:])
    else:
        main()
