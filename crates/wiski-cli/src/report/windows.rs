//! Coverage and size of intervals by windows of 1,000 rows, in bounded memory.

use wiski_figures::Coverage;

/// The rows of a window. Beyond the most windows, neighbors merge and their length doubles.
const WINDOW: f64 = 1000.0;
pub(super) const MOST: usize = 400;

/// The last rows of a stream count as a window from so many on: fewer are mostly noise.
const FEWEST: f64 = 500.0;

#[derive(Debug, Clone, Copy, Default)]
struct Window {
    last: f64,
    rows: f64,
    inside: f64,
    size: f64,
}

impl Window {
    fn add(&mut self, other: &Self) {
        self.last = other.last;
        self.rows += other.rows;
        self.inside += other.inside;
        self.size += other.size;
    }
}

/// The windows of a stream, and all of it.
#[derive(Debug, Clone)]
pub(super) struct Windows {
    level: f64,
    length: f64,
    full: Vec<Window>,
    open: Window,
    total: Window,
}

impl Windows {
    pub(super) fn new() -> Self {
        let (open, total) = (Window::default(), Window::default());
        Self { level: 0.95, length: WINDOW, full: Vec::with_capacity(MOST), open, total }
    }

    /// Takes in whether a target lay in its interval at the level, and how wide that was.
    pub(super) fn push(&mut self, row: u64, level: f64, inside: bool, size: f64) {
        self.level = level;
        let one = Window { last: row as f64, rows: 1.0, inside: f64::from(u8::from(inside)), size };
        self.total.add(&one);
        self.open.add(&one);
        if self.open.rows >= self.length {
            self.full.push(std::mem::take(&mut self.open));
            if self.full.len() == MOST {
                for i in 0..MOST / 2 {
                    let mut pair = self.full[2 * i];
                    pair.add(&self.full[2 * i + 1]);
                    self.full[i] = pair;
                }
                self.full.truncate(MOST / 2);
                self.length *= 2.0;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.full.capacity() * size_of::<Window>()
    }

    /// The level, the share inside and the mean size, if there was a row.
    pub(super) fn all(&self) -> Option<(f64, f64, f64)> {
        let Window { rows, inside, size, .. } = self.total;
        (rows > 0.0).then(|| (self.level, inside / rows, size / rows))
    }

    pub(super) fn figure(&self, size_name: &str) -> Coverage {
        let rest = (self.open.rows >= FEWEST || self.full.is_empty()).then_some(&self.open);
        let windows: Vec<&Window> = self.full.iter().chain(rest.filter(|w| w.rows > 0.0)).collect();
        Coverage {
            title: String::new(),
            level: self.level,
            window: self.length,
            rows: windows.iter().map(|w| w.last).collect(),
            inside: windows.iter().map(|w| w.inside / w.rows).collect(),
            size: windows.iter().map(|w| w.size / w.rows).collect(),
            size_name: size_name.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_equal_direct_computation_and_do_not_grow() {
        let inside = |row: u64| !row.is_multiple_of(10) || row > 250_000;
        for (rows, length) in [(300, 1000), (2400, 1000), (2600, 1000), (399_999, 1000), (1_000_001, 4000)] {
            let mut windows = Windows::new();
            let before = windows.bytes();
            (0..rows).for_each(|row| windows.push(row, 0.9, inside(row), row as f64));
            assert_eq!(windows.bytes(), before);
            let figure = windows.figure("width");
            assert_eq!(figure.window, f64::from(length));
            let mut from = 0;
            for (i, &last) in figure.rows.iter().enumerate() {
                let part = from..=last as u64;
                let count = part.clone().count() as f64;
                let share = part.clone().filter(|&row| inside(row)).count() as f64 / count;
                assert!((figure.inside[i] - share).abs() < 1e-12);
                assert!((figure.size[i] - part.map(|row| row as f64).sum::<f64>() / count).abs() < 1e-6);
                from = last as u64 + 1;
            }
            let rest = rows - from;
            assert!(rest < 500, "{rest} rows are left out");
            let (level, share, _) = windows.all().unwrap();
            let want = (0..rows).filter(|&row| inside(row)).count() as f64 / rows as f64;
            assert!(level == 0.9 && (share - want).abs() < 1e-12);
        }
        assert!(Windows::new().all().is_none() && Windows::new().figure("").rows.is_empty());
    }
}
