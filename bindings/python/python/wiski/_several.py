"""Several targets of the same rows: a model for each, which together look like one.

Every target has its own features, hyperparameters and noise, so the models share no statistics: on one grid the matrix of
weights would be the same for all, but it is a tenth of what a row costs, and features that were learned for one target are of
little use to another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wiski import _core
from wiski._errors import UnsupportedError, WiskiError


class Several:
    """Models of several targets, with the methods of one. Results have a further axis, after that of the rows (and, for a
    covariance, at the end: as scikit-learn's own Gaussian process has it)."""

    def __init__(self, models: Sequence[_core.Regressor]) -> None:
        self.models = list(models)

    def __len__(self) -> int:
        return len(self.models)

    def _columns(self, y: np.ndarray) -> list[np.ndarray]:
        return [np.ascontiguousarray(y[:, k]) for k in range(len(self))]

    def _stacked(self, call: Callable[[_core.Regressor], Any]) -> np.ndarray:
        return np.stack([call(model) for model in self.models], axis=1)

    def _copies(self) -> list[_core.Regressor]:
        """The models once more, for changes of all of them or none."""
        return [_core.Regressor.from_bytes(model.to_bytes()) for model in self.models]

    # -- learning --------------------------------------------------------------------------------------------

    def expect(self, rows: int) -> None:
        for model in self.models:
            model.expect(rows)

    def learn(self, x: np.ndarray, y: np.ndarray, noise: Any = None, time: Any = None, weight: Any = None) -> None:
        for model, column in zip(self.models, self._columns(y)):
            model.learn(x, column, noise, time, weight)

    def forget(self, x: np.ndarray, y: np.ndarray, noise: Any = None) -> None:
        changed = self._copies()
        for model, column in zip(changed, self._columns(y)):
            model.forget(x, column, noise)
        self.models = changed

    def conditioned(self, x: np.ndarray, y: np.ndarray, noise: Any = None) -> Several:
        pairs = zip(self.models, self._columns(y))
        return Several([model.conditioned(x, column, noise) for model, column in pairs])

    def shard(self) -> Several:
        return Several([model.shard() for model in self.models])

    def merge(self, other: Any) -> None:
        if not isinstance(other, Several) or len(other) != len(self):
            raise WiskiError("merge: both models need the same targets")
        changed = self._copies()
        for model, theirs in zip(changed, other.models):
            model.merge(theirs)
        self.models = changed

    def refit(self) -> None:
        for model in self.models:
            model.refit()

    def decay(self, factor: float) -> None:
        for model in self.models:
            model.decay(factor)

    def finish_warm_up(self) -> None:
        for model in self.models:
            model.finish_warm_up()

    def finish_search(self) -> None:
        for model in self.models:
            model.finish_search()

    def freeze_features(self) -> None:
        for model in self.models:
            model.freeze_features()

    def take_failure(self) -> str | None:
        failures = [(model.target, model.take_failure()) for model in self.models]
        found = [f"{target}: {failure}" for target, failure in failures if failure is not None]
        return "; ".join(found) or None

    # -- predicting ------------------------------------------------------------------------------------------

    def predict(self, x: np.ndarray, with_std: bool, noise: bool) -> Any:
        if not with_std:
            return self._stacked(lambda model: model.predict(x, False, noise))
        both = [model.predict(x, True, noise) for model in self.models]
        return np.stack([mean for mean, _ in both], axis=1), np.stack([std for _, std in both], axis=1)

    def joint(self, x: np.ndarray, noise: bool) -> tuple[np.ndarray, np.ndarray]:
        both = [model.joint(x, noise) for model in self.models]
        return np.stack([mean for mean, _ in both], axis=1), np.stack([cov for _, cov in both], axis=2)

    def sample(self, x: np.ndarray, count: int, seed: int) -> np.ndarray:
        # Targets are independent, so each has draws of its own.
        seeds = np.random.SeedSequence(seed).generate_state(len(self))
        drawn = [model.sample(x, count, int(own)) for model, own in zip(self.models, seeds)]
        return np.stack(drawn, axis=1)

    def quantile(self, level: float, ahead: bool) -> np.ndarray:
        return np.array([model.quantile(level, ahead) for model in self.models])

    def log_evidence(self) -> float:
        return float(sum(model.log_evidence() for model in self.models))

    # -- what is known ---------------------------------------------------------------------------------------

    def metrics(self) -> list[dict[str, float]]:
        return [model.metrics() for model in self.models]

    def hyperparameters(self) -> list[dict[str, float]]:
        return [dict(model.hyperparameters()) for model in self.models]

    def remarks(self) -> list[str]:
        return [f"{model.target}: {remark}" for model in self.models for remark in model.remarks()]

    def parameters(self) -> dict[str, Any]:
        return self.models[0].parameters()

    @property
    def levels(self) -> list[list[str] | None]:
        return self.models[0].levels

    @property
    def inputs(self) -> list[str]:
        return self.models[0].inputs

    @property
    def input_dim(self) -> int:
        return self.models[0].input_dim

    @property
    def count(self) -> float:
        return self.models[0].count

    @property
    def is_ready(self) -> bool:
        return all(model.is_ready for model in self.models)

    # -- files -----------------------------------------------------------------------------------------------

    def save(self, path: str) -> None:
        _core.save_several(self.models, path)

    def shape(self) -> bytes:
        raise UnsupportedError("shape: a fit on a cluster has one target; fit one for each")
