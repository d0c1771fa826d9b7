//! The meta commands: `mg`, `ms`, `md`, `ma`, `mn`, `me`. What comes back has the order in which it was asked for.

use super::base64;
use super::execute::{ExecuteError, Executor};
use super::flags::{Flags, LONG_OPAQUE, META_TOKENS_MAX, TOO_MANY_FLAGS, mode};
use super::replies::{BAD_FORMAT, ERROR, NOT_A_NUMBER, OUT_OF_MEMORY, TOO_LARGE, VALUE_OVERHEAD};
use super::tokens::{first_tokens, is_key, length, push_number, tokens};
use crate::store::read::Deletion;
use crate::store::stats::Counter;
use crate::store::{Delta, DeltaOutcome, ItemRef, Mode, RequestContext, Write, WriteOutcome, expires};

/// Times that a missing number is made before another client's making and removing it is given up against.
const VIVIFIED: usize = 3;

impl Executor {
    /// `line` is a meta command's.
    pub(super) fn meta(
        &self,
        line: &[u8],
        data: &[u8],
        visit: &RequestContext,
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
            return self.meta_debug(line, key, visit, out);
        }
        if count > META_TOKENS_MAX {
            // memcached's words differ.
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
        let ask = MetaCommand { line, key: flags.binary_key.as_deref().unwrap_or(key), flags: &flags };
        match verb {
            b"mg" => self.meta_get(&ask, visit, out),
            b"ms" => self.meta_set(&ask, data, visit, out),
            b"md" => self.meta_delete(&ask, visit, out),
            _ => self.meta_arithmetic(&ask, visit, out),
        }
    }

    fn meta_get(&self, ask: &MetaCommand<'_>, visit: &RequestContext, out: &mut Vec<u8>) -> Result<(), ExecuteError> {
        let mut look = |found: &ItemRef<'_>, made: bool| {
            if ask.flags.value && found.value_len() > visit.reply_max {
                return Err(ExecuteError::TooLong);
            }
            ask.hit(found, made, out);
            Ok(())
        };
        let hit = match ask.flags.vivify {
            Some(_) => self.store().read_or_create(ask.key, ask.flags.binary_key.is_some(), visit, look)?,
            None => self.store().read(ask.key, visit, |found| found.map(|found| look(found, false)))?,
        };
        self.count_read(ask.flags.exptime.is_some(), hit.is_some());
        match hit {
            Some(outcome) => return outcome,
            None if ask.flags.quiet => {}
            None => ask.answer(b"EN", out),
        }
        Ok(())
    }

    fn meta_set(
        &self,
        ask: &MetaCommand<'_>,
        data: &[u8],
        visit: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let promised = tokens(ask.line).nth(2).and_then(length);
        let write = ask.write(visit.now);
        let outcome = if promised != Some(data.len()) {
            // Its data block was not even waited for.
            self.store().stats().count(Counter::StoreTooLarge);
            WriteOutcome::TooLarge
        } else {
            self.store().write(ask.key, data, &write, visit)?
        };
        if matches!(outcome, WriteOutcome::TooLarge | WriteOutcome::OutOfMemory) {
            self.store().discard(ask.key, visit)?;
        }
        let start = out.len();
        match outcome {
            WriteOutcome::Stored { cas } => {
                out.extend_from_slice(b"HD");
                ask.echo(Some(cas), out);
                if ask.flags.quiet {
                    out.truncate(start);
                }
            }
            WriteOutcome::NotStored => ask.not_stored(b"NS", out),
            WriteOutcome::Exists => ask.not_stored(b"EX", out),
            WriteOutcome::NotFound => ask.not_stored(b"NF", out),
            WriteOutcome::TooLarge => out.extend_from_slice(TOO_LARGE),
            WriteOutcome::OutOfMemory => out.extend_from_slice(OUT_OF_MEMORY),
        }
        Ok(())
    }

    fn meta_delete(
        &self,
        ask: &MetaCommand<'_>,
        visit: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let deleted = self.store().delete_if(ask.key, visit, |found| {
            if ask.flags.cas.is_some_and(|cas| cas != found.cas()) {
                return (Deletion::Keep, false);
            }
            if !ask.flags.invalidate {
                return (Deletion::Delete, true);
            }
            if let Some(exptime) = ask.flags.exptime {
                found.touch(exptime.into());
            }
            (Deletion::Invalidate, true)
        })?;
        match deleted {
            Some(true) if ask.flags.quiet => {}
            Some(true) => ask.answer(b"HD", out),
            Some(false) => ask.answer(b"EX", out),
            None => ask.answer(b"NF", out),
        }
        Ok(())
    }

    fn meta_arithmetic(
        &self,
        ask: &MetaCommand<'_>,
        visit: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let up = match ask.flags.mode {
            None | Some(b'I' | b'+') => true,
            Some(b'D' | b'-') => false,
            Some(_) => {
                out.extend_from_slice(b"CLIENT_ERROR invalid mode for ma M token\r\n");
                return Ok(());
            }
        };
        let change = |exptime: i32| expires(exptime.into(), visit.now);
        let delta = Delta {
            increment: up,
            amount: ask.flags.delta.unwrap_or(1),
            cas: ask.flags.cas.filter(|cas| *cas != 0),
            expires: ask.flags.exptime.map(change),
        };
        for _ in 0..VIVIFIED {
            let mut made = false;
            let (value, cas, expired) = match self.store().add_delta(ask.key, &delta, visit)? {
                DeltaOutcome::Updated { value, cas, previous_expiry: expired } => (value, cas, expired),
                DeltaOutcome::Exists => {
                    ask.answer(b"EX", out);
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
                    if ask.flags.vivify.is_none() {
                        break;
                    }
                    let value = ask.flags.initial;
                    let mut at = 0;
                    ask.times(true, visit.now, &mut at, |_, _| ());
                    let binary_key = ask.flags.binary_key.is_some();
                    let write = Write { mode: Mode::Add, expires: at, binary_key, ..Write::default() };
                    match self.store().write(ask.key, value.to_string().as_bytes(), &write, visit)? {
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
            ask.number(value, cas, expired, made, visit.now, out);
            return Ok(());
        }
        ask.answer(b"NF", out);
        Ok(())
    }

    /// `me`, which has no flags but `b` behind the key.
    fn meta_debug(
        &self,
        line: &[u8],
        key: &[u8],
        visit: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let ([_, _, flag], _) = first_tokens::<3>(line);
        let decoded = if flag == b"b" { base64::decode(key) } else { Some(key.to_vec()) };
        let Some(key) = decoded else {
            out.extend_from_slice(BAD_FORMAT);
            return Ok(());
        };
        self.store().read(&key, visit, |found| {
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
        // As in memcached 0 is no item's CAS id, and to append to an item it says nothing.
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

    /// Answers `mg` for an item that was found, and updates it. `made`: it was made for this request.
    fn hit(&self, found: &ItemRef<'_>, made: bool, out: &mut Vec<u8>) {
        if self.flags.value {
            out.reserve(found.value_len() + self.line.len() + VALUE_OVERHEAD);
            out.extend_from_slice(b"VA ");
            push_number(found.value_len() as u64, out);
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut won = false;
        for word in tokens(self.line).skip(2) {
            let mut number = |letter: u8, number: u64| {
                out.extend_from_slice(&[b' ', letter]);
                push_number(number, out);
            };
            match word[0] {
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
                b'O' => opaque(word, out),
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

    /// Goes through the times that the command sets, in its order, from `expires` on. `each` sees every word in between.
    fn times(&self, made: bool, now: u32, expires_at: &mut u32, mut each: impl FnMut(&[u8], u32)) {
        for word in tokens(self.line).skip(2) {
            let set = match word[0] {
                b'T' => self.flags.exptime,
                b'N' => self.flags.vivify.filter(|_| made),
                _ => None,
            };
            if let Some(exptime) = set {
                *expires_at = expires(exptime.into(), now);
            }
            each(word, *expires_at);
        }
    }

    /// Answers `ma` with a number. For a number that was just `made` there is always an answer, as with memcached.
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
        self.times(made, now, &mut expires_at, |word, expires_at| match word[0] {
            b't' if expires_at == 0 => out.extend_from_slice(b" t-1"),
            b't' => {
                out.extend_from_slice(b" t");
                push_number(expires_at.saturating_sub(now).into(), out);
            }
            b'c' => {
                out.extend_from_slice(b" c");
                push_number(cas, out);
            }
            b'O' => opaque(word, out),
            b'k' => self.key(self.flags.binary_key.is_some(), out),
            _ => {}
        });
        out.extend_from_slice(b"\r\n");
        if self.flags.value {
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }

    /// A status and what is always given back with it.
    fn answer(&self, status: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(status);
        self.echo(None, out);
    }

    /// Why `ms` has not stored. It has no CAS id to tell, and memcached says 0 then.
    fn not_stored(&self, status: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(status);
        self.echo(Some(0), out);
    }

    fn echo(&self, cas: Option<u64>, out: &mut Vec<u8>) {
        let start = if self.line.starts_with(b"ms ") { 3 } else { 2 };
        for word in tokens(self.line).skip(start) {
            match (word[0], cas) {
                (b'O', _) => opaque(word, out),
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

fn opaque(word: &[u8], out: &mut Vec<u8>) {
    out.push(b' ');
    out.extend_from_slice(word);
}
