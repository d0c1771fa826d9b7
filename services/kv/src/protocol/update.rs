//! The line of a command with a data block: everything that determines the start of the next
//! request.

use super::flags::{Flags, LONG_OPAQUE, META_TOKENS_MAX, TOO_MANY_FLAGS, mode};
use super::replies::{BAD_FORMAT, ERROR};
use super::tokens::{first_tokens, is_key, length, signed, tokens, unsigned};
use crate::store::Mode;

/// The line of a command with a data block.
pub(super) struct Update<'a> {
    pub(super) key: &'a [u8],
    pub(super) client_flags: u32,
    pub(super) exptime: i32,
    /// Length of the data block, in bytes.
    pub(super) length: usize,
    pub(super) mode: Mode,
    pub(super) cas: Option<u64>,
    /// The client wants no answer.
    pub(super) silent: bool,
    pub(super) is_meta: bool,
}

/// An update line with a mistake.
pub(super) struct UpdateError {
    pub(super) reply: &'static [u8],
    pub(super) silent: bool,
    /// Length of the data block to discard; `None` if it is unknown.
    pub(super) discard: Option<usize>,
}

/// Parses the line of an update; `None` for other commands.
pub(super) fn update(line: &[u8]) -> Option<Result<Update<'_>, UpdateError>> {
    let ([verb, key, client_flags, exptime, count, cas], token_count) = first_tokens::<6>(line);
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
    let silent = is_silent(line);
    let error = |swallow| Some(Err(UpdateError { reply: BAD_FORMAT, silent, discard: swallow }));
    let fewest = if has_cas { 6 } else { 5 };
    if !(fewest..=fewest + 1).contains(&token_count) {
        return Some(Err(UpdateError { reply: ERROR, silent: false, discard: None }));
    }
    let numbers = (unsigned(client_flags), signed(exptime), length(count));
    let (Some(client_flags), Some(exptime), Some(length), true) = (numbers.0, numbers.1, numbers.2, is_key(key)) else {
        return error(None);
    };
    let cas = if has_cas { unsigned(cas).map(Some) } else { Some(None) };
    let Some(cas) = cas else { return error(None) };
    // memcached truncates these numbers, so its clients send the data block. Running the block as
    // commands would be worse.
    match (client_flags.try_into(), exptime.try_into()) {
        (Ok(client_flags), Ok(exptime)) => {
            Some(Ok(Update { key, client_flags, exptime, length, mode, cas, silent, is_meta: false }))
        }
        _ => error(Some(length)),
    }
}

/// Returns whether the line itself asks for no answer.
pub(super) fn is_silent(line: &[u8]) -> bool {
    let mut remaining = tokens(line);
    let verb = remaining.next().unwrap_or_default();
    // Minimal number of tokens before `noreply`. In other commands it is a key or ignored.
    let before = match verb {
        b"set" | b"add" | b"replace" | b"append" | b"prepend" => 3,
        b"cas" => 4,
        b"incr" | b"decr" | b"touch" | b"delete" => 1,
        b"flush_all" | b"verbosity" => 0,
        _ => return false,
    };
    remaining.skip(before).last() == Some(b"noreply")
}

/// Parses the line of `ms`, as far as it determines the start of the next request.
fn meta_update(line: &[u8]) -> Result<Update<'_>, UpdateError> {
    let ([_, key, count], token_count) = first_tokens::<3>(line);
    let error = |reply, swallow| Err(UpdateError { reply, silent: false, discard: swallow });
    if token_count < 2 {
        return error(ERROR, None);
    }
    if !is_key(key) || token_count == 2 {
        return error(BAD_FORMAT, None);
    }
    if token_count > META_TOKENS_MAX {
        return error(TOO_MANY_FLAGS, None);
    }
    let Some(length) = length(count) else { return error(BAD_FORMAT, None) };
    let flags = match Flags::read(line, key, 3) {
        Ok(flags) => flags,
        Err(reply) => return error(reply, Some(length)),
    };
    let Some(mode) = mode(&flags) else {
        return error(b"CLIENT_ERROR invalid mode for ms M token\r\n", Some(length));
    };
    if flags.has_long_opaque {
        return error(LONG_OPAQUE, Some(length));
    }
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
