"""A model for BoTorch.

Joint predictions and their gradients come from the posterior on the grid, whatever the number of observations. Real
observations are learned in Rust, in constant time. Hypothetical ones (fantasies) are conditioned on with a few joint
predictions, in PyTorch, so that gradients flow through them to their places.

Units are the user's, in and out: scales of inputs and of values belong to the regressor, and nowhere else. BoTorch's
input and outcome transforms are therefore not needed, and not taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from botorch.models.model import FantasizeMixin, Model
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch.constraints import Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator import to_linear_operator
from torch import Tensor
from torch.autograd.function import once_differentiable

from wiski._errors import WiskiError
from wiski._regressor import OnlineGPRegressor


class _JointPrediction(torch.autograd.Function):
    """The latent mean, b x q, and covariance, b x q x q, of b sets of q points, with analytic gradients."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, surface: Any) -> tuple[Tensor, Tensor]:
        mean, covariance = surface.predict(_numpy(X))
        ctx.save_for_backward(X)
        ctx.surface = surface
        return torch.from_numpy(mean).to(X), torch.from_numpy(covariance).to(X)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_mean: Tensor, by_covariance: Tensor) -> tuple[Tensor, None]:
        (X,) = ctx.saved_tensors
        gradient = ctx.surface.vjp(_numpy(X), _numpy(by_mean), _numpy(by_covariance))
        return torch.from_numpy(gradient).to(X), None


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().to(torch.float64).numpy()


class WiskiModel(Model, FantasizeMixin):
    """A BoTorch model around an :class:`~wiski.OnlineGPRegressor`.

    Parameters
    ----------
    regressor : OnlineGPRegressor
        A model whose warm-up is over. It is not changed. For optimization over a box, give it these ``bounds``.

    Examples
    --------
    >>> import torch
    >>> from botorch.acquisition import qLogExpectedImprovement
    >>> from botorch.optim import optimize_acqf
    >>> from wiski.botorch import WiskiModel
    >>> X = torch.rand(30, 2, dtype=torch.float64)
    >>> Y = -((X - 0.3) ** 2).sum(-1, keepdim=True)
    >>> model = WiskiModel.from_data(X, Y, bounds=[(0, 1), (0, 1)])
    >>> criterion = qLogExpectedImprovement(model, best_f=Y.max())
    >>> cube = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    >>> points, value = optimize_acqf(criterion, cube, q=2, num_restarts=2, raw_samples=16)
    >>> points.shape
    torch.Size([2, 2])
    >>> model = model.condition_on_observations(points, -((points - 0.3) ** 2).sum(-1, keepdim=True))
    """

    def __init__(self, regressor: OnlineGPRegressor) -> None:
        super().__init__()
        self.regressor = regressor
        self._surface = regressor._fitted().surface()
        # What fantasies look at to see whether there is noise.
        self.likelihood = GaussianLikelihood(noise_constraint=Positive())
        self.likelihood.noise = max(self._surface.noise, 1e-12)
        self._X: Any = None
        self._Y: Any = None
        self._noise: Any = None

    @classmethod
    def from_data(cls, X: Tensor, Y: Tensor, **parameters: Any) -> WiskiModel:
        """A model of the values ``Y`` (n x 1) at ``X`` (n x d); parameters are those of the regressor. Unless told
        otherwise, the kernel is a Matern 5/2, and learning starts from little noise, as few points are often exact."""
        defaults = {"features": "identity", "kernel": "matern52", "initial": {"noise": 0.01}}
        regressor = OnlineGPRegressor(**{**defaults, **parameters})
        return cls(regressor.fit(_numpy(X), _numpy(_targets(Y))))

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def batch_shape(self) -> torch.Size:
        return torch.Size() if self._Y is None else self._Y.shape[:-1]

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """The joint posterior of points, ... x q x d."""
        if output_indices not in (None, [0]):
            raise WiskiError(f"output_indices: there is one output, not {output_indices}")
        mean, covariance = self._joint(X) if self._X is None else self._conditioned(X)
        if isinstance(observation_noise, Tensor):
            covariance = covariance + torch.diag_embed(observation_noise.squeeze(-1).expand(mean.shape).to(mean))
        elif observation_noise:
            covariance = covariance + self._surface.noise * torch.eye(mean.shape[-1]).to(mean)
        posterior = GPyTorchPosterior(MultivariateNormal(mean, to_linear_operator(covariance)))
        return posterior if posterior_transform is None else posterior_transform(posterior)

    def _joint(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and covariance of sets of points, by real observations alone."""
        batch, (q, d) = X.shape[:-2], X.shape[-2:]
        mean, covariance = _JointPrediction.apply(X.reshape(-1, q, d), self._surface)
        return mean.reshape(*batch, q), covariance.reshape(*batch, q, q)

    def _conditioned(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """The same given hypothetical observations: one joint prediction of both, then Gaussian conditioning."""
        given, q = self._X, X.shape[-2]
        batch = torch.broadcast_shapes(X.shape[:-2], given.shape[:-2])
        both = torch.cat([X.expand(*batch, *X.shape[-2:]), given.expand(*batch, *given.shape[-2:])], dim=-2)
        mean, covariance = self._joint(both)
        noise = torch.diag_embed(self._noise.expand(*mean.shape[:-1], given.shape[-2]))
        root = torch.linalg.cholesky(covariance[..., q:, q:] + noise)
        # With c = cov(given, X): the white gain L^-1 c, whose square is what the observations explain.
        gain = torch.linalg.solve_triangular(root, covariance[..., q:, :q], upper=False)
        residual = (self._Y - mean[..., q:]).unsqueeze(-1)
        white = torch.linalg.solve_triangular(root, residual, upper=False)
        posterior_mean = mean[..., :q] + (gain.mT @ white).squeeze(-1)
        posterior_covariance = covariance[..., :q, :q] - gain.mT @ gain
        # Values differ between fantasies; the covariance does not depend on them.
        shape = posterior_mean.shape
        return posterior_mean, posterior_covariance.expand(*shape, shape[-1])

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> WiskiModel:
        """The model given further observations ``Y`` (... x q x 1) at ``X`` (... x q x d).

        One set of observations without gradients is learned for good, in constant time. Batches of them, and those
        whose places need a gradient, are kept beside the model.
        """
        single = X.dim() == 2 and Y.dim() == 2 and self._X is None
        if single and noise is None and not (X.requires_grad or Y.requires_grad):
            return WiskiModel(self.regressor.condition(_numpy(X), _numpy(_targets(Y))))
        Y = _targets(Y)
        own = torch.full_like(Y, self._surface.noise) if noise is None else noise.squeeze(-1).expand(Y.shape)
        if self._X is not None:
            batch = torch.broadcast_shapes(self._X.shape[:-2], X.shape[:-2])
            X = torch.cat([self._X.expand(*batch, *self._X.shape[-2:]), X.expand(*batch, *X.shape[-2:])], dim=-2)
            batch = torch.broadcast_shapes(self._Y.shape[:-1], Y.shape[:-1])
            own = torch.cat([self._noise.expand(*batch, -1), own.expand(*batch, -1)], dim=-1)
            Y = torch.cat([self._Y.expand(*batch, -1), Y.expand(*batch, -1)], dim=-1)
        model = WiskiModel(self.regressor)
        # All fantasies of a place have the same noise.
        model._X, model._Y, model._noise = X, Y, own[(0,) * (own.dim() - X.dim() + 1)]
        return model


def _targets(Y: Tensor) -> Tensor:
    if Y.shape[-1] != 1:
        raise WiskiError(f"Y has {Y.shape[-1]} outputs: there is one")
    return Y.squeeze(-1)
