"""Values are those of the command line, which is the Rust library: to the last bit, computed anew each time."""

import csv
import json
import subprocess

import numpy as np
import pandas as pd
import pytest

import wiski
from wiski import OnlineGPRegressor


@pytest.fixture(scope="module")
def heat_pump(project, tmp_path_factory):
    """The first rows of the project's example stream, as a file and as a frame."""
    source = project / "crates" / "wiski" / "examples" / "data" / "heat_pump.csv"
    frame = pd.read_csv(source).head(600)
    path = tmp_path_factory.mktemp("data") / "stream.csv"
    frame.to_csv(path, index=False)
    return path, frame


def run(command, *arguments):
    done = subprocess.run([str(command), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def predictions(command, model, data):
    rows = list(csv.DictReader(run(command, "predict", model, data).splitlines()))
    return np.array([[float(r["mean"]), float(r["std"])] for r in rows])


def one_by_one(model, X):
    """As the command line predicts; an image for many rows rounds differently."""
    return np.array([np.ravel(model.predict(X.iloc[i : i + 1], return_std=True)) for i in range(len(X))])


def test_the_same_stream_gives_the_same_model(command, heat_pump, tmp_path):
    path, frame = heat_pump
    X, y = frame.drop(columns="power"), frame["power"]
    run(command, "stream", path, "--target", "power", "--model", tmp_path / "cli.wiski")
    expected = predictions(command, tmp_path / "cli.wiski", path)

    model = OnlineGPRegressor()
    for i in range(0, len(X), 50):
        model.partial_fit(X[i : i + 50], y[i : i + 50])
    model.finish_search()  # as the command does at the end of a file
    np.testing.assert_array_equal(one_by_one(model, X), expected)

    loaded = wiski.load(tmp_path / "cli.wiski")
    assert isinstance(loaded, OnlineGPRegressor)
    assert list(loaded.feature_names_in_) == list(X.columns)
    assert loaded.n_seen_ == len(X)
    np.testing.assert_array_equal(one_by_one(loaded, X), expected)

    model.save(tmp_path / "python.wiski")
    np.testing.assert_array_equal(predictions(command, tmp_path / "python.wiski", path), expected)
    # The file knows the names of the columns, that of the target too.
    run(command, "update", tmp_path / "python.wiski", path)
    assert wiski.load(tmp_path / "python.wiski").n_seen_ == 2 * len(X)


def test_a_model_goes_from_one_to_the_other_and_back(command, heat_pump, tmp_path):
    path, frame = heat_pump
    X, y = frame.drop(columns="power"), frame["power"]
    file = tmp_path / "model.wiski"
    # The target keeps its name in the file, so that the command line finds it.
    run(command, "stream", path, "--target", "power", "--model", file)
    model = wiski.load(file).partial_fit(X, y)
    model.save(file)
    run(command, "update", file, path)
    back = wiski.load(file)
    assert back.n_seen_ == 3 * len(X)
    model.partial_fit(X, y).finish_search()
    np.testing.assert_array_equal(one_by_one(back, X[:50]), one_by_one(model, X[:50]))


def test_classes_are_those_of_the_command_line(command, heat_pump, tmp_path):
    path, frame = heat_pump
    frame = frame.assign(kind=np.where(frame["power"] > frame["power"].median(), "high", "low"))
    frame = frame.drop(columns="power")
    data = tmp_path / "kinds.csv"
    frame.to_csv(data, index=False)
    run(command, "stream", data, "--target", "kind", "--classify", "--model", tmp_path / "kinds.wiski")
    rows = list(csv.DictReader(run(command, "predict", tmp_path / "kinds.wiski", data).splitlines()))
    expected = np.array([[float(r["p_high"]), float(r["p_low"])] for r in rows])

    X = frame.drop(columns="kind")
    model = wiski.OnlineGPClassifier().partial_fit(X, frame["kind"]).finish_search()
    one_by_one = np.vstack([model.predict_proba(X.iloc[i : i + 1]) for i in range(len(X))])
    np.testing.assert_array_equal(one_by_one, expected)
    assert list(model.predict(X)) == [r["predicted"] for r in rows]


def test_searches_go_on_in_the_command_line(command, tmp_path):
    search = wiski.Optimizer({"x": (-2, 2)})
    for _ in range(8):
        (point,) = search.ask()
        search.tell(point, (point["x"] - 0.5) ** 2)
    file = tmp_path / "run.wiski"
    search.save(file)
    best = run(command, "optimize", "best", file)
    assert str(search.best.x["x"])[:6] in best
    asked = run(command, "optimize", "ask", file)
    (mine,) = search.ask()
    assert json.loads(asked)["x"] == mine["x"]
    # What the command line asked for is pending in the file.
    (theirs,) = wiski.load(file).pending
    assert theirs == mine
