"""Everything that wiski raises is a ``WiskiError``, and so a ``ValueError``."""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.exceptions import NotFittedError as _NotFitted


class WiskiError(ValueError):
    """Something was rejected; the message names the value and its place."""


class OffGridError(WiskiError):
    """A row lies off the grid, which may not grow (so far)."""


class UnsupportedError(WiskiError):
    """This model cannot do that now; the message says why and what would help."""


class FileError(WiskiError, OSError):
    """A file cannot be written, read or understood."""


class NotFittedError(WiskiError, _NotFitted):
    """The model has seen no rows yet."""


class InternalError(WiskiError, RuntimeError):
    """A defect in wiski itself."""


def warn_of_failure(model: Any) -> None:
    """Warn of what went wrong beside the rows, which are learned all the same: a refit, say."""
    failure = model.take_failure()
    if failure is not None:
        warnings.warn(f"{failure}; the rows are learned, and this is tried again later", RuntimeWarning, stacklevel=3)
