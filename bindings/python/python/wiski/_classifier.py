"""Online classification, as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from wiski import _core
from wiski._errors import WiskiError, warn_of_failure
from wiski._estimator import PARAMETERS, OnlineGP, is_ahead, levels_of, name_of, times_of, weights_of


class OnlineGPClassifier(ClassifierMixin, OnlineGP):
    __doc__ = f"""A Gaussian process classifier that learns one row at a time, in constant time and memory.

    There is one process for each class, on shared features: grids of columns and inducing points, whichever form makes
    the labels of held-out rows likelier. Learned projections (``"project:K"``, ``"mlp:…"``) are for two classes.

    Parameters
    ----------
    {PARAMETERS}
    unseen : {{"error", "add"}}, default="error"
        What to do with a class that comes up after the warm-up: reject the row, or make it a new class.
    class_weight : mapping or "balanced", default=None
        How often rows of a class count, by class; ``"balanced"`` (for ``fit``) is so that all classes count the same.
    empty_sets : bool, default=False
        Whether ``predict_set`` may say no class at all. If not, a set has at least the likeliest.

    Attributes
    ----------
    classes_ : ndarray
        The classes, in the order of all probabilities.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of str
        Their names, where the rows came with names.

    Examples
    --------
    >>> import numpy as np
    >>> from wiski import OnlineGPClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(300, 2))
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    >>> model = OnlineGPClassifier().fit(X, y)
    >>> print(*model.predict([[0.8, 0.7], [0.8, -0.7]]))
    same other
    >>> model.predict_proba([[0.8, 0.7]]).shape
    (1, 2)
    """

    classes_: np.ndarray
    model_: Any

    def __init__(
        self,
        features: str = "auto",
        *,
        grid: Any = None,
        kernel: str | None = None,
        initial: Any = None,
        schedule: str = "geometric:1.1",
        warm_up: int | None = None,
        half_life: float | None = None,
        timed: bool = False,
        tracking: bool = True,
        bounds: Any = None,
        periodic: Any = None,
        categorical: Any = None,
        unseen: str = "error",
        off_grid: str = "extend",
        max_grid_points: int = 16384,
        engine: str = "auto",
        intervals: str = "conformal",
        level: float = 0.95,
        empty_sets: bool = False,
        memory: int = 8192,
        rank_budget: int = 768,
        rank_tolerance: float = 1e-12,
        class_weight: Any = None,
        missing: str = "error",
        background: bool = False,
        verbose: int = 0,
        random_state: Any = 0,
    ) -> None:
        self.features = features
        self.grid = grid
        self.kernel = kernel
        self.initial = initial
        self.schedule = schedule
        self.warm_up = warm_up
        self.half_life = half_life
        self.timed = timed
        self.tracking = tracking
        self.bounds = bounds
        self.periodic = periodic
        self.categorical = categorical
        self.unseen = unseen
        self.off_grid = off_grid
        self.max_grid_points = max_grid_points
        self.engine = engine
        self.intervals = intervals
        self.level = level
        self.empty_sets = empty_sets
        self.memory = memory
        self.rank_budget = rank_budget
        self.rank_tolerance = rank_tolerance
        self.class_weight = class_weight
        self.missing = missing
        self.background = background
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # A projection is learned from the contrast of two classes.
        tags.classifier_tags.multi_class = not str(self.features).startswith(("project", "mlp"))
        tags.input_tags.allow_nan = self.missing != "error"
        return tags

    # -- labels ----------------------------------------------------------------------------------------------

    def _codes(self, y: Any) -> tuple[np.ndarray, list[str]]:
        """The labels of rows as numbers, and the text of each number. Remembers what the text stood for."""
        check_classification_targets(y)
        labels, codes = np.unique(y, return_inverse=True)
        texts = [_text_of(label) for label in labels]
        # What a label was when it came first is what it stays.
        self._originals = {**dict(zip(texts, labels)), **getattr(self, "_originals", {})}
        return codes.astype(np.int64).reshape(-1), texts

    def _set_classes(self) -> None:
        texts, read = self.model_.classes, _KINDS[self.model_.label_kind]
        self.classes_ = np.asarray([self._originals[t] if t in self._originals else read(t) for t in texts])
        if self._originals:
            kinds = {np.asarray(label).dtype.kind for label in self._originals.values()}
            known = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}
            self.model_.label_kind = known.get(kinds.pop(), "text") if len(kinds) == 1 else "text"

    def _new(self, target: str, labels: list[str] | None, bounds: Any = None, seed: int | None = None) -> Any:
        names = self._columns()
        columns = len(names)
        if self.unseen not in ("error", "add"):
            raise WiskiError(f"unseen: {self.unseen!r} is not 'error' or 'add'")
        parameters = self._parameters(names, bounds, seed)
        model = _core.Classifier(columns, parameters, names, target, labels, self.unseen == "add")
        if any(levels is not None for levels in self._texts()):
            model.levels = self._texts()
        return model

    def _weights(self, sample_weight: Any, X: np.ndarray, y: np.ndarray, is_all: bool) -> np.ndarray | None:
        """How often each row counts: by its own weight and by that of its class."""
        weight = weights_of(sample_weight, X)
        if self.class_weight is None:
            return weight
        if self.class_weight == "balanced" and not is_all:
            raise WiskiError("class_weight: 'balanced' is for fit, which has all rows; partial_fit needs numbers")
        by_class = compute_sample_weight(self.class_weight, y)
        return by_class if weight is None else weight * by_class

    # -- learning --------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, time: Any = None, sample_weight: Any = None) -> OnlineGPClassifier:
        """Forget everything and learn these rows. Their order does not matter, unless old ones fade
        (``half_life``). A row of ``sample_weight`` 2 counts as two; those of weight 0 are left out."""
        target = name_of(y)
        X, y = self._checked(X, y, reset=True)
        weight = self._weights(sample_weight, X, y, is_all=True)
        if weight is not None and (weight == 0).any():
            there = weight > 0
            X, y, weight = X[there], y[there], weight[there]
            time = None if time is None else np.asarray(time)[there]
        self._originals = {}
        codes, labels = self._codes(y)
        if len(labels) < 2 and self.unseen == "error":
            raise WiskiError(f"y has only one class, {labels[0]!r}: a classifier needs at least two classes")
        time = times_of(time, len(X), self.timed)
        seed = self._draw_seed()
        order, bounds = self._batch(X, 2, seed)
        model = self._new(target, labels, bounds, seed)
        if order is not None:
            X, codes = X[order], codes[order]
            weight = None if weight is None else weight[order]
        model.expect(len(X))
        self._learn(model, X, codes, time, weight, texts=labels, all_rows=True)
        warn_of_failure(model)
        self.model_ = model
        self._set_classes()
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, time: Any = None, sample_weight: Any = None
    ) -> OnlineGPClassifier:
        """Learn these rows too, in their order. The first rows start the model (the warm-up).

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
        classes : array-like, default=None
            All classes there are, at the first call. None is those that come up during the warm-up.
        time : array-like of shape (n_rows,), default=None
            The time of each row, with ``timed``.
        sample_weight : array-like of shape (n_rows,), default=None
            How often each row counts.
        """
        first, target = "model_" not in self.__dict__, name_of(y)
        X, y = self._checked(X, y, reset=first)
        weight = self._weights(sample_weight, X, y, is_all=False)
        codes, labels = self._codes(y)
        time = times_of(time, len(X), self.timed)
        if weight is not None and (weight == 0).any():
            there = weight > 0
            X, codes, weight = X[there], codes[there], weight[there]
            time = None if time is None else time[there]
        declared: list[str] | None = None
        if classes is not None:
            declared = [_text_of(c) for c in np.unique(classes)]
            if not first and declared != sorted(declared, key=self.model_.classes.index):
                raise WiskiError("classes: they were declared at the first call and cannot change")
            self._codes(np.asarray(classes))
        if first:
            model = self._new(target, declared)
        else:
            model = self.model_
        self._learn(model, X, codes, time, weight, texts=labels)
        warn_of_failure(model)
        self.model_ = model
        self._set_classes()
        return self

    def forget(self, X: Any, y: Any, sample_weight: Any = None) -> OnlineGPClassifier:
        """Un-learn rows that were learned before with the same labels and weights: exactly, all of them or none."""
        self._fitted()
        X, y = self._checked(X, y, reset=False)
        weight = self._weights(sample_weight, X, y, is_all=False)
        if weight is not None:
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        codes, labels = self._codes(y)
        self.model_.forget(X, codes, labels, weight)
        return self

    def merge(self, other: Any) -> OnlineGPClassifier:
        """Learn everything another classifier has learned, exactly. Both must scale and map rows alike."""
        super().merge(other)
        self._originals = {**other._originals, **self._originals}
        self._set_classes()
        return self

    # -- predicting ------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class: an array of shape (n_rows, n_classes)."""
        X = self._rows(X)
        return self.model_.predict(X)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithm of the probability of each class."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """What says a class: of two the log odds of the second, an array of shape (n_rows,); of more the log probability of
        each, of shape (n_rows, n_classes)."""
        # Of a probability that is 0 to rounding the odds are as large as numbers tell.
        logs = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def predict_set(
        self, X: Any, level: Any = 0.95, horizon: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The likeliest class of each row, and the set of classes that holds the right one with probability ``level``.

        Sets are made by the likelihood of classes: those less likely than a threshold are left out, and the threshold
        is moved along the stream so that the share of rows whose class is inside stays at the level (or above, since
        the likeliest class is always inside), whatever the data do. With ``intervals="gaussian"`` a set has the fewest
        classes whose probabilities sum to the level.

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_features)
        level : float or sequence of float, default=0.95
            MAPIE's confidence level.
        horizon : {"next", "ahead"}, default=None
            As for :meth:`OnlineGPRegressor.predict_interval`.

        Returns
        -------
        labels : ndarray of shape (n_rows,)
        sets : ndarray of bool of shape (n_rows, n_classes)
            In the order of ``classes_``; of shape (n_rows, n_classes, n_levels) for several levels.

        Examples
        --------
        >>> import numpy as np
        >>> from wiski import OnlineGPClassifier
        >>> X = np.linspace(0, 1, 200)[:, None]
        >>> model = OnlineGPClassifier().fit(X, np.where(X[:, 0] < 0.5, "low", "high"))
        >>> labels, sets = model.predict_set([[0.1], [0.5]], level=0.95)
        >>> [model.classes_[inside].tolist() for inside in sets][0]
        ['low']
        """
        probabilities = self.predict_proba(X)
        levels, single = levels_of(level)
        ahead = is_ahead(horizon, len(probabilities))
        best = np.argmax(probabilities, axis=1)
        each = [self._sets(probabilities, best, one, ahead) for one in levels]
        return self.classes_[best], each[0] if single else np.stack(each, axis=-1)

    def _sets(self, probabilities: np.ndarray, best: np.ndarray, level: float, ahead: bool) -> np.ndarray:
        rows, surprise = np.arange(len(best)), self.model_.quantile(level, ahead)
        if surprise is None:
            order = np.argsort(-probabilities, axis=1, kind="stable")
            ranked = np.take_along_axis(probabilities, order, axis=1)
            # A class is inside while those that are likelier do not have the level yet.
            before = np.cumsum(ranked, axis=1) - ranked
            inside = np.empty_like(before, dtype=bool)
            np.put_along_axis(inside, order, before < level, axis=1)
            return inside
        with np.errstate(divide="ignore"):
            inside = -np.log(probabilities) <= surprise
        if not self.empty_sets:
            inside[rows, best] = True
        return inside

    # -- from elsewhere --------------------------------------------------------------------------------------

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OnlineGPClassifier:
        """A model from a file that this class or the command line wrote. Its classes are of the kind that they had
        when they were learned; those of the command line are text."""
        estimator = cls._around(_core.Classifier.load(os.fspath(path)))
        estimator._originals = {}
        estimator._set_classes()
        return estimator


#: How labels of a kind are read from the text by which a model knows them.
_KINDS: dict[str, Callable[[str], Any]] = {"text": str, "integer": int, "number": float, "boolean": lambda text: text == "True"}


def _text_of(label: Any) -> str:
    """The text by which a model knows a label: the same for 1 and 1.0."""
    if isinstance(label, (float, np.floating)) and float(label).is_integer():
        return str(int(label))
    return str(label)
