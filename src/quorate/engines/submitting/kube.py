"""Writes manifests of KubeRay: a job that runs quorate on a Ray cluster of its own."""

import json
import re
import shlex
from dataclasses import dataclass
from textwrap import indent

from quorate.engines.submitting.submitted import Submitted
from quorate.errors import require

_RUNS = "/runs"  # where the pod of the head sees the volume
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True)
class Kube:
    """A job of KubeRay.

    Parameters
    ----------
    image
        Image with Ray, quorate and the libraries of the model.
    nodes
        Number of pods with workers, each on a machine of its own.
    cpus
        Cores of each pod.
    memory
        Memory of each pod, as Kubernetes writes it.
    claim
        Name of the volume claim for model, rows and runs; the pod of the head sees it as /runs.
    name
        Name of the job.
    ray
        Version of Ray in the image.
    """

    image: str
    nodes: int = 4
    cpus: int = 8
    memory: str = "16Gi"
    claim: str = "quorate-runs"
    name: str = "quorate"
    ray: str = "2.60.0"

    def __post_init__(self) -> None:
        require(self.nodes >= 1, f"nodes must be at least 1, not {self.nodes}.")
        require(self.cpus >= 1, f"cpus must be at least 1, not {self.cpus}.")
        for name in (self.name, self.claim):
            require(
                bool(_NAME.fullmatch(name)),
                f"{name!r} is no name for Kubernetes. Use lower-case letters, digits and hyphens, "
                "with a letter first.",
            )


def kube_manifest(job: Kube, command: Submitted) -> str:
    """A `RayJob` and its script, for `kubectl apply`.

    A job that fails is tried again, and then resumes its run.
    """
    run = shlex.quote(command.run_dir or f"{_RUNS}/{job.name}")
    script = f"set -eu\ncd {_RUNS}\n{command.in_shell(run, 'auto')}\n"
    return _MANIFEST.format(
        name=_quoted(job.name),
        label=_quoted(f"{job.name}-workers"),
        script=indent(script, " " * 4),
        image=_quoted(job.image),
        nodes=job.nodes,
        cpus=_quoted(str(job.cpus)),
        memory=_quoted(job.memory),
        claim=_quoted(job.claim),
        ray=_quoted(job.ray),
        runs=_RUNS,
    )


def _quoted(text: str) -> str:
    """A string of YAML: those of JSON are."""
    return json.dumps(text, ensure_ascii=False)


_MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
data:
  run.sh: |
{script}---
apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: {name}
spec:
  entrypoint: bash /etc/quorate/run.sh
  shutdownAfterJobFinishes: true
  backoffLimit: 3   # each time the run is resumed
  rayClusterSpec:
    rayVersion: {ray}
    authOptions:
      mode: token
    headGroupSpec:
      rayStartParams:
        num-cpus: "0"   # workers of quorate are on the other pods
      template:
        spec:
          containers:
            - name: ray-head
              image: {image}
              resources:
                requests: {{cpu: "2", memory: 4Gi}}
                limits: {{cpu: "2", memory: 4Gi}}
              volumeMounts:
                - {{name: runs, mountPath: {runs}}}
                - {{name: script, mountPath: /etc/quorate}}
          volumes:
            - name: runs
              persistentVolumeClaim: {{claimName: {claim}}}
            - name: script
              configMap: {{name: {name}}}
    workerGroupSpecs:
      - groupName: workers
        replicas: {nodes}
        minReplicas: {nodes}
        maxReplicas: {nodes}
        rayStartParams: {{}}
        template:
          metadata:
            labels: {{part-of: {label}}}
          spec:
            # Holders of a shard are on different machines.
            topologySpreadConstraints:
              - maxSkew: 1
                topologyKey: kubernetes.io/hostname
                whenUnsatisfiable: DoNotSchedule
                labelSelector:
                  matchLabels: {{part-of: {label}}}
            # A pod that must go, as on a spot instance, first hands its workers on.
            terminationGracePeriodSeconds: 120
            containers:
              - name: ray-worker
                image: {image}
                lifecycle:
                  preStop:
                    exec:
                      command:
                        - sh
                        - -c
                        - >-
                          ray drain-node --reason=DRAIN_NODE_REASON_PREEMPTION
                          --reason-message="the pod ends" --deadline-remaining-seconds=100;
                          sleep 30
                resources:
                  requests: {{cpu: {cpus}, memory: {memory}}}
                  limits: {{cpu: {cpus}, memory: {memory}}}
"""
