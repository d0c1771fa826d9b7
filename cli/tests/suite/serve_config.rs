//! `leeward serve --config`: values of the file, precedence of the flags, and error messages.

use std::path::Path;
use std::process::{Command, Output};

fn leeward(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leeward")).args(arguments).current_dir(folder).output().unwrap()
}

/// Effective settings of `serve --config` with this file and these flags.
fn effective_config(file: &str, flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("s.toml"), file).unwrap();
    let output = leeward(&[&["serve", "--config", "s.toml", "--print-config"], flags].concat(), folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const EVERYTHING: &str = r#"service = "echo"
admission = "breakwater"
slo = "1ms"
rtt = "50us"
listen = "127.0.0.1:7200"
cores = 2
cpus = [0, 1]
idle = "50us"
io-uring = "off"
connections = 100
receiving = "64MB"
sending = "128MB"
record = "run.rec"

[set]
target = "300us"
alpha = 0.002
max_window = 32
aqm = "off"
"#;

#[test]
fn every_flag_is_a_key() {
    assert_eq!(effective_config(EVERYTHING, &[]), EVERYTHING);
    assert_eq!(effective_config("", &["--cores", "3"]), effective_config("cores = 3", &[]));
    let pushed = EVERYTHING.replace("cpus =", "otlp = \"http://127.0.0.1:4318\"\notlp-every = \"5s\"\ncpus =");
    assert_eq!(effective_config(&pushed, &[]), pushed);
    let with_shadow = EVERYTHING.replace("cores = 2\n", "cores = 2\nshadow = \"on\"\n");
    assert_eq!(effective_config(&with_shadow, &[]), with_shadow);
    assert!(effective_config(&with_shadow, &["--enforce", "5%"]).contains("cores = 2\nenforce = \"5%\"\n"));
    assert_eq!(effective_config("[set]\naqm = true", &[]), effective_config("[set]\naqm = \"on\"", &[]));
    let ranged = EVERYTHING.replace("cores = 2", "cores = \"1..2\"\nallocator = \"delay:threshold=20us\"");
    assert_eq!(effective_config(&ranged, &[]), ranged);
    assert!(
        effective_config(&ranged, &["--cores=4", "--allocator=buffer"]).contains("cores = 4\nallocator = \"buffer\"\n")
    );
    assert!(effective_config("cores = \"1..4\"", &[]).contains("idle = \"50us\""), "who gives cores back sleeps");
    let defaults = effective_config("", &[]);
    assert!(defaults.contains("listen = \"127.0.0.1:7117\"") && !defaults.contains("cpus"), "{defaults}");
    assert_eq!(effective_config(&defaults, &[]), defaults, "what is printed is read");
}

#[test]
fn flags_win_even_with_the_value_of_the_default() {
    let flags = ["--cores=1", "--slo=200us", "--set=target=90us", "--service=synthetic", "--record", "other.rec"];
    let text = effective_config(EVERYTHING, &flags);
    for line in
        ["cores = 1", "slo = \"200us\"", "service = \"synthetic\"", "target = \"90us\"", "record = \"other.rec\""]
    {
        assert!(text.lines().any(|found| found == line), "no `{line}` in {text}");
    }
    assert!(text.contains("alpha = 0.002") && !text.contains("300us"), "{text}");
}

#[test]
fn an_invalid_value_of_each_key_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |file: &str| {
        std::fs::write(folder.path().join("s.toml"), file).unwrap();
        let output = leeward(&["serve", "--config", "s.toml", "--print-config"], folder.path());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{file}");
        String::from_utf8(output.stderr).unwrap()
    };
    let accepted = refused("moon = 1");
    let keys: Vec<&str> = accepted.trim_end().split_once("accepted: ").unwrap().1.split(", ").collect();
    assert!(
        keys.len() > 40 && ["udp", "admin-tls-cert", "shadow", "enforce", "set"].iter().all(|key| keys.contains(key)),
        "{keys:?}"
    );
    for key in keys {
        // No key accepts a time of day, or lists of lists.
        for wrong in ["07:32:00", "[[\"x\"]]"] {
            let words = refused(&format!("\n{key} = {wrong}\n"));
            assert!(words.starts_with(&format!("error: s.toml:2: {key}: ")) && words.lines().count() == 1, "{words}");
        }
    }
}

#[test]
fn config_errors_name_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let check = |file: &str, flags: &[&str], expected: &str| {
        std::fs::write(folder.path().join("s.toml"), file).unwrap();
        let output = leeward(&[&["serve", "--config", "s.toml"], flags].concat(), folder.path());
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), words.lines().count()), (Some(2), 1), "{words}");
        assert!(words.starts_with(&format!("error: {expected}")) && output.stdout.is_empty(), "{expected}: {words}");
    };
    check("cores = 1\ncorse = 2", &[], "s.toml:2: corse: unknown key; accepted: service, admission");
    check("config = \"x\"", &[], "s.toml:1: config: unknown key");
    check("cores = \"2\"", &[], "s.toml:1: cores: `2` is not a whole number from 1 to 128");
    check("\ncores = 0", &[], "s.toml:2: cores: `0` is not a whole number");
    check("cores = \"4..1\"", &[], "s.toml:1: cores: `4..1`; accepted: 1 to 128, or a range such as 1..4");
    check("allocator = \"fast\"", &[], "s.toml:1: allocator: unknown allocator `fast`; accepted: delay,");
    check("allocator = \"delay:search=0.1\"", &[], "s.toml:1: allocator: `search` can't be `0.1`");
    check("cores = 0", &["--cores=1"], "s.toml:1: cores: `0` is not a whole number");
    check("otlp = \"collector\"", &[], "s.toml:1: otlp: `collector`: no http:// at the beginning; accepted: http://");
    check("receiving = \"much\"", &[], "s.toml:1: receiving: ");
    check("sending = \"0MB\"", &[], "s.toml:1: sending: ");
    check("otlp-every = \"1ms\"", &[], "s.toml:1: otlp-every: `1ms` is not a duration");
    check("cpus = [0, -1]", &[], "s.toml:1: cpus: `-1` is not a whole number");
    check("slo = 200", &[], "s.toml:1: slo: `200` is not a duration");
    check("rtt = \"0us\"", &[], "s.toml:1: rtt: `0us` is not a duration");
    check("idle = \"never\"", &[], "s.toml:1: idle: `never`; accepted: `spin`, `block`");
    check("service = \"memcached\"", &[], "s.toml:1: service: `memcached` is not one of \"synthetic\", \"echo\"");
    check("admission = \"brakewater\"", &[], "s.toml:1: admission: unknown controller `brakewater`");
    check("[set]\ntarget = 80", &[], "s.toml:2: set.target: `target` can't be `80`");
    check("[set]\ntarget = [1]", &[], "s.toml:2: set.target: a list is not");
    check("set = 3", &[], "s.toml:1: set: `3` is not a table");
    check("cores = 1\ncores = 2", &[], "s.toml:2: syntax: not TOML");
    check("cores", &[], "s.toml:1: syntax: not TOML");
    check("enforce = \"5\"", &[], "s.toml:1: enforce: `5`; accepted: whole percent");
    check("shadow = \"on\"\nenforce = \"5%\"", &[], "s.toml:2: enforce: `shadow` is on");
    // Parameters that contradict each other, within the file and with the flags.
    let thresholds = "cores = 1\n[set]\ntarget = \"80us\"\naqm_threshold = \"20us\"";
    check(thresholds, &[], "s.toml:2: set: `aqm_threshold` (20us) must not be below `target` (80us)");
    check("[set]\nalpha = 0.1", &["--admission=dagor"], "s.toml:2: set.alpha: unknown parameter `alpha`");
    for (flag, expected) in [
        ("--allocator=ideal", "error: --allocator: `ideal` needs cores that are granted instantly"),
        ("--allocator=delay-range:low=2us,high=1us", "error: --allocator: `low` (2us) must not be above"),
        ("--cores=0..2", "error: invalid value '0..2' for '--cores <N>': accepted: 1 to 128"),
    ] {
        let output = leeward(&["serve", "--print-config", flag], folder.path());
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && words.starts_with(expected), "{words}");
    }
    let output = leeward(&["serve", "--config", "none.toml"], folder.path());
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.starts_with("error: none.toml: file: "), "{words}");
    let output = leeward(&["serve", "--print-config", "--set=target=80us", "--set=aqm_threshold=1us"], folder.path());
    assert_eq!(output.status.code(), Some(2));
}
