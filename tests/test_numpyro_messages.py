"""What `from_numpyro` says about data, arguments and sites that it cannot use."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
import pytest

import ksivi


@pytest.fixture(autouse=True)
def as_numpyro_computes():
    """Its distributions promote ranks."""
    with jax.numpy_rank_promotion("allow"):
        yield


X = np.arange(5.0)
GAP = np.array([0.0, 1.0, 2.0, np.nan, 4.0])


def line(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    numpyro.sample("obs", dist.Normal(slope * x, 1), obs=y)


def counts(y=None):
    numpyro.sample("n", dist.Poisson(numpyro.sample("rate", dist.Gamma(1.0, 1.0))), obs=y)


def pairs(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(2) + mean, jnp.eye(2)), obs=y)


def weighed(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.factor("weights", jnp.sum(jnp.log(y)) - mean**2)


def in_a_plate(x, y=None, batch_size=2):
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", len(x), subsample_size=batch_size):
        data = None if y is None else numpyro.subsample(y, event_dim=0)
        mean = slope * numpyro.subsample(x, event_dim=0)
        numpyro.sample("y", dist.Normal(mean, 1), obs=data)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: ksivi.from_numpyro(line, X, GAP),
            r"'obs' \(Normal\) is .* in row 3 of 5.* are nan",
        ),
        (
            lambda: ksivi.from_numpyro(line, GAP, X),
            r"(`numpyro.sample\(\"obs\"|'obs' \(Normal\)).* argument 'x' has NaN .* in row 3 of 5",
        ),
        (
            lambda: ksivi.from_numpyro(counts, np.array([1, -2, 3, -1])),
            r"'n' \(Poisson\) is -inf in rows 1 and 3 of 4, counted from 0, where the data are -2, -1",
        ),
        (lambda: ksivi.from_numpyro(counts, np.array([1, 2.5])), "is -inf in row 1 .* are 2.5"),
        (
            lambda: ksivi.from_numpyro(pairs, np.array([[0, 1], [2, np.nan]])),
            r"'y' \(MultivariateNormal\) is .* in row 1 of 2, .* are \[ 2. nan\]",
        ),
        (lambda: ksivi.from_numpyro(weighed, X), "the log density of 'weights' is -inf"),
        (lambda: ksivi.from_numpyro(in_a_plate, X, GAP), r"'y' \(Normal\) is .* in row 3 of 5"),
    ],
)
def test_the_site_and_the_row_of_impossible_data_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_support_that_is_not_known_says_what_to_write():
    def zero_sum():
        numpyro.sample("effects", dist.ZeroSumNormal(1.0, (3,)))

    def ball():
        numpyro.sample("x", dist.ImproperUniform(dist.constraints.l1_ball, (), (3,)))

    with pytest.raises(ValueError, match=r"'effects' has the support ZeroSum.*linalg\.helmert"):
        ksivi.from_numpyro(zero_sum)
    with pytest.raises(ValueError, match=r"L1Ball\(\), .* real, positive, .*from_pytree"):
        ksivi.from_numpyro(ball)


def test_missing_data_that_the_model_masks_are_no_fault():
    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.handlers.mask(mask=~jnp.isnan(y)):
            numpyro.sample("y", dist.Normal(mean, 1), obs=jnp.nan_to_num(y))

    assert ksivi.from_numpyro(model, GAP).layout == (("mean", ()),)


@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        (line, (X,), "'obs' has no data, because the argument 'y' .* lambda x: line.x, y=None.$"),
        (counts, (None,), r"'n' has no data, .* give y=; .* such as lambda: counts\(y=None\)$"),
        (in_a_plate, (X,), "'y' has no data, because the argument 'y' of the model is None"),
    ],
)
def test_a_site_that_was_given_no_data_is_refused(model, arguments, words):
    with pytest.raises(ValueError, match=words):
        ksivi.from_numpyro(model, *arguments)


def test_a_site_without_data_can_be_asked_for():
    asked = ksivi.from_numpyro(lambda x: line(x, y=None), X)
    assert dict(asked.layout) == {"obs": (5,), "slope": ()}

    def optional(y, age=None, prior=None):
        mean = numpyro.sample("mean", dist.Normal(0 if prior is None else prior, 1))
        if age is not None:
            mean = mean + numpyro.sample("by_age", dist.Normal(0, 1)) * age
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    assert ksivi.from_numpyro(optional, X).layout == (("mean", ()),)
    assert dict(ksivi.from_numpyro(optional, X, age=X).layout) == {"by_age": (), "mean": ()}


class Polars:
    """What `from_numpyro` asks of a data frame of another library."""

    columns = ("x", "y", "who")

    def __init__(self, frame):
        self.frame = frame

    def __getitem__(self, name):
        return self.frame[name]

    def to_numpy(self):
        return self.frame.to_numpy()


FRAME = pandas.DataFrame({"x": X, "y": X[::-1], "who": list("abcde")})


@pytest.mark.parametrize("table", [FRAME, Polars(FRAME)])
def test_a_data_frame_is_given_by_column(table):
    def model(table):
        line(table["x"], table["y"])

    target = ksivi.from_numpyro(model, table)
    expected = ksivi.from_numpyro(line, X, X[::-1])
    point = jnp.array([0.3])
    np.testing.assert_array_equal(target.log_density(point), expected.log_density(point))
    series = ksivi.from_numpyro(line, FRAME["x"], y=FRAME["y"].astype("Int64"))
    np.testing.assert_array_equal(series.log_density(point), expected.log_density(point))
    draws = {"slope": jnp.zeros(3)}
    assert target.model.predictive(jax.random.key(0), draws, FRAME)["obs"].shape == (3, 5)


@pytest.mark.parametrize("dtype", [object, "string", "category"])
def test_text_of_digits_is_not_a_column_of_numbers(dtype):
    """A zip code such as 01234 is a name."""
    frame = FRAME.assign(zip=pandas.Series(list("01234"), dtype=dtype))
    seen = []

    def model(table):
        seen.extend(table)
        line(table["x"], table["y"])

    ksivi.from_numpyro(model, frame)
    assert set(seen) == {"x", "y"}
    with pytest.raises(ValueError, match=r"argument 'y' of the model must .*make text into"):
        ksivi.from_numpyro(line, X, frame["zip"].astype(object))


def test_a_data_frame_that_a_model_cannot_use_is_named():
    def matrix(x, y):
        slope = numpyro.sample("slope", dist.Normal(0, 1).expand([2]))
        numpyro.sample("y", dist.Normal(x @ slope, 1), obs=y)

    with pytest.raises(ValueError, match=r"'x' is a data frame, .* give x.to_numpy\(\), .*$"):
        ksivi.from_numpyro(matrix, FRAME[["x", "y"]], X)
    with pytest.raises(ValueError, match=r"KeyError: 'who'.*, without who, which are not numbers"):
        ksivi.from_numpyro(lambda table: table["who"], FRAME)
    with pytest.raises(ValueError, match=r"argument 'y' of the model must .*, got 0 +a"):
        ksivi.from_numpyro(line, X, FRAME["who"])
    with pytest.raises(ValueError, match=r"argument 'x' of the model must hold numbers, .* <U1"):
        ksivi.from_numpyro(line, np.array(["a", "b"]), X)
    with pytest.raises(ValueError, match=r"'x' is a list: give numpy.array\(x\)"):
        ksivi.from_numpyro(line, [1.0, 2.0], [1.0, 2.0])


@pytest.mark.parametrize("size", [None, 1])
def test_the_columns_of_a_data_frame_are_not_taken_for_its_rows(size):
    """`len` of a dict of columns is their number. Indices would select as many rows, without an error."""

    def model(table):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("rows", len(table), subsample_size=size) as rows:
            numpyro.sample("y", dist.Normal(slope * table["x"][rows], 1), obs=table["y"][rows])

    words = r"plate 'rows' has 2 rows, the number of columns .* 'table', .* 5 rows.* len\(table\['x'\]\)"
    with pytest.warns(UserWarning, match=words) as found:
        ksivi.from_numpyro(model, FRAME)
    assert found[0].filename == __file__


def test_a_plate_over_the_columns_of_a_data_frame_is_taken():
    def model(table):
        columns = jnp.stack([table["x"], table["y"]], axis=1)
        with numpyro.plate("columns", len(table)):
            mean = numpyro.sample("mean", dist.Normal(0, 1))
            with numpyro.plate("rows", len(columns)):
                numpyro.sample("values", dist.Normal(mean, 1), obs=columns)

    assert ksivi.from_numpyro(model, FRAME).dim == 2


@pytest.mark.filterwarnings("error")
def test_a_plate_over_columns_with_the_rows_in_an_event_is_taken():
    def model(table):
        columns = jnp.stack([table["x"], table["y"]])
        with numpyro.plate("columns", len(table)):
            mean = numpyro.sample("mean", dist.Normal(0, 1))
            each = dist.Normal(mean[:, None], 1).expand([2, 5]).to_event(1)
            numpyro.sample("values", each, obs=columns)

    assert ksivi.from_numpyro(model, FRAME).dim == 2


def hidden_plate(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.handlers.block(hide=["rows"]), numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def plate_of_an_outer_scope(y):
    mean, plate = numpyro.sample("mean", dist.Normal(0, 1)), numpyro.plate("rows", len(y))
    with numpyro.handlers.scope(prefix="inner"), plate:
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def plate_in_a_scan(y):
    from numpyro.contrib.control_flow import scan

    def step(before, now):
        with numpyro.plate("series", 2):
            return numpyro.sample("y", dist.Normal(0.5 * before + mean, 1), obs=now), None

    mean = numpyro.sample("mean", dist.Normal(0, 1))
    scan(step, jnp.zeros(2), jnp.stack([y, y], axis=1))


@pytest.mark.parametrize("model", [hidden_plate, plate_of_an_outer_scope, plate_in_a_scan])
def test_plates_that_have_no_site_of_their_own_are_taken(model):
    assert ksivi.from_numpyro(model, jnp.arange(5.0)).dim == 1


def test_functions_of_data_that_get_columns_say_so():
    prior = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
    numbers = FRAME[["x", "y"]]
    words = (
        r"gets columns as a dict of arrays, here 'x', 'y'; for a matrix .* give data.to_numpy\(\)"
    )
    for given, wrong in (
        (numbers, lambda x, rows: jnp.sum(rows[:, 0])),
        (FRAME, lambda x, rows: jnp.sum(rows.x)),
        (FRAME, lambda x, rows: jnp.sum(rows["who"])),
        ((numbers, FRAME["x"]), lambda x, rows: jnp.sum(rows[0] @ x)),
        (ksivi.Rows(numbers), lambda x, rows: jnp.sum(rows[:, 0])),
    ):
        with pytest.raises(ValueError, match=words):
            ksivi.Target.from_data(prior, wrong, given, 1, batch_size=2)
    plain = {"x": X, "y": X}
    for given in (np.zeros((5, 1)), plain, ksivi.Rows(plain), {"x": X, "y": FRAME["y"]}):
        with pytest.raises(ValueError, match=r"failed at a point of shape \(1,\): [^;]*$"):
            ksivi.Target.from_data(prior, lambda x, rows: rows.x, given, 1, batch_size=2)
    with pytest.raises(
        ValueError, match=r"arrays must hold numbers, got .* make text into integers"
    ):
        ksivi.Rows({"who": FRAME["who"]})
    with pytest.raises(
        ValueError, match="arrays must have at least one column of numbers, got none"
    ):
        ksivi.Rows(FRAME[["who"]])


def test_a_data_frame_is_the_data_of_a_target():
    def log_likelihood(x, rows):
        return -0.5 * jnp.sum((rows["y"] - x[0] * rows["x"]) ** 2)

    prior = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
    target = ksivi.Target.from_data(prior, log_likelihood, FRAME, 1, batch_size=2)
    np.testing.assert_allclose(target.log_density(jnp.zeros(1)), -15.0)
    fed = ksivi.Target.from_data(prior, log_likelihood, ksivi.Rows(FRAME), 1, batch_size=5)
    np.testing.assert_allclose(fed.log_density(jnp.zeros(1)), -15.0)


def regression(x, rows):
    return -0.5 * jnp.sum((rows["y"] - x[0] * rows["x"]) ** 2)


def as_target(table):
    return ksivi.Target.from_data(lambda x: -0.5 * jnp.sum(x**2), regression, table, 1)


MISSING = [1.0, 2.0, None, 4.0, 5.0]


@pytest.mark.parametrize(
    "column",
    [
        np.array([pandas.NA if one is None else one for one in MISSING], object),
        np.array(MISSING, object),
        pandas.array(MISSING, dtype="Int64"),
        pandas.array(MISSING, dtype="Float64"),
    ],
    ids=["NA", "None", "Int64", "Float64"],
)
def test_a_column_with_missing_numbers_is_kept_and_named(column):
    table = FRAME.assign(x=column)
    with pytest.raises(ValueError, match=r"'x' has NaN or infinite values in row 2 of 5"):
        as_target(table)
    np.testing.assert_array_equal(np.isnan(ksivi.Rows(table).block(0)["x"]), np.arange(5) == 2)
    with pytest.raises(ValueError, match=r"argument 'table.x' has NaN or .* in row 2 of 5"):
        ksivi.from_numpyro(lambda table: line(table["x"], table["y"]), table)
    assert as_target(FRAME.assign(unused=column)).dim == 1


def test_a_column_with_missing_booleans_is_refused():
    """As a condition NaN would count as true."""
    for gap, dtype in ((pandas.NA, "boolean"), (None, object), (np.nan, object)):
        column = pandas.Series([True, False, gap, True, gap], dtype=dtype, name="treated")
        words = r"the column 'treated' must have no missing .* in 2 of 5 rows, first in row 2, .* fill these"
        for call in (
            lambda table: as_target(table),
            lambda table: ksivi.Rows(table),
            lambda table: ksivi.from_numpyro(lambda table: line(table["x"], table["y"]), table),
            lambda table: ksivi.from_numpyro(line, X, table["treated"]),
        ):
            with pytest.raises(ValueError, match=words):
                call(FRAME.assign(treated=column))
    whole = pandas.Series([True, False, True, True, False], dtype="boolean")
    assert ksivi.Rows(FRAME.assign(treated=whole)).block(0)["treated"].dtype == bool


def test_shapes_that_do_not_fit_are_named():
    def matrix(x, y):
        slope = numpyro.sample("slope", dist.Normal(0, 1).expand([3]))
        numpyro.sample("y", dist.Normal(x @ slope, 1), obs=y)

    with pytest.raises(
        ValueError, match=r"^model failed in line \d+, `numpyro.sample\(\"y\".*: TypeError: dot_gen"
    ):
        ksivi.from_numpyro(matrix, np.ones((5, 2)), X)
    shapes = r"'y' has data of shape \(4,\), but its distribution has shape \(5,\)"
    with pytest.raises(ValueError, match=shapes):
        ksivi.from_numpyro(matrix, np.ones((5, 3)), X[:4])
    # A column of data would meet every row of the distribution, 25 terms instead of 5.
    with pytest.raises(ValueError, match=r"data of shape \(5, 1\), but .* shape \(5,\)"):
        ksivi.from_numpyro(matrix, np.ones((5, 3)), X[:, None])
    with pytest.raises(ValueError, match=r"^model failed: TypeError: .* missing 1 required .* 'y'"):
        ksivi.from_numpyro(matrix, X)


def mixture(y):
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("rows", len(y)):
        group = numpyro.sample("group", dist.Categorical(share), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(group, 1), obs=y)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: mixture(X), r"'group' is discrete \(Categorical\), .*'enumerate': ...} is not"),
        (lambda: _alone(dist.Bernoulli(0.5).expand([3]).to_event(1)), r"discrete \(Bernoulli\)"),
        (lambda: _alone(dist.Delta(1.0)), r"'a' has no density \(Delta\): use numpyro.determ"),
        (lambda: _alone(dist.Uniform(2, 1)), r"'a' \(Uniform\) .*: lower must be below upper"),
        (lambda: None, "parameter to infer, but it has no sample sites"),
    ],
)
def test_a_site_that_cannot_be_inferred_is_named_with_its_distribution(model, words):
    with pytest.raises(ValueError, match=words):
        ksivi.from_numpyro(model)


def _alone(distribution):
    numpyro.sample("a", distribution)
