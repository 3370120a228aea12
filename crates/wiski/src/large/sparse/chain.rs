//! Matérn processes of half-integer smoothness on the points of an axis, as Markov chains.
//!
//! A Matérn process with ν = q − ½ has q − 1 derivatives, and the value with its derivatives is Markov. In the states
//! (f, h f′, h² f″) of the first q, with spacing h, λ = √(2ν)/ℓ and r = λh,
//!
//! ```text
//! u_0 ~ N(0, P),   u_i = Φ u_{i−1} + e_i,   e_i ~ N(0, V)
//! Φ = D e^{−r} Σ_{k<q} (rN)^k/k! D⁻¹              N = I + companion matrix of (x + 1)^q,   D = diag(1, r, r²)
//! V = c D ∫_0^r p pᵀ e^{−2τ} dτ D                 p_0 = τ^{q−1}/(q−1)!,   p_{k+1} = p_k′ − p_k,   c = 2, 4, 16/3
//! T⁻¹ block tridiagonal: P⁻¹ + ΦᵀV⁻¹Φ, V⁻¹ + ΦᵀV⁻¹Φ, …, V⁻¹ on the diagonal, −ΦᵀV⁻¹ beside it
//! log det T = log det P + (g − 1) log det V
//! ```
//!
//! For q = 1 that is the exponential kernel: Φ = ρ = e^{−r}, V = 1 − ρ², and T⁻¹ has (1 + ρ²)/(1 − ρ²) on its diagonal
//! and −ρ/(1 − ρ²) beside it.
//!
//! On a fine grid V is of the order r^{2q−1} and would be lost as P − ΦPΦᵀ; the integrals are sums of positive terms
//! and keep all digits. Everything is carried along with its derivative in r.

use std::ops::{Add, Div, Mul, Sub};

/// The most states of a point on one axis: Matérn 5/2.
const MOST: usize = 3;

/// A number and its derivative in r.
#[derive(Debug, Clone, Copy)]
pub(super) struct Jet {
    pub(super) value: f64,
    pub(super) slope: f64,
}

impl Jet {
    pub(super) const ZERO: Self = Self::constant(0.0);
    pub(super) const ONE: Self = Self::constant(1.0);

    const fn constant(value: f64) -> Self {
        Self { value, slope: 0.0 }
    }

    /// r^n.
    fn power(r: f64, n: i32) -> Self {
        Self { value: r.powi(n), slope: if n == 0 { 0.0 } else { f64::from(n) * r.powi(n - 1) } }
    }

    fn scaled(self, c: f64) -> Self {
        Self { value: c * self.value, slope: c * self.slope }
    }

    fn ln(self) -> Self {
        Self { value: self.value.ln(), slope: self.slope / self.value }
    }
}

impl Add for Jet {
    type Output = Self;
    fn add(self, b: Self) -> Self {
        Self { value: self.value + b.value, slope: self.slope + b.slope }
    }
}

impl Sub for Jet {
    type Output = Self;
    fn sub(self, b: Self) -> Self {
        Self { value: self.value - b.value, slope: self.slope - b.slope }
    }
}

impl Mul for Jet {
    type Output = Self;
    fn mul(self, b: Self) -> Self {
        Self { value: self.value * b.value, slope: self.slope * b.value + self.value * b.slope }
    }
}

impl Div for Jet {
    type Output = Self;
    fn div(self, b: Self) -> Self {
        let value = self.value / b.value;
        Self { value, slope: (self.slope - value * b.slope) / b.value }
    }
}

/// A q×q matrix in the upper left corner.
type Block = [[Jet; MOST]; MOST];

fn block(f: impl Fn(usize, usize) -> Jet) -> Block {
    std::array::from_fn(|a| std::array::from_fn(|b| f(a, b)))
}

fn product(q: usize, x: &Block, y: &Block) -> Block {
    block(|a, b| (0..q).fold(Jet::ZERO, |sum, k| sum + x[a][k] * y[k][b]))
}

fn transposed(x: &Block) -> Block {
    block(|a, b| x[b][a])
}

fn sum(x: &Block, y: &Block) -> Block {
    block(|a, b| x[a][b] + y[a][b])
}

fn values(x: &Block) -> [[f64; MOST]; MOST] {
    x.map(|row| row.map(|jet| jet.value))
}

/// The inverse of a positive definite matrix and log det of the matrix, by elimination without pivots.
fn inverse(q: usize, mut x: Block) -> (Block, Jet) {
    let mut result = block(|a, b| if a == b { Jet::ONE } else { Jet::ZERO });
    let mut log_det = Jet::ZERO;
    for k in 0..q {
        let pivot = x[k][k];
        log_det = log_det + pivot.ln();
        for c in 0..q {
            x[k][c] = x[k][c] / pivot;
            result[k][c] = result[k][c] / pivot;
        }
        for row in (0..q).filter(|&row| row != k) {
            let factor = x[row][k];
            for c in 0..q {
                x[row][c] = x[row][c] - factor * x[k][c];
                result[row][c] = result[row][c] - factor * result[k][c];
            }
        }
    }
    (result, log_det)
}

/// ∫_0^r τ^n e^{−cτ} dτ, as a series of positive terms.
fn integral(n: usize, c: f64, r: f64) -> Jet {
    let x = c * r;
    let slope = r.powi(n as i32) * (-x).exp();
    if x > 60.0 {
        // The rest of the way to infinity is less than rounding.
        let factorial: f64 = (1..=n).map(|k| k as f64).product();
        return Jet { value: factorial / c.powi(n as i32 + 1), slope };
    }
    let mut term = r * slope / (n + 1) as f64;
    let (mut value, mut k) = (term, n + 2);
    while term > 0.1 * f64::EPSILON * value {
        term *= x / k as f64;
        value += term;
        k += 1;
    }
    Jet { value, slope }
}

/// T⁻¹ on one axis, with its derivative in r.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    points: usize,
    states: usize,
    step: f64,
    first: Block,
    inner: Block,
    last: Block,
    /// Between a point and the next.
    beside: Block,
    /// P⁻¹, and I − Φ.
    start: [[f64; MOST]; MOST],
    decrement: [[f64; MOST]; MOST],
    log_det: Jet,
}

impl Chain {
    /// The chain of a process with `states` = ν + ½ ≤ 3 and rate λ, or nothing if r is so small or large that the
    /// precision is not finite.
    pub(super) fn new(points: usize, step: f64, states: usize, rate: f64) -> Option<Self> {
        let (q, r) = (states, rate * step);
        let transition = transition(q, r);
        let (weight, log_det_innovation) = inverse(q, innovation(q, r));
        let (start, log_det_start) = stationary(q, r);
        let back = product(q, &transposed(&transition), &weight);
        let carried = product(q, &back, &transition);
        let mut decrement =
            block(|a, b| if a == b { Jet::ONE - transition[a][b] } else { Jet::ZERO - transition[a][b] });
        // 1 − e^{−r} Σ_{k<q} r^k/k! is small, and meets the largest of the states.
        let factorial = if q == 3 { 2.0 } else { 1.0 };
        decrement[0][0] = integral(q - 1, 1.0, r).scaled(1.0 / factorial);
        let steps = Jet::constant((points - 1) as f64);
        let chain = Self {
            points,
            states,
            step,
            first: sum(&start, &carried),
            inner: sum(&weight, &carried),
            last: weight,
            beside: block(|a, b| Jet::ZERO - back[a][b]),
            start: values(&start),
            decrement: values(&decrement),
            log_det: log_det_start + steps * log_det_innovation,
        };
        let finite = |x: &Block| x.iter().flatten().all(|jet| jet.value.is_finite() && jet.slope.is_finite());
        let all = finite(&chain.first) && finite(&chain.inner) && finite(&chain.beside);
        (all && chain.log_det.value.is_finite()).then_some(chain)
    }

    pub(super) fn step(&self) -> f64 {
        self.step
    }

    /// States of all points: g q.
    pub(super) fn len(&self) -> usize {
        self.points * self.states
    }

    /// States of a point: q.
    pub(super) fn states(&self) -> usize {
        self.states
    }

    /// log det T.
    pub(super) fn log_det(&self) -> Jet {
        self.log_det
    }

    /// The states that state i has entries with: those of its point and of the two beside it.
    #[inline]
    pub(super) fn neighbors(&self, i: usize) -> std::ops::Range<usize> {
        let point = i / self.states;
        point.saturating_sub(1) * self.states..(point + 2).min(self.points) * self.states
    }

    /// T⁻¹(i, j) for neighbors i and j.
    #[inline]
    pub(super) fn entry(&self, i: usize, j: usize) -> Jet {
        let q = self.states;
        let (from, to) = (i / q, j / q);
        if to > from {
            self.beside[i % q][j % q]
        } else if to < from {
            self.beside[j % q][i % q]
        } else if from == 0 {
            self.first[i % q][j % q]
        } else if from + 1 == self.points {
            self.last[i % q][j % q]
        } else {
            self.inner[i % q][j % q]
        }
    }

    /// Multiplies an array of g q rows, each `stride` long, by T⁻¹ from the left, through the innovations
    /// e_i = u_i − Φ u_{i−1} = (u_i − u_{i−1}) + (I − Φ) u_{i−1}: differences of neighbors are taken before anything
    /// large is multiplied, so that smooth functions lose few digits.
    pub(super) fn apply(&self, rows: &mut [f64], stride: usize) {
        let q = self.states;
        let (weight, beside) = (values(&self.last), values(&self.beside));
        for i in (1..self.points).rev() {
            let (before, own) = rows[(i - 1) * q * stride..].split_at_mut(q * stride);
            for c in 0..stride {
                for a in 0..q {
                    let lost: f64 = (0..q).map(|b| self.decrement[a][b] * before[b * stride + c]).sum();
                    let own = &mut own[a * stride + c];
                    *own = (*own - before[a * stride + c]) + lost;
                }
            }
        }
        for i in 0..self.points {
            let (own, after) = rows[i * q * stride..].split_at_mut(q * stride);
            let weight = if i == 0 { &self.start } else { &weight };
            for c in 0..stride {
                let mut result = [0.0; MOST];
                for a in 0..q {
                    result[a] = (0..q).map(|b| weight[a][b] * own[b * stride + c]).sum();
                    if i + 1 < self.points {
                        result[a] += (0..q).map(|b| beside[a][b] * after[b * stride + c]).sum::<f64>();
                    }
                }
                (0..q).for_each(|a| own[a * stride + c] = result[a]);
            }
        }
    }
}

/// Φ.
fn transition(q: usize, r: f64) -> Block {
    const BINOMIALS: [[f64; MOST]; MOST] = [[1.0, 0.0, 0.0], [1.0, 2.0, 0.0], [1.0, 3.0, 3.0]];
    let nilpotent: [[f64; MOST]; MOST] = std::array::from_fn(|a| {
        std::array::from_fn(|b| {
            let companion = if a + 1 == q { -BINOMIALS[q - 1][b] } else { f64::from(u8::from(b == a + 1)) };
            companion + f64::from(u8::from(a == b))
        })
    });
    let decay = Jet { value: (-r).exp(), slope: -(-r).exp() };
    let mut power = std::array::from_fn(|a| std::array::from_fn(|b| f64::from(u8::from(a == b))));
    let mut result = [[Jet::ZERO; MOST]; MOST];
    let mut factorial = 1.0;
    for k in 0..q {
        for a in 0..q {
            for b in (0..q).filter(|&b| power[a][b] != 0.0) {
                // N moves up by at most one, so that no power of r is negative.
                let scaled = Jet::power(r, k as i32 + a as i32 - b as i32).scaled(power[a][b] / factorial);
                result[a][b] = result[a][b] + decay * scaled;
            }
        }
        let previous: [[f64; MOST]; MOST] = power;
        power = std::array::from_fn(|a| {
            std::array::from_fn(|b| (0..q).map(|c| previous[a][c] * nilpotent[c][b]).sum())
        });
        factorial *= (k + 1) as f64;
    }
    result
}

/// V.
fn innovation(q: usize, r: f64) -> Block {
    // Coefficients of p_0, p_1, p_2.
    let mut p = [[0.0; MOST]; MOST];
    p[0][q - 1] = if q == 3 { 0.5 } else { 1.0 };
    for a in 1..q {
        for n in 0..q {
            let derivative = if n + 1 < q { (n + 1) as f64 * p[a - 1][n + 1] } else { 0.0 };
            p[a][n] = derivative - p[a - 1][n];
        }
    }
    let integrals: [Jet; 2 * MOST - 1] = std::array::from_fn(|n| integral(n, 2.0, r));
    let strength = [2.0, 4.0, 16.0 / 3.0][q - 1];
    block(|a, b| {
        if a >= q || b >= q {
            return Jet::ZERO;
        }
        let mut total = Jet::ZERO;
        for (n, x) in p[a].iter().enumerate() {
            for (m, y) in p[b].iter().enumerate() {
                total = total + integrals[n + m].scaled(x * y);
            }
        }
        Jet::power(r, (a + b) as i32).scaled(strength) * total
    })
}

/// P⁻¹ and log det P: the covariance of value and derivatives is 1, λ², or [1, −λ²/3; λ²/3; λ⁴].
fn stationary(q: usize, r: f64) -> (Block, Jet) {
    let inverse: [[f64; MOST]; MOST] = match q {
        1 | 2 => [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0; MOST]],
        _ => [[9.0 / 8.0, 0.0, 3.0 / 8.0], [0.0, 3.0, 0.0], [3.0 / 8.0, 0.0, 9.0 / 8.0]],
    };
    let constant = if q == 3 { (8.0f64 / 27.0).ln() } else { 0.0 };
    let log_det = Jet::constant(constant) + Jet::power(r, 1).ln().scaled((q * (q - 1)) as f64);
    (block(|a, b| Jet::power(r, -((a + b) as i32)).scaled(inverse[a][b])), log_det)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// κ(τ) of the three processes.
    fn correlation(q: usize, rate: f64, tau: f64) -> f64 {
        let x = rate * tau.abs();
        (-x).exp() * [1.0, 1.0 + x, 1.0 + x + x * x / 3.0][q - 1]
    }

    #[test]
    fn the_values_have_the_matern_covariance() {
        for q in 1..=3 {
            for r in [1e-2, 0.3, 2.0, 40.0] {
                let chain = Chain::new(6, 0.5, q, 2.0 * r).unwrap();
                let n = chain.len();
                let mut precision = faer::Mat::<f64>::zeros(n, n);
                for i in 0..n {
                    for j in chain.neighbors(i) {
                        precision[(i, j)] = chain.entry(i, j).value;
                    }
                }
                let factor = precision.llt(faer::Side::Lower).unwrap();
                let covariance = faer::linalg::solvers::DenseSolveCore::inverse(&factor);
                // Condition numbers grow like r^{−2q}.
                let tolerance = 1e-14 * (1.0 + r.powi(-2 * q as i32));
                for i in 0..6 {
                    for j in 0..6 {
                        let want = correlation(q, 2.0 * r, 0.5 * (i as f64 - j as f64));
                        let got = covariance[(i * q, j * q)];
                        assert!((got - want).abs() < tolerance, "q = {q}, r = {r}: {got} {want}");
                    }
                }
                let log_det = -2.0 * (0..n).map(|i| factor.L()[(i, i)].ln()).sum::<f64>();
                assert!((chain.log_det().value - log_det).abs() < tolerance * n as f64, "q = {q}, r = {r}");

                let x: Vec<f64> = (0..2 * n).map(|i| (0.7 * i as f64).sin()).collect();
                let mut y = x.clone();
                chain.apply(&mut y, 2);
                for i in 0..2 * n {
                    let terms =
                        || chain.neighbors(i / 2).map(|j| chain.entry(i / 2, j).value * x[2 * j + i % 2]);
                    let (want, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
                    assert!(
                        (y[i] - want).abs() < 1e-13 * size.max(chain.inner[0][0].value),
                        "q = {q}, r = {r}"
                    );
                }
            }
        }
    }

    #[test]
    fn slopes_equal_difference_quotients() {
        for q in 1..=3 {
            for r in [1e-3, 0.3, 3.0] {
                let at = |r: f64| Chain::new(5, 1.0, q, r).unwrap();
                let (chain, hi, lo, width) = (at(r), at(r * 1.0001), at(r * 0.9999), 2e-4 * r);
                let check = |own: Jet, hi: f64, lo: f64, what: &str| {
                    let (numeric, scale) = ((hi - lo) / width, own.value.abs() / r);
                    assert!(
                        (own.slope - numeric).abs() < 1e-6 * scale.max(numeric.abs()),
                        "q = {q}, {r}: {what}"
                    );
                };
                check(chain.log_det(), hi.log_det().value, lo.log_det().value, "log det");
                for i in 0..chain.len() {
                    for j in chain.neighbors(i) {
                        // Entries that vanish by symmetry carry rounding of the size of the block.
                        let size = Jet {
                            value: chain.entry(i, i).value.abs().max(chain.entry(j, j).value),
                            ..chain.entry(i, j)
                        };
                        check(size, hi.entry(i, j).value, lo.entry(i, j).value, "entry");
                    }
                }
            }
        }
    }

    /// A spacing of 10⁻⁴ length-scales: as P − ΦPΦᵀ, four, none and none of the digits of V would be left.
    #[test]
    fn innovations_keep_digits_on_fine_grids() {
        let r = 1e-4f64;
        // The leading terms of V_00: 2r, 4r³/3, 16/3·r⁵/20, with relative corrections −r, −3r/2, −5r/3.
        let exact = [
            2.0 * r * (1.0 - r),
            4.0 / 3.0 * r.powi(3) * (1.0 - 1.5 * r),
            4.0 / 15.0 * r.powi(5) * (1.0 - 5.0 / 3.0 * r),
        ];
        for q in 1..=3 {
            let got = innovation(q, r)[0][0].value;
            assert!((got / exact[q - 1] - 1.0).abs() < 5e-8, "q = {q}: {got:e} {:e}", exact[q - 1]);
        }
        assert!((innovation(1, 1e-10)[0][0].value / -(-2e-10f64).exp_m1() - 1.0).abs() < 1e-15);
    }

    #[test]
    fn rejects_what_is_not_finite() {
        assert!(Chain::new(5, 1e-10, 1, 1e-300).is_none());
        assert!(Chain::new(5, 1e-10, 3, 1e-60).is_none());
    }
}
