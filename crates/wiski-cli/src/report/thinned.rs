//! A sample of a stream, the same on every run, in bounded memory.

/// The most points kept.
pub(super) const MOST: usize = 2000;

/// A point is kept if the hash of its number begins with enough zero bits; when there are too many, one more is
/// asked for. Keeping every so many points instead would beat with whatever is periodic in the data.
#[derive(Debug, Clone)]
pub(super) struct Thinned {
    seen: u64,
    zeros: u32,
    points: Vec<(u64, f64, f64)>,
}

impl Thinned {
    pub(super) fn new() -> Self {
        Self { seen: 0, zeros: 0, points: Vec::with_capacity(MOST) }
    }

    pub(super) fn push(&mut self, x: f64, y: f64) {
        let number = self.seen;
        self.seen += 1;
        if zeros(number) < self.zeros {
            return;
        }
        while self.points.len() == MOST {
            self.zeros += 1;
            self.points.retain(|p| zeros(p.0) >= self.zeros);
        }
        if zeros(number) >= self.zeros {
            self.points.push((number, x, y));
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.points.capacity() * size_of::<(u64, f64, f64)>()
    }

    pub(super) fn columns(&self) -> (Vec<f64>, Vec<f64>) {
        self.points.iter().map(|p| (p.1, p.2)).unzip()
    }
}

/// Leading zero bits of a hash (the finalizer of SplitMix64).
fn zeros(number: u64) -> u32 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_the_stream() {
        let mut sample = Thinned::new();
        for i in 0..100_000 {
            sample.push(f64::from(i), 0.0);
        }
        let (x, _) = sample.columns();
        assert!((MOST / 3..=MOST).contains(&x.len()), "{}", x.len());
        let early = x.iter().filter(|&&x| x < 50_000.0).count() as f64 / x.len() as f64;
        assert!((early - 0.5).abs() < 0.06, "{early}");
        assert!(x.is_sorted());
    }
}
