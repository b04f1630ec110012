"""Regressions with groups whose log densities JAX evaluates, on the default device of a process."""

from dataclasses import dataclass

from quorate.models.groups.regressions.by_nodes import ByNodes
from quorate.models.groups.regressions.compiled import CompiledByNodes
from quorate.models.groups.regressions.compiled_gaussian import CompiledClosedForm
from quorate.models.groups.regressions.gaussian import ClosedForm
from quorate.models.groups.regressions.integrated import Integrated
from quorate.models.groups.regressions.points import RoughFit
from quorate.models.groups.regressions.preparation import Recipe, prepared, prepared_alike
from quorate.models.groups.regressions.regression import GroupedRegression
from quorate.models.groups.regressions.tables import Tables


@dataclass(frozen=True)
class RegressionOnDevice(GroupedRegression):
    """A `GroupedRegression` with one level, compiled for a device.

    Parameters of groups, which are asked for after a run, are found in numpy.
    """

    is_compiled = True

    def integrated(self, tables: Tables, known: RoughFit | Recipe | None) -> Integrated:
        """A shard whose integrals are ready; see `GroupedRegression.integrated`."""
        has_rows = len(tables.groups[0]) > 0  # without them a shard takes no time
        if isinstance(known, RoughFit) or not has_rows:
            return super().integrated(tables, known)
        if self.is_linear:
            seen, (varying,), (group,) = tables
            return CompiledClosedForm(ClosedForm.of(seen, varying, group))
        if known is None:
            return prepared(self, CompiledByNodes, tables, ByNodes)
        return prepared_alike(self, CompiledByNodes, tables, known)


def on_device(model: GroupedRegression) -> GroupedRegression:
    """The model on the device; with two levels of groups it stays in numpy."""
    if len(model.levels) > 1:
        return model
    return RegressionOnDevice(model.fixed, model.covariances)
