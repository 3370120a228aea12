"""Everything that wiski raises is a ``WiskiError``, and so a ``ValueError``."""

from sklearn.exceptions import NotFittedError as _NotFitted


class WiskiError(ValueError):
    """Something was refused; the message names the value and its place."""


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
