"""The manifest that `quorate kube` writes, against the schema that KubeRay publishes."""

import json
import subprocess
from copy import deepcopy
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from quorate.cli import main

# `$comment` in the file says where it comes from.
SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "kuberay_rayjob.json").read_text())
WORDS = ("sample", "my model.py:m", "it's.parquet", "--workers", "64", "--redundancy", "2")


def written(*words):
    done = CliRunner().invoke(main, ["kube", "--image", "registry.example.com/quorate:1", *words])
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.output))


@pytest.fixture(scope="module")
def valid():
    return jsonschema.Draft202012Validator(SCHEMA)


def test_the_manifest_is_valid(valid):
    script, job = written("--nodes", "8", "--name", "flights", "--", *WORDS)
    valid.validate(job)
    assert (script["kind"], job["kind"]) == ("ConfigMap", "RayJob")
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"]) == (8, 8)
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["spec", "rayClusterSpec", "workerGroupSpecs", 0, "replicas"], "eight"),
        (["spec", "rayClusterSpec", "headGroupSpec", "rayStartParams", "num-cpus"], 0),
        (["spec", "rayClusterSpec", "authOptions", "mode"], "none"),
        (["spec", "backofLimit"], 3),
    ],
)
def test_the_schema_finds_what_is_wrong(valid, path, value):
    _, job = written("--", *WORDS)
    broken = deepcopy(job)
    *above, last = path
    place = broken
    for step in above:
        place = place[step]
    place[last] = value
    assert valid.is_valid(job)
    assert not valid.is_valid(broken)


def test_pods_that_must_go_drain_in_the_time_they_have():
    _, job = written("--", *WORDS)
    pod = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]
    command = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    subprocess.run(["/bin/sh", "-n", *command[1:]], check=True)
    assert "ray drain-node" in command[-1]
    assert pod["terminationGracePeriodSeconds"] == 120


def commanded(script, folder):
    """The words that a script gives to `quorate`, with another folder for the volume."""
    stand_in = "quorate() { printf '%s\\n' \"$@\"; }\n"
    text = script["data"]["run.sh"].replace("exec quorate", "quorate").replace("/runs", str(folder))
    done = subprocess.run(
        ["/bin/bash", "-c", stand_in + text], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_a_job_that_is_tried_again_resumes(tmp_path):
    script, _ = written("--name", "flights", "--", *WORDS)
    run, on_ray = str(tmp_path / "flights"), ["--engine", "ray", "--ray-address", "auto"]
    assert commanded(script, tmp_path) == [*WORDS, "--run-dir", run, *on_ray]
    (tmp_path / "flights").mkdir()
    (tmp_path / "flights" / "journal.sqlite").touch()
    assert commanded(script, tmp_path)[:6] == ["resume", run, *on_ray]


def test_a_name_that_kubernetes_would_refuse():
    words = ["kube", "--image", "i:1", "--name", "My_run", "--", *WORDS]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "'My_run' is no name for Kubernetes. Use lower-case letters" in done.output


def test_a_file_is_written(tmp_path):
    file = tmp_path / "job.yaml"
    words = ["kube", "--image", "i:1", "-o", str(file), "--", *WORDS]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert "kind: RayJob" in file.read_text()
