"""Writes what to submit to Slurm or Kubernetes, to run quorate on Ray there."""
