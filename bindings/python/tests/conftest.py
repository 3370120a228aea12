"""Data that several tests use."""

import os
from pathlib import Path

import numpy as np
import pytest

PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def project():
    return PROJECT


@pytest.fixture(scope="session")
def command():
    """The `wiski` program that was built with the extension."""
    path = Path(os.environ.get("WISKI_COMMAND", PROJECT / "target" / "debug" / "wiski"))
    if not path.is_file():
        pytest.fail(f"the command line was not built: {path} is missing (./check builds it, or set WISKI_COMMAND)")
    return path


@pytest.fixture
def waves():
    """400 rows of two columns in odd units, a smooth function with noise of deviation 0.3."""
    rng = np.random.default_rng(7)
    X = np.column_stack([rng.uniform(100, 300, 400), rng.uniform(-0.01, 0.01, 400)])
    y = 50 + 10 * np.sin(X[:, 0] / 30) + 300 * X[:, 1] + 0.3 * rng.normal(size=400)
    return X, y
