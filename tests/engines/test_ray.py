"""Workers as Ray actors: the same draws, on machines that may be lost, and nobody else let in."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections import Counter, defaultdict
from contextlib import closing, suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import quorate
from helpers import chaos, one_way
from helpers.processes import PATIENCE, BrokenModel, MeanModel, ended
from quorate.data.write import ShardSet, write_shards
from quorate.engines.frames import Frame, frames_in, packed_frame
from quorate.engines.options import ENGINES
from quorate.engines.ray.actors import dealt, held_together
from quorate.engines.ray.cluster import Cluster as Connection
from quorate.engines.ray.cluster import _node
from quorate.engines.ray.engine import RayEngine
from quorate.engines.ray.homes import Leaving
from quorate.engines.ray.host import Host
from quorate.engines.ray.own import OwnCluster
from quorate.engines.workers.service import environment, setup_frame, task_frame
from quorate.engines.workers.worker import Job
from quorate.errors import (
    BadInputError,
    DeviceWarning,
    MissingExtraError,
    WorkerFailedError,
)
from quorate.journal import JournalReader, PartAnswered
from quorate.models import logistic
from quorate.protocol.allocation import groups
from quorate.protocol.inquirer import SURVEYS
from quorate.protocol.messages import Block, Task, Values
from quorate.protocol.schemes.cmc import SendDraws
from quorate.results.saved_local import FILE
from quorate.samplers import make_sampler

pytestmark = pytest.mark.xdist_group("ray")  # on one core, so that one cluster serves them all
N_ROWS = 400
TESTS = str(Path(__file__).parents[1])


@pytest.fixture(scope="module")
def cluster():
    """Two nodes, which are both this machine; the second is taken away in the end."""
    surroundings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0" * 64,
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in surroundings.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        # A node that is gone is known to be at once, and one that is stopped never.
        soon = {
            "health_check_period_ms": 300,
            "health_check_failure_threshold": 3,
            "health_check_timeout_ms": 3_600_000,
        }
        options = {
            "include_dashboard": False,
            "node_ip_address": "127.0.0.1",
            "num_gpus": 0,
            "_system_config": soon,
            "resources": {"A": 1},
        }
        cluster = Cluster(initialize_head=True, head_node_args=options)
        cluster.add_node(node_ip_address="127.0.0.1", num_gpus=0, resources={"B": 1})
        wait_until_known(cluster)
        yield cluster
        cluster.shutdown()


def wait_until_known(cluster):
    """To the part of Ray that decides where actors go, which learns of nodes last."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def unknown(node):
        there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
        task = ray.remote(num_cpus=0)(lambda: None).options(scheduling_strategy=there)
        try:
            ray.get(task.remote())
        except ray.exceptions.TaskUnschedulableError:
            return True
        return False

    ray.init(cluster.address, log_to_driver=False, configure_logging=False)
    while any(unknown(node) for node in cluster.list_all_nodes()):
        pass
    ray.shutdown()


@pytest.fixture
def rows(seed):
    z = np.random.default_rng(seed).normal([1.0, -2.0], size=(N_ROWS, 2))
    return {"z": z, "row": np.arange(N_ROWS)}


class Watched(RayEngine):
    """An engine that something happens to when one of its workers has sent a first block or sum."""

    def poll(self, timeout):
        events = super().poll(timeout)
        heard = [event.task.worker for event in events if isinstance(event, Block | Values)]
        if any(self.is_time(worker) for worker in heard):
            self.is_time = lambda worker: False
            self.act()
        return events


@pytest.fixture
def engine(monkeypatch):
    """The class of engines, watched."""
    monkeypatch.setattr("quorate.engines.options.RayEngine", Watched)
    monkeypatch.setattr(Watched, "is_time", lambda engine, worker: True, raising=False)
    monkeypatch.setattr(Watched, "act", lambda engine: None, raising=False)
    return Watched


def job_of(model, shards):
    side, n = SendDraws(), shards.n_shards
    return Job(model, make_sampler("ellipse", 1), side, str(shards.folder), n, 0)


def sample(rows, folder, model=None, **options):
    options = {"workers": 2, "draws": 300, "scheme": "cmc", "progress": False, **options}
    if options.get("method") != "exact":
        options.setdefault("sampler", "ellipse")
    return quorate.sample(model or MeanModel(), rows, run_dir=folder, **options)


def homes_of(engine):
    """The node and the process of every actor that is there, by worker."""
    import ray

    def home(host):
        return ray.get_runtime_context().get_node_id(), os.getpid()

    calls = {k: actor.handle.__ray_call__.remote(home) for k, actor in engine._actors.items()}
    return {k: ray.get(call) for k, call in calls.items()}


@pytest.fixture(scope="module")
def of_processes(tmp_path_factory, seed):
    """Draws of processes that nothing happened to."""
    z = np.random.default_rng(seed).normal([1.0, -2.0], size=(N_ROWS, 2))
    rows = {"z": z, "row": np.arange(N_ROWS)}
    return sample(rows, tmp_path_factory.mktemp("process") / "run").unconstrained


def test_the_draws_are_those_of_processes(cluster, rows, tmp_path, of_processes):
    result = sample(rows, tmp_path / "ray", engine=quorate.Ray(cluster.address))
    assert result.stopped == "done"
    np.testing.assert_array_equal(result.unconstrained, of_processes)


def test_coded_draws_are_those_of_processes(cluster, rows, tmp_path, seed):
    options = {"scheme": quorate.Coded(cov_ridge=1e-4), "seed": seed}
    expected = sample(rows, tmp_path / "process", **options).unconstrained
    options["engine"] = quorate.Ray(cluster.address)
    result = sample(rows, tmp_path / "ray", **options)
    np.testing.assert_array_equal(result.unconstrained, expected)


def test_exact_draws_are_those_of_processes(cluster, rows, tmp_path, seed):
    options = {"method": "exact", "draws": 200, "seed": seed}
    expected = sample(rows, tmp_path / "process", **options).unconstrained
    result = sample(rows, tmp_path / "ray", engine=quorate.Ray(cluster.address), **options)
    np.testing.assert_array_equal(result.unconstrained, expected)


def test_without_gpus_cores_compute_and_this_is_said(cluster, rows, tmp_path, of_processes):
    engine = quorate.Ray(cluster.address, gpus_per_worker=1)
    with pytest.warns(DeviceWarning, match="has too few GPUs for its workers"):
        result = sample(rows, tmp_path / "ray", engine=engine)
    np.testing.assert_array_equal(result.unconstrained, of_processes)


def test_gpus_that_others_hold_are_not_given_out(cluster):
    import ray

    class Holder:  # packed with its code, because actors do not find this file
        def there(self):
            return True

    added = cluster.add_node(node_ip_address="127.0.0.1", num_gpus=2, resources={"G": 1})
    held = None
    try:
        with closing(Connection(cluster.address)) as connection:
            assert connection.free_gpus(cluster.list_all_nodes()[0].node_id) == 0
            held = ray.remote(num_cpus=0, num_gpus=1, resources={"G": 0.1})(Holder).remote()
            ray.get(held.there.remote())
            while connection.free_gpus(added.node_id) != 1:  # Ray tells it a moment later
                pass
    finally:
        cluster.remove_node(added)


def test_local_parameters_are_those_of_processes(cluster, tmp_path, seed):
    table = one_way.table(one_way.rows(np.random.default_rng([seed, 16])))
    options = {"workers": 3, "draws": 128, "progress": False, "check": False}
    result = quorate.sample(one_way.OneWay(), table, run_dir=tmp_path / "run", **options)
    expected, planes = result.local.summary(), ["N001", "N002"]
    (tmp_path / "run" / FILE).unlink()
    engine = quorate.Ray(cluster.address)
    np.testing.assert_array_equal(result.local.summary(engine=engine), expected)
    draws = result.local.draws(planes, engine=engine, workers=2)
    np.testing.assert_array_equal(draws["r_plane"], result.local.draws(planes)["r_plane"])


def test_an_actor_that_is_killed_comes_back(cluster, rows, tmp_path, engine, of_processes):
    engine.is_time = lambda engine, worker: worker == 1
    engine.act = lambda engine: engine._ray.kill(engine._actors[1].handle)
    result = sample(rows, tmp_path / "ray", engine=quorate.Ray(cluster.address))
    assert result.stopped == "done"
    assert [note.what for _, note in result.timeline.notes] == ["lost", "restarted"]
    np.testing.assert_array_equal(result.unconstrained, of_processes)


def test_an_actor_that_is_stopped_is_replaced(cluster, rows, tmp_path, engine, of_processes):
    stopped = []

    def stop(engine):
        _, pid = homes_of(engine)[1]
        stopped.append(os.pidfd_open(pid))
        os.kill(pid, signal.SIGSTOP)

    engine.is_time = lambda engine, worker: worker == 1
    engine.act = stop
    result = sample(rows, tmp_path / "ray", engine=quorate.Ray(cluster.address))
    assert result.stopped == "done"
    assert [note.what for _, note in result.timeline.notes][:2] == ["silent", "restarted"]
    np.testing.assert_array_equal(result.unconstrained, of_processes)
    assert all(ended(pidfd) for pidfd in stopped)


class HeldSampler:
    """`ellipse`, which makes more than one block in a process only if nobody locks a file."""

    name, determinism, n_blocks = "ellipse", "exact", 0

    def __init__(self, path):
        self.path, self.plain = path, make_sampler("ellipse")

    def warm_up(self, target, stream, survey=None):
        return self.plain.warm_up(target, stream, survey)

    def draw(self, target, state, stream, n):
        self.n_blocks += 1
        if self.n_blocks > 1:
            with self.path.open() as file:
                fcntl.flock(file, fcntl.LOCK_SH)
        return self.plain.draw(target, state, stream, n)


@pytest.fixture
def held(tmp_path):
    """A sampler that makes one block in each process, and a function that lets it make more."""
    path = tmp_path / "held"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield HeldSampler(path), lambda: fcntl.flock(file, fcntl.LOCK_UN)


class SlowRows(MeanModel):
    """Takes six seconds for two evaluations on one shard, long after the others."""

    n = 0

    def log_likelihood(self, x, shard):
        self.n += 1
        if self.n in (300, 301) and 7 in shard["row"]:
            time.sleep(6.0)
        return super().log_likelihood(x, shard)


def test_an_actor_that_gets_slow_is_not_replaced(cluster, rows, tmp_path, of_processes):
    result = sample(rows, tmp_path / "ray", SlowRows(), engine=quorate.Ray(cluster.address))
    assert result.timeline.notes == []
    np.testing.assert_array_equal(result.unconstrained, of_processes)


def test_holders_of_a_shard_live_on_different_nodes(cluster, rows, tmp_path):
    shards = write_shards(rows, 4, tmp_path / "shards")
    with RayEngine(job_of(MeanModel(), shards), groups(4, 2).held, cluster.address) as engine:
        for worker in range(4):
            engine.start(worker, 0)
        nodes = {worker: node for worker, (node, _) in homes_of(engine).items()}
    assert nodes == engine.placed
    assert nodes[0] != nodes[1]
    assert nodes[2] != nodes[3]


def of_one_node(connection):
    """The first node of a cluster, in place of all of them."""
    nodes = {node["NodeID"]: _node(node) for node in connection.ray.nodes() if node["Alive"]}
    return dict([min(nodes.items())])


@pytest.mark.parametrize("shared", [{}, {"actors": 1}, {"actor_per_node": True}])
def test_rows_that_a_node_does_not_see_are_delivered(
    cluster, rows, tmp_path, engine, monkeypatch, of_processes, shared
):
    was_delivered = []
    engine.act = lambda engine: was_delivered.append(
        any(a.delivered for a in engine._actors.values())
    )

    def elsewhere(folder):
        there = ShardSet.open(folder)
        return replace(there, fingerprints=("another",) * there.n_shards)

    monkeypatch.setattr("quorate.engines.ray.engine.ShardSet", SimpleNamespace(open=elsewhere))
    if "actor_per_node" in shared:  # both workers on one node, in a process each
        monkeypatch.setattr("quorate.engines.ray.engine.Cluster.nodes", of_one_node)
        shared["processes_per_node"] = 2
    result = sample(rows, tmp_path / "ray", engine=quorate.Ray(cluster.address, **shared))
    assert was_delivered == [True]
    np.testing.assert_array_equal(result.unconstrained, of_processes)


@pytest.fixture
def lake(rows, tmp_path):
    """Rows in two files of two row groups."""
    from pyarrow import parquet, table

    for number, part in enumerate(np.array_split(np.arange(N_ROWS), 2)):
        columns = {"a": rows["z"][part, 0], "b": rows["z"][part, 1]}
        file = tmp_path / f"{number}.parquet"
        parquet.write_table(table(columns), file, row_group_size=N_ROWS // 4)
    return tmp_path


def in_place(data, folder, scratch, **options):
    def stacked(columns):
        return {"z": np.column_stack([columns["a"], columns["b"]])}

    cut = quorate.Cut("in-place", transform=stacked, scratch=str(scratch))
    return sample(data, folder, method="exact", by=cut, **options)


def test_rows_in_place_are_read_by_actors(cluster, lake, tmp_path, seed):
    files, scratch = str(lake / "*.parquet"), tmp_path / "scratch"
    engine = quorate.Ray(cluster.address)
    found = in_place(files, tmp_path / "ray", scratch, engine=engine, seed=seed)
    assert list(scratch.iterdir()) == []
    expected = in_place(files, tmp_path / "process", scratch, seed=seed)
    np.testing.assert_array_equal(found.unconstrained, expected.unconstrained)


def test_workers_live_where_the_rows_of_their_site_are(cluster, lake, tmp_path, seed, monkeypatch):
    import ray

    placed, close = [], RayEngine.close

    def closing(engine):
        placed.append((dict(engine.placed), {site: engine._cluster.node_of(site) for site in "AB"}))
        close(engine)

    monkeypatch.setattr(RayEngine, "close", closing)
    sites = {"B": lake / "0.parquet", "A": lake / "1.parquet"}
    engine, scratch = quorate.Ray(cluster.address), tmp_path / "scratch"
    result = in_place(sites, tmp_path / "ray", scratch, engine=engine, seed=seed)
    assert result.redundancy == 1
    for homes, nodes in placed:
        assert homes == {0: nodes["B"], 1: nodes["A"]}
        assert nodes["A"] != nodes["B"]
    assert len(placed) == 2  # to read, and to draw
    with pytest.raises(BadInputError, match="no node of the cluster is the site C"):
        in_place({"C": lake / "0.parquet"}, tmp_path / "c", scratch, workers=1, engine=engine)
    assert not ray.is_initialized()


# ---------------------------------------------------------------- several workers in an actor


@pytest.fixture(scope="module")
def exact_of_processes(tmp_path_factory, seed):
    """Exact draws of four processes that nothing happened to."""
    z = np.random.default_rng(seed).normal([1.0, -2.0], size=(N_ROWS, 2))
    rows = {"z": z, "row": np.arange(N_ROWS)}
    options = {"method": "exact", "workers": 4, "draws": 200, "seed": seed}
    return sample(rows, tmp_path_factory.mktemp("process") / "run", **options).unconstrained


def messages_of_passes(run):
    """How often there was an answer for some shards, by question."""
    with JournalReader(run) as reader:
        found = [record for record in reader.records() if isinstance(record, PartAnswered)]
    by_question = defaultdict(Counter)
    for part in found:
        if part.lane != SURVEYS:
            by_question[part.lane, part.question][part.shards] += 1
    return by_question.values()


@pytest.mark.parametrize("actors", [2, None])
def test_one_sum_of_each_actor_travels(cluster, rows, tmp_path, seed, exact_of_processes, actors):
    engine = quorate.Ray(cluster.address, actors=actors)
    options = {"method": "exact", "workers": 4, "draws": 200, "seed": seed, "scheme": "cmc"}
    result = sample(rows, tmp_path / "ray", engine=engine, **options)
    np.testing.assert_array_equal(result.unconstrained, exact_of_processes)
    shards = {(0, 2), (1, 3)} if actors else {(0,), (1,), (2,), (3,)}
    messages = messages_of_passes(tmp_path / "ray")
    assert all(counts.keys() == shards for counts in messages)
    assert all(len(set(counts.values())) == 1 for counts in messages)  # one for each block


def test_one_sum_of_each_node_travels_and_its_threads_compute_it(
    cluster, tmp_path, seed, engine, monkeypatch
):
    rng, n_threads = np.random.default_rng(seed), []
    rows = {"X": rng.normal(size=(N_ROWS, 2)), "y": rng.integers(0, 2, N_ROWS).astype(float)}

    def ask(engine):
        asked = [
            actor.handle.__ray_call__.remote(lambda host: host._service._n_threads)
            for actor in engine._actors.values()
        ]
        n_threads.extend(engine._ray.get(asked))

    monkeypatch.setattr("quorate.engines.ray.nodes.NodeWatch.cores", lambda watch, node: 3)
    engine.act = ask
    options = {"method": "exact", "workers": 4, "draws": 200, "seed": seed, "scheme": "cmc"}
    per_node = quorate.Ray(cluster.address, actor_per_node=True, processes_per_node=1)
    result = sample(rows, tmp_path / "ray", logistic(2), engine=per_node, **options)
    assert n_threads == [3, 3]
    messages = messages_of_passes(tmp_path / "ray")
    assert all(counts.keys() == {(0, 2), (1, 3)} for counts in messages)
    expected = sample(rows, tmp_path / "process", logistic(2), **options)
    np.testing.assert_array_equal(result.unconstrained, expected.unconstrained)


def test_workers_of_an_actor_that_is_killed_come_back(
    cluster, rows, tmp_path, seed, engine, exact_of_processes
):
    engine.act = lambda engine: engine._ray.kill(engine._actors[1].handle)
    shared = quorate.Ray(cluster.address, actors=2)
    options = {"method": "exact", "workers": 4, "draws": 200, "seed": seed, "scheme": "cmc"}
    result = sample(rows, tmp_path / "ray", engine=shared, **options)
    notes = [(note.worker, note.what) for _, note in result.timeline.notes]
    assert sorted(notes) == [(1, "lost"), (1, "restarted"), (3, "lost"), (3, "restarted")]
    np.testing.assert_array_equal(result.unconstrained, exact_of_processes)


def test_workers_of_an_actor_move_together(cluster, rows, tmp_path, seed, engine, held):
    options = {"workers": 4, "draws": 100, "seed": seed}
    expected = sample(rows, tmp_path / "process", **options).unconstrained
    sampler, let_go = held

    def move(engine):
        told = [[Leaving(1, "told to")]]

        def moves(lives, at_ease):
            let_go()
            return told.pop() if told else []

        engine._homes.moves = moves
        engine._next_look = 0.0

    engine.is_time = lambda engine, worker: worker == 1
    engine.act = move
    per_node = quorate.Ray(cluster.address, actor_per_node=True, processes_per_node=2)
    result = sample(rows, tmp_path / "ray", engine=per_node, sampler=sampler, **options)
    notes = [(note.worker, note.what) for _, note in result.timeline.notes]
    assert notes == [(1, "moved"), (3, "moved")]
    np.testing.assert_array_equal(result.unconstrained, expected)


@pytest.mark.parametrize("shared", [{"actors": 2}, {"actor_per_node": True}])
def test_what_one_worker_raises_is_told_and_blames_that_worker(cluster, rows, tmp_path, shared):
    shared = quorate.Ray(cluster.address, **shared)
    with pytest.raises(WorkerFailedError, match="a row that cannot be") as caught:
        sample(rows, tmp_path / "run", BrokenModel(), engine=shared, workers=4)
    folder = tmp_path / "run" / "shards"
    assert 7 in ShardSet.open(folder).shard(caught.value.shard)["row"]


# ---------------------------------------------------------------- processes of a node


@pytest.fixture
def per_node(cluster):
    """Two processes on each of two nodes: workers 0 and 2 live on one node, 1 and 3 on the other.

    Worker 0 speaks for 2 in passes, and 1 for 3.
    """
    return quorate.Ray(cluster.address, actor_per_node=True, processes_per_node=2)


@pytest.fixture
def exact(seed):
    return {"method": "exact", "workers": 4, "draws": 200, "seed": seed, "scheme": "cmc"}


def in_relay(engine, worker, function):
    """What a function says of the relay that a worker lives behind."""
    handle = engine._actor_of(worker).handle
    return engine._ray.get(handle.__ray_call__.remote(function))


def processes_of(engine):
    """The id of the process of every worker."""

    def pids(worker):
        return in_relay(engine, worker, lambda relay: relay._hosts.pid(worker))

    return {worker: pids(worker) for worker in range(4)}


def signal_to(engine, worker, number):
    """Send the process of a worker a signal."""
    os.kill(processes_of(engine)[worker], number)


def test_processes_of_a_node_add_up_their_sums(
    rows, tmp_path, engine, per_node, exact, exact_of_processes
):
    shards_of_processes, pidfds = [], []

    def look(engine):
        pidfds.extend(os.pidfd_open(pid) for pid in processes_of(engine).values())
        for worker in (0, 1):
            seats = in_relay(engine, worker, lambda relay: sorted(relay._sums._seats.items()))
            shards_of_processes.append(seats)

    def have_all_begun(engine, worker):  # on a busy machine, one node may be far ahead
        return None not in processes_of(engine).values()

    engine.is_time = have_all_begun
    engine.act = look
    result = sample(rows, tmp_path / "ray", engine=per_node, **exact)
    np.testing.assert_array_equal(result.unconstrained, exact_of_processes)
    assert shards_of_processes == [[(0, 0), (2, 1)], [(1, 0), (3, 1)]]
    messages = messages_of_passes(tmp_path / "ray")
    assert all(counts.keys() == {(0, 2), (1, 3)} for counts in messages)
    assert len(pidfds) == 4
    assert all(ended(pidfd) for pidfd in pidfds)


def test_a_process_of_a_node_that_is_killed_loses_only_its_own_workers(
    rows, tmp_path, engine, per_node, exact, exact_of_processes
):
    engine.act = lambda engine: signal_to(engine, 3, signal.SIGKILL)
    result = sample(rows, tmp_path / "ray", engine=per_node, **exact)
    assert [(note.worker, note.what) for _, note in result.timeline.notes] == [
        (3, "lost"),
        (3, "restarted"),
    ]
    np.testing.assert_array_equal(result.unconstrained, exact_of_processes)


def test_a_process_of_a_node_that_is_stopped_holds_no_sum_back(
    rows, tmp_path, engine, per_node, exact, exact_of_processes
):
    """Worker 3 has no task of its own in passes, but a part in each answer of worker 1."""
    engine.act = lambda engine: signal_to(engine, 3, signal.SIGSTOP)
    result = sample(rows, tmp_path / "ray", engine=per_node, **exact)
    assert {note.worker for _, note in result.timeline.notes} <= {3}
    np.testing.assert_array_equal(result.unconstrained, exact_of_processes)


def test_the_processes_of_a_node_end_with_its_actor(
    rows, tmp_path, engine, per_node, exact, exact_of_processes
):
    pidfds = []

    def kill(engine):
        pids = processes_of(engine)
        pidfds.extend(os.pidfd_open(pids[worker]) for worker in (1, 3))
        os.kill(pids[3], signal.SIGSTOP)  # it cannot see the end of its input
        engine._ray.kill(engine._actor_of(1).handle)

    engine.act = kill
    result = sample(rows, tmp_path / "ray", engine=per_node, **exact)
    notes = [(note.worker, note.what) for _, note in result.timeline.notes]
    assert sorted(notes) == [(1, "lost"), (1, "restarted"), (3, "lost"), (3, "restarted")]
    assert all(ended(pidfd) for pidfd in pidfds)
    np.testing.assert_array_equal(result.unconstrained, exact_of_processes)


def test_a_merge_replaces_a_process_of_a_node_that_is_stopped(
    rows, tmp_path, engine, per_node, seed, held
):
    options = {"workers": 4, "draws": 100, "seed": seed}
    expected = sample(rows, tmp_path / "process", **options).unconstrained
    sampler, let_go = held

    def stop(engine):
        signal_to(engine, 3, signal.SIGSTOP)
        let_go()

    engine.is_time = lambda engine, worker: worker == 3
    engine.act = stop
    result = sample(rows, tmp_path / "ray", engine=per_node, sampler=sampler, **options)
    notes = [note for _, note in result.timeline.notes]
    assert [(note.worker, note.what) for note in notes] == [(3, "silent"), (3, "restarted")]
    assert "its process is stopped" in notes[0].details
    np.testing.assert_array_equal(result.unconstrained, expected)


# ---------------------------------------------------------------- sites


@pytest.mark.parametrize("n_processes", [1, 2])
def test_workers_of_a_site_share_its_actor(cluster, lake, tmp_path, seed, monkeypatch, n_processes):
    placed, close = [], RayEngine.close

    def closing(engine):
        nodes = {site: engine._cluster.node_of(site) for site in "AB"}
        homes = {engine._actors[place].node: engine._hosted[place] for place in engine._actors}
        placed.append((homes, nodes))
        close(engine)

    monkeypatch.setattr(RayEngine, "close", closing)
    sites = {"B": lake / "0.parquet", "A": lake / "1.parquet"}
    options = {"workers": 4, "seed": seed}
    many = {"actor_per_node": True, "processes_per_node": n_processes}
    shared = quorate.Ray(cluster.address, **(many if n_processes > 1 else {"actors": 2}))
    found = in_place(sites, tmp_path / "ray", tmp_path / "scratch", engine=shared, **options)
    for homes, nodes in placed:
        assert homes == {nodes["B"]: [0, 1], nodes["A"]: [2, 3]}
    assert len(placed) == 2  # to read, and to draw
    expected = in_place(sites, tmp_path / "process", tmp_path / "scratch", **options)
    np.testing.assert_array_equal(found.unconstrained, expected.unconstrained)


def test_a_run_on_ray_is_gone_on_with_by_processes(cluster, rows, tmp_path, of_processes):
    folder, options = tmp_path / "run", {"engine": quorate.Ray(cluster.address)}
    sample(rows, folder, draws=20, **options)
    result = quorate.resume(folder, draws=300, engine="process", progress=False)
    np.testing.assert_array_equal(result.unconstrained, of_processes)


def test_what_user_code_raises_is_told(cluster, rows, tmp_path):
    options = {"engine": quorate.Ray(cluster.address)}
    with pytest.raises(WorkerFailedError, match="a row that cannot be") as caught:
        sample(rows, tmp_path / "run", BrokenModel(), **options)
    assert "ZeroDivisionError" in caught.value.traceback
    folder = tmp_path / "run" / "shards"
    assert 7 in ShardSet.open(folder).shard(caught.value.shard)["row"]


def test_a_node_that_is_stopped_is_avoided_at_once(cluster, rows, tmp_path, engine, of_processes):
    (node,) = cluster.worker_nodes
    (raylet,) = node.all_processes["raylet"]
    family, restarted_on = [], []

    def stop(engine):
        family.extend(family_of(raylet.process.pid))
        signal_all(family, signal.SIGSTOP)

    def start(engine, worker, attempt):
        RayEngine.start(engine, worker, attempt)
        if attempt:
            restarted_on.append(engine.placed[worker])

    engine.is_time = lambda engine, worker: engine.placed[worker] == node.node_id
    engine.act, engine.start = stop, start
    try:
        options = {"until": quorate.Until(time=PATIENCE), "check": False}
        result = sample(rows, tmp_path / "ray", engine=quorate.Ray(cluster.address), **options)
    finally:
        signal_all(family, signal.SIGCONT)
    assert result.stopped == "done"
    assert restarted_on == [cluster.head_node.node_id]
    np.testing.assert_array_equal(result.unconstrained, of_processes)


def signal_all(pids, number):
    for pid in pids:
        with suppress(ProcessLookupError):  # Ray ends workers that it does not need
            os.kill(pid, number)


def test_a_node_that_is_lost_is_done_without(cluster, rows, tmp_path, engine, of_processes):
    (node,) = cluster.worker_nodes

    def remove(engine):
        for home, pid in homes_of(engine).values():
            if home == node.node_id:
                os.kill(pid, signal.SIGKILL)  # as they go with a machine, if not by themselves
        cluster.remove_node(node, allow_graceful=False)

    engine.is_time = lambda engine, worker: engine.placed[worker] == node.node_id
    engine.act = remove
    result = sample(rows, tmp_path / "ray", engine=quorate.Ray(cluster.address))
    assert result.stopped == "done"
    assert "lost" in [note.what for _, note in result.timeline.notes]
    np.testing.assert_array_equal(result.unconstrained, of_processes)


# ---------------------------------------------------------------- a cluster of our own

SCRIPT = f"""
import sys
sys.path.insert(0, {TESTS!r})
from helpers.processes import MeanModel
import numpy as np, quorate
rows = {{"z": np.random.default_rng(0).normal(size=(100, 2)), "row": np.arange(100)}}
def tell(progress):
    if progress.draws:
        print("running", flush=True)
result = quorate.sample(MeanModel(), rows, workers=2, draws=10**8, sampler="ellipse", engine="ray",
                        run_dir=sys.argv[1], progress=tell)
print(result.stopped, result.n_draws, flush=True)
"""


@pytest.fixture
def script(tmp_path):
    """A run that starts Ray, in a session of its own, from standard input."""
    command = [sys.executable, "-", str(tmp_path / "run")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as process:
        process.stdin.write(SCRIPT)
        process.stdin.close()
        try:
            assert process.stdout.readline() == "running\n"
            yield process
        finally:
            process.kill()


def family_of(pid):
    """A process, its children, theirs, and so on."""
    family = [pid]
    for member in family:
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            family += map(int, children.read_text().split())
    return family


def sockets_of(pid):
    links = [
        str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()
    ]
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def session_files_of(pid):
    """Files of Ray's session that a process has open."""
    links = [file.readlink() for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()]
    return {link for link in links if "session_" in str(link) and link.exists()}


def listening():
    """Addresses that are listened on, by the inode of the socket."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A":
                words = np.frombuffer(bytes.fromhex(local.split(":")[0]), dtype=">u4")
                found[rest[5]] = ip_address(words.astype("<u4").tobytes())
    return found


def is_loopback(address):
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def test_a_cluster_of_our_own_is_private_and_goes_with_us(script):
    family = family_of(script.pid)
    handles = [os.pidfd_open(pid) for pid in family[1:]]
    theirs = set().union(*map(sockets_of, family))
    addresses = [address for inode, address in listening().items() if inode in theirs]
    assert len(addresses) > 3  # of the head, of the node, of both workers
    assert all(is_loopback(address) for address in addresses)
    files = set().union(*map(session_files_of, family))
    assert files
    for file in files:  # nobody else gets as far as there
        assert any(not folder.stat().st_mode & 0o077 for folder in file.parents)
    os.killpg(script.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
    reason, n_draws = script.stdout.read().splitlines()[-1].split()
    assert reason == "interrupted"
    assert int(n_draws) > 0
    assert all(ended(handle) for handle in handles)
    assert not any(file.exists() for file in files)


def test_a_cluster_of_our_own_does_not_outlive_a_killed_coordinator(script):
    family = family_of(script.pid)
    handles = [os.pidfd_open(pid) for pid in family[1:]]
    files = set().union(*map(session_files_of, family))
    started = time.monotonic()
    script.kill()
    assert all(ended(handle) for handle in handles)
    assert time.monotonic() - started < 20  # Ray's own agents take about a minute to notice
    assert not any(file.exists() for file in files)


def test_chaos(tmp_path, seed):
    """Nasty user code, actors killed and stopped, the coordinator killed: nothing is lost or left.

    One round by default; `QUORATE_CHAOS_ROUNDS` asks for more.
    """
    rounds = int(os.environ.get("QUORATE_CHAOS_ROUNDS", "1"))
    run, rng, earlier = tmp_path / "run", np.random.default_rng(seed), {}
    options = {"scheme": "coded", "workers": 4, "draws": 2_000 * rounds, "sampler": "ellipse"}
    on_ray = {**options, "engine": "ray"}
    for _ in chaos.sittings(run, seed, on_ray, rng, chaos.RaySitting, rounds):
        now = chaos.blocks_of(run)
        for key, draws in earlier.items():
            np.testing.assert_array_equal(now[key][: len(draws)], draws)
        earlier = now
    result = quorate.resume(run, engine="process", progress=False)
    assert result.stopped == "done"
    np.testing.assert_array_equal(result.unconstrained, chaos.undisturbed(seed, options))


def test_why_ray_does_not_start_is_told(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 100)  # too long for the paths of Ray's sockets
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(BadInputError, match=r"could not be started .*AF_UNIX path length"):
        OwnCluster(environment())
    assert not list(deep.iterdir())


def test_a_listener_on_all_addresses_would_be_seen():
    with socket.create_server(("", 0)):
        ours = sockets_of(os.getpid())
        assert not all(is_loopback(a) for inode, a in listening().items() if inode in ours)


# ---------------------------------------------------------------- without Ray


def test_an_actor_asks_for_rows_and_goes_mute_when_code_raises(rows, tmp_path):
    shards = write_shards(rows, 2, tmp_path / "shards")
    host = Host("another fingerprint")
    ready = packed_frame(Frame("host", {"worker": 0, "attempt": 0}))
    answer = frames_in(
        host.turn(packed_frame(setup_frame(job_of(BrokenModel(), shards), {})), ready)
    )
    assert [frame.kind for frame in answer] == ["lacking", "ready"]
    (broken,) = [s for s in range(2) if 7 in shards.shard(s)["row"]]
    host.deliver((broken, dict(shards.shard(broken))))
    task = packed_frame(task_frame(Task(0, (broken,), 0, 0, 10)))
    (failed,) = frames_in(host.turn(task))
    assert (failed.kind, failed.fields["shard"]) == ("failed", broken)
    assert host.turn() == b""


def test_workers_are_dealt_to_actors():
    assert dealt(6, 2, {}) == [[0, 2, 4], [1, 3, 5]]
    assert dealt(3, 5, {}) == [[0], [1], [2]]
    assert held_together([(0, 1), (1, 2), (2, 0)], [[0, 2], [1]]) == [(0, 1, 2), (1, 2)]


def test_workers_of_different_sites_share_no_actor():
    sites = {0: "a", 1: "a", 2: "b", 3: "b", 4: "b", 5: "b"}
    assert dealt(6, 1, sites) == [[0, 1], [2, 3, 4, 5]]
    assert dealt(6, 3, sites) == [[0, 1], [2, 4], [3, 5]]
    assert dealt(6, 6, sites) == [[0], [1], [2], [3], [4], [5]]


def test_there_is_at_least_one_actor():
    with pytest.raises(BadInputError, match="actors must be at least 1, not 0"):
        quorate.Ray(actors=0)
    with pytest.raises(BadInputError, match="actors and actor_per_node exclude each other"):
        quorate.Ray(actors=2, actor_per_node=True)
    with pytest.raises(BadInputError, match="processes_per_node must be at least 1, not 0"):
        quorate.Ray(actor_per_node=True, processes_per_node=0)
    with pytest.raises(BadInputError, match="processes_per_node is for actor_per_node=True"):
        quorate.Ray(processes_per_node=2)


@pytest.mark.parametrize("n_processes", [1, 2])
def test_who_needs_threads_is_told(rows, tmp_path, monkeypatch, n_processes):
    monkeypatch.setattr("quorate.engines.options.RayEngine", lambda *args, **options: None)
    job = job_of(MeanModel(), write_shards(rows, 2, tmp_path / "shards"))
    per_node = quorate.Ray(actor_per_node=True, processes_per_node=n_processes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        per_node.start(job, groups(2, 2), tmp_path, {}, 0.0)
    told = [str(warning.message) for warning in caught]
    assert any("MeanModel does not run in threads" in words for words in told) == (n_processes == 1)


def test_what_to_install(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("quorate._extras.is_installed", lambda module: False)
    with pytest.raises(MissingExtraError, match=r"pip install 'quorate\[ray\]"):
        sample(rows, tmp_path / "run", engine="ray")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("share", [-1.0, 1.5, np.inf, np.nan])
def test_a_worker_has_a_share_of_a_gpu_or_whole_ones(share):
    with pytest.raises(BadInputError, match="gpus_per_worker must be a share up to 1, or a whole"):
        quorate.Ray(gpus_per_worker=share)


def test_options_of_other_engines_are_refused():
    with pytest.raises(BadInputError, match=r"'ray' has no option processes\. Its options are"):
        ENGINES.chosen("ray", {"processes": 2})
