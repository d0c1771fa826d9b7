//! Bounded reading of data files that a user names; never a device or a pipe, which may be endless.
//!
//! Does not contain file formats.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Size limit of a data file, in bytes; above the largest data that a service accepts, as text.
pub const BYTES_MAX: u64 = 8 << 30;

/// Checks that `path` is a regular file of at most `most` bytes.
///
/// # Errors
/// A one-line message: no such file, not a regular file, or longer.
pub fn check(path: &Path, most: u64) -> Result<(), String> {
    let shown = path.display();
    let metadata = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    if !metadata.is_file() {
        return Err(format!("{shown}: accepted: a regular file"));
    }
    if metadata.len() > most {
        return Err(format!("{shown}: {} bytes; accepted: up to {most}", metadata.len()));
    }
    Ok(())
}

/// Reads a text of at most `most` bytes.
///
/// # Errors
/// A one-line message: unreadable, not a regular file, longer, or not UTF-8.
pub fn read(path: &Path, most: u64) -> Result<String, String> {
    check(path, most)?;
    let wrong = |error| format!("{}: {error}", path.display());
    let mut text = String::new();
    // The file may have grown since the check.
    File::open(path).and_then(|file| file.take(most.saturating_add(1)).read_to_string(&mut text)).map_err(wrong)?;
    if text.len() as u64 > most {
        return Err(format!("{}: accepted: up to {most} bytes", path.display()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_up_to_a_maximum_size_are_read() {
        let path = std::env::temp_dir().join(format!("leeward-data-{}", std::process::id()));
        fs::write(&path, "a point").unwrap();
        assert_eq!(read(&path, 7).unwrap(), "a point");
        assert!(read(&path, 6).unwrap_err().ends_with("7 bytes; accepted: up to 6"));
        fs::write(&path, [0xff]).unwrap();
        assert!(read(&path, 7).unwrap_err().contains("UTF-8"));
        fs::remove_file(&path).unwrap();
        for wrong in ["/dev/zero", "/", "/nowhere/at/all"] {
            let message = read(Path::new(wrong), 7).unwrap_err();
            assert!(message.starts_with(&format!("{wrong}: ")) && message.lines().count() == 1, "{message}");
        }
    }
}
