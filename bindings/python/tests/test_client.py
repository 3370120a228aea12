"""The client against the real server."""

import json
import re
import signal
import socket
import subprocess
import threading

import numpy as np
import pytest

import wiski

SETTINGS = {"features": "identity", "grid": [8], "kernel": "rbf", "learn": "off", "warm_up": 20}


def start(command, folder, *options):
    arguments = [command, "serve", "--models", folder, "--listen", "127.0.0.1:0", "--log", "error", *options]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    line = process.stderr.readline()
    address = re.search(r"http://\S+", line)
    assert address, line
    return process, address.group()


@pytest.fixture
def server(command, tmp_path):
    process, address = start(command, tmp_path / "models")
    yield address
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def rows(rng, count):
    X = rng.uniform(size=(count, 2))
    return [{"a": a, "b": b, "y": np.sin(6 * a) * b} for a, b in X]


def test_learn_and_predict(server, tmp_path):
    rng = np.random.default_rng(1)
    with wiski.Client(server) as client:
        assert client.is_live() and client.server()["name"] == "wiski" and client.models() == []
        model = client.create("m", inputs=["a", "b"], target="y", settings=SETTINGS)
        with pytest.raises(wiski.ServerError, match="warm-up") as error:
            model.predict([[0.5, 0.5]])
        assert error.value.status == 409
        assert model.learn(rows(rng, 100))["learned"] == 100
        assert model.is_ready()
        [said] = model.predict(np.array([[0.3, 0.4]]), level=0.8)
        assert abs(said["mean"] - np.sin(1.8) * 0.4) < 0.1 and said["lower"] < said["mean"] < said["upper"]
        assert len(model.step(rows(rng, 3))) == 3
        # The file is one that the library reads.
        path = tmp_path / "m.wiski"
        path.write_bytes(model.snapshot())
        own = wiski.load(path)
        assert abs(own.predict([[0.3, 0.4]])[0] - model.predict([[0.3, 0.4]])[0]["mean"]) < 1e-9
        model.freeze()
        shard = client.restore("n", model.snapshot(shard=True))
        shard.learn(rows(rng, 10))
        model.merge(shard.snapshot())
        assert model.stats()["rows"] == 113
        with pytest.raises(wiski.ServerError, match="column 'b'"):
            model.learn([{"a": 1, "y": 2}])
        shard.delete()
        assert [m["name"] for m in client.models()] == ["m"]


def test_arrow(server):
    pyarrow = pytest.importorskip("pyarrow")
    rng = np.random.default_rng(3)
    learned, ahead = rows(rng, 60), [{"a": 0.3, "b": 0.4}, {"a": 0.6, "b": 0.1}]

    def stream(rows):
        table, sink = pyarrow.Table.from_pylist(rows), pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=25)
        return sink.getvalue().to_pybytes()

    with wiski.Client(server) as client:
        # A table goes to any server, by JSON.
        plain = client.create("plain", inputs=["a", "b"], target="y", settings=SETTINGS)
        assert plain.learn(pyarrow.Table.from_pylist(learned))["learned"] == 60
        model = client.create("m", inputs=["a", "b"], target="y", settings=SETTINGS)
        if "arrow_ipc" not in client.server()["extensions"]:
            with pytest.raises(wiski.ServerError, match="without Arrow") as error:
                model.learn(stream(learned))
            assert error.value.status == 415
            return
        assert model.learn(stream(learned))["learned"] == 60
        assert model.predict(stream(ahead), level=0.8) == plain.predict(ahead, level=0.8)
        with pytest.raises(wiski.ServerError, match="Arrow IPC"):
            model.learn(stream(learned)[:200])


def test_series(server, tmp_path):
    with wiski.Client(server) as client:
        sold = client.create("sold", "forecaster", time="day", target="sold", settings={"seasons": [7]})
        series = [{"day": i, "sold": 10 + 3 * np.sin(2 * np.pi * i / 7) + 0.01 * (i * i % 13)} for i in range(300)]
        assert sold.learn(series)["learned"] == 300
        ahead = sold.forecast(7, level=0.9)
        # The file is one that the library reads.
        path = tmp_path / "sold.wiski"
        path.write_bytes(sold.snapshot())
        own = wiski.Forecaster.load(path).predict(7, level=0.9)
        assert [p["time"] for p in ahead] == [float(i) for i in range(300, 307)]
        np.testing.assert_allclose([p["mean"] for p in ahead], own.mean, rtol=1e-12)
        with pytest.raises(wiski.ServerError, match="horizon"):
            sold.forecast(0)


def test_search(server):
    client = wiski.Client(server)
    space = [{"name": "x", "lo": -2, "hi": 2}, {"name": "how", "lo": 0, "hi": 1, "choices": ["good", "bad"]}]
    search = client.create("s", "optimizer", space=space, goal="maximize")
    for _ in range(15):
        for point in search.ask():
            value = -((point["x"] - 0.5) ** 2) - (point["how"] == "bad")
            search.tell([{**point, "value": value}])
    search.tell([{"x": 0.0, "how": "bad"}])
    best = search.stats()["best"]
    assert best["point"]["how"] == "good" and abs(best["point"]["x"] - 0.5) < 0.2


def test_events(server):
    client = wiski.Client(server)
    model = client.create("m", inputs=["a", "b"], target="y", settings=SETTINGS)
    rng = np.random.default_rng(2)
    model.learn(rows(rng, 50))
    seen = []
    events = model.events()
    assert next(events)[0] == "hello"
    thread = threading.Thread(target=lambda: seen.extend(next(events) for _ in range(3)))
    thread.start()
    model.learn(rows(rng, 3))
    thread.join(20)
    assert [kind for kind, _ in seen] == ["row"] * 3
    assert [data["row"] for _, data in seen] == [51, 52, 53] and "lower" in seen[0][1]


def test_a_killed_server_loses_nothing_and_the_client_tries_again(command, tmp_path):
    process, address = start(command, tmp_path / "models")
    port = address.rsplit(":", 1)[1]
    client = wiski.Client(address, retries=12)
    model = client.create("m", inputs=["a", "b"], target="y", settings=SETTINGS)
    rng = np.random.default_rng(3)
    model.learn(rows(rng, 30))
    process.kill()
    process.wait()
    revived = []

    def revive():
        arguments = [command, "serve", "--models", tmp_path / "models", "--listen", f"127.0.0.1:{port}", "--log", "error"]
        revived.append(subprocess.Popen(arguments, stderr=subprocess.DEVNULL))

    timer = threading.Timer(0.3, revive)
    timer.start()
    assert model.learn(rows(rng, 5))["rows"] == 35
    timer.join()
    revived[0].kill()
    revived[0].wait()


def test_tokens(command, tmp_path):
    (tmp_path / "tokens").write_text("read reader-0123456789\nadmin keeper-0123456789\n")
    process, address = start(command, tmp_path / "models", "--tokens", tmp_path / "tokens")
    try:
        with pytest.raises(wiski.ServerError) as error:
            wiski.Client(address).models()
        assert error.value.status == 401
        with pytest.raises(wiski.ServerError) as error:
            wiski.Client(address, token="reader-0123456789").create("m", inputs=["a"], target="y")
        assert error.value.status == 403
        wiski.Client(address, token="keeper-0123456789").create("m", inputs=["a"], target="y")
    finally:
        process.kill()
        process.wait()


def test_errors():
    with pytest.raises(wiski.WiskiError, match="not the address"):
        wiski.Client("127.0.0.1:8080")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = wiski.Client(f"http://127.0.0.1:{unused.getsockname()[1]}", retries=1)
        assert not client.is_live()
        with pytest.raises(wiski.ServerError, match="no answer"):
            client.models()


def test_open_inference_clients(server):
    """An existing client of the protocol."""
    triton = pytest.importorskip("tritonclient.http")
    model = wiski.Client(server).create("m", inputs=["a", "b"], target="y", settings=SETTINGS)
    model.learn(rows(np.random.default_rng(4), 60))
    client = triton.InferenceServerClient(server.removeprefix("http://"))
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("m")
    assert client.get_server_metadata()["name"] == "wiski"
    assert client.get_model_metadata("m")["platform"] == "wiski_regressor"
    assert client.get_model_repository_index()[0]["name"] == "m"
    X = np.random.default_rng(5).uniform(size=(7, 2))
    wanted = [p["mean"] for p in model.predict(X)]
    for binary in (True, False):
        tensor = triton.InferInput("x", X.shape, "FP64")
        tensor.set_data_from_numpy(X, binary_data=binary)
        result = client.infer("m", [tensor], request_id="7")
        assert np.array_equal(result.as_numpy("mean"), wanted) and result.get_response()["id"] == "7"
    assert json.dumps(result.get_response())
