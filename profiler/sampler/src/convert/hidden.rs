//! Copies of programs and libraries that a reader would not find at their paths, for the trace:
//! those of a process with other folders, such as a container's, and those that were replaced.
//!
//! Does not decide which files these are (`modules`).

use std::collections::HashMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use leeward_profile::symbols::COPIED_FILES;

use super::modules::HiddenFile;

/// Limit of the bytes that a recording copies.
const BYTES: u64 = 512 << 20;

/// What was copied so far, for all traces of a recording.
#[derive(Debug, Default)]
pub(super) struct CopiedFiles {
    /// Copies by the file's device and inode.
    copies: HashMap<(u64, u64), PathBuf>,
    bytes: u64,
}

impl CopiedFiles {
    /// Puts files into a trace. Returns sentences about those that could not be copied.
    pub(super) fn put(&mut self, trace: &Path, files: Vec<HiddenFile>) -> Vec<String> {
        files.into_iter().filter_map(|file| self.put_one(trace, file).err()).collect()
    }

    fn put_one(&mut self, trace: &Path, hidden: HiddenFile) -> Result<(), String> {
        let HiddenFile { path, file } = hidden;
        let failed = |why: &str| format!("{path} was not copied for its names: {why}");
        let Some(name) = Path::new(&*path).file_name() else { return Ok(()) };
        let about = file.metadata().map_err(|error| failed(&error.to_string()))?;
        let folder = trace.join(COPIED_FILES);
        let target = folder.join(name);
        let by_kernel = |error: io::Error| failed(&error.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(by_kernel)?;
        let id = (about.dev(), about.ino());
        if let Some(copy) = self.copies.get(&id)
            && fs::hard_link(copy, &target).is_ok()
        {
            return Ok(());
        }
        if about.len() > BYTES.saturating_sub(self.bytes) {
            return Err(failed(&format!("the limit is {} MB for all", BYTES >> 20)));
        }
        self.bytes += about.len();
        let mut file = &*file;
        let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&target).map_err(by_kernel)?;
        let copied = file.rewind().and_then(|()| io::copy(&mut file.take(about.len()), &mut copy));
        if let Err(error) = copied {
            let _ = fs::remove_file(&target);
            return Err(by_kernel(error));
        }
        self.copies.insert(id, target);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_file_is_copied_once_and_linked_then() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("program");
        fs::write(&source, "code").unwrap();
        let hidden = || vec![HiddenFile { path: "/srv/bin/program".into(), file: File::open(&source).unwrap().into() }];
        let mut copied = CopiedFiles::default();
        for trace in ["1", "2"] {
            assert_eq!(copied.put(&folder.path().join(trace), hidden()), [""; 0]);
        }
        let copies = ["1", "2"].map(|trace| folder.path().join(trace).join(COPIED_FILES).join("program"));
        assert_eq!(fs::read(&copies[1]).unwrap(), b"code");
        let inode = |path: &PathBuf| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(&copies[0]), inode(&copies[1]));
        assert_ne!(inode(&copies[0]), inode(&source));
    }

    #[test]
    fn what_is_too_large_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let source = File::create_new(folder.path().join("huge")).unwrap();
        source.set_len(BYTES + 1).unwrap();
        let files = vec![HiddenFile { path: "/huge".into(), file: source.into() }];
        let said = CopiedFiles::default().put(folder.path(), files);
        assert!(said.len() == 1 && said[0].contains("/huge") && said[0].contains("512 MB"), "{said:?}");
    }
}
