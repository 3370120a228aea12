"""A sampler for Optuna."""

from __future__ import annotations

import secrets
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, RandomSampler
from optuna.samplers._base import _process_constraints_after_trial
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from wiski._optimizer import Optimizer

# So many coordinates can be searched together; a choice between n > 2 counts as n.
_MOST = 50

# What Optuna keeps constraints under: a list of them, or each with its name after a colon.
_CONSTRAINTS = "constraints"

# So many trials that other processes are proposing are guessed.
_MOST_GUESSED = 8

_FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


class WiskiSampler(BaseSampler):
    """Proposes points by Bayesian optimization with :class:`wiski.Optimizer`; a proposal takes as long after ten
    thousand trials as after a thousand.

    Numbers, whole numbers, steps and categories are searched together, up to fifty coordinates by name (a category
    of n > 2 choices counts as n), and so are parameters that only some trials have, where a category says which. What
    is left is drawn at random. A trial that was pruned counts as one that ended where others ended that were as good
    at the same step; one that failed, as no better than the average.

    Constraints (``trial.set_constraint``, or ``constraints_func``) hold where they are zero or less: the best trial is
    sought at which all of them hold. A trial without them, in a study that has some, counts as failed. Studies of two and
    three objectives are searched for their front, by the expected improvement of the hypervolume.

    Parameters
    ----------
    seed : int, default=None
        The seed of everything random; trials of a study differ with the same seed, whichever process runs them. None
        is a seed that nobody knows.
    constraints_func : callable, default=None
        The constraints of a trial that has ended, as other samplers take it: called with the trial, it gives a sequence
        of numbers.
    parameters
        Further parameters of :class:`wiski.Optimizer`, such as ``strategy`` or ``initial``.

    Examples
    --------
    >>> import optuna
    >>> from wiski.optuna import WiskiSampler
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=WiskiSampler(seed=1))
    >>> study.optimize(lambda trial: (trial.suggest_float("x", -4, 4) - 1) ** 2, n_trials=25)
    >>> study.best_value < 0.05
    True
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        **parameters: Any,
    ) -> None:
        for taken in ("maximize", "constraints", "known_noise", "random_state"):
            if taken in parameters:
                raise TypeError(f"WiskiSampler: {taken} is not a parameter of the sampler")
        # What is wrong with the parameters is said now, not by the first trial that is proposed.
        Optimizer({"x": (0, 1)}, **parameters)
        self._seed = secrets.randbits(32) if seed is None else int(seed)
        self._parameters = parameters
        self._constraints_func = constraints_func
        self._searches: dict[Any, _Search] = {}
        self._random: dict[Any, RandomSampler] = {}
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        # Searches are made anew from what a study knows.
        return {
            "_seed": self._seed,
            "_parameters": self._parameters,
            "_constraints_func": self._constraints_func,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._searches, self._random, self._lock = {}, {}, threading.RLock()

    def reseed_rng(self) -> None:
        with self._lock:
            self._seed = secrets.randbits(32)
            self._searches.clear()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {name: distribution for name, (distribution, _) in _space_of(study).items()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        with self._lock:
            space, names = _space_of(study), _constraint_names(study)
            key = (id(study._storage), study._study_id)
            search = self._searches.get(key)
            if search is None or (search.space, search.constraints) != (space, names):
                maximize = [direction == StudyDirection.MAXIMIZE for direction in study.directions]
                search = _Search(space, names, maximize, self._seed, self._parameters)
                self._searches = {key: search, **{k: s for k, s in self._searches.items() if k != key}}
                # Those of a few studies that take turns.
                self._searches = dict(list(self._searches.items())[:8])
            return search.propose(study, trial)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        with self._lock:
            key = (id(study._storage), study._study_id, trial.number)
            if key not in self._random:
                # A stream for each trial, so that two processes draw different points for different trials.
                (seed,) = np.random.SeedSequence([self._seed % 2**63, trial.number]).generate_state(1)
                self._random[key] = RandomSampler(seed=int(seed))
            return self._random[key].sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        if self._constraints_func is not None:
            _process_constraints_after_trial(self._constraints_func, study, trial, state)
        with self._lock:
            self._random.pop((id(study._storage), study._study_id, trial.number), None)


class _Search:
    """The search of one study in one space."""

    def __init__(
        self,
        space: dict[str, Any],
        constraints: list[str],
        maximize: list[bool],
        seed: int,
        parameters: dict[str, Any],
    ) -> None:
        self.space = space
        self.constraints = constraints
        self._told: set[int] = set()
        # What was asked for here and has not ended, by the number of the trial.
        self._asked: dict[int, dict[str, Any]] = {}
        dimensions = {name: _dimension(*described) for name, described in space.items()}
        self._objectives = len(maximize)
        self._optimizer = Optimizer(
            dimensions, maximize=maximize, constraints=constraints, random_state=seed, **parameters
        )

    def propose(self, study: Study, trial: FrozenTrial) -> dict[str, Any]:
        trials = study.get_trials(deepcopy=False)
        finished = [other for other in trials if other.state in _FINISHED]
        self._learn(finished)
        # Trials of other processes are known by the parameters that they have so far.
        for other in trials:
            if other.number in self._asked and other.state in _FINISHED:
                del self._asked[other.number]
        running = {t.number: t for t in trials if t.state == TrialState.RUNNING and t.number != trial.number}
        points = {n: self._point(other.params) for n, other in running.items() if n not in self._asked}
        pending = [point for point in points.values() if point is not None]
        pending += [point for number, point in self._asked.items() if number in running]
        optimizer = self._optimizer
        rows = [optimizer._coordinates(optimizer._search.space, point) for point in pending]
        optimizer._search.set_pending(rows)
        # One that has none yet is being proposed now, and from the same results: what it will be is guessed first, and is
        # pending for this one. Otherwise both would be the same wherever the best point is at a border.
        unknown = sorted(n for n, point in points.items() if point is None and n < trial.number)
        for number in unknown[-_MOST_GUESSED:]:
            optimizer._search.ask(1, number)
        (point,) = optimizer._points(optimizer._search.ask(1, trial.number))
        if points:
            # What the others have become meanwhile: a point that was taken is pending now, so that the next is another.
            others = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
            if any(point == self._point(other.params) for other in others if other.number != trial.number):
                (point,) = optimizer._points(optimizer._search.ask(1, trial.number))
        self._asked[trial.number] = point
        return {name: _value(value, self.space[name][0]) for name, value in point.items()}

    def _learn(self, finished: list[FrozenTrial]) -> None:
        """Tell what trials have found since."""
        points, values, limits = [], [], []
        failed = [np.nan] * self._objectives
        completed = [trial for trial in finished if trial.state == TrialState.COMPLETE]
        for trial in finished:
            if trial.number in self._told:
                continue
            point = self._point(trial.params)
            if point is None:
                continue
            self._told.add(trial.number)
            value: Sequence[float] | None = None
            if trial.state == TrialState.COMPLETE:
                value = trial.values
            elif trial.state == TrialState.PRUNED:
                # Only a study of one objective prunes.
                end = _expected_end(trial, completed)
                value = None if end is None else [end]
            own = _constraints_of(trial)
            held = [own.get(name, np.nan) for name in self.constraints]
            if value is None or np.isnan(value).any() or np.isnan(held).any():
                value, held = failed, [0.0] * len(held)
            points.append(point)
            values.append(value)
            limits.append(held)
        if points:
            told = np.asarray(values, dtype=np.float64)
            self._optimizer.tell(
                points,
                told[:, 0] if self._objectives == 1 else told,
                constraints=limits if self.constraints else None,
            )

    def _point(self, parameters: dict[str, Any]) -> dict[str, Any] | None:
        """The parameters of a trial as a point of the space, if they are one."""
        point: dict[str, Any] = {}
        for name, (distribution, condition) in self.space.items():
            if condition is not None:
                choice, among = condition
                if choice not in point or point[choice] not in among:
                    continue
            if name not in parameters:
                return None
            place = _place(parameters[name], distribution)
            if place is None:
                return None
            point[name] = place
        return point


def _constraints_of(trial: FrozenTrial) -> dict[str, float]:
    """The constraints of a trial by name."""
    found = {str(i): float(value) for i, value in enumerate(trial.system_attrs.get(_CONSTRAINTS) or ())}
    start = _CONSTRAINTS + ":"
    for key, value in trial.system_attrs.items():
        if key.startswith(start):
            found[key[len(start) :]] = float(value)
    return found


def _constraint_names(study: Study) -> list[str]:
    """The names of all constraints that trials have."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return sorted({name for trial in trials for name in _constraints_of(trial)})


def _space_of(study: Study) -> dict[str, Any]:
    """The parameters that are searched, in the order of their names, choices that others depend on before them: each
    with its distribution and, if only some trials have it, the choice and the places of its values that bring it."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    distributions: dict[str, BaseDistribution] = {}
    for trial in trials:
        distributions.update(trial.distributions)
    names = sorted(name for name, distribution in distributions.items() if not distribution.single())
    # One whose range has changed counts as it is now; trials that it does not hold are left out.
    everywhere = [name for name in names if all(name in trial.params for trial in trials)]
    space: dict[str, Any] = {name: (distributions[name], None) for name in everywhere}
    left = [name for name in names if name not in space]
    while left:
        found = {name: _condition(name, space, trials) for name in left}
        new = {name: (distributions[name], how) for name, how in found.items() if how is not None}
        if not new:
            break
        space.update(new)
        left = [name for name in left if name not in space]
    kept: dict[str, Any] = {}
    coordinates = 0
    for name, (distribution, condition) in space.items():
        coordinates += _coordinates(distribution)
        if coordinates <= _MOST and (condition is None or condition[0] in kept):
            kept[name] = (distribution, condition)
    return kept


def _condition(name: str, space: dict[str, Any], trials: list[FrozenTrial]) -> tuple[str, tuple[int, ...]] | None:
    """The choice that says whether trials have a parameter, if one does."""
    for choice, (distribution, _) in space.items():
        if not isinstance(distribution, CategoricalDistribution):
            continue
        places: tuple[set[int], set[int]] = (set(), set())
        for trial in trials:
            if choice in trial.params:
                places[name in trial.params].add(int(distribution.to_internal_repr(trial.params[choice])))
            elif name in trial.params:
                break
        else:
            without, having = places
            if having and not without & having:
                return choice, tuple(sorted(having))
    return None


def _coordinates(distribution: Any) -> int:
    if isinstance(distribution, CategoricalDistribution) and len(distribution.choices) > 2:
        return len(distribution.choices)
    return 1


def _steps(distribution: Any) -> int | None:
    """The number of steps from the lowest value to the highest, if there are steps that are not the whole numbers."""
    step = distribution.step
    if step is None or distribution.log or (isinstance(distribution, IntDistribution) and step == 1):
        return None
    return int(round((distribution.high - distribution.low) / step))


def _dimension(distribution: Any, condition: Any) -> dict[str, Any]:
    """A distribution as a dimension: categories and steps are known by their place."""
    form: dict[str, Any] = {}
    if isinstance(distribution, CategoricalDistribution):
        form["choices"] = list(range(len(distribution.choices)))
    elif (steps := _steps(distribution)) is not None:
        form["range"] = (0, steps, "int")
    else:
        how = ["log"] if distribution.log else []
        how += ["int"] if isinstance(distribution, IntDistribution) else []
        form["range"] = (distribution.low, distribution.high, *how)
    if condition is not None:
        form["only_if"] = {condition[0]: list(condition[1])}
    return form


def _place(value: Any, distribution: Any) -> Any:
    """The value of a trial as a coordinate; None if the distribution does not have it."""
    if isinstance(distribution, CategoricalDistribution):
        try:
            return int(distribution.to_internal_repr(value))
        except ValueError:
            return None
    if not isinstance(value, (int, float)) or not distribution.low <= value <= distribution.high:
        return None
    if _steps(distribution) is not None:
        return int(round((value - distribution.low) / distribution.step))
    return int(value) if isinstance(distribution, IntDistribution) else float(value)


def _value(place: Any, distribution: Any) -> Any:
    """A coordinate as the value of a trial."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[place]
    if _steps(distribution) is not None:
        place = min(distribution.low + place * distribution.step, distribution.high)
    return int(place) if isinstance(distribution, IntDistribution) else float(place)


def _expected_end(pruned: FrozenTrial, completed: list[FrozenTrial]) -> float | None:
    """Where a trial that was pruned would have ended: at the same rank among all ends that it had among the trials
    that were completed, at its last step. None if nothing is known."""
    step = pruned.last_step
    if step is None or np.isnan(pruned.intermediate_values[step]):
        return None
    value = pruned.intermediate_values[step]
    others = [t for t in completed if step in t.intermediate_values and t.value is not None]
    if not others:
        return value
    reached = sorted(t.intermediate_values[step] for t in others)
    ends = np.sort([t.value for t in others])
    share = 0.5 * (bisect_left(reached, value) + bisect_right(reached, value)) / len(reached)
    return float(np.quantile(ends, min(share, 1.0), method="closest_observation"))
