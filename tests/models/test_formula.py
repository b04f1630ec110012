"""Formulas: the same encoding for every shard, and errors that name the column."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from quorate.errors import BadInputError
from quorate.models import design, linear, logistic, negative_binomial


@pytest.fixture
def columns(rng):
    return {
        "late": rng.random(60) < 0.4,
        "hour": rng.integers(5, 23, 60),
        "month": np.tile([1, 2, 3], 20),
        "origin": np.array(["JFK", "EWR", "LGA"])[rng.integers(0, 3, 60)],
    }


def by_hand(columns):
    return np.column_stack(
        [
            np.ones(60),
            columns["origin"] == "JFK",
            columns["origin"] == "LGA",
            columns["hour"],
            columns["hour"] ** 2,
        ]
    )


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pa.table])
def test_any_table(make, columns):
    table = make({name: list(column) for name, column in columns.items()})
    learned = design("late ~ hour + I(hour**2) + origin", table)
    order = ["Intercept", "origin[T.JFK]", "origin[T.LGA]", "hour", "I(hour ** 2)"]
    assert sorted(learned.names) == sorted(order)
    arrays = learned.arrays(table)
    picked = [learned.names.index(name) for name in order]
    np.testing.assert_array_equal(arrays["X"][:, picked], by_hand(columns))
    np.testing.assert_array_equal(arrays["y"], columns["late"])
    assert arrays["X"].dtype == arrays["y"].dtype == np.float64


def test_shards_have_the_encoding_of_the_whole(columns):
    """Sorted by origin and month, so that no shard has all levels."""
    frame = pd.DataFrame(columns).sort_values(["origin", "month"])
    formula = "{hour > 12} ~ origin * late + C(month)"
    whole = design(formula, frame)
    chunks = [frame.iloc[start : start + 7] for start in range(0, 60, 7)]
    streamed = design(formula, iter(chunks))
    assert streamed.names == whole.names
    assert len(whole.names) == 8
    for learned in (whole, streamed):
        parts = [learned.arrays(chunk) for chunk in chunks]
        for name in ("X", "y"):
            together = np.concatenate([part[name] for part in parts])
            np.testing.assert_array_equal(together, whole.arrays(frame)[name])


def test_a_design_names_the_parameters_of_a_model(columns):
    learned = design("late ~ hour + origin", columns)
    model = logistic(learned.names)
    assert model.names == learned.names
    value = model.log_likelihood(np.zeros(model.dim), learned.arrays(columns))
    assert value == pytest.approx(-60 * np.log(2))


def test_the_order_of_categories_is_kept(columns):
    frame = pd.DataFrame(columns)
    frame["origin"] = pd.Categorical(frame["origin"], ["LGA", "JFK", "EWR", "never"])
    assert design("late ~ origin", frame).names == ("Intercept", "origin[T.JFK]", "origin[T.EWR]")


@pytest.mark.parametrize(
    ("term", "expected"),
    [("{n**2}", lambda n: n**2), ("{n - 200}", lambda n: n - 200), ("{n * n * n}", lambda n: n**3)],
)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_arithmetic_of_small_whole_numbers_does_not_overflow(columns, term, expected, dtype):
    whole = np.arange(60) + 60
    learned = design(f"late ~ {term}", columns | {"n": whole.astype(dtype)})
    found = learned.arrays(columns | {"n": whole.astype(dtype)})["X"][:, 1]
    assert np.array_equal(found, expected(whole.astype(float)))


@pytest.mark.parametrize(
    ("levels", "lacking"), [('["JFK", "EWR"]', "origin.*LGA"), ("[1, 3]", "month.*2")]
)
@pytest.mark.parametrize("intercept", ["", "0 + "])
def test_listed_levels_must_be_all_of_them(columns, levels, lacking, intercept):
    """Rows of another level would count as the baseline, or as no level at all."""
    name = lacking.split(".")[0]
    with pytest.raises(BadInputError, match=f"{lacking}.*omits.*List all"):
        design(f"late ~ {intercept}C({name}, levels={levels})", columns)


def test_listed_levels_have_their_order(columns):
    learned = design('late ~ C(origin, levels=["LGA", "JFK", "EWR"])', columns)
    expected = [columns["origin"] == name for name in ("JFK", "EWR")]
    assert np.array_equal(learned.arrays(columns)["X"][:, 1:].T, expected)


@pytest.mark.parametrize(
    "term",
    [
        "center(hour)",
        "scale(hour, ddof=0)",
        "scale(log(hour), center=False)",
        "standardize(hour, rescale=False)",
        "scale(hour, 10.0)",
        "{center(hour) * 2}",
        "origin:center(hour)",
    ],
)
def test_means_of_all_rows_are_those_of_all_chunks(columns, term):
    frame = pd.DataFrame(columns).sort_values("hour")
    whole = design(f"late ~ {term}", frame)
    streamed = design(f"late ~ {term}", [frame[:30], frame[30:]])
    assert streamed.names == whole.names
    expected = whole.arrays(frame)["X"]
    np.testing.assert_allclose(streamed.arrays(frame)["X"], expected, rtol=1e-12, atol=1e-12)


def test_a_response_may_be_centred(columns):
    frame = pd.DataFrame(columns).sort_values("hour")
    streamed = design("center(hour) ~ late", [frame[:30], frame[30:]])
    centred = frame["hour"] - frame["hour"].mean()
    np.testing.assert_allclose(streamed.arrays(frame)["y"], centred, atol=1e-12)


def test_what_needs_all_rows_is_not_streamed(columns):
    frame = pd.DataFrame(columns)
    for term in ("poly(hour, 2)", "scale(center(hour))"):
        design(f"late ~ {term}", frame)
        with pytest.raises(BadInputError, match=r"hour.*cannot be streamed"):
            design(f"late ~ {term}", [frame[:30], frame[30:]])


@pytest.mark.parametrize(
    ("formula", "change", "message"),
    [
        ("late ~ hours", {}, "No column named `hours`. Did you mean `hour`"),
        ("delay ~ hour", {}, "No column named `delay`. The columns are late, hour"),
        ("origin ~ hour", {}, r"Column `origin` is text.*\{origin == "),
        ("late ~ log(origin)", {}, "Formula .*Text cannot be computed with"),
        ("late ~ hour +", {}, "Formula 'late ~ hour .' cannot be used"),
        ("hour", {}, "has one side. Write the response first"),
        ("late ~ 0", {}, "no term on its right side"),
        (
            "late ~ hour",
            {"hour": np.full(60, 7)},
            "Column `hour` is 7.0 in every row: leave it out",
        ),
        ("late ~ origin", {"origin": ["x"] * 60}, "Column `origin` is 'x' in every row"),
        ("late ~ hour", {"late": np.ones(60)}, "The response `late` is 1.0 in every row"),
        ("late ~ I(hour * 0)", {}, r"Column `I\(hour \* 0\)` is 0.0 in every row"),
        ("late ~ hour", {"hour": ["7", "8"] * 30}, "numbers written as text"),
        (
            "late ~ hour",
            {"hour": [str(i) + "h" for i in range(60)] * 5},
            "Columns differ in length",
        ),
        (
            "late ~ hour",
            {"hour": [1.0, np.nan, 3.0] * 20},
            "`hour` is missing in 20 rows, the first being row 1",
        ),
        ("late ~ origin", {"origin": ["a", None, "b"] * 20}, "column `origin` is missing in 20"),
        ("late ~ hour", {"hour": [1.0, np.inf, 3.0] * 20}, "Column `hour` is inf in row 1"),
        ("late ~ log(hour)", {"hour": [1.0, 0.0] * 30}, r"Column `log\(hour\)` is -inf in row 1"),
        (
            "late ~ hour",
            {"hour": pd.date_range("2020", periods=60)},
            "Column `hour` has type datetime64",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_bad_tables(formula, change, message, columns):
    with pytest.raises(BadInputError, match=message):
        design(formula, columns | change)


def test_too_many_levels():
    table = {"y": np.arange(300), "name": [f"row {i}" for i in range(300)]}
    with pytest.raises(BadInputError, match=r"Column `name` has 300 levels.*convert"):
        design("y ~ name", table)


def test_levels_that_come_later(columns):
    learned = design("late ~ origin", columns)
    table = {"late": [True], "origin": ["BOS"]}
    with pytest.raises(BadInputError, match=r"Column `origin` has level 'BOS'.*learn it again"):
        learned.arrays(table)


@pytest.mark.parametrize(
    ("table", "message"),
    [({"y": [], "x": []}, "empty"), ([], "empty"), (3, "int is not a table. Give a data frame")],
)
def test_no_table(table, message):
    with pytest.raises(BadInputError, match=message):
        design("y ~ x", table)


def test_a_column_named_like_another_parameter_is_refused(rng):
    """Results have one entry for a name: the coefficient of the column would be lost."""
    names = ("Intercept", "sigma", "phi", "sd_g__Intercept", "x")
    table = {name: rng.normal(size=40) for name in names}
    table |= {"y": rng.poisson(2.0, 40), "g": np.arange(40) % 8}
    for family, formula, name in (
        (linear, "y ~ sigma", "sigma"),
        (linear, "y ~ sigma + (1 | g)", "sigma"),
        (negative_binomial, "y ~ phi", "phi"),
        (linear, "y ~ sd_g__Intercept + (1 | g)", "sd_g__Intercept"),
    ):
        with pytest.raises(BadInputError, match=f"`{name}` is a column here, and a parameter"):
            family(design(formula, table))
    with pytest.raises(BadInputError, match="column named `Intercept`"):
        design("y ~ Intercept + x", table)
    assert linear(design("y ~ 0 + Intercept + x", table)).names[:2] == ("Intercept", "x")
    assert negative_binomial(design("y ~ sigma", table)).names[1] == "sigma"


def test_a_lazy_frame_is_refused_in_words():
    with pytest.raises(BadInputError, match=r"Give data.collect\(\)"):
        design("y ~ x", pl.DataFrame({"x": [1.0, 2.0], "y": [1.0, 3.0]}).lazy())
