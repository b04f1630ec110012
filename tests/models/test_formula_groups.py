"""Formulas with bars: what varies by which groups, as in brms, and what is refused by name."""

from datetime import date

import numpy as np
import pandas as pd
import pytest

import quorate
from quorate.errors import BadInputError
from quorate.models import design
from quorate.models.formulas.groups import SPECIALS
from quorate.models.groups.levels import Level

N = 600
ORIGINS = ("EWR", "JFK", "LGA")


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    patient = rng.integers(300, size=N)
    return pd.DataFrame(
        {
            "count": rng.poisson(3, N),
            "y": rng.standard_normal(N),
            "age": rng.standard_normal(N),
            "base": rng.uniform(1, 9, N),
            "trt": rng.integers(0, 2, N),
            "origin": np.array(ORIGINS)[np.arange(N) % 3],
            "patient": [f"p{i:03d}" for i in patient],  # more levels than a category may have
            "visit": rng.integers(1, 5, N),
            "day": [date(2020, 1, 1 + i % 28) for i in patient],
            "my group": rng.integers(50, size=N),
            "g.h": rng.integers(50, size=N),
        }
    )


ONE, SLOPE = ("Intercept",), ("Intercept", "age")
DUMMIES = ("origin[T.JFK]", "origin[T.LGA]")


def patient(names, *blocks):
    return [Level("patient", names, blocks or (len(names),))]


def visit(names, *blocks):
    return [Level("patient:visit", names, blocks or (len(names),))]


# formula, fixed columns, levels, columns that define groups
TABLE = [
    ("count ~ age + (1 | patient)", SLOPE, patient(ONE), "patient"),
    ("count~age+(1|patient)", SLOPE, patient(ONE), "patient"),
    ("count ~ (1 | patient) + age", SLOPE, patient(ONE), "patient"),
    ("count ~ 1 + (1 | patient)", ONE, patient(ONE), "patient"),
    ("count ~ (1 | patient)", ONE, patient(ONE), "patient"),
    ("count ~ age + (1 + age | patient)", SLOPE, patient(SLOPE), "patient"),
    ("count ~ age + (age | patient)", SLOPE, patient(SLOPE), "patient"),
    ("count ~ age + (age || patient)", SLOPE, patient(SLOPE, 1, 1), "patient"),
    ("count ~ age + (0 + age | patient)", SLOPE, patient(("age",)), "patient"),
    ("count ~ age + (-1 + age | patient)", SLOPE, patient(("age",)), "patient"),
    ("count ~ 0 + age + (1 | patient)", ("age",), patient(ONE), "patient"),
    ("count ~ (1 | patient) - 1 + age", ("age",), patient(ONE), "patient"),
    ("count ~ age + (1 | patient) - 1", ("age",), patient(ONE), "patient"),
    (
        "count ~ age + (1 | patient) + (0 + age | patient)",
        SLOPE,
        patient(SLOPE, 1, 1),
        "patient",
    ),
    (
        "count ~ age + (age | patient) + (0 + base || patient)",
        SLOPE,
        patient((*SLOPE, "base"), 2, 1),
        "patient",
    ),
    (
        "count ~ log(base) * trt + (1 + trt + log(base) | patient)",
        ("Intercept", "log(base)", "trt", "log(base):trt"),
        patient(("Intercept", "trt", "log(base)")),
        "patient",
    ),
    ("y ~ origin + (1 + origin | patient)", ONE + DUMMIES, patient(ONE + DUMMIES), "patient"),
    (
        "y ~ 1 + (0 + origin | patient)",
        ONE,
        patient(tuple(f"origin[{name}]" for name in ORIGINS)),
        "patient",
    ),
    ("y ~ 1 + (origin || patient)", ONE, patient(ONE + DUMMIES, 1, 1, 1), "patient"),
    (
        "y ~ age + (1 + I(age**2) + {base - 5} | patient)",
        SLOPE,
        patient(("Intercept", "I(age ** 2)", "base - 5")),
        "patient",
    ),
    ("y ~ 1 + (age:trt | patient)", ONE, patient(("Intercept", "age:trt")), "patient"),
    ("y ~ 1 + (age * trt | patient)", ONE, patient((*SLOPE, "trt", "age:trt")), "patient"),
    ("y ~ age + (1 | patient/visit)", SLOPE, patient(ONE) + visit(ONE), "patient/visit"),
    (
        "y ~ age + (1 | patient) + (1 | patient:visit)",
        SLOPE,
        patient(ONE) + visit(ONE),
        "patient/visit",
    ),
    ("y ~ (1 | visit:patient) + (1 | patient)", ONE, patient(ONE) + visit(ONE), "patient/visit"),
    (
        "y ~ (age | patient) + (0 + trt || patient:visit)",
        ONE,
        patient(SLOPE) + visit(("trt",)),
        "patient/visit",
    ),
    (
        "y ~ (age || patient / visit)",
        ONE,
        patient(SLOPE, 1, 1) + visit(SLOPE, 1, 1),
        "patient/visit",
    ),
    ("{y > 0} ~ age + (1 | `my group`)", SLOPE, [Level("my group", ONE, (1,))], "my group"),
    ("y ~ age + (1 | g.h)", SLOPE, [Level("g.h", ONE, (1,))], "g.h"),
    ("y ~ age + (1 | day)", SLOPE, [Level("day", ONE, (1,))], "day"),
    ("y ~ C(visit) + (1 | visit)", None, [Level("visit", ONE, (1,))], "visit"),
    ("y ~ center(age) + (scale(age) | trt)", None, None, "trt"),
    ("y ~ -1 + age + (1 | patient)", ("age",), patient(ONE), "patient"),
    ("y~-1+age+(-1+age|patient)", ("age",), patient(("age",)), "patient"),
    ("y ~ +age + (1 | patient)", SLOPE, patient(ONE), "patient"),
    ("y ~ age", SLOPE, [], ""),
]


@pytest.mark.parametrize("allow_python", [False, True])
@pytest.mark.parametrize(("formula", "names", "levels", "columns"), TABLE)
def test_brms_formulas(formula, names, levels, columns, allow_python, table):
    learned = design(formula, table, allow_python=allow_python)
    assert names is None or sorted(learned.names) == sorted(names)
    assert levels is None or learned.levels == tuple(levels)
    assert learned.group_columns == columns
    arrays = learned.arrays(table)
    expected = dict(zip(("Z", "Z_inner"), learned.levels, strict=False))
    assert arrays.keys() == {"X", "y", *expected}
    for name, level in expected.items():
        assert arrays[name].shape == (N, len(level.names))
        assert sum(level.blocks) == len(level.names)
    assert set(learned.variables) <= set(table.columns)


def test_columns_that_vary_have_the_encoding_of_the_whole(table):
    """Sorted by origin, so that no chunk has all levels."""
    sorted_table = table.sort_values("origin")
    parts = [sorted_table.iloc[start : start + 70] for start in range(0, N, 70)]
    formula = "y ~ 0 + age + (1 | patient) + (0 + origin + base || patient) + (age | patient:visit)"
    whole, streamed = design(formula, sorted_table), design(formula, iter(parts))
    assert streamed.levels == whole.levels
    origin, age = sorted_table["origin"].to_numpy(), sorted_table["age"].to_numpy()
    dummies = [origin == name for name in ORIGINS]
    expected = np.column_stack([np.ones(N), *dummies, sorted_table["base"]])
    for learned in (whole, streamed):
        arrays = [learned.arrays(part) for part in parts]
        outer = np.concatenate([part["Z"] for part in arrays])
        np.testing.assert_array_equal(outer, expected)
        inner = np.concatenate([part["Z_inner"] for part in arrays])
        np.testing.assert_array_equal(inner, np.column_stack([np.ones(N), age]))


def test_terms_that_need_all_rows_are_not_streamed(table):
    with pytest.raises(BadInputError, match=r"poly\(age, 2\) depends on all rows"):
        design("y ~ 1 + (poly(age, 2) | patient)", [table[:300], table[300:]])


@pytest.mark.parametrize("allow_python", [False, True])
def test_rows_without_a_response(table, allow_python):
    learned = design("{y + count > 0} ~ age + (base | patient)", table, allow_python=allow_python)
    assert learned.variables == ("age", "base", "count", "y")
    assert learned.predictors == ("age", "base")
    whole = learned.arrays(table)
    found = learned.arrays(table[["age", "base"]], response=False)
    assert found.keys() == {"X", "Z"}
    for name, array in found.items():
        np.testing.assert_array_equal(array, whole[name])
    with pytest.raises(BadInputError, match="No column named `count`"):
        learned.arrays(table[["age", "base"]])


def test_columns_that_vary_are_checked(table):
    learned = design("y ~ 1 + (log(base) + origin | patient)", table)
    with pytest.raises(BadInputError, match="Column `origin` has level 'BOS'"):
        learned.arrays(table.assign(origin="BOS"))
    with np.errstate(divide="ignore"):
        for change in (learned.arrays, lambda rows: design("y ~ (log(base) | patient)", rows)):
            with pytest.raises(BadInputError, match=r"Column `log\(base\)` is -inf in row 0"):
                change(table.assign(base=[0.0] + [2.0] * (N - 1)))
    with pytest.raises(BadInputError, match=r"Column `I\(age \* 0\)` is 0.0 in every row"):
        design("y ~ 1 + (0 + I(age * 0) | patient)", table)


def test_a_cut_of_the_design(table, tmp_path):
    learned = design("y ~ age + (age | patient/visit)", table)
    cut = learned.cut().settled(learned.group_columns)
    assert cut.by == "group:patient/visit"
    assert cut.made_by == {"formula": learned.formula, "allow_python": False}
    with_groups = quorate.Cut(
        columns=(*learned.variables, "patient", "visit"), transform=learned.arrays
    ).settled(learned.group_columns)
    shards = cut.write(table, 3, tmp_path / "s", seed=1)
    assert shards.fingerprints == with_groups.write(table, 3, tmp_path / "t", seed=1).fingerprints
    assert set(shards.names) == {"X", "y", "Z", "Z_inner", "group", "inner"}
    labels = shards.labels("inner")
    rows = {
        name: np.concatenate([shards.shard(s)[name] for s in range(3)]) for name in shards.names
    }
    held = sorted(
        zip(
            labels["patient"][rows["inner"]], labels["visit"][rows["inner"]], rows["y"], strict=True
        )
    )
    assert held == sorted(zip(table["patient"], table["visit"], table["y"], strict=True))


# ------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ (1 | patient) + (1 | visit)", r"`patient` and `visit` are crossed.*does not factor"),
        ("y ~ (1 | patient) + (1 | visit)", r"global term, as in C\(visit\) \+ \(1 \| patient\)"),
        ("y ~ (1 | patient + visit)", "`patient` and `visit` are crossed"),
        ("y ~ (1 | patient) + (1 | visit:trt)", "`patient` and `trt:visit` are crossed"),
        (
            "y ~ (1 | patient) + (1 | patient:visit) + (1 | patient:trt)",
            "`patient:visit` and `patient:trt` are crossed",
        ),
        ("y ~ (1 | patient/visit/trt)", "has 3 levels of groups. There may be two"),
        ("y ~ (1 | patient:visit)", "groups of two columns. Combine them into one column"),
        ("y ~ (1 | patient/patient)", "names one column twice"),
        ("y ~ (1 | patient * visit)", "must name columns after its bar"),
        ("y ~ (1 | 1)", "must name columns after its bar"),
        ("y ~ (1 | )", "must name columns after its bar"),
        ("y ~ (1 | log(age))", "must name columns after its bar"),
        ("y ~ ( | patient)", "has no columns before its bar"),
        ("y ~ (0 | patient)", "has no column that varies"),
        ("y ~ (1 |ID| patient)", r"`\(1 \|ID\| patient\)` has several bars.*not correlated"),
        ("y ~ age * (1 | patient)", "must be added to the other terms"),
        ("y ~ age - (1 | patient)", "must be added to the other terms"),
        ("y ~ (age + (1 | patient))", "must be added to the other terms"),
        ("y ~ ((1 | patient))", "must be added to the other terms"),
        ("(1 | patient) ~ age", "must be added to the other terms"),
        ("(1 | patient)", "needs one `~`"),
        ("y ~ (age ~ 1 | patient)", "needs one `~`"),
        ("y ~ (1 | patient", "a parenthesis that is not closed"),
        ("y ~ age | patient", r"several parts.*\(1 \| g\)"),
        ("y ~ (1 | patient) + (age | patient)", r"Intercept varies by `patient` in two terms"),
        ("y ~ (1 | patient) + (1 | patient/visit)", r"Intercept varies by `patient` in two terms"),
        ("y ~ (1 | nobody)", "No column named `nobody`"),
        ("y ~ (1 + nothing | patient)", "No column named `nothing`"),
        ("y ~ (1 | mm(patient, visit))", r"`mm\(patient, visit\)` is not supported.*several"),
        ("y ~ (1 | gr(patient, by = trt))", r"`gr\(patient, by = trt\)` is not supported.*alone"),
        ("y ~ s(age) + (1 | patient)", r"`s\(age\)` is not supported.*bs\(x, df=5\)"),
        ("y ~ t2(age, base)", r"`t2\(age, base\)` is not supported.*bs"),
        ("y ~ gp(age)", r"`gp\(age\)` is not supported.*Gaussian processes"),
        ("y ~ mo(visit)", r"`mo\(visit\)` is not supported.*C\(x\)"),
        ("y ~ me(age, base)", r"`me\(age, base\)` is not supported"),
        ("y ~ mi(age)", r"`mi\(age\)` is not supported"),
        ("y ~ age + ar(time = visit)", r"`ar\(time = visit\)` is not supported.*do not factor"),
        ("y ~ cs(age)", "`cs.age.` is a cubic spline, which needs df.*category-specific"),
        ("count ~ age - offset(log(base))", "must be added to the other terms"),
        ("count ~ age * offset(base)", "must be added to the other terms"),
        ("count ~ age + offset()", "Name a column"),
        ("count ~ age + (1 | count)", "is both the response and the column that defines"),
        ("y ~ (1 + s(age) | patient)", r"`s\(age\)` is not supported"),
        ("bf(y ~ age)", "Write the formula alone"),
        ("y ~ age + y", "`y` is the response, and the right side has it, too"),
        ("y ~ age + (y | patient)", "`y` is the response, and the right side has it, too"),
        ("count | trials(base) | weights(base) ~ age", "cannot be read"),
        ("count | trials(base) + trials(age) ~ age", "has trials twice"),
        ("count | cens(base) ~ age", r"`\| cens\(base\)` is not supported. bambi has this"),
        ("p(count) ~ age", r"`p\(count\)` cannot be read"),
        ("censored(count, base) ~ age", "not supported. bambi has this"),
        ("count ~ hsgp(age, m=5, c=1.5)", "not supported. bambi has this"),
        ("y | cens(trt) ~ age", r"`\| cens\(trt\)` is not supported"),
        ("y | se(base) ~ 1 + (1 | patient)", r"`\| se\(base\)` is not supported"),
    ],
)
@pytest.mark.parametrize("allow_python", [False, True])
def test_refused_by_name(formula, message, allow_python, table):
    with pytest.raises(BadInputError, match=message):
        design(formula, table, allow_python=allow_python)


@pytest.mark.parametrize("name", SPECIALS)
def test_every_special_of_brms_says_what_to_do(name, table):
    with pytest.raises(BadInputError, match=rf"`{name}\(age\)` is not supported\. \w.*\.$"):
        design(f"y ~ base + {name}(age)", table)
