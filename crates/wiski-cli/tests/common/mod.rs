//! Runs the real binary in a folder of its own.
#![allow(dead_code)] // each test file uses its part

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub(crate) struct Folder(tempfile::TempDir);

/// What a run came to.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The files and folders in it, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The command, its arguments split at blanks.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wiski"));
        command.args(arguments.split_whitespace()).current_dir(self.0.path());
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Done {
        done(self.command(arguments).stdin(Stdio::null()).output().unwrap())
    }

    pub(crate) fn run_with_input(&self, arguments: &str, input: &[u8]) -> Done {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // The program may have seen enough before the end.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        done(output)
    }

    /// Runs what must succeed; its standard output.
    pub(crate) fn ok(&self, arguments: &str) -> String {
        let done = self.run(arguments);
        assert_eq!(done.code, Some(0), "wiski {arguments}\n{}", done.err);
        done.out
    }

    /// Runs what must be rejected: exit code 2 and one line that contains `message`.
    pub(crate) fn rejected(&self, arguments: &str, message: &str) {
        let done = self.run(arguments);
        done.is_rejection(arguments, message);
    }

    pub(crate) fn json(&self, arguments: &str) -> serde_json::Value {
        serde_json::from_str(&self.ok(arguments)).unwrap()
    }
}

impl Done {
    pub(crate) fn is_rejection(&self, arguments: &str, message: &str) {
        assert_eq!(self.code, Some(2), "wiski {arguments}\n{}{}", self.out, self.err);
        assert_eq!(self.err.trim_end().lines().count(), 1, "wiski {arguments}\n{}", self.err);
        assert!(self.err.contains(message), "wiski {arguments}\n{}expected: {message}", self.err);
        assert!(self.err.len() < 600, "{}", self.err);
    }
}

fn done(output: Output) -> Done {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Numbers that are as good as random.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // xorshift
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        self.below(1 << 40) as f64 / (1u64 << 40) as f64
    }
}

/// A CSV of rows a, b, y with y = sin a · cos b + noise.
pub(crate) fn table(rows: usize, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut text = String::from("a,b,y\n");
    for _ in 0..rows {
        let (a, b) = (6.0 * random.uniform(), 4.0 * random.uniform() - 2.0);
        let noise = 0.2 * (random.uniform() + random.uniform() - 1.0);
        writeln!(text, "{a:.6},{b:.6},{:.6}", a.sin() * b.cos() + noise).unwrap();
    }
    text
}

/// A CSV of rows a, b, kind with two classes.
pub(crate) fn classes(rows: usize, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut text = String::from("a,b,kind\n");
    for _ in 0..rows {
        let (a, b) = (6.0 * random.uniform(), 4.0 * random.uniform() - 2.0);
        let kind = if a.sin() + 0.3 * b > 0.2 { "warm" } else { "cold" };
        writeln!(text, "{a:.6},{b:.6},{kind}").unwrap();
    }
    text
}

/// The columns of a CSV without quotes, by name.
pub(crate) fn column(csv: &str, name: &str) -> Vec<f64> {
    let mut lines = csv.lines();
    let place = lines.next().unwrap().split(',').position(|c| c == name);
    let place = place.unwrap_or_else(|| panic!("no column {name} in {csv:.100}"));
    lines.map(|l| l.split(',').nth(place).unwrap().parse().unwrap_or(f64::NAN)).collect()
}

pub(crate) fn assert_close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= tolerance, "row {i}: {a} and {b}");
    }
}
