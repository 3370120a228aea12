"""Classifiers of real tables beside each other: accuracy, log-loss, expected calibration error, processor seconds.

wiski with every default learns each row once; the others are fitted in batch: logistic regression, histogram gradient
boosting, a support vector machine with probabilities (all of scikit-learn, standardized inputs) and a Gaussian process
classifier on at most 1,500 rows. Mean over splits with three tenths held out; sets with a test file keep it. With
``--stream`` it is elec2 in its own order, each row predicted before it is learned, beside river's adaptive random forest
and the class before.

Run it with: python classes.py [--data DIR] [--sets iris,digits] [--models wiski,boosting] [--splits 5] [--stream]
"""

from __future__ import annotations

import os

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"

import argparse
import csv
import gzip
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")

SETS = "iris,wine_classes,breast_cancer,banana,svmguide1,digits,five,two"
MODELS = "wiski,logistic,boosting,svc,gpc"


def read(folder, name):
    with gzip.open(os.path.join(folder, f"{name}.csv.gz"), "rt") as file:
        rows = list(csv.reader(file))[1:]
    return np.array([row[:-1] for row in rows], dtype=float), np.array([row[-1] for row in rows])


def smooth_classes(classes, inputs, relevant, rows, seed):
    """The class is the largest of random functions, sums of cosines of directions through some of the inputs."""
    rng = np.random.default_rng(1000 + seed)
    X = rng.normal(size=(rows, inputs))
    waves = rng.normal(size=(classes, 40, relevant)) / np.sqrt(relevant)
    phases = rng.uniform(0, 2 * np.pi, size=(classes, 40))
    values = np.cos(np.einsum("nk,cjk->ncj", X[:, :relevant], waves) + phases).sum(axis=2)
    return X, np.array([f"c{c}" for c in values.argmax(axis=1)])


def split(folder, name, seed):
    rng = np.random.default_rng(seed)
    if name in ("banana", "svmguide1"):
        (X, y), test = read(folder, f"{name}_train"), read(folder, f"{name}_test")
        order = rng.permutation(len(y))
        return (X[order], y[order]), test
    if name == "five":
        X, y = smooth_classes(5, 12, 12, 6000, seed)
    elif name == "two":
        X, y = smooth_classes(2, 20, 6, 6000, seed)
    else:
        X, y = read(folder, name)
    order = rng.permutation(len(y))
    cut = len(y) * 7 // 10
    return (X[order[:cut]], y[order[:cut]]), (X[order[cut:]], y[order[cut:]])


def model(name, seed):
    if name == "wiski":
        from wiski import OnlineGPClassifier

        return OnlineGPClassifier(random_state=seed)
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    if name == "boosting":
        return HistGradientBoostingClassifier(random_state=seed)
    rest = {
        "logistic": lambda: LogisticRegression(max_iter=2000),
        "svc": lambda: SVC(probability=True, random_state=seed),
        "gpc": lambda: GaussianProcessClassifier(ConstantKernel(4.0) * RBF(2.0), random_state=seed),
    }
    return make_pipeline(StandardScaler(), rest[name]())


def figures(probabilities, classes, truth):
    place = np.searchsorted(classes, truth)
    best = probabilities.argmax(axis=1)
    confidence, right = probabilities.max(axis=1), best == place
    loss = -np.log(np.maximum(probabilities[np.arange(len(truth)), place], 1e-300)).mean()
    bins = np.minimum((confidence * 10).astype(int), 9)
    off = sum(abs((confidence - right)[bins == b].sum()) for b in range(10)) / len(truth)
    return right.mean(), loss, off


def tables(arguments):
    print(f"{'set':14}{'model':10}accuracy  log-loss    ECE   seconds")
    for name in arguments.sets.split(","):
        for which in arguments.models.split(","):
            runs = []
            for seed in range(arguments.splits):
                (X, y), (X_test, y_test) = split(arguments.data, name, seed)
                if which == "gpc":
                    X, y = X[:1500], y[:1500]
                start = time.process_time()
                fitted = model(which, seed).fit(X, y)
                seconds = time.process_time() - start
                runs.append((*figures(fitted.predict_proba(X_test), fitted.classes_, y_test), seconds))
            accuracy, loss, off, seconds = np.mean(runs, axis=0)
            print(f"{name:14}{which:10}   {accuracy:.3f}     {loss:.3f}  {off:.3f}  {seconds:8.1f}", flush=True)


def stream(arguments):
    """elec2 in order, and how often each model was right about the row to come."""
    X, y = read(arguments.data, "elec2")
    right = {"class before": 0, "wiski": 0, "river ARF": 0}
    seconds = dict.fromkeys(right, 0.0)
    from river import forest
    from wiski import OnlineGPClassifier

    other = forest.ARFClassifier(seed=0)
    own = OnlineGPClassifier(half_life=arguments.half_life, random_state=0)
    for i, (x, label) in enumerate(zip(X, y)):
        right["class before"] += i > 0 and y[i - 1] == label
        start = time.process_time()
        row = dict(enumerate(x))
        right["river ARF"] += other.predict_one(row) == label
        other.learn_one(row, label)
        middle = time.process_time()
        if i > 0:
            right["wiski"] += own.predict(x[None])[0] == label
        own.partial_fit(x[None], [label], classes=sorted(set(y)))
        seconds["river ARF"] += middle - start
        seconds["wiski"] += time.process_time() - middle
    for name, count in right.items():
        print(f"{name:14}{count / len(y):.4f}  {seconds[name]:8.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("WISKI_DATA", "data"))
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--half-life", type=float, default=None)
    arguments = parser.parse_args()
    stream(arguments) if arguments.stream else tables(arguments)


if __name__ == "__main__":
    main()
