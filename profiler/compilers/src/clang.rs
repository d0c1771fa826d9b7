//! `leeward cc` and `leeward c++`: finds the profiler's files and clang, and runs clang in place of
//! this process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::WrapError;
use crate::arguments::{CommandLine, Files, Language, Options, clang_arguments, take_options, without_end_of_options};
use crate::response;

/// Variable with the folder of the profiler's files.
const FOLDER: &str = "LEEWARD_PROFILER_DIR";
/// Variable with further options of ours, for build systems with fixed compiler options.
const OPTIONS: &str = "LEEWARD_CC_OPTIONS";

/// Replaces this process by clang with these arguments. Returns only if clang can't be run, with
/// the reason.
pub fn compile(language: Language, arguments: Vec<OsString>) -> WrapError {
    run(language, arguments).err().unwrap_or_else(|| WrapError("clang could not be run".into()))
}

fn run(language: Language, arguments: Vec<OsString>) -> Result<(), WrapError> {
    let (mut options, given) = with_environment(arguments)?;
    let mut passed = given.clone();
    let expanded = response::expand(&given).map_err(WrapError)?;
    let meant = match expanded {
        None => None,
        Some(expanded) => {
            let all = expanded.words.len();
            let (in_files, words) = take_options(expanded.words).map_err(WrapError)?;
            let words = without_end_of_options(words);
            // clang reads the files itself, without the length limit of a command line, unless they
            // contain our options.
            if !expanded.is_repeatable || words.len() < all {
                passed.clone_from(&words);
            }
            options.clang = in_files.clang.or(options.clang);
            options.plugin.extend(in_files.plugin);
            Some(words)
        }
    };
    let line = CommandLine { arguments: &passed, expanded: meant.as_deref() };
    let folder = folder()?;
    let files = Files(&folder);
    let clang = match options.clang {
        Some(clang) => clang,
        None => clang_of(&folder, language)?,
    };
    let error = Command::new(&clang).args(clang_arguments(&files, &options.plugin, &line)).exec();
    let clang = Path::new(&clang).display();
    Err(match error.kind() {
        ErrorKind::NotFound => WrapError(format!(
            "{clang} is not installed: the profiler's plugin needs it (Debian: `apt-get install {clang}`, or `scripts/setup profiler`)"
        )),
        _ => WrapError::because(format!("{clang} could not be run"), error),
    })
}

/// Returns our options, from the environment and the arguments, and the other arguments.
pub(crate) fn with_environment(arguments: Vec<OsString>) -> Result<(Options, Vec<OsString>), WrapError> {
    let more = env::var(OPTIONS).unwrap_or_default();
    let words = more.split_whitespace().map(OsString::from).chain(arguments);
    take_options(words).map_err(WrapError)
}

/// Finds the profiler's files: from the environment, beside the installed program, or in the build
/// folder.
pub(crate) fn folder() -> Result<PathBuf, WrapError> {
    let is_it = |folder: &Path| Files(folder).plugin().is_file();
    if let Some(folder) = env::var_os(FOLDER) {
        let folder = PathBuf::from(folder);
        let is_there = is_it(&folder);
        let shown = folder.display();
        let missing = format!("{FOLDER} is {shown}, where there is no libleeward_pass.so; `make profiler` builds it");
        return if is_there { Ok(folder) } else { Err(WrapError(missing)) };
    }
    let program = env::current_exe().map_err(|error| WrapError::because("the program's own path is unknown", error))?;
    let beside = program.parent().unwrap_or(Path::new("."));
    ["../lib/leeward", "../profiler", "profiler"]
        .iter()
        .map(|path| beside.join(path))
        .find(|folder| is_it(folder))
        .map(|folder| folder.canonicalize().unwrap_or(folder))
        .ok_or_else(|| {
            let missing = "the profiler's plugin is not built: `make profiler` builds it";
            WrapError(format!("{missing} (or set {FOLDER} to its folder)"))
        })
}

/// Returns the clang that the plugin was built for; its Makefile has recorded the version.
fn clang_of(folder: &Path, language: Language) -> Result<OsString, WrapError> {
    let path = folder.join("llvm-version");
    let version = std::fs::read_to_string(&path)
        .map_err(|error| WrapError::because(format!("{} can't be read", path.display()), error))?;
    let version = version.trim();
    let is_number = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(WrapError(format!("{} holds `{version}`, no version of LLVM", path.display())));
    }
    let name = match language {
        Language::C => OsStr::new("clang-"),
        Language::Cxx => OsStr::new("clang++-"),
    };
    let mut clang = name.to_os_string();
    clang.push(version);
    Ok(clang)
}
