"""Offsets, weights, trials, priors of terms, and missing values in formulas."""

import numpy as np
import pandas as pd
import pytest

from quorate.data.write import write_shards
from quorate.errors import BadInputError
from quorate.models import design, linear, logistic, poisson, student
from quorate.models.regressions.particular_priors import read_priors

N = 120


@pytest.fixture
def table(rng):
    return pd.DataFrame(
        {
            "hour": rng.uniform(0, 24, N),
            "origin": rng.choice(["EWR", "JFK", "LGA"], N),
            "shop": rng.choice(["a", "b", "c", "d"], N),
            "k": rng.integers(0, 5, N),
            "n": np.full(N, 9),
            "w": rng.uniform(0.5, 2, N),
            "e": rng.uniform(1, 10, N),
        }
    )


def chunks(frame):
    """The table as files are read: some rows at a time."""
    return (frame[start : start + 50] for start in range(0, len(frame), 50))


@pytest.mark.parametrize(
    "formula",
    [
        "k | trials(n) + weights(w) ~ hour + offset(log(e)) + (1 | shop) + offset(w)",
        "k | weights(w) + trials(9) ~ offset({log(e) + w}) + hour + (1 | shop)",
        "k|trials(n)+weights(w)~hour+(1|shop)+offset(log(e)+w)",
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_arrays_of_extras(formula, streamed, table):
    learned = design(formula, chunks(table) if streamed else table)
    arrays = learned.arrays(table)
    assert learned.names == ("Intercept", "hour")
    assert learned.group_columns == "shop"
    np.testing.assert_array_equal(arrays["y"], table["k"])
    np.testing.assert_array_equal(arrays["trials"], table["n"])
    np.testing.assert_array_equal(arrays["weights"], table["w"])
    np.testing.assert_allclose(arrays["offset"], np.log(table["e"]) + table["w"])
    new = learned.arrays(table.drop(columns=["k"]), response=False)
    assert set(new) == {"X", "Z", "trials", "offset"}


@pytest.mark.parametrize(
    ("bambi", "ours"),
    [
        ("p(k, n) ~ hour", "k | trials(n) ~ hour"),
        ("proportion(k, n) ~ hour", "k | trials(n) ~ hour"),
        ("weighted(k, w) ~ hour", "k | weights(w) ~ hour"),
    ],
)
def test_responses_in_the_notation_of_bambi(bambi, ours, table):
    found, expected = (design(formula, table).arrays(table) for formula in (bambi, ours))
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])


def test_an_offset_alone_leaves_the_intercept(table):
    learned = design("k ~ offset(log(e))", table)
    assert learned.names == ("Intercept",)
    assert poisson(learned).names == ("Intercept",)


def test_extras_of_text_are_refused(table):
    with pytest.raises(BadInputError, match=r"`weights\(origin\)` is text"):
        design("k | weights(origin) ~ hour", table)


# ---------------------------------------------------------------- priors


def test_priors_of_terms_coefficients_scales_and_groups(table):
    learned = design("e ~ hour + origin + (1 + hour | shop)", table)
    model = linear(
        learned,
        "normal(0, 9)",
        priors={
            "origin": "laplace(0, 1)",
            "origin[T.LGA]": "flat",
            "Intercept": "cauchy(0, 1)",
            "sigma": "exponential(1)",
            "sd_shop": "half_normal(2)",
            "sd_shop__hour": "half_normal(0.1)",
        },
    )
    words = dict(
        zip(model.fixed.columns, (prior.words for prior in model.fixed.priors), strict=True)
    )
    assert words == {
        "Intercept": "cauchy(0, 1)",
        "hour": "normal(0, 9)",
        "origin[T.JFK]": "laplace(0, 1)",
        "origin[T.LGA]": "flat",
    }
    assert model.fixed.scale_prior.words == "exponential(1)"
    assert [one.words for one in model.covariances[0].sd_priors] == [
        "half_normal(2)",
        "half_normal(0.1)",
    ]


def test_a_prior_for_nothing_is_refused(table):
    with pytest.raises(BadInputError, match=r"`orign`.*Did you mean `origin`"):
        linear(design("e ~ hour + origin", table), priors={"orign": "flat"})


def test_priors_as_texts():
    assert read_priors(["hour ~ normal(0, 1)", "normal(0, 2)"]) == (
        "normal(0, 2)",
        {"hour": "normal(0, 1)"},
    )
    assert read_priors([]) == (None, {})
    for bad in (["flat", "flat"], ["~ flat"], ["x ~ flat", "x ~ flat"]):
        with pytest.raises(BadInputError):
            read_priors(bad)


def test_student_refuses_groups(table):
    with pytest.raises(BadInputError, match="student cannot have groups"):
        student(design("e ~ hour + (1 | shop)", table))


# ---------------------------------------------------------------- missing values


@pytest.fixture
def holed(table):
    """Rows 3 and 4 lack the hour, 60 lacks the origin, and 70 the group."""
    return table.astype({"hour": float}).assign(
        hour=table["hour"].mask(table.index.isin([3, 4])),
        origin=table["origin"].mask(table.index == 60),
        shop=table["shop"].mask(table.index == 70),
    )


FORMULA = "k | trials(n) ~ hour + origin + (1 | shop)"


@pytest.mark.parametrize("streamed", [False, True])
def test_missing_values_are_counted_over_all_rows(streamed, holed):
    with pytest.raises(
        BadInputError,
        match=r"4 of 120 rows are incomplete: column `hour` is missing in 2 rows, the first being "
        r"row 3; column `origin` is missing in 1 row, row 60; column `shop` .* "
        r"row 70. Drop these rows with na='drop'",
    ):
        design(FORMULA, chunks(holed) if streamed else holed)


@pytest.mark.parametrize("streamed", [False, True])
def test_dropped_rows_are_counted_and_not_written(streamed, holed, tmp_path):
    path = tmp_path / "rows.csv"
    holed.to_csv(path, index=False)
    learned = design(FORMULA, chunks(holed) if streamed else holed, na="drop")
    assert learned.n_dropped == 4
    model = logistic(learned)
    cut = learned.cut().settled(model.group_columns)
    assert cut.made_by["n_dropped"] == 4
    for name, data in (("memory", holed), ("file", path)):
        shards = cut.write(data, 2, tmp_path / name, 0)
        assert sum(shards.n_rows) == N - 4
        assert sorted(shards.labels("group").tolist()) == ["a", "b", "c", "d"]
    whole = holed.dropna()
    hour = learned.names.index("hour")
    sums = sum(float(shards.shard(s)["X"][:, hour].sum()) for s in range(2))
    np.testing.assert_allclose(sums, whole["hour"].sum())


def test_rows_to_predict_are_never_dropped(holed):
    learned = design(FORMULA, holed, na="drop")
    assert len(learned.arrays(holed)["y"]) == N - 3  # the group is no array of a design
    with pytest.raises(BadInputError, match="3 of 120 rows are incomplete"):
        learned.arrays(holed, response=False)


def test_files_may_stay_shards_when_rows_are_dropped(holed, tmp_path):
    for i, part in enumerate((holed[:50], holed[50:])):
        part.to_csv(tmp_path / f"part{i}.csv", index=False)
    files = sorted(tmp_path.glob("*.csv"))
    shards = write_shards(
        files, 2, tmp_path / "shards", by="files", columns=["hour", "n"], na="drop"
    )
    assert shards.n_rows == (48, 70)


def test_a_way_that_does_not_exist(holed):
    with pytest.raises(BadInputError, match="raise or drop, not 'omit'"):
        design(FORMULA, holed, na="omit")
    with pytest.raises(BadInputError, match="No row is complete"):
        design("k ~ hour", {"k": [1, 2], "hour": [np.nan, np.nan]}, na="drop")
