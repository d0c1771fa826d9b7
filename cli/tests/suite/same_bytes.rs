//! `scripts/same-bytes` finds a planted difference, and none where there is none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program that has one command, and says what it is asked.
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
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), said)
}

#[test]
fn a_planted_line_of_help_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let old = program(folder.path(), "old", SMALL);
    let (code, said) = compare(&old, &program(folder.path(), "same", SMALL), "help", folder.path());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("help         same"), "{said}");

    let planted = SMALL.replace("*) echo", "'list one') echo 'asked for: list uno' ;;\n*) echo");
    let (code, said) = compare(&old, &program(folder.path(), "new", &planted), "help", folder.path());
    assert_eq!(code, Some(1), "{said}");
    for expected in ["DIFFERENT  1 of", "list_one.txt", "- asked for: list one", "+ asked for: list uno"] {
        assert!(said.contains(expected), "no `{expected}`: {said}");
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
    let (code, said) = compare(real, &program(folder.path(), "new", &planted), "recordings", folder.path());
    assert_eq!(code, Some(1), "{said}");
    for expected in ["DIFFERENT  1 of", "codel.rec.json", ".counts.calls: "] {
        assert!(said.contains(expected), "no `{expected}`: {said}");
    }
}

#[test]
fn bad_uses_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let listed = same_bytes(&["--list"], folder.path());
    assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("scenarios"), "{listed:?}");
    let nothing = ["--old-program", "no-such-program", "--new-program", "no-such-program"];
    for bad in [&["HEAD"][..], &["HEAD", "HEAD", "--only", "no-such-part"], &["no-such-revision", "HEAD"], &nothing] {
        let output = same_bytes(bad, folder.path());
        assert_eq!(output.status.code(), Some(2), "{bad:?}: {output:?}");
    }
}
