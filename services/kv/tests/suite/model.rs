//! Random operations against a model with one map: every reply is compared. Operations advance the
//! time, so expiry and delayed flushes are covered.

use leeward_engine::Input;
use leeward_kv::protocol::{ConnectionAction, Decoder, DecoderOutput, Executor, Request};
use leeward_kv::store::{RequestContext, Store, StoreConfig, expires};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Operation {
    Store { verb: &'static str, key: u8, flags: u32, exptime: i64, value: Vec<u8>, quiet: bool },
    Cas { key: u8, value: Vec<u8>, stale: bool },
    Get { keys: Vec<u8>, touch: Option<i64> },
    Delete { key: u8 },
    Delta { up: bool, key: u8, by: u64 },
    Touch { key: u8, exptime: i64 },
    Flush { delay: i64 },
    Advance { seconds: u32 },
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (0u64..1000).prop_map(|number| number.to_string().into_bytes()),
        Just(u64::MAX.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..3000),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let key = || 0u8..6;
    let exptime = || prop_oneof![4 => Just(0i64), 1 => Just(-1), 2 => 1i64..20, 1 => 1_700_000_000i64..1_700_000_040];
    prop_oneof![
        4 => (prop::sample::select(vec!["set", "add", "replace", "append", "prepend"]), key(), 0u32..4, exptime(), value(), prop::bool::weighted(0.2))
            .prop_map(|(verb, key, flags, exptime, value, quiet)| Operation::Store { verb, key, flags, exptime, value, quiet }),
        1 => (key(), value(), any::<bool>()).prop_map(|(key, value, stale)| Operation::Cas { key, value, stale }),
        3 => (prop::collection::vec(key(), 1..20), prop::option::weighted(0.2, exptime())).prop_map(|(keys, touch)| Operation::Get { keys, touch }),
        1 => key().prop_map(|key| Operation::Delete { key }),
        2 => (any::<bool>(), key(), prop_oneof![0u64..100, Just(u64::MAX)]).prop_map(|(up, key, by)| Operation::Delta { up, key, by }),
        1 => (key(), exptime()).prop_map(|(key, exptime)| Operation::Touch { key, exptime }),
        1 => (0i64..5).prop_map(|delay| Operation::Flush { delay }),
        2 => (0u32..6).prop_map(|seconds| Operation::Advance { seconds }),
    ]
}

#[derive(Clone, Debug)]
struct Pair {
    value: Vec<u8>,
    flags: u32,
    expires: u32,
    stored: u32,
}

/// Model of a memcached, without memory, locks and classes.
#[derive(Default)]
struct Model {
    pairs: BTreeMap<u8, Pair>,
    now: u32,
    flush_at: u32,
}

/// Returns the number that C's `strtoull` reads, if the value ends there or continues with a space
/// or a NUL. memcached looks no further.
fn c_number(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| b" \t\n\x0B\x0C\r".contains(byte);
    let start = value.iter().take_while(|byte| is_space(byte)).count();
    let is_negative = value.get(start) == Some(&b'-');
    let start = start + usize::from(is_negative || value.get(start) == Some(&b'+'));
    let digits: String =
        value[start..].iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| *byte as char).collect();
    let is_whole = value.get(start + digits.len()).is_none_or(|byte| is_space(byte) || *byte == 0);
    let number: u64 = digits.parse().ok().filter(|_| is_whole)?;
    let number = if is_negative { number.wrapping_neg() } else { number };
    (number as i64 >= 0 || !value.contains(&b'-')).then_some(number)
}

impl Model {
    fn get(&mut self, key: u8) -> Option<Pair> {
        let pair = self.pairs.get(&key)?;
        let is_dead = (pair.expires != 0 && pair.expires <= self.now)
            || (self.flush_at != 0 && self.flush_at <= self.now && pair.stored <= self.flush_at);
        if is_dead {
            self.pairs.remove(&key);
            return None;
        }
        self.pairs.get(&key).cloned()
    }

    fn put(&mut self, key: u8, value: Vec<u8>, flags: u32, expires: u32) {
        self.pairs.insert(key, Pair { value, flags, expires, stored: self.now });
    }

    /// Returns the reply, without CAS ids.
    fn apply(&mut self, operation: &Operation) -> Vec<u8> {
        match operation {
            Operation::Store { verb, key, flags, exptime, value, quiet } => {
                let old = self.get(*key);
                let expires = expires(*exptime, self.now);
                let stored = match (*verb, old) {
                    ("set", _) | ("add", None) | ("replace", Some(_)) => {
                        self.put(*key, value.clone(), *flags, expires);
                        true
                    }
                    ("append", Some(old)) => {
                        self.put(*key, [&old.value[..], value].concat(), old.flags, old.expires);
                        true
                    }
                    ("prepend", Some(old)) => {
                        self.put(*key, [&value[..], &old.value].concat(), old.flags, old.expires);
                        true
                    }
                    _ => false,
                };
                let reply: &[u8] = if stored { b"STORED\r\n" } else { b"NOT_STORED\r\n" };
                if *quiet { Vec::new() } else { reply.to_vec() }
            }
            Operation::Cas { key, value, stale } => match (self.get(*key), stale) {
                (None, _) => b"NOT_FOUND\r\n".to_vec(),
                (Some(_), true) => b"EXISTS\r\n".to_vec(),
                (Some(_), false) => {
                    self.put(*key, value.clone(), 9, 0);
                    b"STORED\r\n".to_vec()
                }
            },
            Operation::Get { keys, touch } => {
                let mut reply = Vec::new();
                for key in keys {
                    if let Some(pair) = self.get(*key) {
                        reply.extend(format!("VALUE key{key} {} {}\r\n", pair.flags, pair.value.len()).into_bytes());
                        reply.extend(&pair.value);
                        reply.extend(b"\r\n");
                        if let Some(exptime) = touch {
                            self.pairs.get_mut(key).unwrap().expires = expires(*exptime, self.now);
                        }
                    }
                }
                reply.extend(b"END\r\n");
                reply
            }
            Operation::Delete { key } => match self.get(*key) {
                None => b"NOT_FOUND\r\n".to_vec(),
                Some(_) => {
                    self.pairs.remove(key);
                    b"DELETED\r\n".to_vec()
                }
            },
            Operation::Delta { up, key, by } => {
                let Some(pair) = self.get(*key) else { return b"NOT_FOUND\r\n".to_vec() };
                let Some(number) = c_number(&pair.value) else {
                    return b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_vec();
                };
                let number = if *up { number.wrapping_add(*by) } else { number.saturating_sub(*by) };
                let mut digits = number.to_string();
                let reply = format!("{digits}\r\n").into_bytes();
                while digits.len() < pair.value.len() {
                    digits.push(' ');
                }
                self.put(*key, digits.into_bytes(), pair.flags, pair.expires);
                reply
            }
            Operation::Touch { key, exptime } => match self.get(*key) {
                None => b"NOT_FOUND\r\n".to_vec(),
                Some(_) => {
                    self.pairs.get_mut(key).unwrap().expires = expires(*exptime, self.now);
                    b"TOUCHED\r\n".to_vec()
                }
            },
            Operation::Flush { delay } => {
                if *delay == 0 {
                    self.pairs.clear();
                    self.flush_at = 0;
                } else {
                    // memcached flushes up to the end of the second before.
                    self.flush_at = expires(*delay, self.now) - 1;
                }
                b"OK\r\n".to_vec()
            }
            Operation::Advance { seconds } => {
                self.now += seconds;
                Vec::new()
            }
        }
    }
}

/// Encodes an operation; a CAS uses the id from `gets`.
fn bytes(operation: &Operation, cas: u64) -> Vec<u8> {
    let block = |line: String, value: &[u8]| [line.as_bytes(), b"\r\n", value, b"\r\n"].concat();
    match operation {
        Operation::Store { verb, key, flags, exptime, value, quiet } => {
            let quiet = if *quiet { " noreply" } else { "" };
            block(format!("{verb} key{key} {flags} {exptime} {}{quiet}", value.len()), value)
        }
        Operation::Cas { key, value, stale } => {
            let cas = if *stale { cas.wrapping_add(1_000_000) } else { cas };
            block(format!("cas key{key} 9 0 {} {cas}", value.len()), value)
        }
        Operation::Get { keys, touch } => {
            let keys: Vec<String> = keys.iter().map(|key| format!("key{key}")).collect();
            let verb = touch.map_or("get".into(), |exptime| format!("gat {exptime}"));
            format!("{verb} {}\r\n", keys.join(" ")).into_bytes()
        }
        Operation::Delete { key } => format!("delete key{key}\r\n").into_bytes(),
        Operation::Delta { up, key, by } => {
            format!("{} key{key} {by}\r\n", if *up { "incr" } else { "decr" }).into_bytes()
        }
        Operation::Touch { key, exptime } => format!("touch key{key} {exptime}\r\n").into_bytes(),
        Operation::Flush { delay } => format!("flush_all {delay}\r\n").into_bytes(),
        Operation::Advance { .. } => Vec::new(),
    }
}

fn talk(executor: &Executor, decoder: &mut Decoder, now: u32, bytes: &[u8]) -> Vec<u8> {
    let (mut reply, mut request) = (Vec::new(), Request::default());
    let mut rest = bytes;
    while !rest.is_empty() {
        let spare = decoder.spare();
        let count = spare.len().min(rest.len());
        spare[..count].copy_from_slice(&rest[..count]);
        decoder.filled(count);
        rest = &rest[count..];
        loop {
            match decoder.next(&mut request) {
                DecoderOutput::Incomplete => break,
                DecoderOutput::Reply(bytes) => reply.extend_from_slice(bytes),
                DecoderOutput::Close => panic!("closed"),
                DecoderOutput::Request => {
                    assert_eq!(
                        executor.execute(&request, &RequestContext::at(now), &mut reply),
                        Ok(ConnectionAction::Continue)
                    );
                }
            }
        }
    }
    reply
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn replies_match_the_model(operations in prop::collection::vec(operation(), 1..80)) {
        let config = StoreConfig { memory: 16 << 20, hash_power: 10, ..StoreConfig::default() };
        let store = Arc::new(Store::new(&config).unwrap());
        let executor = Executor::new(Arc::clone(&store), 0);
        let mut decoder = Decoder::new(1 << 20);
        let mut model = Model { now: 1_700_000_000, ..Model::default() };
        for operation in &operations {
            let mut cas = 0;
            if let Operation::Cas { key, .. } = operation {
                let reply = talk(&executor, &mut decoder, model.now, format!("gets key{key}\r\n").as_bytes());
                let line = reply.split(|byte| *byte == b'\r').next().unwrap();
                let last = line.rsplit(|byte| *byte == b' ').next().unwrap();
                cas = String::from_utf8_lossy(last).parse().unwrap_or(0);
            }
            let now = model.now;
            let expected = model.apply(operation);
            let reply = talk(&executor, &mut decoder, now, &bytes(operation, cas));
            prop_assert_eq!(
                String::from_utf8_lossy(&reply), String::from_utf8_lossy(&expected), "to {:?}", operation
            );
        }
        // Used chunks and items are equal.
        let usage = store.usage();
        let used: usize = usage.class_usage.iter().map(|class| class.used).sum();
        prop_assert_eq!(used, usage.items);
        prop_assert_eq!(usage.lru_lengths.iter().sum::<usize>(), usage.items);
    }
}
