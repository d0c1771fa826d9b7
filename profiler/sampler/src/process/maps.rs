//! Lines of `/proc/PID/maps`.
//!
//! Does not contain the mappings that perf events report.

use crate::record::Mapping;

/// Reads a line; `None` for what is not executable or not a mapping.
pub(super) fn parse_line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let _device = fields.next()?;
    let inode = fields.next()?.parse().ok()?;
    let path = fields.next().unwrap_or("").trim_start_matches(' ');
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    if permissions.as_bytes().get(2) != Some(&b'x') || path == "[vsyscall]" {
        return None;
    }
    Some(Mapping {
        start,
        length: end.checked_sub(start).filter(|length| *length > 0)?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        // As perf events name it.
        path: if path.is_empty() { "//anon".into() } else { unescape(path).into() },
        inode,
    })
}

/// Line feeds in paths are written as `\012`, and nothing else is escaped.
fn unescape(path: &str) -> String {
    path.replace("\\012", "\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_with_a_file() {
        let line = "55d0c0a00000-55d0c0b00000 r-xp 00012000 fd:01 4711                       /usr/bin/a b (deleted)";
        let found = parse_line(line).unwrap();
        assert_eq!(found.inode, 4711);
        assert_eq!(found.start, 0x55d0c0a00000);
        assert_eq!(found.length, 0x100000);
        assert_eq!(found.offset, 0x12000);
        assert_eq!(&*found.path, "/usr/bin/a b (deleted)");
    }

    #[test]
    fn code_without_a_file() {
        let line = "7f1200000000-7f1200010000 rwxp 00000000 00:00 0 ";
        assert_eq!(&*parse_line(line).unwrap().path, "//anon");
        let line = "7ffd000f2000-7ffd000f4000 r-xp 00000000 00:00 0                          [vdso]";
        assert_eq!(&*parse_line(line).unwrap().path, "[vdso]");
    }

    #[test]
    fn data_and_the_vsyscall_page_are_left_out() {
        assert_eq!(parse_line("7f1200000000-7f1200010000 rw-p 00000000 00:00 0 "), None);
        let page = "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]";
        assert_eq!(parse_line(page), None);
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "\\PC*") {
            let _ = parse_line(&line);
        }

        #[test]
        fn no_line_of_numbers_panics(line in "[0-9a-f]{0,17}-[0-9a-f]{0,17} r-xp [0-9a-f]{0,17} 0:0 [0-9]{0,21} ?[ /a]*") {
            if let Some(found) = parse_line(&line) {
                prop_assert!(found.start.checked_add(found.length).is_some());
            }
        }
    }
}
