"""Bayesian optimization by asking and telling."""

from __future__ import annotations

import json
import math
import numbers
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wiski import _core
from wiski._errors import WiskiError


class Best(NamedTuple):
    """A point and its value."""

    x: Any
    y: float


class Recommendation(NamedTuple):
    """A point, its predicted value, and how sure that is."""

    x: Any
    mean: float
    std: float


class Optimizer:
    """Proposes points and learns from results; a proposal takes as long after ten thousand trials as after a thousand.

    Parameters
    ----------
    space : mapping or sequence
        One to fifty dimensions, each ``(low, high)``, ``(low, high, "log")``, ``(low, high, "int")`` or
        ``(low, high, "log", "int")``; with steps, ``(low, high, step)`` or ``(low, high, step, "int")``; or a choice without an order, as ``["adam", "sgd"]`` or
        ``{"choices": [16, 32, None]}``, which counts as as many dimensions as there are choices. One that is there only
        for some choices says so, as ``{"range": (0, 1), "only_if": {"solver": ["sgd"]}}``, after that choice. With a
        mapping from names, points are dictionaries, whose whole numbers are ``int``; with a sequence, arrays.
    maximize : bool or sequence of bool, default=False
        Whether large values are wanted. A sequence says it for each of two or three objectives; the answer is then
        ``front``.
    constraints : int or sequence of str, default=0
        Values that come with every result and must not be positive: how many, or their names.
    strategy : str, default="logei"
        ``"logei"``, ``"ei"``, ``"ucb"``, ``"ucb:4"``, ``"pi"``, ``"mes"`` (information about the maximum) or
        ``"thompson"``. Several points are found together, or one after the other with ``"greedy "`` in front.
    initial : int, default=None
        The number of points of the quasi-random design at the start. None is twice the dimensions plus three.
    exact_until : int, default=None
        Up to so many results the model is an exact Gaussian process; beyond, it lives on grids, in constant time.
        None is 500, and 0 grids from the start.
    grid : int, default=None
        Grid points per axis. None is a choice by the number of dimensions.
    local : bool, default=None
        Whether a search on grids closes in on the best point, with a grid that becomes finer as it does. True: from
        the start. None: once it is on grids, in more than four dimensions and where the grid is too coarse.
    kernel : str, default="matern52"
        ``"matern52"``, ``"matern32"``, ``"matern12"``, ``"rbf"`` or ``"rq"``.
    known_noise : bool, default=False
        Whether every value comes with its noise variance.
    random_state : int or None, default=0
        The same seed and the same calls give the same points. None is a seed that nobody knows.

    Examples
    --------
    >>> from wiski import Optimizer
    >>> search = Optimizer({"x": (-2, 2), "rate": (1e-4, 1, "log")})
    >>> import math
    >>> for _ in range(25):
    ...     for point in search.ask():
    ...         loss = (point["x"] - 0.5) ** 2 + (math.log10(point["rate"]) + 2) ** 2
    ...         search.tell(point, loss)
    >>> search.best.y < 0.1
    True
    """

    def __init__(
        self,
        space: Any,
        *,
        maximize: bool | Sequence[bool] = False,
        constraints: int | Sequence[str] = 0,
        strategy: str = "logei",
        initial: int | None = None,
        exact_until: int | None = None,
        grid: int | None = None,
        local: bool | None = None,
        kernel: str = "matern52",
        known_noise: bool = False,
        random_state: int | None = 0,
    ) -> None:
        self._named = isinstance(space, Mapping)
        entries = space.items() if self._named else ((f"x{i}", entry) for i, entry in enumerate(space))
        self._choices: dict[str, Sequence[Any]] = {}
        given = [_dimension(str(name), entry, self._choices) for name, entry in entries]
        if self._choices and not self._named:
            raise WiskiError("space: choices need names, so that points can be dictionaries")
        goals = [bool(maximize)] if isinstance(maximize, (bool, np.bool_)) else [bool(goal) for goal in maximize]
        names = [f"c{i}" for i in range(constraints)] if isinstance(constraints, int) else list(constraints)
        seed = secrets.randbits(63) if random_state is None else int(random_state)
        self._search = _core.Optimizer(
            given,
            goals,
            names,
            strategy,
            initial,
            exact_until,
            grid,
            local,
            kernel,
            known_noise,
            seed,
        )
        # What a file must say so that points come back as they were: the command line knows text alone.
        kept = {name: list(choices) for name, choices in self._choices.items() if _is_plain(choices)}
        self._search.note = json.dumps({"named": self._named, "choices": kept})

    @property
    def names(self) -> list[str]:
        """The names of the dimensions."""
        return [name for name, *_ in self._search.space]

    def _points(self, X: np.ndarray) -> Any:
        if not self._named:
            return X
        space = self._search.space
        return [self._named_point(space, row) for row in X.tolist()]

    def _named_point(self, space: Any, row: list[float]) -> dict[str, Any]:
        """A point with its names, without what is not there."""
        point: dict[str, Any] = {}
        for (name, _, _, _, whole, texts, only_if, _), value in zip(space, row):
            if only_if is not None and not self._holds(only_if, point):
                continue
            if texts:
                point[name] = self._choices.get(name, texts)[int(value)]
            else:
                point[name] = int(value) if whole else value
        return point

    def _holds(self, only_if: Any, point: Mapping[str, Any]) -> bool:
        choice, among = only_if
        if choice not in point:
            return False
        texts = next(d[5] for d in self._search.space if d[0] == choice)
        return _place_of(point[choice], self._choices.get(choice, texts), choice) in among

    def _coordinates(self, space: Any, point: Mapping[str, Any]) -> list[float]:
        """What a user said about a point, as numbers; what is not there may be missing."""
        row = []
        for name, low, _, _, _, texts, only_if, _ in space:
            if only_if is not None and not self._holds(only_if, point):
                row.append(low)
            elif name not in point:
                raise WiskiError(f"{name}: a point does not say what it is")
            elif texts:
                row.append(float(_place_of(point[name], self._choices.get(name, texts), name)))
            else:
                row.append(float(point[name]))
        return row

    def _point(self, x: np.ndarray) -> Any:
        return self._points(x[None])[0]

    def ask(self, q: int = 1) -> Any:
        """Propose ``q`` points: an array of shape (q, dimensions), or a list of dictionaries. They are pending until
        they are told, and are not proposed again."""
        return self._points(self._search.ask(q))

    def tell(self, X: Any, y: Any, noise: Any = None, *, constraints: Any = None) -> None:
        """Learn what was found at one point or several, which need not have been asked for. A value of NaN or None
        says that the trial failed, and infinity that the point is as bad as can be. ``noise`` is the variance of each
        value, with ``known_noise``. With several objectives a point has a value for each, and ``constraints`` are the
        values of the constraints at each point, which hold where they are zero or less."""
        if isinstance(X, Mapping):
            X = [X]
        if len(X) and isinstance(X[0], Mapping):
            space = self._search.space
            X = [self._coordinates(space, point) for point in X]
        X = np.atleast_2d(np.asarray(X, dtype=np.float64))
        objectives = len(self._search.maximize)
        if objectives == 1:
            values = np.atleast_1d(np.asarray(y, dtype=np.float64))
            if values.ndim != 1:
                raise WiskiError(f"y has the shape {values.shape}: a value for each point is needed")
            values = values[:, None]
        else:
            failed = [math.nan] * objectives
            rows = failed if y is None else [failed if row is None else row for row in y]
            values = _table(np.asarray(rows, dtype=np.float64), "y", X, objectives)
        told = [None if np.isnan(row).any() else row.tolist() for row in values]
        if noise is not None:
            noise = np.atleast_1d(np.asarray(noise, dtype=np.float64)).tolist()
        if constraints is not None:
            limits = _table(np.asarray(constraints, dtype=np.float64), "constraints", X, len(self._search.constraints))
            constraints = limits.tolist()
        self._search.tell(X.tolist(), told, noise, constraints)

    @property
    def best(self) -> Best | None:
        """The best point measured so far and its value, of those at which every constraint holds; None before there is
        one. With noise that may have been luck: see ``recommend``."""
        if len(self._search.maximize) > 1:
            raise WiskiError("best: of several objectives there is a front instead")
        best = self._search.best()
        return None if best is None else Best(self._point(best[0]), best[1])

    @property
    def front(self) -> tuple[Any, np.ndarray]:
        """The points that no other surpasses in one objective without falling behind in another, of those at which
        every constraint holds, and an array of their values, a row for each."""
        X, y, _ = self._search.front()
        return self._points(X), y

    def feasibility(self, x: Any) -> float | None:
        """The probability that every constraint holds at a point. None before the initial design is complete."""
        row = self._coordinates(self._search.space, x) if isinstance(x, Mapping) else [float(v) for v in x]
        return self._search.feasibility(row)

    def recommend(self) -> Recommendation | None:
        """The tried point with the best predicted value, of those at which every constraint was found to hold: what to
        use in the end when measurements are noisy. None before the initial design is complete, and for several
        objectives."""
        best = self._search.recommend()
        return None if best is None else Recommendation(self._point(best[0]), *best[1:])

    @property
    def trials(self) -> tuple[Any, np.ndarray]:
        """All points told, in their order, and their values (NaN for those that failed): one for each, or a row of
        them if there are several objectives."""
        X, y, _ = self._search.trials()
        return self._points(X), y[:, 0] if y.shape[1] == 1 else y

    @property
    def constraints(self) -> np.ndarray:
        """The values of the constraints at all points told, a row for each (NaN for those that failed)."""
        return self._search.trials()[2]

    @property
    def pending(self) -> Any:
        """Points that were asked for and not yet told."""
        return self._points(self._search.pending())

    def forget_pending(self) -> None:
        """Give up on all pending points, for example after a restart."""
        self._search.forget_pending()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, whole or not at all: the file that ``wiski optimize`` reads and writes."""
        self._search.save(os.fspath(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Optimizer:
        """An optimizer from a file; it goes on to the last bit as the one that was saved."""
        search = cls.__new__(cls)
        search._search = _core.Optimizer.load(os.fspath(path))
        note = json.loads(search._search.note or "{}")
        invented = [f"x{i}" for i in range(len(search.names))]
        search._named = note.get("named", search.names != invented)
        search._choices = note.get("choices", {})
        return search


def _table(values: np.ndarray, name: str, X: np.ndarray, width: int) -> np.ndarray:
    """Several values for each point, a row for each; one point may do without the row."""
    table = values[None] if values.ndim == 1 and len(X) == 1 else values
    if table.ndim != 2 or table.shape != (len(X), width):
        raise WiskiError(f"{name} has the shape {values.shape}: {width} values for each of {len(X)} points are needed")
    return table


_Given = tuple[str, float, float, bool, bool, list[str], "tuple[str, list[int]] | None", "float | None"]


def _dimension(name: str, entry: Any, known: dict[str, Sequence[Any]]) -> _Given:
    """A dimension as the library takes it. Choices are added to those that are known."""
    only_if = None
    if isinstance(entry, Mapping):
        form = set(entry) - {"only_if"}
        if form not in ({"choices"}, {"range"}):
            raise WiskiError(f"{name}: a dimension has a 'range' or 'choices', not {', '.join(map(repr, entry))}")
        only_if = _condition(name, entry["only_if"], known) if "only_if" in entry else None
        if "choices" in entry:
            return _choice(name, entry["choices"], only_if, known)
        entry = entry["range"]
    entry = list(entry)
    if len(entry) > 1 and all(isinstance(choice, str) for choice in entry):
        return _choice(name, entry, only_if, known)
    if len(entry) < 2:
        raise WiskiError(f"{name}: {entry!r} does not say from where to where")
    low, high, *how = entry
    step = float(how.pop(0)) if how and isinstance(how[0], numbers.Real) and not isinstance(how[0], bool) else None
    unknown = [word for word in how if word not in ("log", "int", "linear")]
    if unknown:
        raise WiskiError(f"{name}: {unknown[0]!r} is not 'linear', 'log' or 'int', nor a step right after the range")
    return name, float(low), float(high), "log" in how, "int" in how, [], only_if, step


def _choice(name: str, choices: Iterable[Any], only_if: Any, known: dict[str, Sequence[Any]]) -> _Given:
    known[name] = choices = tuple(choices)
    texts = [choice if isinstance(choice, str) else repr(choice) for choice in choices]
    return name, 0.0, float(len(choices) - 1), False, True, texts, only_if, None


def _condition(name: str, only_if: Any, known: Mapping[str, Sequence[Any]]) -> tuple[str, list[int]]:
    if not isinstance(only_if, Mapping) or len(only_if) != 1:
        raise WiskiError(f"{name}: only_if names one choice and its values, as {{'solver': ['sgd']}}")
    ((choice, values),) = only_if.items()
    if choice not in known:
        raise WiskiError(f"{name}: only_if: {choice!r} is no choice before it")
    return choice, [_place_of(value, known[choice], choice) for value in values]


def _place_of(value: Any, choices: Sequence[Any], name: str) -> int:
    for place, choice in enumerate(choices):
        # 1, 1.0 and True are equal, but not the same choice.
        if type(choice) is type(value) and choice == value:
            return place
    raise WiskiError(f"{name}: {value!r} is not one of the choices {', '.join(map(repr, choices))}")


def _is_plain(choices: Sequence[Any]) -> bool:
    """Whether choices can be written to a file as they are."""
    return all(choice is None or type(choice) in (bool, int, float, str) for choice in choices)
