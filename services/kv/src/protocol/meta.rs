//! The meta commands: `mg`, `ms`, `md`, `ma`, `mn`, `me`. Answers keep the order of the flags.

use super::base64;
use super::execute::{ExecuteError, Executor};
use super::flags::{Flags, LONG_OPAQUE, META_TOKENS_MAX, TOO_MANY_FLAGS, mode};
use super::replies::{BAD_FORMAT, ERROR, NOT_A_NUMBER, OUT_OF_MEMORY, TOO_LARGE, VALUE_OVERHEAD};
use super::tokens::{first_tokens, is_key, length, push_number, tokens};
use crate::store::read::Deletion;
use crate::store::stats::Counter;
use crate::store::{Delta, DeltaOutcome, ItemRef, Mode, RequestContext, Write, WriteOutcome, expires};

/// Attempts to create a missing number while another client keeps creating and deleting it.
const VIVIFIED: usize = 3;

impl Executor {
    /// Executes the meta command in `line`.
    pub(super) fn meta(
        &self,
        line: &[u8],
        data: &[u8],
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let ([verb, key], count) = first_tokens::<2>(line);
        self.store().stats().count(Counter::CmdMeta);
        if verb == b"mn" {
            out.extend_from_slice(b"MN\r\n");
            return Ok(());
        }
        if count < 2 {
            out.extend_from_slice(if verb == b"me" { BAD_FORMAT } else { ERROR });
            return Ok(());
        }
        if !is_key(key) {
            out.extend_from_slice(BAD_FORMAT);
            return Ok(());
        }
        if verb == b"me" {
            return self.meta_debug(line, key, context, out);
        }
        if count > META_TOKENS_MAX {
            // memcached's messages differ.
            let reply = if verb == b"mg" { b"CLIENT_ERROR options flags are too long\r\n" } else { TOO_MANY_FLAGS };
            out.extend_from_slice(reply);
            return Ok(());
        }
        let flags = match Flags::read(line, key, if verb == b"ms" { 3 } else { 2 }) {
            Ok(flags) => flags,
            Err(_) if verb == b"ma" || verb == b"md" => {
                out.extend_from_slice(b"CLIENT_ERROR invalid or duplicate flag\r\n");
                return Ok(());
            }
            Err(reply) => {
                out.extend_from_slice(reply);
                return Ok(());
            }
        };
        if flags.has_long_opaque && verb != b"ms" {
            out.extend_from_slice(LONG_OPAQUE);
            return Ok(());
        }
        let command = MetaCommand { line, key: flags.binary_key.as_deref().unwrap_or(key), flags: &flags };
        match verb {
            b"mg" => self.meta_get(&command, context, out),
            b"ms" => self.meta_set(&command, data, context, out),
            b"md" => self.meta_delete(&command, context, out),
            _ => self.meta_arithmetic(&command, context, out),
        }
    }

    fn meta_get(
        &self,
        command: &MetaCommand<'_>,
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let mut look = |found: &ItemRef<'_>, made: bool| {
            if command.flags.value && found.value_len() > context.reply_max {
                return Err(ExecuteError::TooLong);
            }
            command.hit(found, made, out);
            Ok(())
        };
        let hit = match command.flags.vivify {
            Some(_) => self.store().read_or_create(command.key, command.flags.binary_key.is_some(), context, look)?,
            None => self.store().read(command.key, context, |found| found.map(|found| look(found, false)))?,
        };
        self.count_read(command.flags.exptime.is_some(), hit.is_some());
        match hit {
            Some(outcome) => return outcome,
            None if command.flags.quiet => {}
            None => command.answer(b"EN", out),
        }
        Ok(())
    }

    fn meta_set(
        &self,
        command: &MetaCommand<'_>,
        data: &[u8],
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let promised = tokens(command.line).nth(2).and_then(length);
        let write = command.write(context.now);
        let outcome = if promised != Some(data.len()) {
            // The decoder did not wait for the data block.
            self.store().stats().count(Counter::StoreTooLarge);
            WriteOutcome::TooLarge
        } else {
            self.store().write(command.key, data, &write, context)?
        };
        if matches!(outcome, WriteOutcome::TooLarge | WriteOutcome::OutOfMemory) {
            self.store().discard(command.key, context)?;
        }
        let start = out.len();
        match outcome {
            WriteOutcome::Stored { cas } => {
                out.extend_from_slice(b"HD");
                command.echo(Some(cas), out);
                if command.flags.quiet {
                    out.truncate(start);
                }
            }
            WriteOutcome::NotStored => command.not_stored(b"NS", out),
            WriteOutcome::Exists => command.not_stored(b"EX", out),
            WriteOutcome::NotFound => command.not_stored(b"NF", out),
            WriteOutcome::TooLarge => out.extend_from_slice(TOO_LARGE),
            WriteOutcome::OutOfMemory => out.extend_from_slice(OUT_OF_MEMORY),
        }
        Ok(())
    }

    fn meta_delete(
        &self,
        command: &MetaCommand<'_>,
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let deleted = self.store().delete_if(command.key, context, |found| {
            if command.flags.cas.is_some_and(|cas| cas != found.cas()) {
                return (Deletion::Keep, false);
            }
            if !command.flags.invalidate {
                return (Deletion::Delete, true);
            }
            if let Some(exptime) = command.flags.exptime {
                found.touch(exptime.into());
            }
            (Deletion::Invalidate, true)
        })?;
        match deleted {
            Some(true) if command.flags.quiet => {}
            Some(true) => command.answer(b"HD", out),
            Some(false) => command.answer(b"EX", out),
            None => command.answer(b"NF", out),
        }
        Ok(())
    }

    fn meta_arithmetic(
        &self,
        command: &MetaCommand<'_>,
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let up = match command.flags.mode {
            None | Some(b'I' | b'+') => true,
            Some(b'D' | b'-') => false,
            Some(_) => {
                out.extend_from_slice(b"CLIENT_ERROR invalid mode for ma M token\r\n");
                return Ok(());
            }
        };
        let change = |exptime: i32| expires(exptime.into(), context.now);
        let delta = Delta {
            increment: up,
            amount: command.flags.delta.unwrap_or(1),
            cas: command.flags.cas.filter(|cas| *cas != 0),
            expires: command.flags.exptime.map(change),
        };
        for _ in 0..VIVIFIED {
            let mut made = false;
            let (value, cas, expired) = match self.store().add_delta(command.key, &delta, context)? {
                DeltaOutcome::Updated { value, cas, previous_expiry: expired } => (value, cas, expired),
                DeltaOutcome::Exists => {
                    command.answer(b"EX", out);
                    return Ok(());
                }
                DeltaOutcome::NotANumber => {
                    out.extend_from_slice(NOT_A_NUMBER);
                    return Ok(());
                }
                DeltaOutcome::OutOfMemory => {
                    out.extend_from_slice(b"SERVER_ERROR out of memory\r\n");
                    return Ok(());
                }
                DeltaOutcome::NotFound => {
                    if command.flags.vivify.is_none() {
                        break;
                    }
                    let value = command.flags.initial;
                    let mut at = 0;
                    command.times(true, context.now, &mut at, |_, _| ());
                    let binary_key = command.flags.binary_key.is_some();
                    let write = Write { mode: Mode::Add, expires: at, binary_key, ..Write::default() };
                    match self.store().write(command.key, value.to_string().as_bytes(), &write, context)? {
                        WriteOutcome::Stored { cas } => {
                            made = true;
                            (value, cas, 0)
                        }
                        WriteOutcome::NotStored => continue,
                        _ => {
                            out.extend_from_slice(b"SERVER_ERROR Out of memory allocating new item\r\n");
                            return Ok(());
                        }
                    }
                }
            };
            command.number(value, cas, expired, made, context.now, out);
            return Ok(());
        }
        command.answer(b"NF", out);
        Ok(())
    }

    /// Executes `me`; its only flag is `b` after the key.
    fn meta_debug(
        &self,
        line: &[u8],
        key: &[u8],
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let ([_, _, flag], _) = first_tokens::<3>(line);
        let decoded = if flag == b"b" { base64::decode(key) } else { Some(key.to_vec()) };
        let Some(key) = decoded else {
            out.extend_from_slice(BAD_FORMAT);
            return Ok(());
        };
        self.store().read(&key, context, |found| {
            let Some(found) = found else { return out.extend_from_slice(b"EN\r\n") };
            out.extend_from_slice(b"ME ");
            match found.has_binary_key() {
                true => base64::encode(&key, out),
                false => out.extend_from_slice(&key),
            }
            let expires = found.ttl().map_or("-1".into(), |ttl| ttl.to_string());
            let fetched = if found.was_fetched() { "yes" } else { "no" };
            let text = format!(
                " exp={expires} la={} cas={} fetch={fetched} cls={} size={}\r\n",
                found.seconds_since_access(),
                found.cas(),
                found.class(),
                found.size()
            );
            out.extend_from_slice(text.as_bytes());
        })?;
        Ok(())
    }
}

/// A meta command.
struct MetaCommand<'a> {
    line: &'a [u8],
    key: &'a [u8],
    flags: &'a Flags,
}

impl MetaCommand<'_> {
    fn write(&self, now: u32) -> Write {
        let mut mode = mode(self.flags).unwrap_or_default();
        if mode == Mode::Replace && self.flags.cas.is_some() {
            mode = Mode::Set;
        }
        // As in memcached, 0 is not an item's CAS id, and appending ignores it.
        let cas = match mode {
            Mode::Add => None,
            Mode::Append | Mode::Prepend => self.flags.cas.filter(|cas| *cas != 0),
            Mode::Set | Mode::Replace => self.flags.cas,
        };
        Write {
            mode,
            client_flags: self.flags.client_flags,
            expires: expires(self.flags.exptime.unwrap_or(0).into(), now),
            cas,
            allow_stale: self.flags.invalidate && cas != Some(0),
            binary_key: self.flags.binary_key.is_some(),
        }
    }

    /// Answers `mg` for a found item and updates the item. `made`: this request created it.
    fn hit(&self, found: &ItemRef<'_>, made: bool, out: &mut Vec<u8>) {
        if self.flags.value {
            out.reserve(found.value_len() + self.line.len() + VALUE_OVERHEAD);
            out.extend_from_slice(b"VA ");
            push_number(found.value_len() as u64, out);
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut won = false;
        for token in tokens(self.line).skip(2) {
            let mut number = |letter: u8, number: u64| {
                out.extend_from_slice(&[b' ', letter]);
                push_number(number, out);
            };
            match token[0] {
                b'T' => found.touch(self.flags.exptime.unwrap_or(0).into()),
                b'N' if made => {
                    found.touch(self.flags.vivify.unwrap_or(0).into());
                    won = true;
                }
                b'R' => {
                    let is_due = self.flags.recache.is_some_and(|least| found.expires_before(least.into()));
                    won |= is_due && !made && !found.is_being_renewed();
                }
                b's' => number(b's', found.value_len() as u64),
                b't' => match found.ttl() {
                    Some(ttl) => number(b't', ttl.into()),
                    None => out.extend_from_slice(b" t-1"),
                },
                b'c' => number(b'c', found.cas()),
                b'f' => number(b'f', found.client_flags().into()),
                b'l' => number(b'l', found.seconds_since_access().into()),
                b'h' => number(b'h', found.was_fetched().into()),
                b'O' => opaque(token, out),
                b'k' => self.key(found.has_binary_key(), out),
                _ => {}
            }
        }
        if found.is_being_renewed() {
            out.extend_from_slice(b" Z");
        }
        if found.is_stale() {
            out.extend_from_slice(b" X");
            won |= !found.is_being_renewed();
        }
        if won {
            out.extend_from_slice(b" W");
            found.mark_renewing();
        }
        out.extend_from_slice(b"\r\n");
        if self.flags.value {
            found.append_value(out);
            out.extend_from_slice(b"\r\n");
        }
        if !self.flags.no_update {
            found.mark_fetched();
        }
    }

    /// Applies the times that the command sets, in order, starting from `expires_at`.
    ///
    /// `each` receives every token with the expiry at that point.
    fn times(&self, made: bool, now: u32, expires_at: &mut u32, mut each: impl FnMut(&[u8], u32)) {
        for token in tokens(self.line).skip(2) {
            let set = match token[0] {
                b'T' => self.flags.exptime,
                b'N' => self.flags.vivify.filter(|_| made),
                _ => None,
            };
            if let Some(exptime) = set {
                *expires_at = expires(exptime.into(), now);
            }
            each(token, *expires_at);
        }
    }

    /// Answers `ma` with a number. As in memcached, a number that was just `made` is always
    /// answered.
    fn number(&self, value: u64, cas: u64, mut expires_at: u32, made: bool, now: u32, out: &mut Vec<u8>) {
        if self.flags.quiet && !made {
            return;
        }
        let text = value.to_string();
        if self.flags.value {
            out.extend_from_slice(b"VA ");
            push_number(text.len() as u64, out);
        } else {
            out.extend_from_slice(b"HD");
        }
        self.times(made, now, &mut expires_at, |token, expires_at| match token[0] {
            b't' if expires_at == 0 => out.extend_from_slice(b" t-1"),
            b't' => {
                out.extend_from_slice(b" t");
                push_number(expires_at.saturating_sub(now).into(), out);
            }
            b'c' => {
                out.extend_from_slice(b" c");
                push_number(cas, out);
            }
            b'O' => opaque(token, out),
            b'k' => self.key(self.flags.binary_key.is_some(), out),
            _ => {}
        });
        out.extend_from_slice(b"\r\n");
        if self.flags.value {
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Answers with a status and the echoed flags.
    fn answer(&self, status: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(status);
        self.echo(None, out);
    }

    /// Answers a failed `ms`. The item has no CAS id; memcached reports 0 then.
    fn not_stored(&self, status: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(status);
        self.echo(Some(0), out);
    }

    fn echo(&self, cas: Option<u64>, out: &mut Vec<u8>) {
        let start = if self.line.starts_with(b"ms ") { 3 } else { 2 };
        for token in tokens(self.line).skip(start) {
            match (token[0], cas) {
                (b'O', _) => opaque(token, out),
                (b'k', _) => self.key(self.flags.binary_key.is_some(), out),
                (b'c', Some(cas)) => {
                    out.extend_from_slice(b" c");
                    push_number(cas, out);
                }
                _ => {}
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn key(&self, is_binary: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b" k");
        if is_binary {
            base64::encode(self.key, out);
            out.extend_from_slice(b" b");
        } else {
            out.extend_from_slice(self.key);
        }
    }
}

fn opaque(token: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(token);
}
