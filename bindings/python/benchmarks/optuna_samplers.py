"""Searches with Optuna: scores of some seeds (mean, median, worst), for this package's sampler, TPE and random search.

    python benchmarks/optuna_samplers.py [--seeds 11] [--samplers wiski,GP] [--only constrained,front]

Small scores are good: the best value, of trials at which all constraints hold if there are any (6, worse than any, if there is none); of two
objectives the area that the front leaves below the reference, less what the true front leaves. The sampler `GP` is Optuna's
own Gaussian process, which needs PyTorch. Seconds are of the processor, for one search.
"""

import argparse
import math
import time
import warnings

import numpy as np
import optuna


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


def constrained(trial):
    """The second problem of Gardner et al. (2014), less its optimum."""
    x, y = trial.suggest_float("x", 0, 6), trial.suggest_float("y", 0, 6)
    trial.set_constraint("c", math.sin(x) * math.sin(y) + 0.95)
    return math.sin(x) + y - 0.253235


def narrow(trial):
    """Two constraints that hold together in 0.4 % of the box, of which values lead away."""
    x = [trial.suggest_float(f"x{i}", 0, 1) for i in range(3)]
    trial.set_constraint("ball", sum((v - c) ** 2 for v, c in zip(x, (0.8, 0.3, 0.6))) - 0.015)
    trial.set_constraint("side", x[0] + x[1] - 1.12)
    return sum(x) - 1.5


def limited(trial):
    """A budget that categories and whole numbers share."""
    kind = trial.suggest_categorical("kind", ["small", "wide", "deep"])
    layers, width = trial.suggest_int("layers", 1, 12), trial.suggest_float("width", 8, 512, log=True)
    rate = trial.suggest_float("rate", 1e-4, 1, log=True)
    cost = {"small": 1.0, "wide": 1.5, "deep": 2.0}[kind] * layers * width / 400
    trial.set_constraint("cost", cost - 2)
    error = {"small": 1.0, "wide": 0.6, "deep": 0.5}[kind] / (1 + 0.1 * layers) + 4 / math.sqrt(width)
    return error + 0.2 * (math.log10(rate) + 2.3 - 0.05 * layers) ** 2


def front(trial):
    """Two smooth wells (Van Veldhuizen and Lamont 1999, MOP2), in three dimensions."""
    x = [trial.suggest_float(f"x{i}", -2, 2) for i in range(3)]
    return tuple(1 - math.exp(-sum((v + sign / math.sqrt(3)) ** 2 for v in x)) for sign in (-1, 1))


def mixed_front(trial):
    """Speed and wear of three kinds of a machine with a whole number of parts."""
    kind = trial.suggest_categorical("kind", ["a", "b", "c"])
    parts, load = trial.suggest_int("parts", 1, 10), trial.suggest_float("load", 0, 1)
    x = trial.suggest_float("x", -1, 1)
    gain, wear = {"a": (0.6, 0.2), "b": (0.8, 0.5), "c": (1.0, 0.9)}[kind]
    off = (x - 0.3 * load) ** 2
    return 1 - gain * load * (1 - math.exp(-parts / 3)) + off, wear * load**2 + 0.05 * parts + off


# Trials, and for two objectives the reference below which areas are measured.
PROBLEMS = {
    mixed: (50, None),
    conditional: (50, None),
    pruned: (50, None),
    steps: (40, None),
    constrained: (40, None),
    narrow: (40, None),
    limited: (50, None),
    front: (40, (1.1, 1.1)),
    mixed_front: (50, (1.1, 1.1)),
}


def dominated(values, reference):
    """The area that points dominate below a reference, both values being small if good."""
    area, lowest = 0.0, reference[1]
    for first, second in sorted(values):
        if first < reference[0] and second < lowest:
            area += (reference[0] - first) * (lowest - second)
            lowest = second
    return area


def true_area(problem, reference):
    """What the true front dominates: for `front` it is a curve, for the other the best of many points on the ridge."""
    if problem is front:
        curve = np.linspace(-1 / math.sqrt(3), 1 / math.sqrt(3), 20001)
        values = [(1 - math.exp(-3 * (t - 3**-0.5) ** 2), 1 - math.exp(-3 * (t + 3**-0.5) ** 2)) for t in curve]
    else:
        values = []
        for gain, wear in ((0.6, 0.2), (0.8, 0.5), (1.0, 0.9)):
            for parts in range(1, 11):
                rise = 1 - math.exp(-parts / 3)
                values += [
                    (1 - gain * load * rise, wear * load**2 + 0.05 * parts) for load in np.linspace(0, 1, 1001)
                ]
    return dominated(values, reference)


def score(study, reference, best_area):
    if reference is not None:
        return best_area - dominated([trial.values for trial in study.best_trials], reference)
    values = [
        trial.value
        for trial in study.trials
        if trial.state == optuna.trial.TrialState.COMPLETE and all(c <= 0 for c in trial.constraints.values())
    ]
    return min(values, default=6.0)


def sampler(name):
    if name == "wiski":
        from wiski.optuna import WiskiSampler

        return WiskiSampler
    return {
        "TPE": optuna.samplers.TPESampler,
        "random": optuna.samplers.RandomSampler,
        "GP": optuna.samplers.GPSampler,
    }[name]


def options(description, samplers):
    """What the command line says; Optuna is silent from here on."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=11)
    parser.add_argument("--samplers", default=samplers, help="of wiski, TPE, random and GP")
    parser.add_argument("--only", default="", help="problems, by name")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    return parser.parse_args()


def compare(arguments, problems, run):
    """A line for each problem and sampler; `run` gives the score of a problem with a sampler and a seed."""
    print("| problem | trials | sampler | mean | median | worst | seconds |")
    for problem, trials in problems.items():
        if arguments.only and problem.__name__ not in arguments.only.split(","):
            continue
        for name in arguments.samplers.split(","):
            start = time.process_time()
            scores = [run(problem, trials, sampler(name)(seed=seed), seed) for seed in range(arguments.seeds)]
            figures = " | ".join(f"{figure:.4f}" for figure in (np.mean(scores), np.median(scores), max(scores)))
            seconds = (time.process_time() - start) / arguments.seeds
            print(f"| {problem.__name__} | {trials} | {name} | {figures} | {seconds:.1f} |", flush=True)


def run(problem, trials, chosen, seed):
    reference = PROBLEMS[problem][1]
    study = optuna.create_study(
        sampler=chosen,
        pruner=optuna.pruners.MedianPruner(),
        directions=["minimize"] * (1 if reference is None else 2),
    )
    study.optimize(problem, n_trials=trials)
    return score(study, reference, None if reference is None else true_area(problem, reference))


def main():
    arguments = options(__doc__, "wiski,TPE,random")
    compare(arguments, {problem: trials for problem, (trials, _) in PROBLEMS.items()}, run)


if __name__ == "__main__":
    main()
