"""How long does one row take? Learning it and predicting it, by this package and by others, in one run.

Every Gaussian process has the same kernel and noise, fixed unless it says otherwise, on the same data; a library that
is not installed is left out and named. Times are those of calls one after the other, in processor time of one thread, so
that other work on the machine counts little. Run it with: python one_row.py [--rows 500 4000]
"""

from __future__ import annotations

import os

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import math
import statistics
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")

LENGTHSCALE, VARIANCE, NOISE = 0.4, 1.0, 0.01


def data(rows, seed=0):
    """Rows in [-1, 1]^2 and a smooth function of mean 0 and variance about 1, with a little noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(rows, 2))
    return X, np.sin(4 * X[:, 0]) + np.cos(3 * X[:, 1]) * X[:, 0] + 0.1 * rng.normal(size=rows)


def time_of(call, arguments):
    """The mean of many calls, which has the refits in it that some of them bring about; the median of a few."""
    times = []
    for argument in arguments:
        start = time.thread_time()
        call(*argument)
        times.append(time.thread_time() - start)
    return statistics.mean(times) if len(times) > 10 else statistics.median(times)


class Peer:
    """A model with `rows` rows learned. `learn` and `predict` take one row; predictions are mean and deviation."""

    repeats = 200

    def measure(self, rows):
        X, y = data(rows + self.repeats)
        self.start(X[:rows], y[:rows])
        test, truth = data(200, seed=1)
        self.predict(test[:1])
        predict = time_of(self.predict, [(test[i % 200 : i % 200 + 1],) for i in range(self.repeats)])
        new = [(X[i : i + 1], y[i : i + 1]) for i in range(rows, rows + self.repeats)]
        learn = time_of(self.learn, new)
        error = math.sqrt(np.mean([(self.predict(test[i : i + 1])[0] - truth[i]) ** 2 for i in range(50)]))
        return learn, predict, error


class Wiski(Peer):
    name = "wiski, hyperparameters fixed"
    repeats = 2000
    parameters = {
        "schedule": "off",
        "initial": {"lengthscale": LENGTHSCALE, "outputscale": VARIANCE, "noise": NOISE},
        "grid": 16,
        "bounds": [(-1, 1), (-1, 1)],
    }

    def start(self, X, y):
        from wiski import OnlineGPRegressor

        self.model = OnlineGPRegressor(**self.parameters).partial_fit(X, y)

    def learn(self, x, y):
        self.model.partial_fit(x, y)

    def predict(self, x):
        mean, std = self.model.predict(x, return_std=True)
        return mean[0], std[0]


class WiskiLearning(Wiski):
    name = "wiski, hyperparameters learned"
    parameters = {"grid": 16}


class WiskiRiver(Peer):
    name = "wiski.river.OnlineGP, hyperparameters learned"
    repeats = 2000

    def start(self, X, y):
        from wiski.river import OnlineGP

        self.model = OnlineGP(grid=16)
        for x, t in zip(X, y):
            self.model.learn_one(dict(enumerate(x)), t)

    def learn(self, x, y):
        self.model.learn_one({0: x[0, 0], 1: x[0, 1]}, y[0])

    def predict(self, x):
        distribution = self.model.predict_one({0: x[0, 0], 1: x[0, 1]}, with_dist=True)
        return distribution.mu, distribution.sigma


class River(WiskiRiver):
    name = "river BayesianLinearRegression (linear)"

    def start(self, X, y):
        from river import linear_model

        self.model = linear_model.BayesianLinearRegression()
        for x, t in zip(X, y):
            self.model.learn_one(dict(enumerate(x)), t)


class ScikitLearn(Peer):
    name = "scikit-learn GaussianProcessRegressor, fitted anew"
    repeats = 3

    def start(self, X, y):
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF

        self.X, self.y = X, y
        self.make = lambda: GaussianProcessRegressor(RBF(LENGTHSCALE), alpha=NOISE, optimizer=None)
        self.model = self.make().fit(X, y)

    def learn(self, x, y):
        self.X, self.y = np.vstack([self.X, x]), np.append(self.y, y)
        self.model = self.make().fit(self.X, self.y)

    def predict(self, x):
        mean, std = self.model.predict(x, return_std=True)
        return mean[0], std[0]


class GPyTorch(Peer):
    name = "GPyTorch exact, get_fantasy_model"
    repeats = 10

    def covariance(self):
        import gpytorch

        base = gpytorch.kernels.RBFKernel(ard_num_dims=2)
        base.lengthscale = LENGTHSCALE
        return gpytorch.kernels.ScaleKernel(base)

    def start(self, X, y):
        import gpytorch
        import torch

        self.torch, self.gpytorch = torch, gpytorch
        covariance = self.covariance()

        class Process(gpytorch.models.ExactGP):
            def __init__(self, X, y, likelihood):
                super().__init__(X, y, likelihood)
                self.mean_module = gpytorch.means.ZeroMean()
                self.covar_module = covariance

            def forward(self, x):
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        likelihood.noise = NOISE
        covariance.outputscale = VARIANCE
        self.model = Process(torch.tensor(X), torch.tensor(y), likelihood).double().eval()
        self.model.likelihood.eval()

    def learn(self, x, y):
        with self.torch.no_grad(), self.gpytorch.settings.fast_pred_var():
            self.model = self.model.get_fantasy_model(self.torch.tensor(x), self.torch.tensor(y))

    def predict(self, x):
        with self.torch.no_grad(), self.gpytorch.settings.fast_pred_var():
            p = self.model.likelihood(self.model(self.torch.tensor(x)))
            return p.mean.item(), p.stddev.item()


class GPyTorchSki(GPyTorch):
    name = "GPyTorch SKI on 16 x 16, its WISKI fantasies"

    def covariance(self):
        import gpytorch

        base = gpytorch.kernels.RBFKernel(ard_num_dims=2)
        base.lengthscale = LENGTHSCALE
        bounds = [(-1.0, 1.0), (-1.0, 1.0)]
        grid = gpytorch.kernels.GridInterpolationKernel(base, grid_size=16, num_dims=2, grid_bounds=bounds)
        return gpytorch.kernels.ScaleKernel(grid)


class BoTorch(Peer):
    name = "BoTorch SingleTaskGP, condition_on_observations"
    repeats = 10

    def start(self, X, y):
        import torch
        from botorch.models import SingleTaskGP
        from gpytorch.kernels import RBFKernel, ScaleKernel
        from gpytorch.means import ZeroMean

        self.torch = torch
        kernel = ScaleKernel(RBFKernel(ard_num_dims=2))
        kernel.outputscale, kernel.base_kernel.lengthscale = VARIANCE, LENGTHSCALE
        X, y = torch.tensor(X), torch.tensor(y)[:, None]
        self.model = SingleTaskGP(X, y, covar_module=kernel, mean_module=ZeroMean(), outcome_transform=None)
        self.model.likelihood.noise = NOISE
        self.model.eval()

    def learn(self, x, y):
        with self.torch.no_grad():
            self.model = self.model.condition_on_observations(self.torch.tensor(x), self.torch.tensor(y)[:, None])

    def predict(self, x):
        with self.torch.no_grad():
            p = self.model.posterior(self.torch.tensor(x), observation_noise=True)
            return p.mean.item(), p.variance.sqrt().item()


class WiskiBoTorch(BoTorch):
    name = "wiski.botorch.WiskiModel, condition_on_observations"
    repeats = 200

    def start(self, X, y):
        import torch

        from wiski.botorch import WiskiModel

        self.torch = torch
        self.model = WiskiModel.from_data(
            torch.tensor(X), torch.tensor(y)[:, None], **{**Wiski.parameters, "kernel": "rbf"}
        )


PEERS = [
    Wiski,
    WiskiLearning,
    WiskiRiver,
    WiskiBoTorch,
    GPyTorchSki,
    GPyTorch,
    BoTorch,
    ScikitLearn,
    River,
]


def readable(seconds):
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def overhead():
    """What a call from Python adds to a prediction of one row. Of many short runs the fastest, since no other program
    came in between."""
    peer = Wiski()
    peer.start(*data(1000))
    x = data(1)[0]
    row = x[0].tolist()

    def fastest(call, repeats=50, runs=2000):
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            times.append((time.perf_counter() - start) / repeats)
        return min(times)

    rust = min(peer.model.model_._seconds_per_prediction(row, 50) for _ in range(2000))
    print("| one row of two columns | time | above Rust |\n| --- | ---: | ---: |")
    print(f"| Rust, `OnlineRegressor::predict` | {readable(rust)} | |")
    for name, call in {
        "`predict(X)`": lambda: peer.model.predict(x),
        "`predict(X, return_std=True)`": lambda: peer.model.predict(x, return_std=True),
    }.items():
        seconds = fastest(call)
        print(f"| {name} | {readable(seconds)} | {readable(seconds - rust)} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 4000])
    arguments = parser.parse_args()
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        pass
    overhead()
    heads = [f"learn a row, n = {n} | predict a row | RMSE" for n in arguments.rows]
    print("\n| |", " | ".join(heads), "|\n| ---", "| ---: | ---: | ---:" * len(arguments.rows), "|")
    skipped = []
    for make in PEERS:
        cells = []
        try:
            for rows in arguments.rows:
                learn, predict, error = make().measure(rows)
                cells.append(f"{readable(learn)} | {readable(predict)} | {error:.3f}")
        except ImportError as missing:
            skipped.append(f"{make.name} (skipped: {missing})")
            continue
        print(f"| {make.name} |", " | ".join(cells), "|", flush=True)
    for line in skipped:
        print(line)


if __name__ == "__main__":
    main()
