"""A client of ``wiski serve``. It needs nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from wiski._errors import WiskiError

# The server ends connections that are idle for longer than this; a new one is made instead.
_IDLE = 20.0

# A row: by column names, or in the order of the columns.
Row = Any

_ARROW = "application/vnd.apache.arrow.stream"


class ServerError(WiskiError):
    """The server answered with an error, or did not answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        #: The status of the answer; 0 if there was none.
        self.status = status


def _plain(value: Any) -> Any:
    """Arrays, frames and their scalars as lists and numbers."""
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return value.to_dict(orient="records")
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "to_pylist"):
        return value.to_pylist()
    raise TypeError(f"a {type(value).__name__} is no part of a row")


class Client:
    """The models of a server.

    Changes carry a key of their own, so that one whose answer was lost is sent again and not carried out twice. The
    client waits and tries again when the server has too much to do.

    A client keeps one connection; threads need one each.

    >>> client = Client("http://127.0.0.1:8080", token="...")  # doctest: +SKIP
    >>> pump = client.create("pump", inputs=["speed", "temperature"], target="power")  # doctest: +SKIP
    >>> pump.learn([{"speed": 3.1, "temperature": 20.5, "power": 7.9}])  # doctest: +SKIP
    >>> pump.predict([[3.0, 21.0]])  # doctest: +SKIP
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        token: str | None = None,
        timeout: float = 60.0,
        retries: int = 5,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise WiskiError(f"{url!r} is not the address of a server, as http://127.0.0.1:8080")
        self._address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        self._tls = (context or ssl.create_default_context()) if parts.scheme == "https" else None
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._timeout, self._retries = timeout, retries
        self._connection: http.client.HTTPConnection | None = None
        self._used = 0.0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address
        if self._tls is not None:
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._tls)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def _once(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, Any, bytes]:
        if time.monotonic() - self._used > _IDLE:
            self.close()
        if self._connection is None:
            self._connection = self._connect()
        self._used = time.monotonic()
        try:
            self._connection.request(method, path, body=body, headers={**self._headers, **headers})
            response = self._connection.getresponse()
            return response.status, response.headers, response.read()
        except BaseException:
            self.close()
            raise

    def _send(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json", *, change: bool = False
    ) -> bytes:
        headers = {"content-type": kind} if body is not None else {}
        if change:
            headers["idempotency-key"] = uuid.uuid4().hex
        # Without a key only what changes nothing may be sent again.
        safe = change or method == "GET" or path.split("?")[0].endswith("/infer")
        wait, failure = 0.05, ServerError(0, "no answer")
        for attempt in range(self._retries + 1):
            if attempt > 0:
                time.sleep(wait * (0.5 + random.random()))
                wait = min(2 * wait, 2.0)
            try:
                status, answered, content = self._once(method, path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                failure = ServerError(0, f"no answer: {error or type(error).__name__}")
                if not safe:
                    raise failure from error
                continue
            if status < 400:
                return content
            try:
                message = json.loads(content)["error"]
            except (ValueError, KeyError, TypeError):
                message = content.decode("utf-8", "replace") or f"status {status}"
            failure = ServerError(status, message)
            if not (status == 429 or (status == 503 and safe)):
                raise failure
            wait = max(wait, 0.1 * float(answered.get("retry-after") or 0))
        raise failure

    def _json(self, method: str, path: str, value: Any = None, *, change: bool = False) -> Any:
        body = None if value is None else json.dumps(value, default=_plain, allow_nan=False).encode()
        return json.loads(self._send(method, path, body, change=change))

    def is_live(self) -> bool:
        """Whether the server answers."""
        try:
            return bool(self._json("GET", "/v2/health/live")["live"])
        except ServerError:
            return False

    def server(self) -> dict[str, Any]:
        """Name, version and extensions of the server."""
        return self._json("GET", "/v2")

    def models(self) -> list[dict[str, Any]]:
        """The models, and what is known of those in memory."""
        return self._json("GET", "/v2/models")["models"]

    def model(self, name: str) -> RemoteModel:
        """A model of this name, whether it is there or not."""
        return RemoteModel(self, name)

    def create(
        self,
        name: str,
        kind: str = "regressor",
        *,
        inputs: Iterable[str] = (),
        target: str | None = None,
        settings: dict[str, Any] | None = None,
        **more: Any,
    ) -> RemoteModel:
        """Make a model: a ``"regressor"``, a ``"classifier"``, a ``"forecaster"`` or an ``"optimizer"``.

        ``more`` may hold ``noise``, ``time``, ``periodic``, ``levels``, ``classes``, ``add_classes``, ``space``, ``goal``,
        ``goals`` and ``constraints``.
        """
        body = {"name": name, "kind": kind, "settings": settings or {}, **more}
        if kind != "optimizer":
            body.update(inputs=list(inputs), target=target)
        self._json("POST", "/v2/models", body)
        return self.model(name)

    def restore(self, name: str, snapshot: bytes) -> RemoteModel:
        """Make a model of a snapshot: of :meth:`RemoteModel.snapshot`, or a file of the command line."""
        self._send("PUT", f"/v2/models/{quote(name, safe='')}", snapshot, "application/octet-stream")
        return self.model(name)


class RemoteModel:
    """A model on a server."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name: str = name
        self._path = f"/v2/models/{quote(name, safe='')}"

    def __repr__(self) -> str:
        return f"RemoteModel({self.name!r})"

    def _send_rows(self, what: str, rows: Iterable[Row] | bytes, level: float | None, *, change: bool) -> dict[str, Any]:
        path = f"{self._path}/{what}"
        if isinstance(rows, (bytes, bytearray, memoryview)):
            if level is not None:
                path += f"?level={level!r}"
            return json.loads(self._client._send("POST", path, bytes(rows), _ARROW, change=change))
        return self._client._json("POST", path, self._rows(rows, level), change=change)

    def _change(self, what: str, value: Any) -> dict[str, Any]:
        return self._client._json("POST", f"{self._path}/{what}", value, change=True)

    def _rows(self, rows: Iterable[Row], level: float | None) -> dict[str, Any]:
        is_table = any(hasattr(rows, name) for name in ("tolist", "to_dict", "to_pylist"))
        body: dict[str, Any] = {"rows": _plain(rows) if is_table else list(rows)}
        if level is not None:
            body["level"] = level
        return body

    def predict(self, rows: Iterable[Row] | bytes, *, level: float | None = None) -> list[dict[str, Any]]:
        """For each row mean, standard deviation and interval; or label, probabilities and set of classes.

        Rows are dicts, lists, an array, a frame or a table of pyarrow; or the bytes of an Arrow IPC stream, which a
        server reads that was built with Arrow.
        """
        return self._send_rows("infer", rows, level, change=False)["predictions"]

    def forecast(self, horizon: int, *, level: float | None = None) -> list[dict[str, Any]]:
        """The next steps of a forecaster without inputs: time, mean, standard deviation and interval of each.

        With inputs, :meth:`predict` takes the rows ahead.
        """
        body: dict[str, Any] = {"horizon": horizon}
        if level is not None:
            body["level"] = level
        return self._client._json("POST", f"{self._path}/infer", body)["predictions"]

    def learn(self, rows: Iterable[Row] | bytes) -> dict[str, Any]:
        """Learn rows. When this returns they are on the server's disk."""
        return self._send_rows("learn", rows, None, change=True)

    def step(self, rows: Iterable[Row] | bytes, *, level: float | None = None) -> list[dict[str, Any]]:
        """Predict each row, then learn it."""
        return self._send_rows("step", rows, level, change=True)["predictions"]

    def forget(self, rows: Iterable[Row]) -> dict[str, Any]:
        """Un-learn rows."""
        return self._change("forget", self._rows(rows, None))

    def ask(self, count: int = 1) -> list[dict[str, Any]]:
        """Points to try next."""
        return self._change("ask", {"count": count})["points"]

    def tell(self, trials: Iterable[Row]) -> dict[str, Any]:
        """Learn what trials gave: points with their ``value``, and those of further objectives (``value2``, ``value3``) and
        constraints (by their names), if there are any; a point without a value has failed."""
        return self._change("tell", self._rows(trials, None))

    def refit(self) -> None:
        """Fit the hyperparameters to everything learned."""
        self._change("refit", {})

    def freeze(self) -> None:
        """End learning of features: then models can be merged and rows un-learned."""
        self._change("freeze", {})

    def is_ready(self) -> bool:
        """Whether the warm-up is over."""
        return bool(self.stats()["ready"])

    def stats(self) -> dict[str, Any]:
        """The figures of the model."""
        return self._client._json("GET", f"{self._path}/stats")

    def metadata(self) -> dict[str, Any]:
        """Columns and tensors."""
        return self._client._json("GET", self._path)

    def snapshot(self, *, shard: bool = False) -> bytes:
        """The model as the bytes of a file; as a shard it has learned nothing yet."""
        return self._client._send("GET", f"{self._path}/snapshot" + ("?shard=true" if shard else ""))

    def merge(self, snapshot: bytes) -> dict[str, Any]:
        """Take in what the model in a snapshot has learned."""
        path = f"{self._path}/merge"
        return json.loads(self._client._send("POST", path, snapshot, "application/octet-stream", change=True))

    def delete(self) -> None:
        """Delete the model with everything it has learned."""
        self._client._send("DELETE", self._path)

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What happens to the model from now on, as (kind, data); on a connection of its own."""
        connection = self._client._connect()
        try:
            connection.request("GET", f"{self._path}/events", headers=self._client._headers)
            response = connection.getresponse()
            if response.status != 200:
                raise ServerError(response.status, response.read().decode("utf-8", "replace"))
            kind = ""
            while line := response.readline():
                text = line.decode("utf-8").rstrip("\n")
                if text.startswith("event: "):
                    kind = text[7:]
                elif text.startswith("data: "):
                    yield kind, json.loads(text[6:])
        finally:
            connection.close()
