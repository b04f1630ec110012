"""Formulas run no Python: what is allowed works, and all else is refused before it is evaluated.

`QUORATE_FUZZ=5000` tries more formulas.
"""

import builtins
import os
from contextlib import suppress

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from quorate.errors import BadInputError
from quorate.models import design
from quorate.models.formulas.syntax import CONTRASTS, TRANSFORMS

N_FUZZ = int(os.environ.get("QUORATE_FUZZ", "400"))
_HOURS = np.tile(np.arange(1.0, 11.0), 6)
TABLE = {
    "late": np.tile([0.0, 1.0, 1.0], 20),
    "hour": _HOURS,
    "month": np.repeat([1, 2, 3], 20),
    "origin": np.repeat(["EWR", "JFK", "LGA", "EWR"], 15),
    "my column": np.sqrt(np.arange(60)),
    "plane": np.repeat([f"N{i}" for i in range(20)], 3),
}


@pytest.fixture(scope="module")
def fired():
    """Names that any Python can call, and the list of calls that got through."""
    calls: list[str] = []

    def sentinel(*_args, **_options):
        calls.append("called")
        return 2

    builtins.sentinel = sentinel
    yield calls
    del builtins.sentinel


# ------------------------------------------------------------ what is allowed


@pytest.mark.parametrize(
    ("term", "column"),
    [
        ("log(hour)", np.log(_HOURS)),
        ("log1p(hour)", np.log1p(_HOURS)),
        ("sqrt(hour)", np.sqrt(_HOURS)),
        ("{log(`my column` + 1) / 2}", np.log(TABLE["my column"] + 1) / 2),
        ("I(hour**2 - 3)", _HOURS**2 - 3),
        ("{(hour > 3) & (origin == 'JFK')}", (_HOURS > 3) & (TABLE["origin"] == "JFK")),
        ("center(hour)", _HOURS - _HOURS.mean()),
        ("scale(hour, ddof=0)", (_HOURS - _HOURS.mean()) / _HOURS.std()),
        ("poly(hour, degree=2, raw=True)", _HOURS),
        ("C(month)", TABLE["month"] == 2),
        ("C(month, Treatment(2))", TABLE["month"] == 1),
        ("C(origin, contr.treatment(base='JFK'))", TABLE["origin"] == "EWR"),
        ("C(origin, levels=['LGA', 'EWR', 'JFK'])", TABLE["origin"] == "EWR"),
    ],
)
def test_transforms(term, column):
    arrays = design(f"late ~ {term}", TABLE).arrays(TABLE)
    np.testing.assert_allclose(arrays["X"][:, 1], column, atol=1e-12)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transform_exists(name):
    more = {"bs": ", df=4", "cc": ", df=4", "cr": ", df=4", "cs": ", df=4", "poly": ", 2"}
    assert len(design(f"late ~ {name}(hour{more.get(name, '')})", TABLE).names) >= 2


@pytest.mark.parametrize("name", CONTRASTS)
def test_every_contrast_exists(name):
    assert len(design(f"late ~ C(origin, {name}())", TABLE).names) == 3


# ------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("late ~ poly(hour, degree=sentinel() or 2)", r"`sentinel\(\) or 2` is not allowed"),
        ("late ~ {sentinel()}", "`sentinel` is not a transform that formulas know"),
        ("late ~ {open('/etc/passwd')}", "`open` is not a transform.*--allow-python"),
        ("{sentinel()} ~ hour", "`sentinel` is not a transform"),
        ("late ~ sentinel()()", r"`sentinel\(\)\(\)` is not allowed"),
        ("late ~ log(hour, out=sentinel())", "log has no option named out.*options are: none"),
        ("late ~ np.log(hour)", r"`np.log\(hour\)` is not allowed in a formula"),
        ("late ~ hour.map(sentinel)", r"`hour.map\(sentinel\)` is not allowed"),
        ("late ~ center(sentinel)", "No column named `sentinel`"),
        ("late ~ {(lambda: sentinel())()}", "is not allowed in a formula"),
        ("late ~ {[sentinel() for _ in hour]}", "is not allowed in a formula"),
        ("late ~ {hour if sentinel() else 3}", "is not allowed in a formula"),
        ("late ~ C(origin, sentinel())", "is not a contrast. Use one of Treatment"),
        ("late ~ C(origin, levels=sentinel())", "`sentinel` is not a transform"),
        ("late ~ hour + offset(sentinel())", "`sentinel` is not a transform"),
        ("late | weights(sentinel()) ~ hour", "`sentinel` is not a transform"),
        ("late | trials({sentinel()}) ~ hour", "`sentinel` is not a transform|cannot be used"),
        ("p(sentinel(), 2) ~ hour", "`sentinel` is not a transform"),
        ("p(late, sentinel()) ~ hour", "`sentinel` is not a transform"),
        ("late ~ Q('hour')", "`Q` is not a transform"),
        ("late ~ {'text' * 1000000000}", "a text can only be compared with a column"),
        ("late ~ {hour + 9**9**9}", r"`9 \*\* 9` is a power of numbers"),
        ("late ~ poly(hour, 1000)", "degree may be up to 100, not 1000"),
        ("late ~ (hour + month + origin)**9", "more than 10000 terms"),
        ("late ~ .", "Write out the columns"),
        ("late ~ hour | month", "several parts"),
        ("late ~ hour + (1 + {sentinel()} | plane)", "`sentinel` is not a transform"),
        ("late ~ (poly(hour, degree=sentinel()) | plane)", "`sentinel` is not a transform"),
        ("late ~ (1 | sentinel())", "must name columns after its bar"),
        ("late ~ (1 | {sentinel()})", "must name columns after its bar"),
        ("late ~ (1 | plane/sentinel())", "must name columns after its bar"),
        ("late ~ hour + {sentinel()} + (1 | plane)", "`sentinel` is not a transform"),
        ("late ~ ((hour + month + origin)**9 | plane)", "more than 10000 terms"),
        ("late ~ (. | plane)", "Write out the columns"),
        ("late ~ (C(origin, levels=['a\\'b']) | plane)", "A formula cannot contain a backslash"),
        ("late ~ C(origin, levels=['a\\'b'])", "A formula cannot contain a backslash"),
        # formulaic writes this text into code of its own, and its quotes would end there.
        ("""late ~ bs(hour, extrapolation="'") + {']'}""", r"cannot contain \[\"'\"\]"),
    ],
)
def test_python_is_refused_by_name(formula, message, fired):
    with pytest.raises(BadInputError, match=message):
        design(formula, TABLE)
    assert not fired


def test_python_runs_where_it_is_allowed(fired):
    """The control: the sentinel does fire."""
    formula = "late ~ poly(hour, degree=sentinel()) + {abs(`my column`) + sum([1])}"
    learned = design(formula, TABLE, allow_python=True)
    assert len(learned.names) == 4
    assert learned.allow_python
    assert fired
    fired.clear()
    varying = design("late ~ (poly(hour, degree=sentinel()) | plane)", TABLE, allow_python=True)
    assert len(varying.levels[0].names) == 3
    assert fired
    fired.clear()


# ------------------------------------------------------------ fuzzing

_PIECES = st.sampled_from(
    [
        "late", "hour", "month", "origin", "my column", "`my column`", "hour.real", "nothing",
        "sentinel()", "sentinel", "__import__('builtins').sentinel()", "().__class__", "0", "1",
        "2.5", "-1", "'JFK'", '"JFK"', "'", '"', "`", "{", "}", "(", ")", "[", "]", "+", "-", "*",
        "/", ":", "**", "^", "|", "~", "%", "%in%", ",", "=", "==", "<", "&", " ", ".", "\\", "#",
        "lambda", "lambda: ", " if ", " else ", " or ", " for ", " in ", "None", "\n", "é", "\x00",
        "_formulaic_my_column", "__FORMULAIC_CONTEXT__", "np.", "contr.", "df=", "levels=", "*[",
        "||", "plane", "(1|plane)", "mm(", "|plane)",
        *(f"{name}(" for name in TRANSFORMS), *(f"{name}(" for name in CONTRASTS),
    ]
)  # fmt: skip
_TEXT = st.lists(_PIECES, max_size=12).map("".join)
# Python that parses, so that most of it would run: calls of the sentinel deep inside.
_ATOMS = st.sampled_from(
    [
        "hour", "month", "`my column`", "origin", "2", "0.5", "'JFK'", "sentinel()", "sentinel",
        "sentinel(hour)", "__import__('builtins').sentinel()", "hour.map(sentinel)", "None",
    ]
)  # fmt: skip
_SHAPES = st.sampled_from(
    [
        "({0} + {1})", "({0} ** {1})", "({0} == {1})", "({0} or {1})", "log({0})", "center({0})",
        "poly({0}, degree={1})", "bs({0}, df={1})", "C({0}, levels=[{1}, 'JFK'])", "[{0}, {1}]",
        "C(origin, contr.treatment(base={0}))", "(lambda x={0}: {1})()", "{0}[{1}]", "{0}({1})",
        "({0} if {1} else {0})", "[x for x in [{0}]][0]", "f'{{{0}}}'",
        "bs(hour, extrapolation={0})",
    ]
)  # fmt: skip
_PYTHON = st.recursive(
    _ATOMS,
    lambda inner: st.builds(lambda shape, *parts: shape.format(*parts), _SHAPES, inner, inner),
    max_leaves=6,
)
_SIDE = st.one_of(_PYTHON, _PYTHON.map("{{{}}}".format), _TEXT, st.text(max_size=8))
_GROUP = st.one_of(st.sampled_from(["plane", "plane/month", "`my column`"]), _SIDE)
_BARS = st.builds("({}{}{})".format, _SIDE, st.sampled_from(["|", "||", " | "]), _GROUP)
_TERM = st.one_of(_SIDE, _BARS)
FORMULAS = st.builds(
    "{} ~ {}".format,
    st.one_of(st.just("late"), _TERM),
    st.lists(_TERM, min_size=1, max_size=3).map(" + ".join),
)


@given(formula=st.one_of(FORMULAS, _TEXT))
@settings(max_examples=N_FUZZ)
@pytest.mark.filterwarnings("ignore")
def test_nothing_that_a_fuzzer_writes_is_executed(formula, fired):
    with suppress(BadInputError):  # no other error
        design(formula, TABLE)
    assert not fired
