"""Draws from Bayesian posteriors over many machines, without waiting for the slowest."""

from importlib.metadata import version

from quorate.api import check, resume, sample, stream
from quorate.data.cut import Cut
from quorate.engines.faults import Faults
from quorate.engines.options import Processes, Ray
from quorate.errors import BadInputError, QuorateError
from quorate.lab.simulate import SimulationSummary, simulate
from quorate.merging import combine
from quorate.merging.combined import Combined
from quorate.models.gaussian import GaussianSubposteriors, gaussian_mean_model, paper_subposteriors
from quorate.planner import Plan, plan
from quorate.protocol.schemes import CMC, Adaptive, Coded, Grouped
from quorate.results.result import Result
from quorate.run.opened import load
from quorate.run.stopping import Until
from quorate.trust.verdict import Verdict

__version__ = version("quorate")
__all__ = [
    "CMC",
    "Adaptive",
    "BadInputError",
    "Coded",
    "Combined",
    "Cut",
    "Faults",
    "GaussianSubposteriors",
    "Grouped",
    "Plan",
    "Processes",
    "QuorateError",
    "Ray",
    "Result",
    "SimulationSummary",
    "Until",
    "Verdict",
    "check",
    "combine",
    "gaussian_mean_model",
    "load",
    "paper_subposteriors",
    "plan",
    "resume",
    "sample",
    "simulate",
    "stream",
]
