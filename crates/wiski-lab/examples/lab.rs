//! Runs experiments without the rest of the command line:
//! `cargo run --release -p wiski-lab --example lab -- NAME [--full] [--trials N] [--only a,b] [--out DIR]`
//! (the data folder is `$WISKI_DATA`).

use wiski_lab::{Options, Size};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1)).map(String::as_str)
    };
    let options = Options {
        data: std::env::var_os("WISKI_DATA").map_or("data".into(), Into::into),
        out: option("--out").unwrap_or("results").into(),
        size: if arguments.iter().any(|a| a == "--full") { Size::Full } else { Size::Quick },
        trials: option("--trials").map(str::parse).transpose()?,
        seed: 0,
        only: option("--only").map_or(Vec::new(), |o| o.split(',').map(str::to_owned).collect()),
        ..Options::default()
    };
    wiski_lab::run(arguments.first().map_or("", String::as_str), &options)
}
