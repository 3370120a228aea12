"""Reading whatever a file holds."""

from __future__ import annotations

import os
from typing import Any

from wiski import _core
from wiski._classifier import OnlineGPClassifier
from wiski._errors import FileError
from wiski._forecaster import Forecaster
from wiski._optimizer import Optimizer
from wiski._regressor import OnlineGPRegressor

_READERS = {
    "regressor": OnlineGPRegressor.load,
    "targets": OnlineGPRegressor.load,
    "classifier": OnlineGPClassifier.load,
    "optimizer": Optimizer.load,
    "forecaster": Forecaster.load,
}


def load(path: str | os.PathLike[str]) -> Any:
    """The model in a file, whatever its kind: a regressor, a classifier, an optimizer or a forecaster, written by ``save`` or by
    the command line.

    >>> import os, tempfile, wiski
    >>> model = wiski.OnlineGPRegressor().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.wiski")
    ...     model.save(path)
    ...     copy = wiski.load(path)
    >>> bool(copy.predict([[1.5]])[0] == model.predict([[1.5]])[0])
    True
    """
    kind = _core.kind_of_file(os.fspath(path))
    if kind not in _READERS:
        raise FileError(f"{os.fspath(path)}: holds a {kind}, which Python has no class for")
    return _READERS[kind](path)
