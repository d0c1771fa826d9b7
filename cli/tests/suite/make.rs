//! The make targets as users call them: each is in `make help`, and runs commands that cargo
//! accepts. Builds nothing.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

/// Output of a program in the root of the repository.
fn run(program: &str, arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root);
    // Remove make's own variables, set under `make test`, and the variables of the targets.
    for name in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS", "LEEWARD", "ARGS", "HOSTILE"] {
        command.env_remove(name);
    }
    command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn make(arguments: &[&str]) -> String {
    let made = run("make", arguments);
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "make {}: {errors}", arguments.join(" "));
    String::from_utf8(made.stdout).unwrap()
}

/// Targets that the Makefile declares.
fn targets() -> Vec<String> {
    let makefile = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Makefile")).unwrap();
    let declared = makefile.lines().find_map(|line| line.strip_prefix(".PHONY:")).unwrap();
    declared.split_whitespace().map(String::from).collect()
}

#[test]
fn help_lists_every_target() {
    let help = make(&["help"]);
    let listed: BTreeSet<&str> =
        help.lines().filter_map(|line| line.strip_prefix("make ")?.split_whitespace().next()).collect();
    let declared: BTreeSet<String> = targets().into_iter().filter(|target| target != "help").collect();
    assert!(declared.len() > 15, "the search for targets is broken: {declared:?}");
    assert_eq!(listed, declared.iter().map(String::as_str).collect());
    assert_eq!(make(&[]), help, "what `make` alone does");
}

/// The cargo commands among the lines that make prints, without variables before them and
/// redirections after them.
fn cargo_commands(printed: &str) -> Vec<Vec<String>> {
    let joined = printed.replace("\\\n", " ");
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<String>>();
    let from_cargo = |words: Vec<String>| {
        let start = words.iter().position(|word| word == "cargo")?;
        let is_prefix = words[..start].iter().all(|word| word.contains('=') || word.ends_with('"'));
        is_prefix.then(|| words[start + 1..].to_vec())
    };
    joined.lines().map(words).filter_map(from_cargo).collect()
}

/// Error of a command that cargo does not accept; `None` if cargo accepts it.
fn parse_error(command: &[String]) -> Option<String> {
    let built = ["bench", "build", "check", "doc", "run", "test"];
    // fmt and clippy are separate programs, and clean has no build plan.
    if !built.contains(&command[0].as_str()) {
        return None;
    }
    let own = command.iter().position(|word| word == "--").unwrap_or(command.len());
    let mut arguments: Vec<&str> = command[..own].iter().map(String::as_str).collect();
    // Stable cargo rejects this flag only after it has accepted all others; nightly prints a plan.
    // Both are fast.
    arguments.push("--unit-graph");
    let output = run(env!("CARGO"), &arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success() && !errors.contains("`--unit-graph` flag is unstable")).then_some(errors)
}

#[test]
fn every_target_runs_commands_that_cargo_accepts() {
    let mut seen = BTreeSet::new();
    for target in targets() {
        // With another program, and without.
        for variant in [&[][..], &["LEEWARD=/somewhere/leeward"]] {
            let printed = make(&[&["-n", target.as_str()], variant].concat());
            for command in cargo_commands(&printed) {
                let flags: Vec<&String> =
                    command.iter().filter(|word| word.starts_with("--") && *word != "--").collect();
                let doubled = flags.iter().any(|flag| flags.iter().filter(|other| other == &flag).count() > 1);
                assert!(!doubled, "make {target}: a flag stands twice in cargo {}", command.join(" "));
                if seen.insert(command.clone()) {
                    assert_eq!(parse_error(&command), None, "make {target}: cargo {}", command.join(" "));
                }
            }
            if let ("browser" | "hostile" | "hostile-short" | "profiler-test", []) = (target.as_str(), variant) {
                let builds = |command: &Vec<String>| command.windows(2).any(|pair| pair == ["-p", "leeward"]);
                assert!(
                    cargo_commands(&printed).iter().any(builds),
                    "make {target} builds the program it needs: {printed}"
                );
            }
        }
    }
    assert!(seen.len() > 10, "the search for commands is broken: {seen:?}");
}

#[test]
fn a_repeated_cargo_flag_is_found() {
    let command = |line: &str| cargo_commands(line).remove(0);
    let doubled = command("cargo build -q --locked -p leeward --locked");
    assert!(parse_error(&doubled).is_some_and(|errors| errors.contains("--locked")), "cargo has become lenient");
    assert!(parse_error(&command("RUSTFLAGS=\"--cfg loom\" cargo test --unknown-flag")).is_some());
    assert_eq!(parse_error(&command("cargo build -q --locked -p leeward")), None);
}
