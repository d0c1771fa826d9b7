//! Results in files, one per part, so that a measurement can be continued.

use crate::line::Line;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct Store {
    folder: PathBuf,
    /// How it is measured: results of other settings are no part of this measurement.
    settings: String,
}

impl Store {
    pub(crate) fn new(folder: PathBuf, settings: String) -> Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Store { folder, settings })
    }

    /// Lines of a part that was measured before, with the same settings.
    pub(crate) fn load(&self, part: &str) -> Option<Vec<Line>> {
        let value: Value = serde_json::from_slice(&fs::read(self.path(part)).ok()?).ok()?;
        if value["settings"] != self.settings.as_str() {
            return None;
        }
        value["lines"].as_array()?.iter().map(Line::from_json).collect()
    }

    /// Keeps the lines of a part, and what they were derived from.
    pub(crate) fn save(&self, part: &str, lines: &[Line], raw: &Value) -> Result<()> {
        let lines: Vec<Value> = lines.iter().map(Line::to_json).collect();
        let value = json!({ "part": part, "settings": self.settings, "lines": lines, "raw": raw });
        write(&self.path(part), &value)
    }

    fn path(&self, part: &str) -> PathBuf {
        self.folder.join(format!("{}.json", part.replace('/', "-")))
    }
}

/// Replaces a file at once: an end in the middle leaves the old one.
pub(crate) fn write(path: &Path, value: &Value) -> Result<()> {
    let fresh = path.with_extension("tmp");
    fs::write(&fresh, serde_json::to_string_pretty(value)? + "\n")?;
    fs::rename(&fresh, path).with_context(|| format!("{}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Bar;

    #[test]
    fn only_results_of_the_same_settings_are_continued() {
        let folder = std::env::temp_dir().join(format!("leeward-proxy-store-{}", std::process::id()));
        let store = |settings: &str| Store::new(folder.clone(), settings.into()).unwrap();
        let lines = vec![Line::new("x".into(), Bar::AtLeast(0.9), Some(1.0), |x| x.to_string())];
        store("5 rounds").save("go/cpu/2x", &lines, &Value::Null).unwrap();
        assert_eq!(store("5 rounds").load("go/cpu/2x"), Some(lines));
        assert_eq!(store("1 round").load("go/cpu/2x"), None);
        assert_eq!(store("5 rounds").load("go/cpu/5x"), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
