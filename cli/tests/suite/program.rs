//! The built program, from outside: exit codes, output streams, and written files.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A scenario of two controllers and two demands with a short run.
const TINY: &str = r#"
id = "tiny"
title = "A small test"

[workload]
service = "exp:10us"
clients = 20
demand = ["0.5x", "1.2x"]

[run]
warmup = "5ms"
duration = "20ms"
seeds = 2

[[controller]]
name = "none"

[[controller]]
name = "breakwater"

[[plot]]
title = "Goodput"
x = "demand_rps"
y = "goodput_rps"
"#;

fn leeward(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leeward")).args(arguments).current_dir(folder).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

/// Checks an input error: exit code 2, nothing on stdout, one line on stderr that contains `parts`.
fn check_input_error(output: &Output, parts: &[&str]) {
    let printed = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert_eq!(stdout(output), "");
    assert!(printed.starts_with("error: ") && printed.trim_end().lines().count() == 1, "{printed}");
    for part in parts {
        assert!(printed.contains(part), "no `{part}` in: {printed}");
    }
}

/// Runs [`TINY`] with `old` replaced by `new`: an input error, with nothing written.
fn check_bad_file(old: &str, new: &str, parts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    assert!(TINY.contains(old), "{old}");
    std::fs::write(folder.path().join("bad.toml"), TINY.replace(old, new)).unwrap();
    check_input_error(&leeward(&["run", "bad.toml", "--out", "out"], folder.path()), parts);
    assert!(!folder.path().join("out").exists() && !folder.path().join("results").exists());
}

#[test]
fn bad_scenarios_are_refused_in_one_line() {
    check_bad_file("\"breakwater\"", "\"breakwatr\"", &["bad.toml", "breakwatr", "breakwater"]);
    check_bad_file("\"1.2x\"", "\"-1.2x\"", &["demand"]);
    check_bad_file("clients = 20", "clients = 0", &["clients"]);
    check_bad_file("clients = 20", "clinets = 20", &["clinets", "clients"]);
    check_bad_file("\"20ms\"", "\"20 bananas\"", &["duration"]);
    check_bad_file("[run]", "[run", &["bad.toml"]);
}

#[test]
fn bad_command_lines_are_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let check = |arguments: &[&str], parts: &[&str]| check_input_error(&leeward(arguments, folder.path()), parts);
    check(&["run", "absent.toml"], &["absent.toml"]);
    check(&["run", "bw-ovrall"], &["bw-ovrall", "did you mean `bw-overall`?"]);
    check(&["run", "tiny.toml", "--plant", "dream"], &["accepted: sim, real"]);
    check(&["demo", "--duration", "4"], &["--duration"]);
    check(&["demo", "--clients", "0"], &["--clients"]);
    check(&["demo", "--out", "tiny.toml"], &["tiny.toml", "not a folder"]);
    check(&["demo", "tiny.toml"], &["tiny.toml"]);
    check(&["run", "tiny.toml", "--set", "workload.clinets=3"], &["clinets"]);
    check(&["run", "tiny.toml", "--set", "nonsense"], &["nonsense"]);
    check(&["run", "tiny.toml", "--seed", "x"], &["--seed"]);
    check(&["run", "tiny.toml", "--out", "tiny.toml"], &["tiny.toml", "not a folder"]);
    check(&["run", "tiny.toml", "--out", "tiny.toml/below"], &["tiny.toml", "not a folder"]);
    check(&["run"], &["<SCENARIO>"]);
    check(&["tune", "tiny.toml", "--controller", "sdea"], &["sdea"]);
    check(&["report", "nowhere"], &["nowhere"]);
    check(&["run", "./"], &["error: ./: ", "expected a scenario file"]);
    check(&[], &["--help"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something was written");
}

#[test]
fn help_and_lists_go_to_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str], parts: &[&str]| {
        let output = leeward(arguments, folder.path());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        for part in parts {
            assert!(stdout(&output).contains(part), "no `{part}` in: {}", stdout(&output));
        }
    };
    check(&["--help"], &["leeward list", "Exit codes"]);
    check(&["run", "--help"], &["Examples:", "--quick"]);
    check(&["--version"], &["leeward"]);
    check(&["list"], &["bw-overall", "breakwater", "dagor"]);
    check(&["list", "--controllers"], &["client_delay", "duration"]);
    check(&["list", "breakwater"], &["breakwater: ", "  target = 40 % of the SLO  (duration"]);
    check(&["list", "bw-overall"], &["bw-overall: ", "Controllers: ", "paper: "]);
    check(&["serve", "--help"], &["repeat within 500 ms"]);
    check(&["load", "--help"], &["3 the load generator was too late"]);
}

#[test]
fn list_suggests_similar_names() {
    let folder = tempfile::tempdir().unwrap();
    let check = |arguments: &[&str], parts: &[&str]| check_input_error(&leeward(arguments, folder.path()), parts);
    check(&["list", "breakwatr"], &["no controller or scenario `breakwatr`; did you mean `breakwater`?"]);
    check(&["list", "bw-ovrall"], &["did you mean `bw-overall`?"]);
    check(&["list", "breakwater", "--controllers"], &["--controllers"]);
}

/// The profiler's plugin is usually missing when a user asks for help.
#[test]
fn compiler_commands_show_help_without_the_plugin() {
    for (name, part) in [("cc", "--leeward-engine"), ("c++", "--leeward-engine"), ("cargo", "leeward cargo build")] {
        let output = Command::new(env!("CARGO_BIN_EXE_leeward"))
            .args([name, "--help"])
            .env("LEEWARD_PROFILER_DIR", "/nonexistent")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", stderr(&output));
        assert!(stdout(&output).contains(part), "{name}: {}", stdout(&output));
        assert!(stderr(&output).contains("/nonexistent"), "{name}: {}", stderr(&output));
    }
}

#[test]
fn a_missing_file_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["serve", "--service", "search", "--corpus", "nowhere.txt", "--listen", "127.0.0.1:0"];
    let output = leeward(&arguments, folder.path());
    let last = stderr(&output).lines().last().unwrap();
    assert_eq!(output.status.code(), Some(2), "{last}");
    assert_eq!((last.matches("nowhere.txt").count(), last.matches("os error 2").count()), (1, 1), "{last}");
}

/// A scenario whose simulated time does not advance is an error, and does not hang.
#[test]
fn a_run_is_rejected_if_its_simulated_time_stands_still() {
    let folder = tempfile::tempdir().unwrap();
    let allocator =
        "[server.allocator]\npolicy = \"per-request\"\ndelay = \"0ns\"\nparams = { search = \"0ns\" }\n\n[run]";
    std::fs::write(folder.path().join("hang.toml"), TINY.replace("[run]", allocator)).unwrap();
    check_input_error(
        &leeward(&["run", "hang.toml"], folder.path()),
        &["does not advance beyond ", "allocator `per-request`"],
    );
    assert!(!folder.path().join("results").exists());
}

#[test]
fn a_claim_that_is_not_reproduced_has_its_note() {
    let folder = tempfile::tempdir().unwrap();
    let claim = "\n[[claim]]\nid = \"a\"\ntext = \"Much\"\npaper = \"a lot\"\nmeasure = \"goodput_rps{none, demand_ratio=0.5}\"\n\
                 min = 1e12\nnote = \"the model is small\"\n";
    std::fs::write(folder.path().join("tiny.toml"), format!("{TINY}{claim}")).unwrap();
    let output = leeward(&["run", "tiny.toml"], folder.path());
    let printed = stdout(&output);
    assert!(printed.contains("not reproduced: Much") && printed.contains("note: the model is small"), "{printed}");
    // The scenario names no paper.
    assert!(printed.contains("What we expect, what we measured") && printed.contains("expected: a lot"), "{printed}");
}

#[test]
fn a_reader_may_leave_early() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["list", "--controllers"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

#[test]
fn a_run_leaves_results_and_a_report_that_can_be_drawn_again() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let output = leeward(&["run", "tiny.toml"], folder.path());
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    for part in ["A small test", "breakwater", "goodput", "report.html"] {
        assert!(stdout(&output).contains(part), "no `{part}` in: {}", stdout(&output));
    }
    let results = folder.path().join("results/tiny");
    let mut names: Vec<_> = std::fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["report.html", "result.json", "results.jsonl"]);

    let page = std::fs::read(results.join("report.html")).unwrap();
    let output = leeward(&["report", "results/tiny", "--out", "again.html"], folder.path());
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert_eq!(std::fs::read(folder.path().join("again.html")).unwrap(), page);
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let run = |out: &str, more: &[&str]| {
        let arguments = [&["run", "tiny.toml", "--json", "--out", out, "--set", "run.duration=15ms"], more].concat();
        let output = leeward(&arguments, folder.path());
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
        let files = ["report.html", "result.json", "results.jsonl"];
        let files = files.map(|name| std::fs::read(folder.path().join(out).join(name)).unwrap());
        (output.stdout, files)
    };
    let first = run("first", &["--threads", "1"]);
    assert_eq!(first, run("second", &["--threads", "1"]));
    assert_eq!(first, run("third", &["--threads", "2"]));
    assert_ne!(first, run("other", &["--seed", "2"]));

    let json = String::from_utf8(first.0).unwrap();
    assert_eq!(json.lines().count(), 1);
    let results: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(results["points"].as_array().unwrap().len(), 8);
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_with_nothing_written() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    // Long enough to be interrupted: four hundred runs.
    let arguments = ["run", "tiny.toml", "--threads", "1", "--set", "run.seeds=100", "--set", "run.duration=200ms"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(arguments)
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(400));
    assert!(child.try_wait().unwrap().is_none(), "it ended before it could be interrupted");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(!folder.path().join("results").exists());
}

#[cfg(unix)]
#[test]
fn an_interrupted_sweep_says_how_much_it_printed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let grid = ["--sweep", "controller=breakwater,none", "--sweep", "demand=0.5x,1.2x"];
    let length = ["--threads", "1", "--set", "run.seeds=100", "--set", "run.duration=200ms"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args([&["run", "tiny.toml"], &grid[..], &length].concat())
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    lines.next().unwrap().unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let printed = 1 + lines.count();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let expected = format!("error: interrupted; {printed} of 400 runs of the grid were printed\n");
    assert_eq!(stderr(&output), expected);
}

/// Mistakes that the search for curves would find or overlook only after its budget.
#[test]
fn advise_and_train_check_setups_and_tiers_first() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], parts: &[&str]| check_input_error(&leeward(arguments, folder.path()), parts);
    let long = ["--budget", "10m"];
    let advise = ["advise", "hdsearch", "--slo", "1ms"];
    refused(&[&advise[..], &["--setups", "SIP1,SDB1-2,SIP1"], &long].concat(), &["--setups", "SIP1 twice"]);
    refused(&[&advise[..], &["--tier", "zz"], &long].concat(), &["no tier `zz`", "accepted: hdsearch"]);
    refused(&[&advise[..], &["--tier", "zz", "--plant", "real"], &long].concat(), &["no tier `zz`"]);
    let train = ["train", "router", "--out", "curves.toml", "--setups", "SIP1", "--load", "50..60"];
    refused(&[&train[..], &["--tier", "zz"]].concat(), &["no tier `zz`", "accepted: router"]);
    let output = leeward(&[&train[..], &["--tier", "router"]].concat(), folder.path());
    assert!(output.status.success(), "{}", stderr(&output));
}

/// A server that accepts connections and stays silent must not block `leeward top`.
#[cfg(unix)]
#[test]
fn ctrl_c_stops_a_request_to_a_silent_server() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let began = std::time::Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["top", &silent.local_addr().unwrap().to_string(), "--plain"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let connection = silent.accept().unwrap();
    assert!(child.try_wait().unwrap().is_none(), "it ended before it could be interrupted");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    // A response may take five seconds.
    assert!(began.elapsed().as_secs() < 4, "{:?}", began.elapsed());
    drop(connection);
}

#[cfg(unix)]
#[test]
fn reports_may_go_to_devices_and_never_replace_results() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    assert!(leeward(&["run", "tiny.toml", "--out", "out"], folder.path()).status.success());
    // A pipe stands for /dev/stdout and other devices; here an error replaces nothing important.
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read_to_string(pipe).unwrap()
    });
    let output = leeward(&["report", "out", "--out", "pipe"], folder.path());
    if std::fs::metadata(&pipe).unwrap().is_file() {
        panic!("the pipe was replaced"); // and no writer will come: do not join
    }
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert!(reader.join().unwrap().starts_with("<!DOCTYPE html>"));

    let before = std::fs::read(folder.path().join("out/result.json")).unwrap();
    for results in ["out", "out/result.json"] {
        check_input_error(
            &leeward(&["report", results, "--out", "out/result.json"], folder.path()),
            &["the results themselves"],
        );
    }
    check_input_error(
        &leeward(&["report", "out", "--out", "out/results.jsonl"], folder.path()),
        &["the results themselves"],
    );
    assert_eq!(std::fs::read(folder.path().join("out/result.json")).unwrap(), before);
}

#[test]
fn lists_and_results_fit_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    for arguments in [&["list"][..], &["run", "tiny.toml"]] {
        let output = leeward(arguments, folder.path());
        let longest = stdout(&output).lines().map(|line| line.chars().count()).max();
        assert!(longest.unwrap() <= 80, "{}", stdout(&output));
    }
}

#[test]
fn a_sweep_prints_a_line_per_run_in_the_grids_order_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let sweep = ["run", "tiny.toml", "--sweep", "controller=breakwater,none", "--sweep", "demand=0.5x,1.2x"];
    let run = |threads: &str| leeward(&[&sweep[..], &["--threads", threads]].concat(), folder.path());
    let output = run("1");
    assert!(output.status.success(), "{}", stderr(&output));
    let lines: Vec<serde_json::Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rows: Vec<(&str, &str, u64)> = lines
        .iter()
        .map(|line| {
            (line["label"].as_str().unwrap(), line["sweep"]["demand"].as_str().unwrap(), line["seed"].as_u64().unwrap())
        })
        .collect();
    let expected = ["breakwater", "none"]
        .into_iter()
        .flat_map(|label| ["0.5x", "1.2x"].map(|demand| (label, demand)))
        .flat_map(|(label, demand)| [1, 2].map(|seed| (label, demand, seed)));
    assert_eq!(rows, expected.collect::<Vec<_>>());
    assert_eq!(run("3").stdout, output.stdout);
    assert!(!folder.path().join("results").exists(), "nothing is written");
    check_input_error(
        &leeward(&["run", "tiny.toml", "--sweep", "demand"], folder.path()),
        &["--sweep demand", "KEY=VALUE,VALUE"],
    );
    check_input_error(
        &leeward(&["run", "tiny.toml", "--sweep", "rtt=30"], folder.path()),
        &["network.rtt", "is not a duration"],
    );
    let real = leeward(&["run", "tiny.toml", "--plant", "real", "--sweep", "demand=1x"], folder.path());
    check_input_error(&real, &["would disturb each other"]);
}

/// The scenarios of the memcached services have claims, and nothing that is simulated.
#[test]
fn verdicts_are_judged_in_parts_continued_and_joined() {
    let folder = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| leeward(&[&["verdicts"], more].concat(), folder.path());
    let ids = |out: &str| {
        let text = std::fs::read_to_string(folder.path().join(out).join("verdicts.json")).unwrap();
        let all: serde_json::Value = serde_json::from_str(&text).unwrap();
        let scenarios = all["scenarios"].as_array().unwrap();
        scenarios.iter().map(|one| one["id"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    let part = |number: &str, out: &str, more: &[&str]| {
        let common = ["--scenario", "lk-memcached", "--quick", "--seeds", "2", "--part", number, "--out", out];
        assert!(run(&[&common, more].concat()).status.success());
    };
    part("1/2", "one", &[]);
    part("2/2", "two", &[]);
    assert_eq!((ids("one"), ids("two")), (vec!["lk-memcached-usr".into()], vec!["lk-memcached-var".into()]));

    // What was judged by the same command stays, and is judged again by another one.
    let file = folder.path().join("one/verdicts.json");
    let title = |text: &str| text.split("\"title\": \"").nth(1).unwrap().split('"').next().unwrap().to_string();
    let text = std::fs::read_to_string(&file).unwrap();
    let original = title(&text);
    std::fs::write(&file, text.replace(&original, "As it was")).unwrap();
    part("1/2", "one", &["--continue"]);
    assert_eq!(title(&std::fs::read_to_string(&file).unwrap()), "As it was");
    part("1/2", "one", &["--continue", "--seed", "7"]);
    assert_eq!(title(&std::fs::read_to_string(&file).unwrap()), original);

    let empty = run(&["--scenario", "lk-memcached", "--part", "3/8"]);
    assert_eq!(empty.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&empty.stderr).contains("only 2 scenarios"));

    assert!(run(&["--join", "one", "--join", "two", "--out", "all"]).status.success());
    assert_eq!(ids("all"), ["lk-memcached-usr", "lk-memcached-var"]);
    std::fs::create_dir(folder.path().join("garbage")).unwrap();
    std::fs::write(folder.path().join("garbage/verdicts.json"), [0xff, 0xfe]).unwrap();
    let output = run(&["--scenario", "lk-memcached", "--out", "garbage"]);
    assert_eq!(output.status.code(), Some(2), "a file that is not understood is not replaced");
    for (wrong, named) in
        [(["one", "one"], "lk-memcached-usr"), (["one", "absent"], "absent"), (["one", "garbage"], "garbage")]
    {
        let output = run(&["--join", wrong[0], "--join", wrong[1], "--out", "all"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(named));
    }
}

#[test]
fn a_redrawn_table_keeps_the_command_of_its_verdicts() {
    let folder = tempfile::tempdir().unwrap();
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    for name in ["verdicts.json", "sensitivity.json"] {
        let text = std::fs::read_to_string(format!("{docs}/{name}")).unwrap();
        let mut all: serde_json::Value = serde_json::from_str(&text).unwrap();
        all["command"] = "leeward verdicts --seeds 20".into();
        std::fs::write(folder.path().join(name), all.to_string()).unwrap();
    }
    let output = leeward(&["verdicts", "--redraw", "--out", "."], folder.path());
    assert!(output.status.success(), "{}", stderr(&output));
    for page in ["verdicts.md", "verdicts.html", "sensitivity.md"] {
        assert!(read(page).contains("leeward verdicts --seeds 20"), "{page}");
    }
    std::fs::write(folder.path().join("sensitivity.json"), "{").unwrap();
    std::fs::write(folder.path().join("verdicts.md"), "as it was").unwrap();
    let output = leeward(&["verdicts", "--redraw", "--out", "."], folder.path());
    assert_eq!((output.status.code(), read("verdicts.md").as_str()), (Some(2), "as it was"));
}

#[test]
fn the_league_writes_its_table_and_matches() {
    let folder = tempfile::tempdir().unwrap();
    // Of the random scenes, 11 and 12 are among the shortest.
    let arguments = ["league", "--random-only", "--random", "2", "--seed", "11", "--out", "table", "--check"];
    let output = leeward(&arguments, folder.path());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("2 matches") && stdout(&output).contains("\nauto "), "{}", stdout(&output));
    let read = |name: &str| std::fs::read_to_string(folder.path().join("table").join(name)).unwrap();
    assert!(read("league.md").contains("| `breakwater` |"));
    let all: serde_json::Value = serde_json::from_str(&read("league.json")).unwrap();
    assert_eq!(all["matches"].as_array().unwrap().len(), 2);
    assert_eq!(all["command"], "leeward league --random-only --random 2 --seed 11");
}

#[test]
fn joined_leagues_count_each_scenario_once() {
    let folder = tempfile::tempdir().unwrap();
    let play = |seed: &str| {
        let output =
            leeward(&["league", "--random-only", "--random", "1", "--seed", seed, "--out", seed], folder.path());
        assert!(output.status.success(), "{}", stderr(&output));
    };
    play("11");
    play("12");
    let join = ["league", "--join", "11/league.json", "--join", "12/league.json", "--out", "both"];
    let output = leeward(&join, folder.path());
    assert!(output.status.success() && stdout(&output).contains("2 matches"), "{}", stderr(&output));
    let page = std::fs::read_to_string(folder.path().join("both/league.md")).unwrap();
    assert!(page.contains("--random 1 --seed 11`, `leeward league --random-only --random 1 --seed 12`"), "{page}");
    let refused = |arguments: &[&str], part: &str| check_input_error(&leeward(arguments, folder.path()), &[part]);
    refused(&["league", "--join", "11/league.json", "--join", "both/league.json"], "`random-11` is also in");
    refused(&["league", "--join", "both/league.md"], "accepted: a league.json");
    refused(&["league", "--join", "11/league.json", "--random", "9"], "cannot be used with");
}

#[test]
fn an_interrupted_league_shows_its_finished_matches() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_leeward"))
        .args(["league", "--random-only", "--random", "100000", "--out", "table"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first case is written as soon as it has run.
    while !folder.path().join("table/league.md").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its first case had run");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stdout(&output).contains("matches; ") && stdout(&output).contains("\nauto "), "{}", stdout(&output));
    assert!(stderr(&output).contains(" of 100000 scenarios"), "{}", stderr(&output));
}

#[test]
fn a_league_without_scenarios_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], part: &str| check_input_error(&leeward(arguments, folder.path()), &[part]);
    refused(&["league", "--scenario", "nope"], "no scenario has that in its id");
    refused(&["league", "--scenario", "tier-"], "tiers");
    refused(&["league", "--random-only", "--random", "0"], "--random");
}

#[test]
fn the_oracle_runs_only_in_the_simulator() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tiny.toml"), TINY.replace("\"none\"", "\"oracle\"")).unwrap();
    let real = leeward(&["run", "tiny.toml", "--plant", "real"], folder.path());
    check_input_error(&real, &["oracle", "service time"]);
    check_input_error(&leeward(&["serve", "--admission", "oracle"], folder.path()), &["oracle"]);
}
