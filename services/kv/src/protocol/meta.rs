//! The meta commands: `mg`, `ms`, `md`, `ma`, `mn`, `me`. What comes back has the order in which it was asked for.

use super::base64;
use super::execute::{Executor, Refused};
use super::flags::{Flags, mode};
use super::replies::{AROUND, BAD_FORMAT, ERROR, NOT_A_NUMBER, OUT_OF_MEMORY, TOO_LARGE};
use super::words::{first, is_key, length, push_number, words};
use crate::store::read::Deletion;
use crate::store::stats::Counter;
use crate::store::{Delta, DeltaOutcome, Found, Mode, Visit, Write, WriteOutcome, expires};

/// Times that a missing item is made before another client's making and removing it is given up against.
const VIVIFIED: usize = 3;

impl Executor {
    /// `line` is a meta command's.
    pub(super) fn meta(&self, line: &[u8], data: &[u8], visit: &Visit, out: &mut Vec<u8>) -> Result<(), Refused> {
        let ([verb, key], count) = first::<2>(line);
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
        let ask = Ask { line, written_key: key, key: flags.binary_key.as_deref().unwrap_or(key), flags: &flags };
        match verb {
            b"mg" => self.meta_get(&ask, visit, out),
            b"ms" => self.meta_set(&ask, data, visit, out),
            b"md" => self.meta_delete(&ask, visit, out),
            b"ma" => self.meta_arithmetic(&ask, visit, out),
            _ => self.meta_debug(&ask, visit, out),
        }
    }

    fn meta_get(&self, ask: &Ask<'_>, visit: &Visit, out: &mut Vec<u8>) -> Result<(), Refused> {
        let stats = self.store().stats();
        stats.count(Counter::CmdGet);
        let mut made = false;
        for _ in 0..VIVIFIED {
            let look = |found: Option<&Found<'_>>| -> Result<bool, Refused> {
                let Some(found) = found else { return Ok(false) };
                if ask.flags.value && found.value_len() > visit.longest {
                    return Err(Refused::TooLong);
                }
                ask.hit(found, made, out);
                Ok(true)
            };
            // What has been made has to be told of: nobody else would be asked to fill it.
            let hit = if made {
                self.store().read_regardless(ask.key, visit, look)?
            } else {
                self.store().read(ask.key, visit, look)??
            };
            if hit {
                stats.count(if made { Counter::GetMisses } else { Counter::GetHits });
                return Ok(());
            }
            let Some(exptime) = ask.flags.vivify else { break };
            let expires = expires(exptime, visit.now);
            let write = Write { mode: Mode::Add, expires, being_renewed: true, ..ask.write(visit.now) };
            match self.store().write(ask.key, b"", &write, visit)? {
                WriteOutcome::Stored { .. } => made = true,
                WriteOutcome::OutOfMemory | WriteOutcome::TooLarge => {
                    out.extend_from_slice(b"SERVER_ERROR out of memory\r\n");
                    return Ok(());
                }
                // Another client was quicker.
                _ => {}
            }
        }
        stats.count(Counter::GetMisses);
        if !ask.flags.quiet {
            ask.answer(b"EN", out);
        }
        Ok(())
    }

    fn meta_set(&self, ask: &Ask<'_>, data: &[u8], visit: &Visit, out: &mut Vec<u8>) -> Result<(), Refused> {
        let promised = words(ask.line).nth(2).and_then(length);
        let write = ask.write(visit.now);
        let outcome = if promised != Some(data.len()) {
            // Its data block was not even waited for.
            self.store().forget(ask.key, visit)?;
            self.store().stats().count(Counter::StoreTooLarge);
            WriteOutcome::TooLarge
        } else {
            self.store().write(ask.key, data, &write, visit)?
        };
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

    fn meta_delete(&self, ask: &Ask<'_>, visit: &Visit, out: &mut Vec<u8>) -> Result<(), Refused> {
        let deleted = self.store().delete_if(ask.key, visit, |found| {
            if ask.flags.cas.is_some_and(|cas| cas != found.cas()) {
                return (Deletion::Keep, false);
            }
            if !ask.flags.invalidate {
                return (Deletion::Delete, true);
            }
            if let Some(exptime) = ask.flags.exptime {
                found.touch(exptime);
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

    fn meta_arithmetic(&self, ask: &Ask<'_>, visit: &Visit, out: &mut Vec<u8>) -> Result<(), Refused> {
        let up = match ask.flags.mode {
            None | Some(b'I' | b'i' | b'+') => true,
            Some(b'D' | b'd' | b'-') => false,
            Some(_) => {
                out.extend_from_slice(b"CLIENT_ERROR invalid mode for ma M token\r\n");
                return Ok(());
            }
        };
        let change = |exptime: i64| expires(exptime, visit.now);
        let delta =
            Delta { up, by: ask.flags.delta.unwrap_or(1), cas: ask.flags.cas, expires: ask.flags.exptime.map(change) };
        for _ in 0..VIVIFIED {
            let mut made = false;
            let (value, cas, ttl) = match self.store().add_delta(ask.key, &delta, visit)? {
                DeltaOutcome::Is { value, cas, ttl } => (value, cas, ttl),
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
                    let Some(exptime) = ask.flags.vivify else { break };
                    let (value, at) = (ask.flags.initial, expires(exptime, visit.now));
                    let write = Write { mode: Mode::Add, expires: at, cas: None, ..ask.write(visit.now) };
                    match self.store().write(ask.key, value.to_string().as_bytes(), &write, visit)? {
                        WriteOutcome::Stored { cas } => {
                            made = true;
                            (value, cas, (at != 0).then(|| at.saturating_sub(visit.now)))
                        }
                        WriteOutcome::NotStored => continue,
                        _ => {
                            out.extend_from_slice(b"SERVER_ERROR out of memory\r\n");
                            return Ok(());
                        }
                    }
                }
            };
            ask.number(value, cas, ttl, made, out);
            return Ok(());
        }
        ask.answer(b"NF", out);
        Ok(())
    }

    fn meta_debug(&self, ask: &Ask<'_>, visit: &Visit, out: &mut Vec<u8>) -> Result<(), Refused> {
        let shown = self.store().read(ask.key, visit, |found| {
            found.map(|found| {
                let expires = found.ttl().map_or("-1".into(), |ttl| ttl.to_string());
                let fetched = if found.was_fetched() { "yes" } else { "no" };
                format!(
                    " exp={expires} la={} cas={} fetch={fetched} cls={} size={}\r\n",
                    found.unread_for(),
                    found.cas(),
                    found.class(),
                    found.size()
                )
            })
        })?;
        match shown {
            None => out.extend_from_slice(b"EN\r\n"),
            Some(text) => {
                out.extend_from_slice(b"ME ");
                out.extend_from_slice(ask.written_key);
                out.extend_from_slice(text.as_bytes());
            }
        }
        Ok(())
    }
}

/// A meta command.
struct Ask<'a> {
    line: &'a [u8],
    written_key: &'a [u8],
    key: &'a [u8],
    flags: &'a Flags,
}

impl Ask<'_> {
    fn write(&self, now: u32) -> Write {
        let mut mode = mode(self.flags).unwrap_or_default();
        if mode == Mode::Replace && self.flags.cas.is_some() {
            mode = Mode::Set;
        }
        Write {
            mode,
            client_flags: self.flags.client_flags,
            expires: expires(self.flags.exptime.unwrap_or(0), now),
            cas: if mode == Mode::Add { None } else { self.flags.cas },
            stale_is_fine: self.flags.invalidate,
            binary_key: self.flags.binary_key.is_some(),
            being_renewed: false,
        }
    }

    /// Answers `mg` for an item that was found, and updates it. `made`: it was made for this request.
    fn hit(&self, found: &Found<'_>, made: bool, out: &mut Vec<u8>) {
        if self.flags.value {
            out.reserve(found.value_len() + self.line.len() + AROUND);
            out.extend_from_slice(b"VA ");
            push_number(found.value_len() as u64, out);
        } else {
            out.extend_from_slice(b"HD");
        }
        let mut won = made;
        for word in words(self.line).skip(2) {
            let mut number = |letter: u8, number: u64| {
                out.extend_from_slice(&[b' ', letter]);
                push_number(number, out);
            };
            match word[0] {
                b'T' => found.touch(self.flags.exptime.unwrap_or(0)),
                b'R' => {
                    let left =
                        found.ttl().map(i64::from).filter(|left| self.flags.recache.is_some_and(|least| *left < least));
                    won |= left.is_some() && !made && !found.is_being_renewed();
                }
                b's' => number(b's', found.value_len() as u64),
                b't' => match found.ttl() {
                    Some(ttl) => number(b't', ttl.into()),
                    None => out.extend_from_slice(b" t-1"),
                },
                b'c' => number(b'c', found.cas()),
                b'f' => number(b'f', found.client_flags().into()),
                b'l' => number(b'l', found.unread_for().into()),
                b'h' => number(b'h', found.was_fetched().into()),
                b'O' => opaque(word, out),
                b'k' => self.key(found.has_binary_key(), out),
                _ => {}
            }
        }
        if found.is_being_renewed() && !made {
            out.extend_from_slice(b" Z");
        }
        if found.is_stale() {
            out.extend_from_slice(b" X");
            won |= !found.is_being_renewed();
        }
        if won {
            out.extend_from_slice(b" W");
            found.being_renewed();
        }
        out.extend_from_slice(b"\r\n");
        if self.flags.value {
            found.append_value(out);
            out.extend_from_slice(b"\r\n");
        }
        if !self.flags.no_update {
            found.fetched();
        }
    }

    /// Answers `ma` with a number. For a number that was just `made` there is always an answer, as with memcached.
    fn number(&self, value: u64, cas: u64, ttl: Option<u32>, made: bool, out: &mut Vec<u8>) {
        let start = out.len();
        let text = value.to_string();
        if self.flags.value {
            out.extend_from_slice(b"VA ");
            push_number(text.len() as u64, out);
        } else {
            out.extend_from_slice(b"HD");
        }
        for word in words(self.line).skip(2) {
            match (word[0], ttl) {
                (b't', None) => out.extend_from_slice(b" t-1"),
                (b't', Some(ttl)) => {
                    out.extend_from_slice(b" t");
                    push_number(ttl.into(), out);
                }
                (b'c', _) => {
                    out.extend_from_slice(b" c");
                    push_number(cas, out);
                }
                (b'O', _) => opaque(word, out),
                (b'k', _) => self.key(self.flags.binary_key.is_some(), out),
                _ => {}
            }
        }
        out.extend_from_slice(b"\r\n");
        if self.flags.value {
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        if self.flags.quiet && !made {
            out.truncate(start);
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
        for word in words(self.line).skip(start) {
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
