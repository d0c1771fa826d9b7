//! Response files: arguments such as `@flags.rsp`, which clang replaces by the words in the file.
//!
//! They are parsed here like in clang, so that options in them count. Does not contain the choice
//! of clang's arguments ([`crate::clang`]).

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;

/// Limit of bytes from the response files of one command line.
const MOST: u64 = 64 << 20;

/// A command line without response files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expanded {
    /// All words; a file's words replace its name.
    pub(crate) words: Vec<OsString>,
    /// clang can read every file again: a pipe gives its bytes only once.
    pub(crate) is_repeatable: bool,
}

/// Expands the response files among `arguments`; `None` if clang rejects one, because its own
/// message is better.
///
/// The error reports too many bytes.
pub(crate) fn expand(arguments: &[OsString]) -> Result<Option<Expanded>, String> {
    /// A word to examine, or the end of the innermost file.
    enum Token {
        Word(OsString),
        EndOfFile,
    }
    let mut expanded = Expanded { words: Vec::new(), is_repeatable: true };
    let mut open: Vec<(u64, u64)> = Vec::new();
    let mut left = MOST;
    let mut stack: Vec<Token> = arguments.iter().rev().cloned().map(Token::Word).collect();
    while let Some(token) = stack.pop() {
        let Token::Word(word) = token else {
            open.pop();
            continue;
        };
        let Some(path) = word.as_bytes().strip_prefix(b"@") else {
            expanded.words.push(word);
            continue;
        };
        let (text, meta) = match read(OsStr::from_bytes(path), left) {
            Ok(read) => read,
            // A missing file is an argument like any other.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                expanded.words.push(word);
                continue;
            }
            Err(_) => return Ok(None),
        };
        let identity = (meta.dev(), meta.ino());
        if open.contains(&identity) {
            return Ok(None);
        }
        left = left.checked_sub(text.len() as u64).ok_or("response files hold more than 64 MB")?;
        expanded.is_repeatable &= meta.is_file();
        open.push(identity);
        stack.push(Token::EndOfFile);
        stack.extend(words(&text).into_iter().rev().map(Token::Word));
    }
    Ok(Some(expanded))
}

/// Reads a file, up to one byte more than `most`.
fn read(path: &OsStr, most: u64) -> std::io::Result<(Vec<u8>, Metadata)> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    let text = match bytes.as_slice() {
        [0xFF, 0xFE, rest @ ..] => narrow(rest, u16::from_le_bytes),
        [0xFE, 0xFF, rest @ ..] => narrow(rest, u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => rest.to_vec(),
        _ => bytes,
    };
    Ok((text, meta))
}

/// Converts UTF-16 to UTF-8.
fn narrow(bytes: &[u8], order: fn([u8; 2]) -> u16) -> Vec<u8> {
    let letters: Vec<u16> = bytes.chunks_exact(2).map(|pair| order([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&letters).into_bytes()
}

/// Splits a response file into words like LLVM's `TokenizeGNUCommandLine`.
///
/// It knows both kinds of quotes, and a backslash before any letter, also within quotes. An empty
/// quoted word is dropped.
pub(crate) fn words(text: &[u8]) -> Vec<OsString> {
    let (mut all, mut word) = (Vec::new(), Vec::new());
    let mut quote = None;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) if bytes.peek().is_some() => word.extend(bytes.next()),
            (byte, Some(end)) if byte == end => quote = None,
            (byte, Some(_)) => word.push(byte),
            (b'"' | b'\'', None) => quote = Some(byte),
            (b' ' | b'\t' | b'\r' | b'\n', None) => {
                if !word.is_empty() {
                    all.push(OsString::from_vec(std::mem::take(&mut word)));
                }
            }
            (byte, None) => word.push(byte),
        }
    }
    if !word.is_empty() {
        all.push(OsString::from_vec(word));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn of(line: &[&str]) -> Vec<OsString> {
        line.iter().map(OsString::from).collect()
    }

    #[test]
    fn response_files_are_split_like_clang() {
        let check = |text: &str, expected: &[&str]| assert_eq!(words(text.as_bytes()), of(expected), "{text:?}");
        check("-c a.c\n-O2\t-g\r\n", &["-c", "a.c", "-O2", "-g"]);
        check(r#""-DA=two words" '-DB="x"' -I"a b"/c"#, &["-DA=two words", r#"-DB="x""#, "-Ia b/c"]);
        check(r#"-DC=\"t\" a\ b "q\"q" 'q\'q' \\"#, &[r#"-DC="t""#, "a b", r#"q"q"#, "q'q", r"\"]);
        check("'' \"\" x", &["x"]);
        check("\"not ended", &["not ended"]);
        check("ends\\", &["ends\\"]);
        check("", &[]);
    }

    #[test]
    fn response_files_are_expanded_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            format!("@{}", path.display())
        };
        let check = |line: &[&str], expected: &[&str]| {
            let expanded = expand(&of(line)).unwrap().unwrap();
            assert_eq!((expanded.words, expanded.is_repeatable), (of(expected), true), "{line:?}");
        };
        let inner = write("inner", b"-c");
        let outer = write("outer", format!("-O2 {inner} a.c {inner}").as_bytes());
        check(&["-g", &outer, "-v"], &["-g", "-O2", "-c", "a.c", "-c", "-v"]);
        check(&["@/nowhere/at/all", "@"], &["@/nowhere/at/all", "@"]);
        check(&[&write("bom", b"\xEF\xBB\xBF-c")], &["-c"]);
        check(&[&write("wide", b"\xFF\xFE-\0c\0")], &["-c"]);
        check(&[&write("empty", b"")], &[]);
        let round = folder.path().join("round");
        std::fs::write(&round, format!("@{}", round.display())).unwrap();
        assert_eq!(expand(&of(&[&format!("@{}", round.display())])), Ok(None));
        assert_eq!(expand(&of(&[&format!("@{}", folder.path().display())])), Ok(None));
    }

    #[test]
    fn oversized_response_files_are_rejected_and_pipes_are_read_once() {
        if Path::new("/dev/zero").exists() {
            assert!(expand(&of(&["@/dev/zero"])).is_err());
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, b"-c a.c").unwrap();
        drop(writer);
        let path = format!("@/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let expanded = expand(&of(&[&path])).unwrap().unwrap();
        assert_eq!((expanded.words, expanded.is_repeatable), (of(&["-c", "a.c"]), false));
    }
}
