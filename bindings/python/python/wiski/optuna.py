"""A sampler for Optuna."""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from wiski._optimizer import Optimizer

# So many dimensions can be searched together.
_MOST = 50


class WiskiSampler(BaseSampler):
    """Proposes numbers by Bayesian optimization with :class:`wiski.Optimizer`; a proposal takes as long after ten
    thousand trials as after a thousand.

    The first fifty numeric parameters, by name, are searched together; others, and categories, are drawn at random.

    Parameters
    ----------
    seed : int, default=0
        The seed of everything random.
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

    def __init__(self, seed: int = 0, **parameters: Any) -> None:
        self._seed = seed
        self._parameters = parameters
        self._random = RandomSampler(seed=seed)
        self._space = IntersectionSearchSpace()
        self._search: Optimizer | None = None
        self._searched: dict[str, BaseDistribution] = {}
        self._told: set[int] = set()

    def reseed_rng(self) -> None:
        self._random.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        numeric = {
            name: distribution
            for name, distribution in sorted(self._space.calculate(study).items())
            if isinstance(distribution, (FloatDistribution, IntDistribution)) and not distribution.single()
        }
        return dict(list(numeric.items())[:_MOST])

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        self._raise_error_if_multi_objective(study)
        if not search_space:
            return {}
        if self._search is None or search_space != self._searched:
            maximize = study.direction == StudyDirection.MAXIMIZE
            space = {name: _dimension(distribution) for name, distribution in search_space.items()}
            self._search = Optimizer(space, maximize=maximize, random_state=self._seed, **self._parameters)
            self._searched, self._told = search_space, set()
        self._learn(study)
        (point,) = self._search.ask(1)
        return {name: _value(point[name], distribution) for name, distribution in search_space.items()}

    def _learn(self, study: Study) -> None:
        """Tell what other trials have found since."""
        states = (TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED)
        for trial in study.get_trials(deepcopy=False, states=states):
            known = all(
                name in trial.params and distribution._contains(distribution.to_internal_repr(trial.params[name]))
                for name, distribution in self._searched.items()
            )
            if trial.number in self._told or not known:
                continue
            self._told.add(trial.number)
            point = {name: float(trial.params[name]) for name in self._searched}
            self._search.tell(point, trial.value if trial.state == TrialState.COMPLETE else None)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._random.sample_independent(study, trial, param_name, param_distribution)


def _dimension(distribution: Any) -> tuple[Any, ...]:
    how = ["log"] if distribution.log else []
    if isinstance(distribution, IntDistribution):
        how.append("int")
    return (distribution.low, distribution.high, *how)


def _value(value: float, distribution: Any) -> Any:
    """The nearest value that the distribution has."""
    if distribution.step is not None and not distribution.log:
        steps = round((value - distribution.low) / distribution.step)
        value = min(distribution.low + steps * distribution.step, distribution.high)
    return int(round(value)) if isinstance(distribution, IntDistribution) else float(value)
