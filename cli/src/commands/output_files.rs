//! Output files: checked before a long run, so that the run does not end with an error; written to
//! a temporary file and renamed, so that no reader sees a partial file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use leeward_lab::{Results, store};

use crate::failure::{Failure, file_failure};

const REPORT_FILE: &str = "report.html";

/// Files that [`write_results`] writes.
pub(crate) const RESULT_FILES: [&str; 3] = [store::RESULT_FILE, store::RECORDS_FILE, REPORT_FILE];

/// Checks that `files` can be written into `folder`, which need not exist. Leaves nothing behind.
pub(crate) fn check_folder(folder: &Path, files: &[&str]) -> Result<(), Failure> {
    if let Some(name) = files.iter().find(|name| folder.join(name).is_dir()) {
        return Err(Failure::Input(anyhow!("--out {}: {name} in it is a folder, not a file", folder.display())));
    }
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

/// Like [`check_file`], for a file that is made beside `path` and then renamed: returns the path to
/// rename to, with symbolic links resolved. A device or pipe is refused, never replaced.
pub(crate) fn check_replaceable(flag: &str, path: &Path) -> Result<PathBuf, Failure> {
    check_file(flag, path)?;
    let resolved = if is_link(path) { fs::canonicalize(path) } else { std::path::absolute(path) };
    let resolved = resolved.with_context(|| format!("{flag} {}", path.display())).map_err(Failure::Input)?;
    if fs::metadata(&resolved).is_ok_and(|there| !there.is_file()) {
        return Err(Failure::Input(anyhow!("{flag} {}: that is a device or a pipe, not a file", path.display())));
    }
    Ok(resolved)
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink())
}

/// Writes `text` to `path`: a file atomically, behind a symbolic link, too. A device, a pipe or
/// what another program has open, such as `/dev/stdout`, is written to, never replaced.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    try_write(path, text).with_context(|| format!("writing {}", path.display())).map_err(file_failure)
}

fn try_write(path: &Path, text: &str) -> io::Result<()> {
    let is_open = is_link(path) && ["/dev", "/proc"].iter().any(|folder| path.starts_with(folder));
    if is_open || fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return File::options().append(true).open(path)?.write_all(text.as_bytes());
    }
    if is_link(path) && fs::metadata(path).is_err() {
        return fs::write(path, text); // makes the file that the link names
    }
    let path = if is_link(path) { fs::canonicalize(path)? } else { path.to_path_buf() };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Writes `text` to `name` in `folder`, which is created if missing.
pub(crate) fn write_into(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display())).map_err(file_failure)?;
    write(&folder.join(name), text)
}

/// Writes results and their report, all or none; returns the report's path.
pub(crate) fn write_results(folder: &Path, results: &Results, report: &str) -> Result<PathBuf, Failure> {
    store::write_with(folder, results, &[(REPORT_FILE, report)])?;
    Ok(folder.join(REPORT_FILE))
}

/// Writes a value as indented JSON.
pub(crate) fn write_json(folder: &Path, name: &str, value: &impl serde::Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value);
    let json = json.with_context(|| format!("{name} as JSON")).map_err(Failure::Runtime)?;
    write_into(folder, name, &(json + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_the_place_of_a_result_is_found_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        assert!(check_folder(folder.path(), &RESULT_FILES).is_ok());
        fs::create_dir(folder.path().join("result.json")).unwrap();
        let refused = check_folder(folder.path(), &RESULT_FILES).unwrap_err();
        assert!(refused.to_string().contains("result.json in it is a folder"), "{refused}");
    }

    #[test]
    fn a_device_is_refused_and_a_link_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("link"), folder.path().join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(check_replaceable("--out", &link).is_err(), "a link to nothing");
        write(&link, "text").unwrap();
        assert!(is_link(&link) && fs::read_to_string(&target).unwrap() == "text");
        assert_eq!(check_replaceable("--out", &link).unwrap(), fs::canonicalize(&target).unwrap());
        let refused = check_replaceable("--out", Path::new("/dev/full")).unwrap_err();
        assert!(refused.to_string().contains("a device or a pipe"), "{refused}");
    }
}
