//! The line of a command that is followed by a data block: all that tells where the next request begins.

use super::flags::{Flags, mode};
use super::replies::{BAD_FORMAT, ERROR};
use super::words::{first, is_key, length, signed, small, unsigned, words};
use crate::store::Mode;

/// The line of a command that is followed by a data block.
pub(super) struct Update<'a> {
    pub(super) key: &'a [u8],
    pub(super) client_flags: u32,
    pub(super) exptime: i64,
    /// Of the data block.
    pub(super) length: usize,
    pub(super) mode: Mode,
    pub(super) cas: Option<u64>,
    /// Without an answer.
    pub(super) silent: bool,
    pub(super) is_meta: bool,
}

/// Such a line with a mistake in it.
pub(super) struct UpdateError {
    pub(super) reply: &'static [u8],
    pub(super) silent: bool,
    /// The length of its data block, if that is understood and thrown away.
    pub(super) swallow: Option<usize>,
}

/// Reads the line of an update; `None` if it is no update.
pub(super) fn update(line: &[u8]) -> Option<Result<Update<'_>, UpdateError>> {
    let ([verb, key, client_flags, exptime, count, sixth, seventh], words) = first::<7>(line);
    let (mode, has_cas) = match verb {
        b"set" => (Mode::Set, false),
        b"add" => (Mode::Add, false),
        b"replace" => (Mode::Replace, false),
        b"append" => (Mode::Append, false),
        b"prepend" => (Mode::Prepend, false),
        b"cas" => (Mode::Set, true),
        b"ms" => return Some(meta_update(line)),
        _ => return None,
    };
    let last = if has_cas { seventh } else { sixth };
    let silent = last == b"noreply";
    let error = |reply| Some(Err(UpdateError { reply, silent, swallow: None }));
    let fewest = if has_cas { 6 } else { 5 };
    if !(fewest..=fewest + 1).contains(&words) {
        return Some(Err(UpdateError { reply: ERROR, silent: false, swallow: None }));
    }
    let parsed = (small(client_flags), signed(exptime), length(count));
    let (Some(client_flags), Some(exptime), Some(length), true) = (parsed.0, parsed.1, parsed.2, is_key(key)) else {
        return error(BAD_FORMAT);
    };
    let cas = if has_cas { unsigned(sixth).map(Some) } else { Some(None) };
    let Some(cas) = cas else { return error(BAD_FORMAT) };
    Some(Ok(Update { key, client_flags, exptime, length, mode, cas, silent, is_meta: false }))
}

/// Whether a line says itself that it wants no answer.
pub(super) fn is_silent(line: &[u8]) -> bool {
    let mut words = words(line);
    let verb = words.next().unwrap_or_default();
    // To those that look up keys it is one, and the meta commands say `q`, which hides no errors.
    !matches!(verb, b"get" | b"gets" | b"gat" | b"gats" | b"mg" | b"ms" | b"md" | b"ma" | b"me" | b"mn")
        && words.last() == Some(b"noreply")
}

/// The line of `ms`, as far as it says where the next request begins.
fn meta_update(line: &[u8]) -> Result<Update<'_>, UpdateError> {
    let ([_, key, count], words) = first::<3>(line);
    let error = |reply, swallow| Err(UpdateError { reply, silent: false, swallow });
    if words < 2 {
        return error(ERROR, None);
    }
    let (true, Some(length)) = (is_key(key), length(count)) else { return error(BAD_FORMAT, None) };
    let flags = match Flags::read(line, key, 3) {
        Ok(flags) => flags,
        Err(reply) => return error(reply, Some(length)),
    };
    let Some(mode) = mode(&flags) else {
        return error(b"CLIENT_ERROR invalid mode for ms M token\r\n", Some(length));
    };
    Ok(Update {
        key,
        client_flags: flags.client_flags,
        exptime: flags.exptime.unwrap_or(0),
        length,
        mode,
        cas: flags.cas,
        silent: flags.quiet,
        is_meta: true,
    })
}
