//! Reads and writes documents in the format of Debian's package descriptions.
//!
//! The format has paragraphs of `Field: value`, continued on lines that begin with a blank. Memory
//! is bounded for any input. Does not contain the source of the text.

use crate::index::Document;
use std::io::{self, BufRead, Read, Write};

/// Length of the longest line in bytes; the rest of a longer line is skipped.
const LINE_MAX: usize = 64 << 10;
/// Length of a document's longest text in bytes; further lines are skipped.
const TEXT_MAX: usize = 256 << 10;

/// Error in a text of documents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// A line is neither a field, nor a continuation, nor a comment.
    #[error("line {line}: `{excerpt}` is no field such as `Package: name`, and continues none")]
    Line {
        /// The line's number, from 1.
        line: u64,
        /// The start of the line.
        excerpt: String,
    },
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Field that a continuation line continues.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CurrentField {
    /// No field: a continuation is an error.
    Outside,
    Description,
    /// A field that is ignored.
    Other,
}

/// Iterates over paragraphs with a name (`Package`) and a description (`Description`,
/// `Description-en`).
///
/// Each such paragraph is a document.
///
/// ```
/// use leeward_search::corpus::deb822::Paragraphs;
///
/// let text = "Package: hello\nDescription-en: example\n Prints a greeting.\n .\n No more.\n";
/// let documents = Paragraphs::new(text.as_bytes()).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(documents[0].title, "hello");
/// assert!(documents[0].text.ends_with("greeting.\n\nNo more."));
/// # Ok::<(), leeward_search::corpus::deb822::ParseError>(())
/// ```
pub struct Paragraphs<R> {
    from: R,
    line: u64,
    buffer: Vec<u8>,
    failed: bool,
}

impl<R: BufRead> Paragraphs<R> {
    /// Creates an iterator that reads from `from`, a line at a time.
    pub fn new(from: R) -> Self {
        Paragraphs { from, line: 0, buffer: Vec::new(), failed: false }
    }

    /// Reads the next line, without its end; `None` at the end of the text.
    fn read_line(&mut self) -> io::Result<Option<String>> {
        self.buffer.clear();
        let mut limited = (&mut self.from).take(LINE_MAX as u64);
        if limited.read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        self.line += 1;
        if self.buffer.last() != Some(&b'\n') && self.buffer.len() == LINE_MAX {
            self.pass_over()?;
        }
        let text = String::from_utf8_lossy(&self.buffer);
        Ok(Some(text.trim_end_matches(['\n', '\r']).into()))
    }

    /// Skips the rest of the line.
    fn pass_over(&mut self) -> io::Result<()> {
        loop {
            let available = match self.from.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            let (used, ended) = match available.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (available.len(), available.is_empty()),
            };
            self.from.consume(used);
            if ended {
                return Ok(());
            }
        }
    }

    fn paragraph(&mut self) -> Result<Option<Document>, ParseError> {
        let mut document = Document::default();
        let mut within = CurrentField::Outside;
        while let Some(line) = self.read_line()? {
            if line.trim().is_empty() {
                if !document.title.is_empty() && !document.text.is_empty() {
                    return Ok(Some(document));
                }
                (document, within) = (Document::default(), CurrentField::Outside);
            } else if line.starts_with('#') {
            } else if line.starts_with([' ', '\t']) && within != CurrentField::Outside {
                let more = line.trim();
                if within == CurrentField::Description && document.text.len() + more.len() < TEXT_MAX {
                    document.text.push('\n');
                    // A dot stands for a blank line within a description.
                    document.text.push_str(if more == "." { "" } else { more });
                }
            } else if let Some((name, value)) = line.split_once(':')
                && !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_graphic())
            {
                within = CurrentField::Other;
                if name.eq_ignore_ascii_case("Package") {
                    document.title = value.trim().into();
                } else if name.eq_ignore_ascii_case("Description") || name.eq_ignore_ascii_case("Description-en") {
                    within = CurrentField::Description;
                    document.text = value.trim().into();
                }
            } else {
                return Err(ParseError::Line { line: self.line, excerpt: line.chars().take(40).collect() });
            }
        }
        Ok((!document.title.is_empty() && !document.text.is_empty()).then_some(document))
    }
}

impl<R: BufRead> Iterator for Paragraphs<R> {
    type Item = Result<Document, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.paragraph().transpose();
        self.failed = matches!(next, Some(Err(_)) | None);
        next
    }
}

/// Writes a document so that [`Paragraphs`] reads it back, without blanks at the ends of lines.
///
/// # Errors
/// The writer failed.
pub fn write(document: &Document, into: &mut impl Write) -> io::Result<()> {
    let mut lines = document.text.lines();
    let title = document.title.split_whitespace().collect::<Vec<_>>().join(" ");
    writeln!(into, "Package: {title}\nDescription-en: {}", lines.next().unwrap_or_default().trim())?;
    for line in lines {
        match line.trim() {
            "" => writeln!(into, " .")?,
            line => writeln!(into, " {line}")?,
        }
    }
    writeln!(into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Vec<Document>, ParseError> {
        // A tiny buffer splits the lines.
        Paragraphs::new(io::BufReader::with_capacity(7, bytes)).collect()
    }

    fn document(title: &str, text: &str) -> Document {
        Document { title: title.into(), text: text.into() }
    }

    #[test]
    fn paragraphs_become_documents_and_other_fields_are_skipped() {
        let text = "# a comment\n\nPackage: a\nDescription-md5: 0123\nDescription-en: first\n more\n\tand more\n\n\n\
                    Package: b\nVersion: 1\n not of interest\nDescription: second\r\n\n\
                    Package: nothing said\n\nDescription-en: of nobody\n\nPackage: c\nDescription-de: anders\n";
        let documents = read(text.as_bytes()).unwrap();
        assert_eq!(documents, [document("a", "first\nmore\nand more"), document("b", "second")]);
    }

    #[test]
    fn a_malformed_field_is_rejected_with_its_line_number() {
        for wrong in ["no colon here", " a continuation of nothing", ": nothing", "two words: x", "größe: x"] {
            let text = format!("Package: a\nDescription: b\n\n{wrong}\n");
            let error = read(text.as_bytes()).unwrap_err();
            assert!(matches!(error, ParseError::Line { line: 4, .. }), "{wrong}: {error}");
        }
    }

    #[test]
    fn line_and_text_lengths_are_bounded() {
        let long = "x".repeat(LINE_MAX * 3);
        let text = format!("Package: a\nDescription: {long}\n second\n\nPackage: b\nDescription: c\n");
        let documents = read(text.as_bytes()).unwrap();
        assert!(documents[0].text.len() < LINE_MAX + 10 && documents[0].text.ends_with("\nsecond"));
        assert_eq!(documents[1], document("b", "c"));
        let many = format!("Package: a\nDescription: b\n{}", format!(" {}\n", "y".repeat(1000)).repeat(1000));
        assert!(read(many.as_bytes()).unwrap()[0].text.len() <= TEXT_MAX);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..300),
                prop::collection::vec(
                    prop::sample::select(vec![&b"Package: a"[..], b"Description-en: ", b"\n", b"\n\n", b" .", b" x", b"\xff", b":", b"#"]), 0..40
                ).prop_map(|parts| parts.concat()),
            ]
        ) {
            if let Ok(documents) = read(&bytes) {
                prop_assert!(documents.iter().all(|document| !document.title.is_empty() && !document.text.is_empty()));
            }
        }

        #[test]
        fn documents_round_trip(
            title in "[a-z#:][a-z0-9.+# -]{0,10}[a-z]",
            lines in prop::collection::vec("|[a-zA-Z:#ö.][a-z :#.ö]{0,20}[a-z]", 1..6)
        ) {
            let mut text = lines.join("\n");
            // The first line is the summary, and a description doesn't end in blank lines.
            text.insert(0, 'x');
            text.push('x');
            let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
            let documents = [document(&title, &text), document("b", "c")];
            let mut bytes = Vec::new();
            documents.iter().for_each(|document| write(document, &mut bytes).unwrap());
            prop_assert_eq!(read(&bytes).unwrap(), documents);
        }
    }
}
