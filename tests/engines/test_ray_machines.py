"""Several machines with a network between them: namespaces, each with its own Ray node and folder.

A machine is killed, its cable is pulled, another is added, one gets two minutes' warning, and the
head is lost. The draws are those of a run that nothing happened to.
"""

import re

import numpy as np
import pandas as pd
import pytest

import quorate
from helpers import machines
from helpers.machines import OWN, SHARED, Network, address_of
from helpers.paced import PacedModel
from helpers.ray_machines import PORT, ROOT, Sitting, all_at_work, drain, start_ray
from quorate.data.cut import Cut
from quorate.journal import WorkerEvent

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(bool(machines.why_not()), reason=machines.why_not()),
]
MODEL = f"{ROOT / 'tests/helpers/paced.py'}:model"
WORKERS, DRAWS = 4, 5000
MERGED = {"scheme": "cmc", "sampler": "ellipse", "draws": DRAWS}
EXACT = {"method": "exact", "draws": 2000}


@pytest.fixture
def network(tmp_path):
    with Network(tmp_path) as network:
        yield network


@pytest.fixture
def shared(tmp_path, network, seed):
    """A folder that all machines see, with the rows."""
    rows = np.random.default_rng(seed).normal([1.0, -2.0], size=(400, 2))
    folder = tmp_path / "shared"
    pd.DataFrame(rows, columns=["a", "b"]).to_parquet(folder / "rows.parquet")
    return folder


@pytest.fixture
def cluster(network):
    """Three machines; the first is the head."""
    joined = [network.add() for _ in range(3)]
    for machine in joined:
        start_ray(machine, joined[0])
    return joined


def sample(head, run, folder, options):
    flags = [word for name, value in options.items() for word in (f"--{name}", value)]
    on_ray = ("--engine", "ray", "--ray-address", f"{address_of(head)}:{PORT}")
    data = SHARED / "rows.parquet"
    of_run = ("--workers", WORKERS, "--run-dir", run)
    return Sitting(head, folder, "sample", MODEL, data, *of_run, *flags, *on_ray)


def undisturbed(shared, options):
    """Draws of the same run on processes of this machine."""
    PacedModel.hurry(shared)
    rows = str(shared / "rows.parquet")
    result = quorate.sample(
        PacedModel(shared),
        rows,
        workers=WORKERS,
        run_dir=shared / "calm",
        progress=False,
        **options,
    )
    assert result.stopped == "done"
    return result.unconstrained


def draws_of(sitting):
    return quorate.load(sitting.folder).unconstrained


def events(history, why):
    """Workers that something happened to for a reason."""
    told = [event for event in history.events if isinstance(event, WorkerEvent)]
    return [event.worker for event in told if re.search(why, event.text)]


def cut_off(machine):
    return rf"its node {address_of(machine)} cannot be reached"


def died_on(machine):
    return rf"on node {address_of(machine)}: "


def room_on(machine):
    return rf"it has more room on node {address_of(machine)}$"


def drained(machine):
    return rf"its node {address_of(machine)} is being drained"


def back_at_work(why):
    """Whether workers have left a machine for a reason, and have sent something since."""

    def is_there(history):
        workers = events(history, why)
        return bool(workers) and not any(_awaited(history, worker) for worker in workers)

    return is_there


def _awaited(history, worker):
    """Whether a worker has sent nothing since it was started anew."""
    told = [e for e in history.events if isinstance(e, WorkerEvent) and e.worker == worker]
    return history.blocks().of(worker).ends.max() < told[-1].time


@pytest.mark.parametrize("options", [MERGED, EXACT], ids=["merged", "exact"])
def test_machines_come_and_go(network, cluster, shared, options, tmp_path):
    head, second, third = cluster
    run = sample(head, OWN / "run", tmp_path / head.name / "run", options)
    to_start = run.wait(all_at_work)
    network.cut(third)
    seconds = run.wait(back_at_work(cut_off(third)))
    print(f"draws resumed {seconds:.1f} s after the cut")  # noqa: T201
    assert seconds < max(10, 5 + to_start)  # a busy machine is slow to start processes
    network.join(third)
    run.wait(back_at_work(room_on(third)))
    second.kill()
    run.wait(back_at_work(died_on(second)))
    fourth = network.add()
    start_ray(fourth, head)
    run.wait(back_at_work(room_on(fourth)))
    drain(fourth)
    run.wait(back_at_work(drained(fourth)))
    PacedModel.hurry(shared)
    run.finish()
    np.testing.assert_array_equal(draws_of(run), undisturbed(shared, options))


def test_the_head_is_lost_and_the_run_resumed_elsewhere(cluster, shared):
    head, second, third = cluster
    first = sample(head, SHARED / "run", shared / "run", MERGED)
    first.wait(all_at_work)
    head.kill()
    for machine in (second, third):
        machine.end_ours()  # Ray's nodes wait a minute for their head
        start_ray(machine, second)
    PacedModel.hurry(shared)
    address = f"{address_of(second)}:{PORT}"
    run = Sitting(
        second, shared / "run", "resume", SHARED / "run", "--ray-address", address
    )  # fmt: skip
    run.finish()
    np.testing.assert_array_equal(draws_of(run), undisturbed(shared, MERGED))


def test_rows_that_only_one_machine_has(network, cluster, shared, tmp_path, seed):
    """Each machine reads its own rows; one of them is cut off for a while, and waited for."""
    head, _, third = cluster
    rng = np.random.default_rng(seed)
    for i, machine in enumerate(cluster):
        rows = rng.normal([float(i), -2.0], size=(100, 2))
        pd.DataFrame(rows, columns=["a", "b"]).to_parquet(machine.folder / "rows.parquet")
    sites = [f"{machine.name}={OWN / 'rows.parquet'}" for machine in cluster]
    on_ray = ("--engine", "ray", "--ray-address", f"{address_of(head)}:{PORT}")
    of_run = ("--workers", 3, "--draws", 500, "--run-dir", SHARED / "run")
    in_place = ("--by", "in-place", "--columns", "a,b")
    run = Sitting(head, shared / "run", "sample", MODEL, *sites, *in_place, *of_run, *on_ray)
    run.wait(all_at_work)
    network.cut(third)
    run.wait(lambda history: 2 in history.gone())
    network.join(third)
    PacedModel.hurry(shared)
    run.finish()
    files = {machine.name: str(machine.folder / "rows.parquet") for machine in cluster}
    calm = quorate.sample(
        PacedModel(shared), files, by=Cut("in-place", columns=["a", "b"]), workers=3, draws=500,
        run_dir=shared / "calm", progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(draws_of(run), calm.unconstrained)
