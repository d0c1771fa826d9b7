//! Attacks on the port for datagrams. Their bytes are written by hand, from `docs/datagrams.md`.

use crate::target::{AttackRng, Target};
use leeward_wire::{Encoder, Frame, PayloadLimit, Register, Timestamp};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const HEADER: usize = 40;
const HELLO: u8 = 1;
const OPEN: u8 = 3;
const CALL: u8 = 5;
const CONTROL: u8 = 8;

/// The fields of a datagram that matter to an attack.
#[derive(Clone, Copy, Default)]
struct DatagramFields {
    mark: [u8; 4],
    slot: u32,
    key: u64,
    number: u64,
    order: u64,
}

fn datagram(kind: u8, said: &DatagramFields, frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b'L', b'U', 1, kind];
    bytes.extend(said.mark);
    bytes.extend(said.slot.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    for word in [said.key, said.number, said.order] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend_from_slice(frame);
    bytes
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn socket() -> Option<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    socket.set_read_timeout(Some(Duration::from_millis(200))).ok()?;
    Some(socket)
}

/// A cookie, as the server tells it to anybody who asks: with the address of a core.
fn cookie(target: &Target, socket: &UdpSocket, nonce: u64) -> Option<(SocketAddr, DatagramFields)> {
    let hello = datagram(HELLO, &DatagramFields { key: nonce, ..DatagramFields::default() }, &[0; 24]);
    let mut bytes = [0; 100];
    for _ in 0..20 {
        socket.send_to(&hello, target.address).ok()?;
        let Ok((HEADER, _)) = socket.recv_from(&mut bytes) else { continue };
        let core = SocketAddr::new(target.address.ip(), number(&bytes, 8) as u16);
        let mark = [bytes[4], bytes[5], bytes[6], bytes[7]];
        return Some((
            core,
            DatagramFields { mark, slot: 0, key: nonce, number: number(&bytes, 24), order: number(&bytes, 32) },
        ));
    }
    None
}

/// Sends what `next` says, as fast as it can, and takes what comes back. How much of both.
fn pour(target: &Target, socket: &UdpSocket, to: SocketAddr, mut next: impl FnMut(u64) -> Vec<u8>) -> String {
    let _ = socket.set_nonblocking(true);
    let (mut count, mut said, mut told, mut bytes) = (0_u64, 0, 0, [0; 2000]);
    while target.is_active() {
        for _ in 0..64 {
            count += 1;
            said += socket.send_to(&next(count), to).unwrap_or(0);
        }
        while let Ok(length) = socket.recv(&mut bytes) {
            told += length;
        }
    }
    format!("{count} datagrams of {said} bytes, told {told} bytes")
}

fn register() -> Vec<u8> {
    let mut bytes = Vec::new();
    let register = Register { timestamp: Timestamp(1), demand: 0, payload_max: PayloadLimit::DEFAULT };
    let _ = Encoder::new(PayloadLimit::MAX).append(&Frame::Register(register), &mut bytes);
    bytes
}

const NO_COOKIE: &str = "no cookie from the server";

/// Datagrams of strangers at a core's own port: the kernel drops them.
pub(crate) fn unvalidated_clients(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    let Some((core, _)) = cookie(target, &socket, 1) else { return NO_COOKIE.into() };
    let one = datagram(CALL, &DatagramFields { key: 7, ..DatagramFields::default() }, &[0; 72]);
    pour(target, &socket, core, |_| one.clone())
}

/// Greetings, each with a nonce of its own.
pub(crate) fn greetings(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    pour(target, &socket, target.address, |nonce| {
        datagram(HELLO, &DatagramFields { key: nonce, ..DatagramFields::default() }, &[0; 24])
    })
}

/// Registrations with cookies that are wrong, behind a mark that is right.
pub(crate) fn forged(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    let Some((core, said)) = cookie(target, &socket, 1) else { return NO_COOKIE.into() };
    let register = register();
    pour(target, &socket, core, |nonce| datagram(OPEN, &DatagramFields { key: nonce + 1, ..said }, &register))
}

/// Calls and words of sessions that there are not, behind a mark that is right.
pub(crate) fn unknown_sessions(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    let Some((core, said)) = cookie(target, &socket, 1) else { return NO_COOKIE.into() };
    pour(target, &socket, core, |count| {
        let kind = if count % 2 == 0 { CALL } else { CONTROL };
        datagram(kind, &DatagramFields { slot: count as u32 % 100, key: count, ..said }, &[0; 72])
    })
}

/// The registration of one session, again and again.
pub(crate) fn replays(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    let Some((core, said)) = cookie(target, &socket, 1) else { return NO_COOKIE.into() };
    let open = datagram(OPEN, &said, &register());
    pour(target, &socket, core, |_| open.clone())
}

/// Datagrams that are cut short, too long, or random, behind a mark that is right.
pub(crate) fn sizes(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    let Some((core, said)) = cookie(target, &socket, 1) else { return NO_COOKIE.into() };
    let mut chance: AttackRng = target.rng();
    pour(target, &socket, core, |_| {
        let kind = chance.below(12) as u8;
        let length = chance.below(4_000);
        let mut bytes = datagram(kind, &said, &chance.bytes(64));
        bytes.resize(HEADER / 2 + length, 0);
        bytes
    })
}
