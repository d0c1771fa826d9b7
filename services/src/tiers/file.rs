//! Files of data that a user names: read up to a bound, and never a device or a pipe, which may have no end. Never here: formats.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Bytes that a file of data may have: above the largest data that a service takes, written out.
pub const BYTES_MAX: u64 = 8 << 30;

/// Whether `path` is a file of at most `most` bytes.
///
/// # Errors
/// It is none, or is longer; in one line.
pub fn check(path: &Path, most: u64) -> Result<(), String> {
    let shown = path.display();
    let about = fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    if !about.is_file() {
        return Err(format!("{shown}: accepted: a regular file"));
    }
    if about.len() > most {
        return Err(format!("{shown}: {} bytes; accepted: up to {most}", about.len()));
    }
    Ok(())
}

/// Reads a text of at most `most` bytes.
///
/// # Errors
/// It can't be read, is no regular file, is longer, or is no UTF-8; in one line.
pub fn read(path: &Path, most: u64) -> Result<String, String> {
    check(path, most)?;
    let wrong = |error| format!("{}: {error}", path.display());
    let mut text = String::new();
    // It may have grown since.
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
    fn only_files_are_read_and_only_so_much() {
        let path = std::env::temp_dir().join(format!("leeward-data-{}", std::process::id()));
        fs::write(&path, "a point").unwrap();
        assert_eq!(read(&path, 7).unwrap(), "a point");
        assert!(read(&path, 6).unwrap_err().ends_with("7 bytes; accepted: up to 6"));
        fs::write(&path, [0xff]).unwrap();
        assert!(read(&path, 7).unwrap_err().contains("UTF-8"));
        fs::remove_file(&path).unwrap();
        for wrong in ["/dev/zero", "/", "/nowhere/at/all"] {
            let words = read(Path::new(wrong), 7).unwrap_err();
            assert!(words.starts_with(&format!("{wrong}: ")) && words.lines().count() == 1, "{words}");
        }
    }
}
