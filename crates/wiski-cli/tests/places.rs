//! No command replaces one of its inputs, whatever path leads to it.

mod common;

use std::fs;

use common::{Folder, table};

const SPACE: &str = "[x]\nmin = 0\nmax = 1\n";

/// Ways to call a file: by its name, in another spelling, through a symbolic and through a hard link.
#[cfg(unix)]
fn names(folder: &Folder, name: &str) -> [String; 4] {
    let (soft, hard) = (format!("soft-{name}"), format!("hard-{name}"));
    std::os::unix::fs::symlink(folder.path(name), folder.path(&soft)).unwrap();
    fs::hard_link(folder.path(name), folder.path(&hard)).unwrap();
    [name.into(), format!("./sub/../{name}"), soft, hard]
}

#[cfg(unix)]
#[test]
fn inputs_stay_as_they_are() {
    let folder = Folder::new();
    fs::create_dir(folder.path("sub")).unwrap();
    folder.write("data.csv", table(100, 1));
    folder.write("more.csv", table(20, 2));
    folder.write("space.toml", SPACE);
    folder.ok("stream data.csv --target y --model m.wiski --bounds 0:6,-2:2");
    folder.ok("shard m.wiski -o s.wiski");
    folder.ok("stream data.csv --target y --journal state --bounds 0:6,-2:2");
    let files = ["data.csv", "m.wiski", "s.wiski", "space.toml", "state/model.wiski", "state/journal.log"];
    let content = || files.map(|name| fs::read(folder.path(name)).unwrap());
    let before = content();
    let (data, model, space) =
        (names(&folder, "data.csv"), names(&folder, "m.wiski"), names(&folder, "space.toml"));
    let all = folder.names();
    for csv in &data {
        for command in [
            "stream data.csv --target y --predictions CSV",
            "stream data.csv --target y --model CSV",
            "update m.wiski data.csv -o CSV",
            "forget m.wiski data.csv -o CSV",
            "merge m.wiski s.wiski -o CSV",
            "shard m.wiski -o CSV",
            "refit m.wiski -o CSV",
            "predict m.wiski data.csv -o CSV",
            "explore m.wiski data.csv -o CSV",
            "explore m.wiski more.csv --reference data.csv -o CSV",
            "sample m.wiski --at data.csv -o CSV",
            "optimize --function branin --steps 3 --quiet --state CSV",
        ] {
            folder.rejected(&command.replace("CSV", csv), csv);
            assert!(content() == before, "{command}, {csv}");
        }
    }
    for wiski in &model {
        for command in [
            "predict m.wiski data.csv -o MODEL",
            "explore m.wiski data.csv -o MODEL",
            "sample m.wiski --at data.csv -o MODEL",
            "shard m.wiski -o MODEL",
            "merge s.wiski m.wiski -o MODEL",
            "stream data.csv --target y -m m.wiski --predictions MODEL",
            "stream data.csv --target y --predictions MODEL",
        ] {
            folder.rejected(&command.replace("MODEL", wiski), wiski);
            assert!(content() == before, "{command}, {wiski}");
        }
    }
    for toml in &space {
        let command = format!("optimize new {toml} --space space.toml");
        folder.rejected(&command, toml);
        assert!(content() == before);
    }
    for place in ["state/model.wiski", "state/journal.log", "sub/../state/lock"] {
        for option in ["--model", "--predictions"] {
            let command = format!("stream data.csv --target y --journal state {option} {place}");
            folder.rejected(&command, "a file of the journal");
            assert!(content() == before, "{command}");
        }
    }
    assert_eq!(folder.names(), all);
}
