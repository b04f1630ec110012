"""Scripts for Slurm and manifests for KubeRay that run quorate on Ray.

This package returns text. It may not submit a job, start a process, connect to a cluster or
import Ray.
"""
