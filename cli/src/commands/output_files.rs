//! Output files: checked before a long run, so that the run does not end with an error; written to
//! a temporary file and renamed, so that no reader sees a partial file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use leeward_lab::{Results, store};

use crate::failure::{Failure, file_failure};

/// Checks that results can be written into `folder`, which need not exist. Leaves nothing behind.
pub(crate) fn check_folder(folder: &Path) -> Result<(), Failure> {
    let mut nearest: PathBuf = folder.into();
    while fs::symlink_metadata(&nearest).is_err() {
        nearest = match nearest.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
            _ => ".".into(),
        };
    }
    if !nearest.is_dir() {
        return Err(Failure::Input(anyhow!(
            "--out {}: {} is a file, not a folder",
            folder.display(),
            nearest.display()
        )));
    }
    let probe = nearest.join(format!(".leeward-{}", std::process::id()));
    File::create(&probe)
        .and_then(|_| fs::remove_file(&probe))
        .with_context(|| format!("--out {}: can't write in {}", folder.display(), nearest.display()))
        .map_err(file_failure)
}

/// Checks that `path`, the value of `flag`, can be written. Changes nothing.
pub(crate) fn check_file(flag: &str, path: &Path) -> Result<(), Failure> {
    let wrong = |why: &str| Err(Failure::Input(anyhow!("{flag} {}: {why}", path.display())));
    if path.is_dir() {
        return wrong("that is a folder");
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return wrong("there is no such folder");
    }
    Ok(())
}

/// Writes `text` to `path` atomically. A device or pipe such as `/dev/stdout` is written to, never
/// replaced.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let written = File::options().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes()));
        return written.with_context(|| format!("writing {}", path.display())).map_err(file_failure);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.with_context(|| format!("writing {}", path.display())).map_err(file_failure)
}

/// Writes `text` to `name` in `folder`, which is created if missing.
pub(crate) fn write_into(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display())).map_err(file_failure)?;
    write(&folder.join(name), text)
}

/// Writes results and their report, all or none; returns the report's path.
pub(crate) fn write_results(folder: &Path, results: &Results, report: &str) -> Result<PathBuf, Failure> {
    const REPORT_FILE: &str = "report.html";
    store::write_with(folder, results, &[(REPORT_FILE, report)])?;
    Ok(folder.join(REPORT_FILE))
}

/// Writes a value as indented JSON.
pub(crate) fn write_json(folder: &Path, name: &str, value: &impl serde::Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value);
    let json = json.with_context(|| format!("{name} as JSON")).map_err(Failure::Runtime)?;
    write_into(folder, name, &(json + "\n"))
}
