//! The text commands. Errors are answered as memcached 1.6 answers them.

use super::execute::{ConnectionAction, ExecuteError, Executor};
use super::replies::{BAD_FORMAT, ERROR, NOT_A_NUMBER, OUT_OF_MEMORY, TOO_LARGE, VALUE_OVERHEAD};
use super::stats;
use super::tokens::{first_tokens, is_key, push_number, seconds, tokens, unsigned};
use super::update::{Update, is_silent};
use crate::store::stats::Counter;
use crate::store::{Delta, DeltaOutcome, ItemRef, Mode, RequestContext, Write, WriteOutcome, expires};

const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";

impl Executor {
    pub(super) fn update(
        &self,
        update: &Update<'_>,
        data: &[u8],
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let outcome = if data.len() != update.length {
            // The decoder did not wait for the data block.
            if update.mode == Mode::Set && update.cas.is_none() {
                self.store().discard(update.key, context)?;
            }
            self.store().stats().count(Counter::StoreTooLarge);
            WriteOutcome::TooLarge
        } else {
            let write = Write {
                mode: update.mode,
                client_flags: update.client_flags,
                expires: expires(update.exptime.into(), context.now),
                cas: update.cas,
                ..Write::default()
            };
            self.store().write(update.key, data, &write, context)?
        };
        if !update.silent {
            out.extend_from_slice(match outcome {
                WriteOutcome::Stored { .. } => b"STORED\r\n",
                WriteOutcome::NotStored => b"NOT_STORED\r\n",
                WriteOutcome::Exists => b"EXISTS\r\n",
                WriteOutcome::NotFound => b"NOT_FOUND\r\n",
                WriteOutcome::TooLarge => TOO_LARGE,
                WriteOutcome::OutOfMemory => OUT_OF_MEMORY,
            });
        }
        Ok(())
    }

    /// Executes `get`, `gets`, `gat` and `gats`.
    pub(super) fn get(
        &self,
        line: &[u8],
        more: bool,
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        let mut keys = tokens(line);
        let verb = keys.next().unwrap_or_default();
        let mut exptime = None;
        if matches!(verb, b"gat" | b"gats") {
            let Some(token) = keys.next() else {
                out.extend_from_slice(ERROR);
                return Ok(());
            };
            exptime = seconds(token);
            if exptime.is_none() {
                out.extend_from_slice(BAD_EXPTIME);
                return Ok(());
            }
        } else if keys.clone().next().is_none() {
            out.extend_from_slice(ERROR);
            return Ok(());
        }
        let with_cas = verb.ends_with(b"s");
        let start = out.len();
        for key in keys {
            if !is_key(key) {
                out.truncate(start);
                out.extend_from_slice(BAD_FORMAT);
                return Ok(());
            }
            let hit = self.store().read(key, context, |found| {
                let Some(found) = found else { return Ok(false) };
                if out.len() + found.value_len() > context.reply_max {
                    return Err(ExecuteError::TooLong);
                }
                if let Some(exptime) = exptime {
                    found.touch(exptime);
                }
                value(found, key, with_cas, out);
                found.mark_fetched();
                Ok(true)
            })??;
            self.count_read(exptime.is_some(), hit);
        }
        if !more {
            out.extend_from_slice(b"END\r\n");
        }
        Ok(())
    }

    /// Executes a one-line command that is not a `get`.
    pub(super) fn execute_line(
        &self,
        line: &[u8],
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<ConnectionAction, ExecuteError> {
        let ([verb, second, third, fourth], count) = first_tokens::<4>(line);
        let silent = is_silent(line);
        let reply: &[u8] = match (verb, count) {
            (b"incr" | b"decr", 3 | 4) => {
                let start = out.len();
                self.delta(verb == b"incr", second, third, context, out)?;
                if silent {
                    out.truncate(start);
                }
                return Ok(ConnectionAction::Continue);
            }
            (b"delete", 2..=4) => {
                let zero = |token: &[u8]| token == b"0";
                let is_fine = match count {
                    2 => true,
                    3 => zero(third) || third == b"noreply",
                    _ => zero(third) && fourth == b"noreply",
                };
                if !is_fine {
                    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
                } else if !is_key(second) {
                    BAD_FORMAT
                } else if self.store().delete(second, context)? {
                    b"DELETED\r\n"
                } else {
                    b"NOT_FOUND\r\n"
                }
            }
            (b"touch", 3 | 4) => match seconds(third) {
                _ if !is_key(second) => BAD_FORMAT,
                None => BAD_EXPTIME,
                Some(exptime) => {
                    let touch = |found: &ItemRef<'_>| {
                        found.touch(exptime);
                        found.mark_fetched();
                    };
                    let hit = self.store().read(second, context, |found| found.map(touch).is_some())?;
                    self.count_read(true, hit);
                    if hit { b"TOUCHED\r\n" } else { b"NOT_FOUND\r\n" }
                }
            },
            (b"flush_all", 1..=3) => {
                let delay = if count == 1 || (count == 2 && silent) { Some(0) } else { seconds(second) };
                match delay {
                    None => BAD_EXPTIME,
                    Some(delay) => {
                        self.store().flush((delay > 0).then(|| expires(delay, context.now)));
                        b"OK\r\n"
                    }
                }
            }
            (b"verbosity", 2 | 3) => match unsigned(second) {
                None => BAD_FORMAT,
                // The server has no verbosity levels.
                Some(_) => b"OK\r\n",
            },
            (b"version", _) => {
                out.extend_from_slice(format!("VERSION {}\r\n", self.version()).as_bytes());
                b""
            }
            (b"stats", _) => {
                stats::stats(self, second, context, out);
                b""
            }
            (b"quit", _) => return Ok(ConnectionAction::Close),
            (b"shutdown", _) => b"ERROR: shutdown not enabled\r\n",
            _ => ERROR,
        };
        if !silent || reply == ERROR {
            out.extend_from_slice(reply);
        }
        Ok(ConnectionAction::Continue)
    }

    /// Counts a read of an item. As in memcached, a read that touches counts only as a touch.
    pub(super) fn count_read(&self, touches: bool, hit: bool) {
        let (commands, hits, misses) = match touches {
            true => (Counter::CmdTouch, Counter::TouchHits, Counter::TouchMisses),
            false => (Counter::CmdGet, Counter::GetHits, Counter::GetMisses),
        };
        let stats = self.store().stats();
        stats.count(commands);
        stats.count(if hit { hits } else { misses });
    }

    fn delta(
        &self,
        up: bool,
        key: &[u8],
        by: &[u8],
        context: &RequestContext,
        out: &mut Vec<u8>,
    ) -> Result<(), ExecuteError> {
        if !is_key(key) {
            out.extend_from_slice(BAD_FORMAT);
            return Ok(());
        }
        let Some(by) = unsigned(by) else {
            out.extend_from_slice(BAD_DELTA);
            return Ok(());
        };
        let delta = Delta { increment: up, amount: by, cas: None, expires: None };
        match self.store().add_delta(key, &delta, context)? {
            DeltaOutcome::Updated { value, .. } => {
                push_number(value, out);
                out.extend_from_slice(b"\r\n");
            }
            DeltaOutcome::NotFound | DeltaOutcome::Exists => out.extend_from_slice(b"NOT_FOUND\r\n"),
            DeltaOutcome::NotANumber => out.extend_from_slice(NOT_A_NUMBER),
            DeltaOutcome::OutOfMemory => out.extend_from_slice(b"SERVER_ERROR out of memory\r\n"),
        }
        Ok(())
    }
}

/// Appends an item as `get` answers it.
fn value(found: &ItemRef<'_>, key: &[u8], with_cas: bool, out: &mut Vec<u8>) {
    out.reserve(found.value_len() + key.len() + VALUE_OVERHEAD);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    push_number(found.client_flags().into(), out);
    out.push(b' ');
    push_number(found.value_len() as u64, out);
    if with_cas {
        out.push(b' ');
        push_number(found.cas(), out);
    }
    out.extend_from_slice(b"\r\n");
    found.append_value(out);
    out.extend_from_slice(b"\r\n");
}
