//! Memory that programs in the kernel share with us. All of it is bounded when it is created.
//!
//! Contains no program, and no reader of ring buffers.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::btf::storage_types;
use super::call::{Arguments, Command, bpf, bpf_descriptor};

/// Flag of hashes without a reserve of entries, and of storage.
const NO_RESERVE: u32 = 1;
/// Size of a name in `union bpf_attr`.
const NAME: usize = 15;

/// Kind of a map (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// A hash, which refuses further keys when it is full.
    Hash {
        /// Bytes of a key.
        key: u32,
        /// Greatest number of entries.
        entries: u32,
    },
    /// A hash that forgets the entry that was not used for longest when it is full.
    RecentHash {
        /// Bytes of a key.
        key: u32,
        /// Greatest number of entries.
        entries: u32,
    },
    /// One value.
    Value,
    /// One value per CPU.
    ValuePerCpu,
    /// A value per socket, which the kernel frees with the socket.
    OfSocket,
    /// A value per thread, which the kernel frees with the thread.
    OfThread,
    /// Perf events, to which programs write, one per CPU. Keys and values are numbers: of CPUs, and
    /// of descriptors.
    Events {
        /// Number of CPUs.
        cpus: u32,
    },
    /// A ring of records; the value's size is the ring's, a power of two and of pages.
    Ring,
}

/// A map, which ends with this value and the programs that use it.
#[derive(Debug)]
pub struct Map {
    descriptor: OwnedFd,
    kind: MapKind,
    key: usize,
    value: usize,
}

impl Map {
    /// Creates a map; `value` is the size of a value in bytes, a multiple of 8.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn create(kind: MapKind, name: &str, value: u32) -> io::Result<Map> {
        let mut types = None;
        let (number, key, bytes, entries, flags) = match kind {
            MapKind::Hash { key, entries } => (1, key, value, entries, NO_RESERVE),
            MapKind::RecentHash { key, entries } => (9, key, value, entries, 0),
            MapKind::Value => (2, 4, value, 1, 0),
            MapKind::ValuePerCpu => (6, 4, value, 1, 0),
            MapKind::OfSocket => (24, 4, value, 0, NO_RESERVE),
            MapKind::OfThread => (29, 4, value, 0, NO_RESERVE),
            MapKind::Events { cpus } => (4, 4, 4, cpus, 0),
            MapKind::Ring => (27, 0, 0, value, 0),
        };
        let mut arguments = Arguments::new()
            .word(0, number)
            .word(4, key)
            .word(8, bytes)
            .word(12, entries)
            .word(16, flags)
            .text(28, name.as_bytes().get(..NAME).unwrap_or(name.as_bytes()));
        if matches!(kind, MapKind::OfSocket | MapKind::OfThread) {
            let types = types.insert(load_types(&storage_types(value / 8))?);
            // Keys are numbers of four bytes, type 1; values arrays of numbers, type 3.
            arguments = arguments.word(48, types.as_raw_fd() as u32).word(52, 1).word(56, 3);
        }
        let descriptor = bpf_descriptor(Command::MapCreate, &mut arguments)?;
        Ok(Map { descriptor, kind, key: key as usize, value: bytes as usize })
    }

    /// Returns the number by which programs name the map.
    pub fn number(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// The map is full.
    ///
    /// # Panics
    /// Key or value has another size than the map's.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        assert!(key.len() == self.key && value.len() == self.value && self.kind != MapKind::ValuePerCpu);
        let mut arguments = Arguments::new().word(0, self.number() as u32).input(8, key).input(16, value);
        bpf(Command::MapUpdate, &mut arguments).map(drop)
    }

    /// Removes a key, if it is there.
    ///
    /// # Panics
    /// The key has another size than the map's.
    pub fn remove(&self, key: &[u8]) {
        assert_eq!(key.len(), self.key);
        // The only failure is a key that is not there.
        let _ = bpf(Command::MapDelete, &mut Arguments::new().word(0, self.number() as u32).input(8, key));
    }

    /// Returns the keys of a hash, at most so many, with the numbers in their values.
    ///
    /// # Errors
    /// The kernel refuses.
    ///
    /// # Panics
    /// Keys are no numbers of four bytes.
    pub fn entries(&self, most: u32) -> io::Result<Vec<(u32, Vec<u64>)>> {
        assert_eq!(self.key, 4);
        let mut keys = vec![0; self.key * most as usize];
        let mut values = vec![0; self.value * most as usize];
        let mut next = [0; 8];
        let mut arguments = Arguments::new()
            .output(8, &mut next)
            .output(16, &mut keys)
            .output(24, &mut values)
            .word(32, most)
            .word(36, self.number() as u32);
        match bpf(Command::MapLookupBatch, &mut arguments) {
            // These were the last entries.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            result => _ = result?,
        }
        let count = arguments.word_at(32) as usize;
        let keys = keys.chunks_exact(4).map(|key| u32::from_ne_bytes(key.try_into().unwrap_or_default()));
        Ok(keys.zip(values.chunks_exact(self.value).map(numbers)).take(count).collect())
    }

    /// Returns the numbers in the value of a map with one value: for each CPU one copy.
    ///
    /// # Errors
    /// The kernel refuses.
    ///
    /// # Panics
    /// The map is of another kind.
    pub fn numbers(&self) -> io::Result<Vec<u64>> {
        let copies = match self.kind {
            MapKind::Value => 1,
            MapKind::ValuePerCpu => possible_cpus()?,
            _ => panic!("{:?} has more than one value", self.kind),
        };
        let mut bytes = vec![0; self.value * copies];
        let key = 0_u32.to_ne_bytes();
        let mut arguments = Arguments::new().word(0, self.number() as u32).input(8, &key).output(16, &mut bytes);
        bpf(Command::MapLookup, &mut arguments)?;
        Ok(numbers(&bytes))
    }
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|number| u64::from_ne_bytes(number.try_into().unwrap_or_default())).collect()
}

/// Gives the kernel a description of types.
fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    bpf_descriptor(Command::BtfLoad, &mut Arguments::new().input(0, types).word(16, types.len() as u32))
}

/// Returns the number of CPUs that the machine could have: the copies of a value per CPU.
fn possible_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    cpu_count(&text).ok_or_else(|| io::Error::other(format!("{text:?} is no list of CPUs")))
}

/// Returns the number of CPUs of a list such as `0-3,8`, as the kernel counts copies: up to the
/// last.
fn cpu_count(list: &str) -> Option<usize> {
    /// The kernel has no more (`NR_CPUS`).
    const MOST: usize = 8192;
    let count = |range: &str| -> Option<usize> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < MOST).then(|| last - first + 1)
    };
    list.trim().split(',').map(count).try_fold(0_usize, |sum, count| Some(sum + count?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        let check = |list, expected| assert_eq!(cpu_count(list), expected, "{list}");
        check("0-1\n", Some(2));
        check("0", Some(1));
        check("0-3,8,10-11", Some(7));
        check("", None);
        check("3-1", None);
        check("0-99999999999", None);
    }

    #[test]
    fn a_value_is_kept_and_read_for_each_cpu() {
        let map = Map::create(MapKind::Value, "test", 16).unwrap();
        map.set(&[0; 4], &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(map.numbers().unwrap(), [1, 2]);
        let map = Map::create(MapKind::ValuePerCpu, "test", 24).unwrap();
        assert_eq!(map.numbers().unwrap(), vec![0; 3 * possible_cpus().unwrap()]);
    }

    #[test]
    fn a_hash_is_bounded() {
        let map = Map::create(MapKind::Hash { key: 4, entries: 2 }, "a_name_that_is_too_long", 8).unwrap();
        let set = |key: u8| map.set(&[key, 0, 0, 0], &[0; 8]);
        set(1).unwrap();
        set(2).unwrap();
        assert!(set(3).is_err());
        map.remove(&[1, 0, 0, 0]);
        map.remove(&[9, 0, 0, 0]);
        set(3).unwrap();
    }

    #[test]
    fn all_entries_of_a_hash_are_read() {
        let map = Map::create(MapKind::Hash { key: 4, entries: 100 }, "test", 16).unwrap();
        assert_eq!(map.entries(100).unwrap(), []);
        let value = |key: u32| [u64::from(key), 7].map(u64::to_ne_bytes).concat();
        (1..=100_u32).for_each(|key| map.set(&key.to_ne_bytes(), &value(key)).unwrap());
        let mut entries = map.entries(100).unwrap();
        entries.sort_unstable();
        assert_eq!(entries, (1..=100).map(|key| (key, vec![u64::from(key), 7])).collect::<Vec<_>>());
    }

    #[test]
    fn sockets_and_threads_have_storage() {
        Map::create(MapKind::OfSocket, "test", 40).unwrap();
        Map::create(MapKind::OfThread, "test", 16).unwrap();
    }
}
