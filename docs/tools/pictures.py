"""Draws the pictures of how-it-works.md and index.md: the method itself, in a few lines of NumPy.

    target/python-test/bin/python docs/tools/pictures.py     # writes docs/pictures/*.svg

They are committed, so that pages can be read without running anything.
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

OUT = Path(__file__).resolve().parents[1] / "pictures"
INK, BLUE, ORANGE, GREEN, GRAY = "#333344", "#3949ab", "#e65100", "#2e7d32", "#9e9eaa"
plt.rcParams.update(
    {
        "svg.hashsalt": "wiski",
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": GRAY,
        "axes.labelcolor": INK,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "xtick.color": INK,
        "ytick.color": INK,
        "text.color": INK,
        "legend.frameon": False,
    }
)

# Two points beyond the range on either side, which the weights at its ends need.
GRID = np.linspace(-1, 11, 25)
STEP = GRID[1] - GRID[0]
NOISE = 0.04


def truth(x):
    return np.sin(x) + 0.4 * np.sin(2.3 * x + 1)


def cubic(s):
    """The weights of Keys (1981) for the four points around a place s in its cell."""
    r = 1 - s
    return np.array([-0.5 * s * r**2, 1 - s**2 * (5 - 3 * s) / 2, 0.5 * s * (1 + s * (4 - 3 * s)), -0.5 * s**2 * r])


def weights(x):
    """W: a row for each point, four numbers in it."""
    W = np.zeros((len(x), len(GRID)))
    for row, place in zip(W, (np.asarray(x) - GRID[0]) / STEP):
        cell = int(place)
        row[cell - 1 : cell + 3] = cubic(place - cell)
    return W


def rbf(a, b, length=1.0):
    return np.exp(-0.5 * ((a[:, None] - b[None, :]) / length) ** 2)


def posterior(A, b, x):
    """Mean and deviation of the function at x from the statistics."""
    K = rbf(GRID, GRID) + 1e-8 * np.eye(len(GRID))
    covariance = np.linalg.inv(np.linalg.inv(K) + A / NOISE)
    W = weights(x)
    return W @ covariance @ b / NOISE, np.sqrt(np.einsum("ij,jk,ik->i", W, covariance, W)), covariance


def save(figure, name):
    figure.tight_layout()
    figure.savefig(OUT / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def band(axes, x, mean, std, color=BLUE):
    axes.fill_between(x, mean - 1.96 * std, mean + 1.96 * std, color=color, alpha=0.18, lw=0)
    axes.plot(x, mean, color=color, lw=1.8)


def stream():
    """index.md: what a model knows after 6, 30 and 300 rows."""
    rng = np.random.default_rng(3)
    X = rng.uniform(0, 10, 300)
    X[:6] = [1.0, 1.7, 2.4, 6.9, 7.4, 4.0]
    y = truth(X) + np.sqrt(NOISE) * rng.normal(size=300)
    dense = np.linspace(0, 10, 400)
    figure, panels = plt.subplots(1, 3, figsize=(11, 2.9), sharey=True)
    for axes, n in zip(panels, (6, 30, 300)):
        W = weights(X[:n])
        mean, std, _ = posterior(W.T @ W, W.T @ y[:n], dense)
        axes.plot(X[:n], y[:n], ".", color=ORANGE, ms=7 if n < 100 else 3, alpha=1 if n < 100 else 0.6)
        band(axes, dense, mean, std)
        axes.plot(dense, truth(dense), "--", color=INK, lw=1)
        axes.set(title=f"after {n:,} rows", xlabel="input", ylim=(-2.6, 2.6))
    panels[0].set_ylabel("target")
    save(figure, "stream")


def grid():
    """The function is given by its values on a grid; a point between is a weighted sum of four."""
    x = 3.67
    W = weights([x])[0]
    near = np.flatnonzero(W)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.4), width_ratios=(1.5, 1))
    dense = np.linspace(0, 10, 400)
    left.plot(dense, weights(dense) @ truth(GRID), color=BLUE, lw=1.6)
    left.vlines(GRID, 0, truth(GRID), color=GRAY, lw=0.8)
    left.plot(GRID, truth(GRID), "o", color=BLUE, ms=5)
    left.plot(GRID[near], truth(GRID[near]), "o", color=ORANGE, ms=8)
    left.plot([x], [W @ truth(GRID)], "D", color=GREEN, ms=8)
    left.annotate("f(x)", (x, W @ truth(GRID)), (x + 0.3, W @ truth(GRID) + 0.25), color=GREEN)
    left.axhline(0, color=GRAY, lw=0.6)
    left.set(title="values u on the grid, and the function between", xlim=(-1.1, 11.1), xlabel="x")
    right.bar(GRID[near], W[near], width=0.3, color=ORANGE)
    for place, value in zip(GRID[near], W[near]):
        right.annotate(f"{value:+.3f}", (place, value), (0, 4 if value > 0 else -14), textcoords="offset points", ha="center")
    right.axhline(0, color=GRAY, lw=0.6)
    right.axvline(x, color=GREEN, lw=1.2, ls="--")
    right.set(title=f"the four weights w(x) at x = {x}", ylim=(-0.25, 1.05), xticks=GRID[near], xlabel="grid point")
    save(figure, "grid")


def weights_2d():
    """Two inputs: sixteen weights, products of four and four."""
    figure, axes = plt.subplots(figsize=(5.2, 4.4))
    g = np.arange(9.0)
    axes.plot(*np.meshgrid(g, g), ".", color=GRAY, ms=5)
    x = np.array([3.3, 4.6])
    first, second = cubic(0.3), cubic(0.6)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            axes.plot(2 + i, 3 + j, "o", color=ORANGE if a * b > 0 else BLUE, ms=3 + 30 * np.sqrt(abs(a * b)), alpha=0.75, mew=0)
    axes.plot(*x, "D", color=GREEN, ms=7)
    axes.set(xlabel="first input", ylabel="second input", aspect="equal", xlim=(-0.5, 8.5), ylim=(-0.5, 8.5))
    axes.set_title("16 weights: above zero orange, below blue")
    save(figure, "weights")


def statistics():
    """What rows leave: a banded matrix and a vector, of the same size after any number of rows."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 10, 1000)
    y = truth(X) + np.sqrt(NOISE) * rng.normal(size=1000)
    figure, panels = plt.subplots(2, 3, figsize=(10, 5), height_ratios=(4, 1), sharex=True)
    for column, n in enumerate((1, 10, 1000)):
        W = weights(X[:n])
        A, b = W.T @ W, W.T @ y[:n]
        top, bottom = panels[:, column]
        limit = np.abs(A).max()
        top.imshow(A, cmap="RdBu_r", vmin=-limit, vmax=limit)
        top.set_title(f"A and b after {n:,} row{'s' * (n > 1)}")
        limit = np.abs(b).max()
        bottom.imshow(b[None, :], cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
        for axes in (top, bottom):
            axes.set(xticks=[], yticks=[])
            for spine in axes.spines.values():
                spine.set_visible(True)
    save(figure, "statistics")


def posteriors():
    """From the same statistics: mean, band and functions that are still possible."""
    rng = np.random.default_rng(5)
    X = np.concatenate([rng.uniform(0.5, 4, 25), rng.uniform(7.5, 9.5, 8)])
    y = truth(X) + np.sqrt(NOISE) * rng.normal(size=len(X))
    dense = np.linspace(0, 10, 400)
    W = weights(X)
    mean, std, covariance = posterior(W.T @ W, W.T @ y, dense)
    root = np.linalg.cholesky(covariance + 1e-9 * np.eye(len(GRID)))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.2), sharey=True)
    for axes in (left, right):
        axes.plot(X, y, ".", color=ORANGE, ms=7)
        axes.set(xlabel="x", ylim=(-3, 3))
    band(left, dense, mean, std)
    left.set_title("mean and 95 % of the function")
    for _ in range(8):
        right.plot(dense, mean + weights(dense) @ (root @ rng.normal(size=len(GRID))), color=BLUE, lw=1, alpha=0.7)
    right.set_title("functions drawn from the posterior")
    save(figure, "posterior")


def sums():
    """Merging is addition, un-learning subtraction."""
    rng = np.random.default_rng(8)
    first, second = rng.uniform(0.3, 6, 30), rng.uniform(4, 9.7, 30)
    dense = np.linspace(0, 10, 400)
    data = {}
    for name, X in (("first", first), ("second", second)):
        y = truth(X) + np.sqrt(NOISE) * rng.normal(size=30)
        W = weights(X)
        data[name] = X, y, W.T @ W, W.T @ y
    figure, panels = plt.subplots(1, 3, figsize=(11, 3), sharey=True)
    titles = ("one machine: $A_1, b_1$", "another: $A_2, b_2$", "both: $A_1 + A_2,\\ b_1 + b_2$")
    for axes, names, title in zip(panels, (("first",), ("second",), ("first", "second")), titles):
        A, b = (sum(data[name][k] for name in names) for k in (2, 3))
        mean, std, _ = posterior(A, b, dense)
        band(axes, dense, mean, std)
        for name in names:
            axes.plot(*data[name][:2], ".", ms=7, color=ORANGE if name == "first" else GREEN)
        axes.set(title=title, ylim=(-3, 3), xlabel="x")
    save(figure, "sums")


def points():
    """Grids for what one or two inputs do, points among all inputs for what they do together."""
    rng = np.random.default_rng(2)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    x = np.linspace(0, 1, 200)
    for k, (name, f) in enumerate((("g₁(x₁)", np.sin(6 * x)), ("g₂(x₂)", np.exp(-3 * x) * 2 - 1), ("g₃(x₃)", 2 * (x - 0.4) ** 2 * 3 - 1))):
        left.plot(x, f / 2 - 1.6 * k, color=BLUE, lw=1.8)
        knots = np.linspace(0, 1, 12)
        left.plot(knots, np.interp(knots, x, f / 2 - 1.6 * k), "o", color=BLUE, ms=4)
        left.text(1.03, f[-1] / 2 - 1.6 * k, name, va="center")
    left.set(title="a sum of small grids, each of one or two inputs", xticks=[], yticks=[], xlim=(-0.03, 1.2))
    rows = np.concatenate([rng.normal(c, 0.55, size=(150, 2)) for c in ((-1.5, -1), (1.2, 1.2), (1.5, -1.4))])
    chosen = [0]
    for _ in range(19):  # the row farthest from those that are chosen
        chosen.append(int(np.min(np.linalg.norm(rows[:, None] - rows[None, chosen], axis=2), axis=1).argmax()))
    centers = rows[chosen]
    right.plot(*rows.T, ".", color=GRAY, ms=3)
    for center in centers:
        right.add_patch(plt.Circle(center, 0.5, fill=True, color=GREEN, alpha=0.10, lw=0))
    right.plot(*centers.T, "o", color=GREEN, ms=6)
    right.set(title="inducing points where the rows are, over all inputs", xticks=[], yticks=[], aspect="equal")
    save(figure, "points")


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for draw in (stream, grid, weights_2d, statistics, posteriors, sums, points):
        draw()
