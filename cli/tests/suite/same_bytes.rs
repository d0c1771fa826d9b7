//! `scripts/same-bytes` finds a planted difference, and no difference where there is none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program with one command, which prints its arguments.
const SMALL: &str = r#"#!/bin/sh
case "$*" in
--help) printf 'Small\n\nCommands:\n  list  List\n\n' ;;
list) printf 'Scenarios\n  one  The first\n' ;;
*) echo "asked for: $*"; echo "error: $*" >&2; exit 2 ;;
esac
"#;

fn program(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn same_bytes(arguments: &[&str], folder: &Path) -> Output {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let script = folders.map(|folder| folder.join("scripts/same-bytes")).find(|path| path.exists()).unwrap();
    let mut command = Command::new("python3");
    command.arg(script).args(["--work", "results"]).args(arguments).current_dir(folder).output().unwrap()
}

fn compare(old: &Path, new: &Path, part: &str, folder: &Path) -> (Option<i32>, String) {
    let sides = ["--old-program", old.to_str().unwrap(), "--new-program", new.to_str().unwrap()];
    let output = same_bytes(&[&sides[..], &["--only", part]].concat(), folder);
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), printed)
}

#[test]
fn a_planted_line_of_help_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let old = program(folder.path(), "old", SMALL);
    let (code, printed) = compare(&old, &program(folder.path(), "same", SMALL), "help", folder.path());
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("help         same"), "{printed}");

    let planted = SMALL.replace("*) echo", "'list one') echo 'asked for: list uno' ;;\n*) echo");
    let (code, printed) = compare(&old, &program(folder.path(), "new", &planted), "help", folder.path());
    assert_eq!(code, Some(1), "{printed}");
    for expected in ["DIFFERENT  1 of", "list_one.txt", "- asked for: list one", "+ asked for: list uno"] {
        assert!(printed.contains(expected), "no `{expected}`: {printed}");
    }
}

#[test]
fn a_planted_number_in_a_replay_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let real = Path::new(env!("CARGO_BIN_EXE_leeward"));
    let planted = r#"#!/bin/sh
case "$*" in
'replay codel.rec --json') 'REAL' "$@" | sed 's/"calls":/"calls":1/' ;;
*) exec 'REAL' "$@" ;;
esac
"#;
    let planted = planted.replace("REAL", real.to_str().unwrap());
    let (code, printed) = compare(real, &program(folder.path(), "new", &planted), "recordings", folder.path());
    assert_eq!(code, Some(1), "{printed}");
    for expected in ["DIFFERENT  1 of", "codel.rec.json", ".counts.calls: "] {
        assert!(printed.contains(expected), "no `{expected}`: {printed}");
    }
}

#[test]
fn invalid_arguments_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let listed = same_bytes(&["--list"], folder.path());
    assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("scenarios"), "{listed:?}");
    let nothing = ["--old-program", "no-such-program", "--new-program", "no-such-program"];
    for bad in [&["HEAD"][..], &["HEAD", "HEAD", "--only", "no-such-part"], &["no-such-revision", "HEAD"], &nothing] {
        let output = same_bytes(bad, folder.path());
        assert_eq!(output.status.code(), Some(2), "{bad:?}: {output:?}");
    }
}
