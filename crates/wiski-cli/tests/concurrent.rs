//! Two processes, one file: the second waits or is rejected, and no row is lost.

mod common;

use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Folder, Random, table};

/// Interleavings tried of each kind.
const TRIES: u64 = 50;

fn start(folder: &Folder, arguments: &str) -> Child {
    folder
        .command(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Starts the second at a random moment of the first; how many of the two succeeded.
fn interleave(folder: &Folder, arguments: [&str; 2], random: &mut Random) -> u64 {
    let mut first = start(folder, arguments[0]);
    sleep(Duration::from_micros(random.below(20_000)));
    let mut second = start(folder, arguments[1]);
    [&mut first, &mut second].into_iter().map(|child| u64::from(child.wait().unwrap().success())).sum()
}

#[test]
fn updates_of_one_model_are_never_lost() {
    let folder = Folder::new();
    folder.write("data.csv", table(100, 1));
    folder.write("more.csv", table(10, 2));
    folder.write("rest.csv", table(10, 3));
    folder.ok("stream data.csv --target y --model m.wiski --learn off --bounds 0:6,-2:2");
    let (mut random, mut expected, mut waited) = (Random::new(1), 100, 0);
    for _ in 0..TRIES {
        let done = interleave(&folder, ["update m.wiski more.csv", "update m.wiski rest.csv"], &mut random);
        expected += 10 * done;
        waited += u64::from(done == 2);
        let info = folder.json("info m.wiski --json");
        assert_eq!(info["n"].as_f64().unwrap() as u64, expected);
        assert_eq!(info["rows"].as_u64(), Some(expected));
    }
    // Whoever comes second waits long enough for such short work.
    assert_eq!(waited, TRIES);
    assert_eq!(folder.names(), ["data.csv", "m.wiski", "more.csv", "rest.csv"]);
}

#[test]
fn trials_of_one_search_are_never_lost() {
    let folder = Folder::new();
    folder.write("space.toml", "[x]\nmin = 0\nmax = 1\n");
    folder.ok("optimize new s.wiski --space space.toml --initial 200");
    let (mut random, mut expected) = (Random::new(2), 0);
    for i in 0..TRIES {
        let tell = |k: u64| format!("optimize tell s.wiski --at x=0.{}{k} --value {i}", i % 10);
        expected += interleave(&folder, [&tell(1), &tell(2)], &mut random);
        assert_eq!(folder.json("optimize best s.wiski --json")["trials"].as_u64(), Some(expected));
    }
    assert_eq!(expected, 2 * TRIES);
    // Whole runs: one ends before the other begins, or is rejected. Each makes the trials that are missing to its goal.
    for i in 0..TRIES / 5 {
        let (short, long) = (4 + 2 * i, 5 + 2 * i);
        let run = |steps: u64| {
            format!(
                "optimize --function branin --initial 500 --steps {steps} --state r.wiski --quiet --wait 20"
            )
        };
        assert_eq!(interleave(&folder, [&run(short), &run(long)], &mut random), 2);
        assert_eq!(folder.json("optimize best r.wiski --json")["trials"].as_u64(), Some(long));
    }
}

#[test]
fn whoever_waits_too_long_is_rejected_and_nothing_changes() {
    let folder = Folder::new();
    folder.write("data.csv", table(100, 1));
    folder.ok("stream data.csv --target y --model m.wiski");
    let before = std::fs::read(folder.path("m.wiski")).unwrap();
    // A stream from a pipe that stays silent holds the model until it ends.
    let mut command = folder.command("stream - --model m.wiski --resume --quiet");
    let mut holder =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !folder.path(".m.wiski.lock").exists() {
        sleep(Duration::from_millis(5));
    }
    let start = Instant::now();
    for command in [
        "update m.wiski data.csv",
        "forget m.wiski data.csv",
        "refit m.wiski",
        "stream data.csv --target y -m m.wiski",
    ] {
        folder.rejected(&format!("{command} --wait 0.2"), "m.wiski: another process is changing this file");
    }
    assert!(start.elapsed() < Duration::from_secs(20));
    assert!(std::fs::read(folder.path("m.wiski")).unwrap() == before);
    // Reading needs no lock.
    folder.ok("info m.wiski");
    folder.ok("predict m.wiski data.csv");
    // A process that dies releases the lock, though its lock file stays.
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(folder.path(".m.wiski.lock").exists());
    folder.ok("update m.wiski data.csv --wait 0");
    assert!(!folder.path(".m.wiski.lock").exists());
}
