"""The natural scale of coordinates, found from a few points: exact for every support."""

import numpy as np
import pytest

from quorate.errors import BadInputError
from quorate.models import (
    Ordered,
    Positive,
    Real,
    Simplex,
    UnitInterval,
    from_functions,
    linear,
    logistic,
)
from quorate.models.scales import Scale, kept_scales, natural_scales
from quorate.numerics.names import named_scalars


def nothing(p, *rows):
    return 0.0


def model_of(**supports):
    return from_functions(nothing, nothing, supports)


def assert_right(model, rng):
    """Scales give the variables of the model, wherever the points lie."""
    points = 3 * rng.normal(size=(50, model.dim))
    variables = dict(named_scalars(model.constrain(points)))
    scales = natural_scales(model)
    for x, scale in zip(points.T, scales, strict=True):
        if scale is not None:
            np.testing.assert_allclose(scale.natural(x), variables[scale.name], rtol=1e-7)
    return [None if scale is None else (scale.name, scale.function) for scale in scales]


def test_every_support(rng):
    model = model_of(a=Real(2), s=Positive(), u=UnitInterval(), w=Simplex(3), o=Ordered(3))
    assert assert_right(model, rng) == [
        ("a[0]", "identity"),
        ("a[1]", "identity"),
        ("s", "exp"),
        ("u", "expit"),
        None,
        None,
        ("o[0]", "identity"),
        None,
        None,
    ]


@pytest.mark.parametrize(
    "model",
    [linear(["one", "x"]), logistic(["one"], groups="g"), linear(["one"], groups="g")],
    ids=["linear", "logistic with groups", "linear with groups"],
)
def test_regressions(model, rng):
    found = assert_right(model, rng)
    assert [name for name, _ in found[:1]] == ["one"]
    assert all(scale is not None for scale in found)


def test_they_survive_the_journal():
    model = model_of(a=Real(), s=Positive(), w=Simplex(3))
    scales = natural_scales(model)
    kept = [None if scale is None else list(scale) for scale in scales]
    assert kept_scales(kept, model.dim) == scales
    assert kept_scales(None, 2) == [None, None]


@pytest.mark.parametrize("kept", [3, ["x"], [["a", "system", 0, 1]], [None, None], [[1, 2]]])
def test_a_journal_that_lies_is_refused(kept):
    with pytest.raises(BadInputError, match="does not describe the scales"):
        kept_scales(kept, 1)


def test_a_scale_says_what_it_is():
    np.testing.assert_allclose(Scale("p", "expit", -1.0, 2.0).natural(np.zeros(1)), 0.0)
