//! Programs and the run-time that the tests record with.

use std::path::{Path, PathBuf};

/// Returns the folder of this build: `target/debug`.
fn built() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().to_path_buf()
}

/// Returns the library to preload, if it is built.
pub(crate) fn run_time() -> Option<PathBuf> {
    let named = std::env::var_os("LEEWARD_PROFILER_DIR").map(PathBuf::from);
    let folders = named.into_iter().chain([built().join("../profiler")]);
    folders.map(|folder| folder.join("libleeward_rt.so")).find(|file| file.is_file())
}

/// Returns the program of an example.
pub(crate) fn example(name: &str) -> PathBuf {
    let program = built().join("examples").join(name);
    assert!(
        program.is_file(),
        "{} is not built: `cargo test` builds examples, `cargo test --test` does not",
        program.display()
    );
    program
}
