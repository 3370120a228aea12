//! Tests of the joint predictions of baselines ([`KernelPosterior`]) against the models themselves.

use crate::baselines::testing::{assert_gradient, hyper, rows};
use crate::baselines::{
    Covariance, Encoder, ExactGp, Hyper, KernelPosterior, Likelihood, StreamingSvgp, SvgpOptions, Training,
};
use wiski::decide::Acquisition;
use wiski::internals::decide::{BaseSamples, Incumbent};
use wiski::internals::posterior::{Joint, Surrogate};
use wiski::{Family, OnlineGp};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9 * (1.0 + a.abs())
}

fn models() -> [(KernelPosterior, Box<dyn OnlineGp>); 3] {
    let (x, y) = rows(30, 2);
    let mut exact = ExactGp::new(Encoder::identity(2), hyper(), Training::none());
    exact.warm_up(&x, &y, None).unwrap();
    let matern = Hyper { kernel: Covariance::new(Family::Matern52, 2).unwrap(), ..hyper() };
    let mut rough = ExactGp::new(Encoder::identity(2), matern, Training::none());
    rough.warm_up(&x, &y, None).unwrap();
    let options = SvgpOptions { inducing: 12, jitter: 1e-6, ..SvgpOptions::default() };
    let mut sparse = StreamingSvgp::new(
        Encoder::identity(2),
        hyper(),
        Training::paper(0.05),
        Likelihood::Gaussian,
        options,
    );
    sparse.warm_up(&x, &y).unwrap();
    [
        (exact.surrogate().unwrap(), Box::new(exact)),
        (rough.surrogate().unwrap(), Box::new(rough)),
        (sparse.surrogate().unwrap(), Box::new(sparse)),
    ]
}

#[test]
fn single_points_are_predicted_as_by_the_model_itself() {
    for (surrogate, model) in models() {
        let points = [0.1, -0.3, 0.7, 0.9, -0.8, 0.2];
        let mut joint = Joint::default();
        surrogate.predict(&points, &mut joint).unwrap();
        for i in 0..3 {
            let p = model.predict(&points[2 * i..2 * i + 2]).unwrap();
            assert!(close(joint.mean[i], p.mean) && close(joint.variance(i), p.variance), "{p:?}");
            assert!(close(surrogate.mean(&points[2 * i..2 * i + 2]).unwrap(), p.mean));
            assert_eq!(surrogate.noise, p.noise);
        }
    }
}

/// A covariance is what an observation of one point changes at the other, an identity of exact processes.
#[test]
fn covariances_are_what_observing_changes() {
    let (x, y) = rows(30, 2);
    let mut model = ExactGp::new(Encoder::identity(2), hyper(), Training::none());
    model.warm_up(&x, &y, None).unwrap();
    let (a, b) = ([0.1, -0.3], [0.4, 0.1]);
    let surrogate = model.surrogate().unwrap();
    let mut joint = Joint::default();
    surrogate.predict(&[a, b].concat(), &mut joint).unwrap();
    let before = model.predict(&b).unwrap();
    model.observe(&a, joint.mean[0] + 1.0).unwrap();
    let after = model.predict(&b).unwrap();
    let total = joint.variance(0) + surrogate.noise;
    assert!(close(after.mean - before.mean, joint.covariance[1] / total));
    assert!(close(before.variance - after.variance, joint.covariance[1].powi(2) / total));
}

/// Trying every candidate on a copy of the model.
#[test]
fn the_choice_from_a_pool_is_that_of_observing_each() {
    let (x, y) = rows(15, 2);
    let mut model = ExactGp::new(Encoder::identity(2), hyper(), Training::none());
    model.warm_up(&x, &y, None).unwrap();
    let (pool, reference) = (rows(55, 2).0[30..].to_vec(), rows(90, 2).0[110..].to_vec());
    let pool = &pool[..pool.len() / 2 * 2];
    let chosen = model.surrogate().unwrap().choose_from_pool(pool, &reference, 3);
    let mut expected: Vec<usize> = Vec::new();
    for _ in 0..3 {
        let left = |i: usize| {
            let mut then = model.clone();
            then.observe(&pool[2 * i..2 * i + 2], 0.0).unwrap();
            reference.chunks_exact(2).map(|r| then.predict(r).unwrap().variance).sum::<f64>()
        };
        let free = (0..pool.len() / 2).filter(|i| !expected.contains(i));
        let best = free.min_by(|&i, &j| left(i).total_cmp(&left(j))).unwrap();
        model.observe(&pool[2 * best..2 * best + 2], 0.0).unwrap();
        expected.push(best);
    }
    assert_eq!(chosen, expected);
}

#[test]
fn gradients_of_criteria_match_central_differences() {
    for (surrogate, _) in models() {
        for (q, criterion) in [
            (1, Acquisition::LogExpectedImprovement),
            (3, Acquisition::UCB),
            (2, Acquisition::LogExpectedImprovement),
        ] {
            let x: Vec<f64> = (0..2 * q).map(|i| 0.8 * (2.3 * i as f64 + 0.4).cos()).collect();
            let (samples, incumbent) = (BaseSamples::new(q, 64, 3), Incumbent::with_best(0.3));
            let mut gradient = vec![0.0; 2 * q];
            let question = (&x[..], &incumbent, &samples);
            criterion.value_and_gradient(&surrogate, question, &mut Joint::default(), &mut gradient).unwrap();
            let value = |x: &[f64]| {
                criterion.value(&surrogate, (x, &incumbent, &samples), &mut Joint::default()).unwrap()
            };
            assert_gradient(&x, &gradient, value, 1e-6);
        }
    }
}
