//! Coverage and size of intervals by windows of rows, in bounded memory.

use super::Coverage;

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

/// The windows of a stream, and all of it. Beyond the most windows, neighbors merge and their length doubles.
#[derive(Debug, Clone)]
pub struct CoverageWindows {
    length: f64,
    most: usize,
    /// The last rows of a stream count as a window from so many on: fewer are mostly noise.
    fewest: f64,
    full: Vec<Window>,
    open: Window,
    total: Window,
}

impl CoverageWindows {
    /// At most so many windows, of so many rows at first.
    pub fn new(rows: usize, most: usize) -> Self {
        let length = rows as f64;
        Self {
            length,
            most,
            fewest: 0.5 * length,
            full: Vec::with_capacity(most),
            open: Window::default(),
            total: Window::default(),
        }
    }

    /// Takes in whether a target lay in its interval, and how wide that was.
    pub fn push(&mut self, row: u64, inside: bool, size: f64) {
        let one = Window { last: row as f64, rows: 1.0, inside: f64::from(u8::from(inside)), size };
        self.total.add(&one);
        self.open.add(&one);
        if self.open.rows >= self.length {
            self.full.push(std::mem::take(&mut self.open));
            if self.full.len() == self.most {
                for i in 0..self.most / 2 {
                    let mut pair = self.full[2 * i];
                    pair.add(&self.full[2 * i + 1]);
                    self.full[i] = pair;
                }
                self.full.truncate(self.most / 2);
                self.length *= 2.0;
            }
        }
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        self.full.capacity() * size_of::<Window>()
    }

    /// The share inside and the mean size, if there was a row.
    pub fn all(&self) -> Option<(f64, f64)> {
        let Window { rows, inside, size, .. } = self.total;
        (rows > 0.0).then(|| (inside / rows, size / rows))
    }

    /// The figure, given the level that was promised, and what the size is.
    pub fn figure(&self, level: f64, size_name: &str) -> Coverage {
        let rest = (self.open.rows >= self.fewest || self.full.is_empty()).then_some(&self.open);
        let windows: Vec<&Window> = self.full.iter().chain(rest.filter(|w| w.rows > 0.0)).collect();
        Coverage {
            title: String::new(),
            level,
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
            let mut windows = CoverageWindows::new(1000, 400);
            let before = windows.bytes();
            (0..rows).for_each(|row| windows.push(row, inside(row), row as f64));
            assert_eq!(windows.bytes(), before);
            let figure = windows.figure(0.9, "width");
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
            let (share, _) = windows.all().unwrap();
            let want = (0..rows).filter(|&row| inside(row)).count() as f64 / rows as f64;
            assert!(figure.level == 0.9 && (share - want).abs() < 1e-12);
        }
        let none = CoverageWindows::new(1000, 400);
        assert!(none.all().is_none() && none.figure(0.9, "").rows.is_empty());
    }
}
