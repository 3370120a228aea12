"""Searches with Optuna: the mean best value of some seeds, for this package's sampler, TPE and random search.

    python benchmarks/optuna_samplers.py [--seeds 11] [--gp]

`--gp` adds Optuna's own Gaussian process sampler, which needs PyTorch.
"""

import argparse
import math
import time
import warnings

import numpy as np
import optuna

from wiski.optuna import WiskiSampler


def mixed(trial):
    """Two categories that interact: what is best for one depends on the other."""
    x, y = trial.suggest_float("x", -2, 2), trial.suggest_float("y", -2, 2)
    a = trial.suggest_categorical("a", ["p", "q", "r"])
    b = trial.suggest_categorical("b", ["u", "v", "w"])
    off = (x - {"p": -1.0, "q": 0.3, "r": 1.2}[a]) ** 2 + (y - {"u": 1.0, "v": -0.7, "w": 0.2}[b]) ** 2
    return off + {("q", "v"): 0.0, ("r", "u"): 0.5}.get((a, b), 2.5)


def conditional(trial):
    """Two kinds of models, each with parameters of its own."""
    if trial.suggest_categorical("kind", ["svm", "forest"]) == "svm":
        c = trial.suggest_float("c", 1e-3, 1e3, log=True)
        gamma = trial.suggest_float("gamma", 1e-4, 10, log=True)
        return (math.log10(c) - 1) ** 2 / 4 + (math.log10(gamma) + 2) ** 2 / 4
    depth, share = trial.suggest_int("depth", 1, 30), trial.suggest_float("share", 0, 1)
    return 0.4 + ((depth - 12) / 10) ** 2 + 4 * (share - 0.3) ** 2


def pruned(trial):
    """A curve of training, which the median rule cuts short."""
    x, y = trial.suggest_float("x", -3, 3), trial.suggest_float("y", -3, 3)
    end = (x - 1) ** 2 + (y + 0.5) ** 2 + 0.3 * math.sin(5 * x) ** 2
    for step in range(1, 11):
        trial.report(end + 5 * math.exp(-step / 2), step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return end


def steps(trial):
    """Whole numbers and numbers in steps."""
    a, b = trial.suggest_int("a", 0, 98, step=7), trial.suggest_float("b", 0, 2, step=0.25)
    return ((a - 42) / 30) ** 2 + (b - 1.25) ** 2 + (trial.suggest_float("x", 0, 1) - 0.7) ** 2


PROBLEMS = {mixed: 50, conditional: 50, pruned: 50, steps: 40}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=11)
    parser.add_argument("--gp", action="store_true")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    samplers = {"wiski": WiskiSampler, "TPE": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
    if arguments.gp:
        samplers["GP"] = optuna.samplers.GPSampler
    print("| problem | trials |", " | ".join(f"{name} | seconds" for name in samplers), "|")
    for problem, trials in PROBLEMS.items():
        cells = []
        for sampler in samplers.values():
            start, best = time.perf_counter(), []
            for seed in range(arguments.seeds):
                study = optuna.create_study(sampler=sampler(seed=seed), pruner=optuna.pruners.MedianPruner())
                study.optimize(problem, n_trials=trials)
                best.append(study.best_value)
            cells.append(f"{np.mean(best):.4f} | {(time.perf_counter() - start) / arguments.seeds:.1f}")
        print(f"| {problem.__name__} | {trials} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
