"""The BoTorch model: `./check --botorch` runs this where BoTorch is installed."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("botorch")

from botorch.acquisition import (  # noqa: E402
    qLogExpectedImprovement,
    qNegIntegratedPosteriorVariance,
    qUpperConfidenceBound,
)
from botorch.acquisition.logei import qLogNoisyExpectedImprovement  # noqa: E402
from botorch.optim import optimize_acqf  # noqa: E402
from botorch.sampling import SobolQMCNormalSampler  # noqa: E402

import wiski  # noqa: E402
from wiski.botorch import WiskiModel  # noqa: E402

CUBE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


def value(X):
    return 3 - ((X - torch.tensor([0.3, 0.6], dtype=X.dtype)) ** 2).sum(-1, keepdim=True) * 4


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    X = torch.rand(40, 2, dtype=torch.float64)
    Y = value(X) + 0.05 * torch.randn(40, 1, dtype=torch.float64)
    return WiskiModel.from_data(X, Y, bounds=[(0, 1), (0, 1)])


def test_posterior_is_that_of_the_regressor(model):
    X = torch.rand(3, 4, 2, dtype=torch.float64)
    posterior = model.posterior(X)
    assert posterior.mean.shape == (3, 4, 1)
    noisy = model.posterior(X, observation_noise=True)
    for i in range(3):
        mean, cov = model.regressor.predict(X[i].numpy(), return_cov=True, include_noise=False)
        np.testing.assert_allclose(posterior.mean[i, :, 0], mean, rtol=1e-9)
        np.testing.assert_allclose(posterior.mvn.covariance_matrix[i], cov, atol=1e-9)
        _, cov = model.regressor.predict(X[i].numpy(), return_cov=True)
        np.testing.assert_allclose(noisy.mvn.covariance_matrix[i], cov, atol=1e-9)
    with pytest.raises(wiski.WiskiError, match="output_indices"):
        model.posterior(X, output_indices=[1])


def test_gradients(model):
    """Against central differences, through the joint prediction and through conditioning on fantasies."""
    X = torch.rand(2, 3, 2, dtype=torch.float64, requires_grad=True)

    def joint(X):
        posterior = model.posterior(X)
        return posterior.mean, posterior.mvn.covariance_matrix

    assert torch.autograd.gradcheck(joint, X, eps=1e-6, atol=1e-5, rtol=1e-4)

    Y = torch.rand(5, 2, 3, 1, dtype=torch.float64)
    probes = torch.rand(4, 2, dtype=torch.float64)

    def fantasies(X):
        posterior = model.condition_on_observations(X, Y).posterior(probes)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(fantasies, X, eps=1e-6, atol=1e-5, rtol=1e-4)


def test_features_that_are_learned_have_gradients():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1]
    regressor = wiski.OnlineGPRegressor("project:2", warm_up=200).fit(X, y)
    model = WiskiModel(regressor)
    points = torch.tensor(X[:3], requires_grad=True)
    assert torch.autograd.gradcheck(lambda X: model.posterior(X).mean, points, eps=1e-6, atol=1e-5, rtol=1e-4)


def test_two_ways_of_conditioning_agree(model):
    X = torch.rand(5, 2, dtype=torch.float64)
    Y = value(X)
    learned = model.condition_on_observations(X, Y)
    assert learned.regressor.n_seen_ == 45 and learned.batch_shape == torch.Size()
    kept = model.condition_on_observations(X.requires_grad_(), Y)
    assert kept.regressor is model.regressor
    probes = torch.rand(7, 2, dtype=torch.float64)
    a, b = learned.posterior(probes), kept.posterior(probes)
    torch.testing.assert_close(a.mean, b.mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(a.mvn.covariance_matrix, b.mvn.covariance_matrix, rtol=1e-6, atol=1e-9)
    # One after the other is the same as both at once.
    step = kept.condition_on_observations(probes[:2], value(probes[:2]))
    both = learned.condition_on_observations(probes[:2], value(probes[:2]))
    torch.testing.assert_close(step.posterior(CUBE).mean, both.posterior(CUBE).mean, rtol=1e-6, atol=1e-8)


def test_fantasies_have_their_shapes(model):
    X = torch.rand(6, 3, 2, dtype=torch.float64)
    fantasy = model.fantasize(X, SobolQMCNormalSampler(torch.Size([8])))
    assert fantasy.batch_shape == torch.Size([8, 6])
    posterior = fantasy.posterior(torch.rand(6, 5, 2, dtype=torch.float64))
    assert posterior.mean.shape == (8, 6, 5, 1) and posterior.variance.min() > 0
    again = fantasy.fantasize(X[:, :1], SobolQMCNormalSampler(torch.Size([2])))
    assert again.posterior(X).mean.shape == (2, 8, 6, 3, 1)


def test_criteria_of_botorch_find_the_optimum(model):
    best = model.regressor.predict(np.random.default_rng(0).uniform(size=(500, 2))).max()
    for criterion in (
        qUpperConfidenceBound(model, beta=0.2),
        qLogExpectedImprovement(model, best_f=best),
        qLogNoisyExpectedImprovement(model, X_baseline=torch.rand(5, 2, dtype=torch.float64), prune_baseline=False),
    ):
        points, _ = optimize_acqf(criterion, CUBE, q=2, num_restarts=4, raw_samples=64)
        assert points.shape == (2, 2)
        assert value(points).max() > 2.8, type(criterion).__name__


def test_integrated_variance(model):
    """qNIPV is the variance that the model itself has after the points were observed, and can be climbed."""
    probes = torch.rand(64, 2, dtype=torch.float64)
    criterion = qNegIntegratedPosteriorVariance(model, mc_points=probes)
    X = torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64)
    after = model.regressor.condition(X.numpy(), [0.0, 0.0])
    _, std = after.predict(probes.numpy(), return_std=True, include_noise=False)
    assert criterion(X).item() == pytest.approx(-np.mean(std**2), rel=1e-6)
    points, best = optimize_acqf(criterion, CUBE, q=2, num_restarts=2, raw_samples=32)
    assert best > criterion(X) and best > criterion(torch.rand(20, 2, 2, dtype=torch.float64)).max()


def test_a_whole_search():
    torch.manual_seed(1)
    X = torch.rand(8, 2, dtype=torch.float64)
    model = WiskiModel.from_data(X, value(X), bounds=[(0, 1), (0, 1)])
    best = value(X).max()
    for _ in range(8):
        points, _ = optimize_acqf(qLogExpectedImprovement(model, best), CUBE, q=1, num_restarts=2, raw_samples=32)
        model = model.condition_on_observations(points, value(points))
        best = torch.maximum(best, value(points).max())
    assert best > 2.98 and model.regressor.n_seen_ == 16
