//! Compilers and paths for the tests. Does not contain tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

/// The crate's folder.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).into()
}

/// The archive that Cargo made together with this test.
fn archive() -> PathBuf {
    let program = std::env::current_exe().expect("the test has a path");
    let built = program.parent().expect("in a folder").read_dir().expect("the folder is readable");
    let archives = built.flatten().map(|file| file.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libleeward_capi-") && name.ends_with(".a")
    });
    let age = |path: &PathBuf| path.metadata().and_then(|of| of.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    archives.max_by_key(age).expect("Cargo builds the static library with the tests")
}

/// A compiler that finds the headers.
pub(crate) fn cc(name: &str) -> Command {
    let mut command = Command::new(name);
    command.arg("-I").arg(folder().join("include"));
    command
}

/// What a program has to be linked with, besides the static library.
pub(crate) const SYSTEM: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A folder with the shared and the static library, linked as `make capi` does.
pub(crate) fn libraries() -> tempfile::TempDir {
    let out = tempfile::tempdir().expect("a folder is made");
    let script = folder().join("../../scripts/capi");
    run(Command::new(script).arg("link").arg(archive()).arg(out.path()));
    out
}
