//! Tests with records as the kernel writes them, and with arbitrary bytes.
//!
//! Contains no test of rings.

use proptest::prelude::*;

use super::*;

fn header(kind: u32, misc: u16, body: &[u8]) -> (Header, Vec<u8>) {
    let size = (HEADER + body.len()) as u16;
    let mut bytes = Vec::new();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(misc.to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend(body);
    (Header { kind, misc, size }, bytes)
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Fields at the end of all records but samples.
const END: [u64; 4] = [7 << 32 | 6, 1000, 3, 42];

fn with(stack: StackCapture) -> Layout {
    Layout { stack: Some(stack), has_message: false }
}

fn origin() -> Origin {
    Origin { event: 42, process: 6, thread: 7, time: 1000, cpu: 3 }
}

#[test]
fn a_sample_with_a_call_chain() {
    let body = words(&[42, pair(6, 7), 1000, 3, 4, -128_i64 as u64, 0xffff, CHAIN_USER, 0x1234]);
    let (header, bytes) = header(SAMPLE, 0, &body);
    let Some(Parsed::Sample { origin: found, stack: TakenStack::Chain(chain), .. }) =
        parse(header, &bytes, |_| Some(with(StackCapture::FramePointers)))
    else {
        panic!("no sample");
    };
    assert_eq!(found, origin());
    assert_eq!(chain_addresses(chain).collect::<Vec<_>>(), [0x1234]);
}

#[test]
fn a_sample_with_a_copy_of_the_stack() {
    let mut body = words(&[42, pair(6, 7), 1000, 3, 2]);
    let registers: Vec<u64> = (0..u64::from(REGISTERS.count_ones())).collect();
    body.extend(words(&registers));
    body.extend(words(&[16, 0xaa, 0xbb, 8]));
    let (header, bytes) = header(SAMPLE, 0, &body);
    let Some(Parsed::Sample { stack: TakenStack::Copy { registers: found, memory }, .. }) =
        parse(header, &bytes, |_| Some(with(StackCapture::Copy(16))))
    else {
        panic!("no copy");
    };
    assert_eq!(found.to_vec(), registers);
    assert_eq!(memory, words(&[0xaa]));
}

#[test]
fn a_message_of_a_program() {
    let mut body = words(&[42, pair(6, 7), 1000, 3]);
    body.extend(12u32.to_le_bytes());
    body.extend(words(&[9]));
    body.extend([0; 4]);
    let (header, bytes) = header(SAMPLE, 0, &body);
    let found = parse(header, &bytes, |_| Some(Layout { stack: None, has_message: true }));
    let Some(Parsed::Sample { message, .. }) = found else { panic!("no message") };
    assert_eq!(message[..8], words(&[9]));
}

#[test]
fn a_thread_of_the_kernel_has_no_stack() {
    let body = words(&[42, pair(6, 7), 1000, 3, 0, 0]);
    let (header, bytes) = header(SAMPLE, 0, &body);
    let found = parse(header, &bytes, |_| Some(with(StackCapture::Copy(16))));
    assert_eq!(found, Some(Parsed::Sample { origin: origin(), stack: TakenStack::Nothing, message: &[] }));
}

#[test]
fn switches_names_and_ends() {
    let (kind, bytes) = header(SWITCH, SWITCH_OUT | SWITCH_OUT_PREEMPTED, &words(&END));
    let found = parse(kind, &bytes, |_| None);
    assert_eq!(found, Some(Parsed::Switch { origin: origin(), is_out: true, preempted: true }));
    assert_eq!(kind.time_offset().map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())), Some(1000));

    let mut body = words(&[pair(6, 7)]);
    body.extend(b"worker\0\0");
    body.extend(words(&END));
    let (kind, bytes) = header(COMM, COMM_EXEC, &body);
    let found = parse(kind, &bytes, |_| None);
    let expected = Parsed::Named { origin: origin(), process: 6, thread: 7, by_exec: true, name: b"worker" };
    assert_eq!(found, Some(expected));

    let mut body = words(&[pair(6, 6), pair(8, 7), 1000]);
    body.extend(words(&END));
    let (kind, bytes) = header(FORK, 0, &body);
    let expected = Parsed::Forked { origin: origin(), process: 6, thread: 8, parent: 6, parent_thread: 7 };
    assert_eq!(parse(kind, &bytes, |_| None), Some(expected));
    let (kind, bytes) = header(EXIT, 0, &body);
    assert_eq!(parse(kind, &bytes, |_| None), Some(Parsed::Ended { origin: origin(), process: 6, thread: 8 }));
}

#[test]
fn only_executable_mappings_are_reported() {
    for (protection, is_code) in [(PROT_EXEC | 1, true), (3, false)] {
        let mut body = words(&[pair(6, 7), 0x1000, 0x2000, 0x3000, 0, 9, 0, pair(protection, 2)]);
        body.extend(b"/a\0\0\0\0\0\0");
        body.extend(words(&END));
        let (kind, bytes) = header(MMAP2, 0, &body);
        let found = parse(kind, &bytes, |_| None).unwrap();
        let (process, start, length, offset) = (6, 0x1000, 0x2000, 0x3000);
        let expected = Parsed::Mapped { origin: origin(), process, start, length, offset, inode: 9, path: b"/a" };
        assert_eq!(found, if is_code { expected } else { Parsed::Unknown });
    }
}

proptest! {
    /// No record panics, and a stack is never longer than its record.
    #[test]
    fn arbitrary_records_are_survived(
        kind in 0u32..20, misc: u16, body in prop::collection::vec(any::<u8>(), 0..400), copies: bool, unknown: bool,
        has_message: bool,
    ) {
        let body = &body[..body.len() / 8 * 8];
        let (header, bytes) = header(kind, misc, body);
        let capture = if copies { StackCapture::Copy(64) } else { StackCapture::FramePointers };
        let found = parse(header, &bytes, |_| (!unknown).then_some(Layout { stack: Some(capture), has_message }));
        if let Some(Parsed::Sample { stack: TakenStack::Chain(chain), .. }) = found {
            prop_assert!(chain_addresses(chain).count() <= body.len() / 8);
        }
        if let Some(offset) = header.time_offset() {
            prop_assert!(offset + 8 <= bytes.len());
        }
    }

    /// A record that was cut off is refused or read, but never read beyond.
    #[test]
    fn cut_records_are_survived(kind in 0u32..20, body in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
        let (header, bytes) = header(kind, 0, &body);
        let _ = parse(header, &bytes[..cut.min(bytes.len())], |_| Some(with(StackCapture::Copy(64))));
    }
}
