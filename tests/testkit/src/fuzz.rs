//! Harness for mutational fuzzing on the stable toolchain: kept bytes are damaged and given to a check, the same
//! mutants in every run. `LEEWARD_FUZZ_ITERATIONS` makes it longer, `LEEWARD_FUZZ_SEED` different. The caller knows its
//! format, and so how to damage it well.

use crate::random::Random;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

/// A hunt for bytes that a check fails on.
#[derive(Clone, Debug)]
pub struct FuzzSearch<'a> {
    /// A name for the files of findings.
    pub name: &'a str,
    /// The folder for findings: `env!("CARGO_TARGET_TMPDIR")`.
    pub findings: &'a Path,
    /// How many mutants, unless `LEEWARD_FUZZ_ITERATIONS` says otherwise.
    pub iterations: u64,
}

impl FuzzSearch<'_> {
    /// Gives `check` what `mutate` makes of the corpus. A mutant on which the check panics is written to a file, and the
    /// panic goes on.
    pub fn run(&self, mutate: impl Fn(&mut Random) -> Vec<u8>, check: impl Fn(&mut Random, &[u8])) {
        let seed = env_number("LEEWARD_FUZZ_SEED", 1);
        for iteration in 0..env_number("LEEWARD_FUZZ_ITERATIONS", self.iterations) {
            // Each has a seed of its own, so that a failure is found again without what came before it.
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

/// The files of a corpus whose names begin with `prefix`, in the order of their names.
///
/// # Panics
/// If there are fewer than `at_least`: a corpus that is lost would pass unseen.
pub fn corpus(folder: &Path, prefix: &str, at_least: usize) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)));
    paths.sort();
    assert!(paths.len() >= at_least, "{}: {} files begin with `{prefix}`", folder.display(), paths.len());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// The number in an environment variable, or another one where it is not set.
///
/// # Panics
/// If it holds something else.
pub fn env_number(variable: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(variable) else { return otherwise };
    text.parse().unwrap_or_else(|_| panic!("{variable}: `{text}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_kept_and_the_failure_goes_on() {
        let folder = std::env::temp_dir().join(format!("leeward-testkit-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let hunt = FuzzSearch { name: "hunted", findings: &folder, iterations: 50 };
        let found = catch_unwind(AssertUnwindSafe(|| {
            hunt.run(|random| vec![random.below(10) as u8], |_, bytes| assert_ne!(bytes, [7]));
        }));
        assert!(found.is_err());
        let kept = corpus(&folder, "hunted-", 1);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(kept, [[7]]);
    }
}
