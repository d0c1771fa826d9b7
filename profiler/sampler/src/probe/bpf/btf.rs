//! Types of the running kernel (BTF): tracepoints by name, and where the fields of its structures
//! are.
//!
//! Contains no program. Never trusts the bytes it reads.

use std::io;

/// Kinds of types.
const INT: u32 = 1;
const POINTER: u32 = 2;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
/// First bytes of a description of types.
const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
/// Bytes of a type without what follows it.
const TYPE: usize = 12;
/// Structures within structures, and types of types.
const DEPTH: usize = 8;

/// Types of the running kernel.
#[derive(Debug)]
pub struct KernelTypes {
    bytes: Vec<u8>,
    /// Where each type begins, from type 1 on.
    types: Vec<u32>,
    strings: usize,
}

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes before it.
    pub offset: i16,
    /// Its bytes; 0 for a structure.
    pub size: u32,
}

impl KernelTypes {
    /// Reads the types of the running kernel.
    ///
    /// # Errors
    /// The kernel was built without them.
    pub fn of_kernel() -> io::Result<KernelTypes> {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux")?;
        KernelTypes::parse(bytes).ok_or_else(|| io::Error::other("/sys/kernel/btf/vmlinux can't be understood"))
    }

    fn parse(bytes: Vec<u8>) -> Option<KernelTypes> {
        let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let header = word(&bytes, 4)? as usize;
        if magic != MAGIC || header < HEADER {
            return None;
        }
        let at = |offset: u32| header.checked_add(offset as usize);
        let begin = at(word(&bytes, 8)?)?;
        let end = begin.checked_add(word(&bytes, 12)? as usize)?;
        let strings = at(word(&bytes, 16)?)?;
        let mut types = Vec::new();
        let mut place = begin;
        while place < end {
            let length = type_length(word(&bytes, place.checked_add(4)?)?)?;
            types.push(u32::try_from(place).ok()?);
            place = place.checked_add(length)?;
        }
        (place == end && end <= bytes.len()).then_some(KernelTypes { bytes, types, strings })
    }

    /// Returns where a type begins.
    fn place(&self, id: u32) -> Option<usize> {
        self.types.get(id.checked_sub(1)? as usize).map(|place| *place as usize)
    }

    /// Returns whether the text at an offset of the strings is this one.
    fn is_named(&self, offset: u32, name: &str) -> bool {
        let text = self.strings.checked_add(offset as usize).and_then(|from| self.bytes.get(from..));
        text.and_then(|text| text.strip_prefix(name.as_bytes())).is_some_and(|rest| rest.first() == Some(&0))
    }

    fn find(&self, kind: u32, name: &str) -> Option<u32> {
        let is_meant = |place: &u32| {
            let place = *place as usize;
            let (text, info) = (word(&self.bytes, place), word(&self.bytes, place + 4));
            info.is_some_and(|info| kind_of(info) == kind) && text.is_some_and(|text| self.is_named(text, name))
        };
        self.types.iter().position(is_meant).map(|index| index as u32 + 1)
    }

    /// Returns the type by which a program names a tracepoint.
    pub fn tracepoint(&self, name: &str) -> Option<u32> {
        self.find(TYPEDEF, &format!("btf_trace_{name}"))
    }

    /// Returns a field of a structure, also in its parts without a name.
    pub fn field(&self, structure: &str, field: &str) -> Option<Field> {
        let (bits, type_id) = self.member(self.find(STRUCT, structure)?, field, DEPTH)?;
        let offset = i16::try_from(bits / 8).ok().filter(|_| bits.is_multiple_of(8))?;
        Some(Field { offset, size: self.size(type_id, DEPTH)? })
    }

    /// Returns the offset of a field in bits, and its type.
    fn member(&self, structure: u32, field: &str, depth: usize) -> Option<(u64, u32)> {
        let place = self.place(structure)?;
        let info = word(&self.bytes, place + 4)?;
        if !matches!(kind_of(info), STRUCT | UNION) {
            return None;
        }
        (0..count_of(info)).find_map(|index| {
            let at = place + TYPE + index * 12;
            let (name, type_id) = (word(&self.bytes, at)?, word(&self.bytes, at + 4)?);
            let offset = word(&self.bytes, at + 8)?;
            // In a structure with bit fields the upper byte is a field's number of bits.
            let (bits, is_field) =
                if info >> 31 == 1 { (offset & 0xff_ffff, offset >> 24 != 0) } else { (offset, false) };
            if self.is_named(name, field) {
                return (!is_field).then_some((u64::from(bits), type_id));
            }
            let inner = (name == 0 && depth > 0).then(|| self.member(type_id, field, depth - 1))??;
            Some((u64::from(bits) + inner.0, inner.1))
        })
    }

    /// Returns the size of a number or pointer; 0 for others.
    fn size(&self, id: u32, depth: usize) -> Option<u32> {
        let place = self.place(id)?;
        let (info, size) = (word(&self.bytes, place + 4)?, word(&self.bytes, place + 8)?);
        match kind_of(info) {
            INT => Some(size),
            POINTER => Some(8),
            TYPEDEF | VOLATILE | CONST if depth > 0 => self.size(size, depth - 1),
            _ => Some(0),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn kind_of(info: u32) -> u32 {
    info >> 24 & 0x1f
}

/// Returns the number of a type's members.
fn count_of(info: u32) -> usize {
    (info & 0xffff) as usize
}

/// Returns the bytes of a type with what follows it; `None` for an unknown kind.
fn type_length(info: u32) -> Option<usize> {
    let count = count_of(info);
    let rest = match kind_of(info) {
        // Integer; variable; tag of a declaration.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Structure, union; section; enumeration of 64 bits.
        4 | 5 | 15 | 19 => 12 * count,
        // Enumeration; prototype.
        6 | 13 => 8 * count,
        // Pointer, forward, typedef, volatile, const, restrict, function; float; tag of a type.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    };
    Some(TYPE + rest)
}

/// Describes a map's key, a number of four bytes (type 1), and its value, an array of so many
/// numbers of eight bytes (type 3).
pub(super) fn storage_types(numbers: u32) -> Vec<u8> {
    const STRINGS: &[u8] = b"\0u32\0u64\0";
    // Two integers: name, kind, bytes, bits. An array: name, kind, -, element, index, length.
    let types: [u32; 14] = [1, 1 << 24, 4, 32, 5, 1 << 24, 8, 64, 0, 3 << 24, 0, 2, 1, numbers];
    let length = (types.len() * 4) as u32;
    let mut bytes = MAGIC.to_ne_bytes().to_vec();
    bytes.extend([1, 0]);
    for word in [HEADER as u32, 0, length, length, STRINGS.len() as u32].iter().chain(&types) {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(STRINGS);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_fields_are_found() {
        let types = KernelTypes::of_kernel().unwrap();
        assert_eq!(types.field("list_head", "prev"), Some(Field { offset: 8, size: 8 }));
        // In a union without a name in a structure without a name.
        let [family, port] = ["skc_family", "skc_dport"].map(|field| types.field("sock_common", field).unwrap());
        assert_eq!([family.size, port.size], [2, 2]);
        assert!(types.field("sock_common", "no_such").is_none() && types.field("no_such", "prev").is_none());
        assert!(types.tracepoint("sched_process_fork").is_some() && types.tracepoint("no_such").is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn wrong_bytes_are_refused_or_read(
            numbers in 0_u32..9, changes in prop::collection::vec((0_usize..100, any::<u8>()), 0..8), cut in 0_usize..100,
        ) {
            let mut bytes = storage_types(numbers);
            for (at, byte) in changes {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(types) = KernelTypes::parse(bytes) {
                let _ = (types.field("u32", "u64"), types.tracepoint("u32"));
            }
        }
    }
}
