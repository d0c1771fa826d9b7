//! Attacks on the UDP port. The datagrams are built by hand, after `docs/datagrams.md`.

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

fn datagram(kind: u8, fields: &DatagramFields, frame: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b'L', b'U', 1, kind];
    bytes.extend(fields.mark);
    bytes.extend(fields.slot.to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    for word in [fields.key, fields.number, fields.order] {
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

/// Requests a cookie, which the server sends to any address, with the port of a core.
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

/// Sends the datagrams of `next` as fast as possible, and receives the replies; returns both
/// amounts.
fn pour(target: &Target, socket: &UdpSocket, to: SocketAddr, mut next: impl FnMut(u64) -> Vec<u8>) -> String {
    let _ = socket.set_nonblocking(true);
    let (mut count, mut sent, mut received, mut bytes) = (0_u64, 0, 0, [0; 2000]);
    while target.is_active() {
        for _ in 0..64 {
            count += 1;
            sent += socket.send_to(&next(count), to).unwrap_or(0);
        }
        while let Ok(length) = socket.recv(&mut bytes) {
            received += length;
        }
    }
    format!("{count} datagrams of {sent} bytes, told {received} bytes")
}

fn register() -> Vec<u8> {
    let mut bytes = Vec::new();
    let register = Register { timestamp: Timestamp(1), demand: 0, payload_max: PayloadLimit::DEFAULT };
    let _ = Encoder::new(PayloadLimit::MAX).append(&Frame::Register(register), &mut bytes);
    bytes
}

const NO_COOKIE: &str = "no cookie from the server";

/// Sends datagrams without a valid mark to a core's own port: the kernel drops them.
pub(crate) fn unvalidated_clients(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    let Some((core, _)) = cookie(target, &socket, 1) else { return NO_COOKIE.into() };
    let one = datagram(CALL, &DatagramFields { key: 7, ..DatagramFields::default() }, &[0; 72]);
    pour(target, &socket, core, |_| one.clone())
}

/// Sends greetings, each with a new nonce.
pub(crate) fn greetings(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    pour(target, &socket, target.address, |nonce| {
        datagram(HELLO, &DatagramFields { key: nonce, ..DatagramFields::default() }, &[0; 24])
    })
}

/// Sends registrations with wrong cookies and the right mark.
pub(crate) fn forged(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    let Some((core, fields)) = cookie(target, &socket, 1) else { return NO_COOKIE.into() };
    let register = register();
    pour(target, &socket, core, |nonce| datagram(OPEN, &DatagramFields { key: nonce + 1, ..fields }, &register))
}

/// Sends calls and control messages of nonexistent sessions, with the right mark.
pub(crate) fn unknown_sessions(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    let Some((core, fields)) = cookie(target, &socket, 1) else { return NO_COOKIE.into() };
    pour(target, &socket, core, |count| {
        let kind = if count % 2 == 0 { CALL } else { CONTROL };
        datagram(kind, &DatagramFields { slot: count as u32 % 100, key: count, ..fields }, &[0; 72])
    })
}

/// Sends the registration of one session repeatedly.
pub(crate) fn replays(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    let Some((core, fields)) = cookie(target, &socket, 1) else { return NO_COOKIE.into() };
    let open = datagram(OPEN, &fields, &register());
    pour(target, &socket, core, |_| open.clone())
}

/// Sends datagrams that are cut short, too long, or random, with the right mark.
pub(crate) fn sizes(target: &Target) -> String {
    let Some(socket) = socket() else { return "no socket".into() };
    let Some((core, fields)) = cookie(target, &socket, 1) else { return NO_COOKIE.into() };
    let mut rng: AttackRng = target.rng();
    pour(target, &socket, core, |_| {
        let kind = rng.below(12) as u8;
        let length = rng.below(4_000);
        let mut bytes = datagram(kind, &fields, &rng.bytes(64));
        bytes.resize(HEADER / 2 + length, 0);
        bytes
    })
}
