//! The spectrum of the periodic kernel: exp((cos θ − 1)/ℓ²) = Σ_j c_j cos jθ with c_0 = e^{−z}I_0(z) and
//! c_j = 2 e^{−z}I_j(z), z = ℓ^{−2} (Solin and Särkkä 2014, "Explicit link between periodic covariance functions and
//! state space models", eq. 26).

/// e^{−z}I_j(z) for j = 0 … `most`, by Miller's backward recurrence I_{j−1} = I_{j+1} + (2j/z) I_j, normalized by
/// I_0 + 2 Σ I_j = e^z.
pub(super) fn scaled_bessel(z: f64, most: usize) -> Vec<f64> {
    // Far enough above both the order wanted and the turning point that the start does not matter.
    let top = most.max((2.0 * z.sqrt() * 6.0) as usize + 2) + 40;
    let (mut above, mut here, mut sum) = (0.0, 1e-280, 0.0);
    let mut out = vec![0.0; most + 1];
    for j in (1..=top).rev() {
        let mut below = above + 2.0 * j as f64 / z * here;
        if j - 1 <= most {
            out[j - 1] = below;
        }
        sum += if j == 1 { below } else { 2.0 * below };
        above = here;
        if below > 1e200 {
            // Only ratios count.
            const DOWN: f64 = 1e-200;
            below *= DOWN;
            above *= DOWN;
            sum *= DOWN;
            out.iter_mut().for_each(|v| *v *= DOWN);
        }
        here = below;
    }
    out.iter_mut().for_each(|v| *v /= sum);
    out
}

/// The shares w_j of the listed harmonics (they add up to one), and dw_j/dℓ.
pub(super) fn weights(harmonics: &[u32], lengthscale: f64) -> (Vec<f64>, Vec<f64>) {
    let z = lengthscale.powi(-2);
    let most = harmonics.iter().copied().max().unwrap_or(0) as usize;
    let i = scaled_bessel(z, most + 1);
    // d/dz e^{−z}I_j = e^{−z}((I_{j−1} + I_{j+1})/2 − I_j), and dz/dℓ = −2 ℓ^{−3}. A floor far below anything that
    // matters keeps every harmonic a proper coordinate.
    let value = |j: u32| i[j as usize] + FLOOR;
    let slope = |j: u32| {
        let j = j as usize;
        0.5 * (i[j.abs_diff(1)] + i[j + 1]) - i[j]
    };
    let total: f64 = harmonics.iter().map(|&j| value(j)).sum();
    let total_slope: f64 = harmonics.iter().map(|&j| slope(j)).sum();
    let by_length = -2.0 * lengthscale.powi(-3);
    let weight = |&j: &u32| value(j) / total;
    let change = |&j: &u32| by_length * (slope(j) - value(j) / total * total_slope) / total;
    (harmonics.iter().map(weight).collect(), harmonics.iter().map(change).collect())
}

/// What every harmonic has at least, against e^{−z}I_0 ≤ 1.
const FLOOR: f64 = 1e-15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_the_periodic_kernel() {
        for lengthscale in [0.05, 0.3, 1.0, 3.0_f64] {
            let z = lengthscale.powi(-2);
            let i = scaled_bessel(z, 300);
            for theta in [0.0, 0.4, 1.3, 3.0_f64] {
                let series: f64 =
                    i[0] + (1..=300).map(|j| 2.0 * i[j] * (j as f64 * theta).cos()).sum::<f64>();
                let kernel = (z * (theta.cos() - 1.0)).exp();
                assert!((series - kernel).abs() < 1e-13, "{lengthscale} {theta}: {series} {kernel}");
            }
        }
        // Abramowitz and Stegun, table 9.8: e^{−1}I_0(1) and e^{−1}I_1(1).
        let i = scaled_bessel(1.0, 1);
        assert!((i[0] - 0.465_759_607_593_640_4).abs() < 1e-14);
        assert!((i[1] - 0.207_910_415_349_708_4).abs() < 1e-14);
    }

    #[test]
    fn weights_add_up_and_their_slopes_are_differences() {
        let harmonics = [1, 2, 3, 5, 8];
        for lengthscale in [0.1, 0.5, 1.5] {
            let (w, d) = weights(&harmonics, lengthscale);
            assert!((w.iter().sum::<f64>() - 1.0).abs() < 1e-14);
            let e = 1e-6 * lengthscale;
            let (up, down) = (weights(&harmonics, lengthscale + e).0, weights(&harmonics, lengthscale - e).0);
            for j in 0..5 {
                let difference = (up[j] - down[j]) / (2.0 * e);
                assert!((d[j] - difference).abs() < 1e-7 * (1.0 + d[j].abs()), "{} {difference}", d[j]);
            }
        }
    }
}
