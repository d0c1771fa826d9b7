//! Requests for pairs as the load generator sends them, and the initial fill of a store.

use super::mix::{PAIRS, PairWorkload, Pairs};
use crate::service::{GET, GET_MANY, SET};
use crate::store::{RequestContext, Store, Write, WriteOutcome};
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::wire::Method;
use leeward_services::definition::{PrepareError, Target, call_patiently};
use std::sync::atomic::{AtomicU32, Ordering};

/// Generates a read of one or several pairs, or a write of one, from random bits.
#[derive(Clone, Debug)]
pub(super) struct KvGenerator {
    pairs: Pairs,
    /// Prepared reads of several keys.
    ///
    /// Collecting dozens of keys from memory for each request would make the clients the
    /// bottleneck.
    reads: Vec<Vec<u8>>,
}

/// Number of prepared reads.
///
/// With two dozen keys each they fit into a CPU's cache, and name half as many pairs as there are.
const READY: u64 = 2_048;

impl KvGenerator {
    /// Creates a generator for this workload.
    pub(super) fn new(service: impl Into<PairWorkload>) -> Self {
        let pairs = Pairs::new(service);
        let read = |bits| {
            let mut payload = Vec::new();
            pairs.draw_read(bits).for_each(|number| push_key(&pairs, number, &mut payload));
            payload
        };
        let reads = if pairs.workload().keys > 1 { (0..READY).map(read).collect() } else { Vec::new() };
        KvGenerator { pairs, reads }
    }

    /// Returns the pairs.
    pub(super) fn pairs(&self) -> &Pairs {
        &self.pairs
    }
}

impl RequestGenerator for KvGenerator {
    fn generate(&self, random: u64, payload: &mut Vec<u8>) -> Method {
        let request = self.pairs.draw(random);
        match request.write {
            None if self.reads.is_empty() => {
                payload.extend_from_slice(self.pairs.key(request.number));
                GET
            }
            None => {
                payload.extend_from_slice(&self.reads[(random % READY) as usize]);
                GET_MANY
            }
            Some(length) => {
                set(&self.pairs, request.number, length, random as u8, payload);
                SET
            }
        }
    }

    /// Checks only the form: the store may have evicted the pair.
    fn is_answer(&self, _: u64, method: Method, answer: &[u8]) -> bool {
        match method {
            SET => answer == [1],
            GET_MANY => (0..self.pairs.workload().keys).try_fold(answer, |rest, _| after_value(rest)) == Some(&[]),
            _ => matches!(answer, [0] | [1, ..]),
        }
    }
}

/// Returns the rest of a [`GET_MANY`] answer after its first value, if it has one.
fn after_value(answer: &[u8]) -> Option<&[u8]> {
    match answer.split_first()? {
        (0, rest) => Some(rest),
        (1, rest) => {
            let (length, rest) = rest.split_first_chunk::<4>()?;
            rest.get(u32::from_le_bytes(*length) as usize..)
        }
        _ => None,
    }
}

/// Appends a key with its length before it.
fn push_key(pairs: &Pairs, number: u32, payload: &mut Vec<u8>) {
    let key = pairs.key(number);
    // A key has at most 250 bytes.
    payload.push(key.len() as u8);
    payload.extend_from_slice(key);
}

/// Writes the argument of a `set` request.
fn set(pairs: &Pairs, number: u32, length: usize, fill: u8, payload: &mut Vec<u8>) {
    push_key(pairs, number, payload);
    payload.resize(payload.len() + length, fill);
}

/// Stores all pairs with their initial values.
///
/// # Errors
/// The store has no memory for them.
pub(super) fn fill(store: &Store, pairs: &Pairs) -> Result<(), &'static str> {
    let (context, mut value) = (RequestContext::at(0), Vec::new());
    for number in 0..PAIRS {
        value.clear();
        value.resize(pairs.initial_value_len(number), 0);
        let outcome = store.write(pairs.key(number), &value, &Write::default(), &context);
        if !matches!(outcome, Ok(WriteOutcome::Stored { .. })) {
            return Err("the store has no room for the pairs");
        }
    }
    Ok(())
}

/// Threads that fill a server; each has one pair in flight.
const FILL_THREADS: usize = 12;

/// Stores all pairs at a running server.
///
/// # Errors
/// The server does not answer, is not a key-value service, or keeps rejecting.
pub(super) fn fill_server(server: &Target<'_>, pairs: &Pairs) -> Result<(), PrepareError> {
    let write = |number, length, payload: &mut Vec<u8>| self::set(pairs, number, length, 0, payload);
    store_all(server, pairs, write)
}

/// Stores all pairs at a running server.
///
/// `set` writes the argument of the service's [`SET`] for a pair's number and value length.
///
/// # Errors
/// The server does not answer, is another service, or keeps rejecting.
pub fn store_all(
    server: &Target<'_>,
    pairs: &Pairs,
    set: impl Fn(u32, usize, &mut Vec<u8>) + Sync,
) -> Result<(), PrepareError> {
    let address = server.address;
    let fail = |reason| PrepareError::Server { step: "filling", address, reason };
    let client = server.client().map_err(fail)?;
    let next = AtomicU32::new(0);
    let filling = || -> Result<(), String> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= PAIRS {
                return Ok(());
            }
            let mut payload = Vec::new();
            set(number, pairs.initial_value_len(number), &mut payload);
            // Storing a pair twice does no harm.
            if let Err(error) = call_patiently(&client, SET, &payload) {
                // Stops the other threads.
                next.store(PAIRS, Ordering::Relaxed);
                return Err(error);
            }
        }
    };
    let outcome = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..FILL_THREADS).map(|_| scope.spawn(filling)).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or(Err("a defect".into()));
        threads.into_iter().map(ended).collect::<Vec<Result<(), String>>>().into_iter().collect::<Result<(), String>>()
    });
    client.shut_down();
    outcome.map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::super::mix::PairMix;
    use super::*;
    use crate::store::StoreConfig;

    #[test]
    fn equal_bits_give_equal_requests_with_stored_keys() {
        for mix in PairMix::ALL {
            let generator = KvGenerator::new(mix);
            let generate = |bits| {
                let mut payload = Vec::new();
                (generator.generate(bits, &mut payload), payload)
            };
            assert_eq!(generate(7), generate(7));
            for bits in 0..1000 {
                let (method, payload) = generate(bits);
                let key = generator.pairs().key(generator.pairs().draw(bits).number);
                let written = if method == GET { &payload[..] } else { &payload[1..=usize::from(payload[0])] };
                assert_eq!(written, key);
            }
        }
    }

    #[test]
    fn a_read_of_several_keys_names_each() {
        let generator = KvGenerator::new(PairWorkload { mix: PairMix::Usr, keys: 24 });
        let reads = (0..200).filter(|bits| generator.pairs().draw(*bits).write.is_none());
        for bits in reads {
            let mut payload = Vec::new();
            assert_eq!(generator.generate(bits, &mut payload), GET_MANY);
            let mut rest = &payload[..];
            for number in generator.pairs().draw_read(bits % READY) {
                let (key, after) = rest[1..].split_at(usize::from(rest[0]));
                assert_eq!(key, generator.pairs().key(number));
                rest = after;
            }
            assert_eq!(rest, b"");
        }
    }

    #[test]
    fn every_mix_fills_the_store() {
        for mix in PairMix::ALL {
            let store = Store::new(&StoreConfig { memory: 1 << 30, ..StoreConfig::default() }).unwrap();
            fill(&store, &Pairs::new(mix)).unwrap();
            assert_eq!(store.usage().items, PAIRS as usize);
        }
    }

    #[test]
    fn answers_are_recognised_by_their_format() {
        let generator = KvGenerator::new(PairWorkload { mix: PairMix::Usr, keys: 2 });
        let right: [(Method, &[u8]); 5] =
            [(SET, &[1]), (GET, &[0]), (GET, &[1, 7]), (GET_MANY, &[0, 1, 2, 0, 0, 0, 7, 7]), (GET_MANY, &[0, 0])];
        assert!(right.iter().all(|(method, answer)| generator.is_answer(0, *method, answer)));
        let wrong: [(Method, &[u8]); 7] = [
            (SET, &[0]),
            (GET, &[]),
            (GET, &[2]),
            (GET_MANY, &[0]),
            (GET_MANY, &[0, 0, 0]),
            (GET_MANY, &[0, 1, 2, 0, 0, 0, 7]),
            (GET_MANY, &[1, 0, 0]),
        ];
        assert!(wrong.iter().all(|(method, answer)| !generator.is_answer(0, *method, answer)));
    }
}
