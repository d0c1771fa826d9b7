//! Harness for mutational fuzzing on the stable toolchain.
//!
//! It mutates stored bytes and passes them to a check, with the same mutants in every run.
//! `LEEWARD_FUZZ_ITERATIONS` sets the number of mutants, `LEEWARD_FUZZ_SEED` the seed. The caller
//! supplies the mutations, because it knows its format.

use crate::random::Random;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

/// A search for bytes on which a check fails.
#[derive(Clone, Debug)]
pub struct FuzzSearch<'a> {
    /// Prefix of the names of files with findings.
    pub name: &'a str,
    /// The folder for findings: `env!("CARGO_TARGET_TMPDIR")`.
    pub findings: &'a Path,
    /// Number of mutants, unless `LEEWARD_FUZZ_ITERATIONS` sets it.
    pub iterations: u64,
}

impl FuzzSearch<'_> {
    /// Passes the mutants of `mutate` to `check`.
    ///
    /// A mutant on which the check panics is written to a file; then the panic continues.
    pub fn run(&self, mutate: impl Fn(&mut Random) -> Vec<u8>, check: impl Fn(&mut Random, &[u8])) {
        let seed = env_number("LEEWARD_FUZZ_SEED", 1);
        for iteration in 0..env_number("LEEWARD_FUZZ_ITERATIONS", self.iterations) {
            // Each mutant has its own seed, so that a failure can be reproduced alone.
            let mut random = Random::new(seed << 40 | iteration);
            let bytes = mutate(&mut random);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&mut random, &bytes))) {
                let path = self.findings.join(format!("{}-{seed}-{iteration}.bin", self.name));
                fs::write(&path, &bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                eprintln!("found at iteration {iteration} of seed {seed}: {}", path.display());
                resume_unwind(panic);
            }
        }
    }
}

/// Reads the files of a corpus whose names begin with `prefix`, in the order of their names.
///
/// # Panics
/// If there are fewer than `at_least`: a lost corpus would go unnoticed.
pub fn corpus(folder: &Path, prefix: &str, at_least: usize) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    paths.sort();
    assert!(paths.len() >= at_least, "{}: {} files begin with `{prefix}`", folder.display(), paths.len());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Returns the number in an environment variable, or `otherwise` if the variable is not set.
///
/// # Panics
/// If the variable is not a number.
pub fn env_number(variable: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return otherwise };
    text.parse().unwrap_or_else(|_| panic!("{variable}: `{text}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_mutant_is_saved_and_the_panic_propagates() {
        let folder = std::env::temp_dir().join(format!("leeward-testkit-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let search = FuzzSearch { name: "hunted", findings: &folder, iterations: 50 };
        let found = catch_unwind(AssertUnwindSafe(|| {
            search.run(|random| vec![random.below(10) as u8], |_, bytes| assert_ne!(bytes, [7]));
        }));
        assert!(found.is_err());
        let kept = corpus(&folder, "hunted-", 1);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(kept, [[7]]);
    }
}
