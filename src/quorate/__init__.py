"""Draws from Bayesian posteriors over many machines, without waiting for the slowest."""

from importlib.metadata import version

from quorate.api import check, resume, sample, stream
from quorate.combine import combine
from quorate.combine.combined import Combined
from quorate.errors import BadInputError, QuorateError
from quorate.plan import Plan, plan
from quorate.result import Result
from quorate.simulation import SimulationSummary, simulate
from quorate.subposterior import GaussianSubposteriors, gaussian_mean_model, paper_subposteriors
from quorate.trust.verdict import Verdict

__version__ = version("quorate")
__all__ = [
    "BadInputError",
    "Combined",
    "GaussianSubposteriors",
    "Plan",
    "QuorateError",
    "Result",
    "SimulationSummary",
    "Verdict",
    "check",
    "combine",
    "gaussian_mean_model",
    "paper_subposteriors",
    "plan",
    "resume",
    "sample",
    "simulate",
    "stream",
]
