//! `leeward cc` and `leeward c++`: finds the profiler's files and clang, and becomes clang.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};

use crate::compiler::{Files, Language, Options, clang_arguments, take_options};
use crate::failure::Failure;

/// Names the folder of the profiler's files.
const FOLDER: &str = "LEEWARD_PROFILER_DIR";
/// More of our options, for build systems whose compiler can't have any.
const OPTIONS: &str = "LEEWARD_CC_OPTIONS";

/// The command: only comes back if clang can't be run.
pub(crate) fn compile(language: Language, arguments: Vec<OsString>) -> Result<(), Failure> {
    let (options, arguments) = with_environment(arguments)?;
    let folder = folder().map_err(Failure::Input)?;
    let files = Files(&folder);
    let clang = match options.clang {
        Some(clang) => clang,
        None => clang_of(&folder, language).map_err(Failure::Input)?,
    };
    let error = Command::new(&clang).args(clang_arguments(&files, &options.plugin, &arguments)).exec();
    let clang = Path::new(&clang).display();
    Err(Failure::Input(match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{clang} is not installed: the profiler's plugin needs it (Debian: `apt-get install {clang}`, or `scripts/setup profiler`)"
        ),
        _ => anyhow!(error).context(format!("{clang} could not be run")),
    }))
}

/// Our options, from the environment and among the arguments, and the other arguments.
pub(super) fn with_environment(arguments: Vec<OsString>) -> Result<(Options, Vec<OsString>), Failure> {
    let more = env::var(OPTIONS).unwrap_or_default();
    let words = more.split_whitespace().map(OsString::from).chain(arguments);
    take_options(words).map_err(|wrong| Failure::Input(anyhow!(wrong)))
}

/// Where the profiler's files are: as the environment says, beside the program as installed, or in the build folder.
pub(super) fn folder() -> anyhow::Result<PathBuf> {
    let is_it = |folder: &Path| Files(folder).plugin().is_file();
    if let Some(folder) = env::var_os(FOLDER) {
        let folder = PathBuf::from(folder);
        return is_it(&folder).then(|| folder.clone()).with_context(|| {
            format!("{FOLDER} is {}, where there is no libleeward_pass.so; `make profiler` builds it", folder.display())
        });
    }
    let program = env::current_exe().context("the program's own path is unknown")?;
    let beside = program.parent().unwrap_or(Path::new("."));
    ["../lib/leeward", "../profiler", "profiler"]
        .iter()
        .map(|place| beside.join(place))
        .find(|folder| is_it(folder))
        .map(|folder| folder.canonicalize().unwrap_or(folder))
        .with_context(|| {
            format!("the profiler's plugin is not built: `make profiler` builds it (or {FOLDER} says where it is)")
        })
}

/// The clang that the plugin was built for: its Makefile wrote the version down.
fn clang_of(folder: &Path, language: Language) -> anyhow::Result<OsString> {
    let path = folder.join("llvm-version");
    let version = std::fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))?;
    let version = version.trim();
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    anyhow::ensure!(is_number, "{} holds `{version}`, no version of LLVM", path.display());
    let name = match language {
        Language::C => OsStr::new("clang-"),
        Language::Cxx => OsStr::new("clang++-"),
    };
    let mut clang = name.to_os_string();
    clang.push(version);
    Ok(clang)
}
