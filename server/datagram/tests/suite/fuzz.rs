//! Invalid datagrams, foreign ones, and ones at the wrong position: no code panics, and a link only
//! passes on whole frames.

use crate::harness::{call, encode, register, response};
use leeward_core::units::Time;
use leeward_datagram::header::{Header, Kind};
use leeward_datagram::{DatagramSize, address_validation::AddressValidation, client, frame, server};
use leeward_testkit::fuzz::FuzzSearch;
use leeward_testkit::random::Random;
use leeward_wire::{Demand, Frame};
use std::path::Path;

const KEY: u64 = 77;

fn below(random: &mut Random, below: u64) -> u64 {
    random.below(below as usize) as u64
}

fn datagram(random: &mut Random) -> Vec<u8> {
    let frames = [
        vec![],
        call(1 + below(random, 4), b"x"),
        register(),
        response(2),
        encode(&Frame::Demand(Demand { demand: 3 })),
    ];
    let frame = &frames[below(random, frames.len() as u64) as usize];
    let header = Header {
        kind: Kind::ALL[below(random, Kind::ALL.len() as u64) as usize],
        mark: [0; 4],
        slot: below(random, 3) as u32,
        ack: below(random, 4) as u32,
        key: KEY,
        number: below(random, 5) << (16 * below(random, 2)) | below(random, 300),
        order: below(random, 5),
    };
    let mut datagram = Vec::new();
    header.write(frame, &mut datagram);
    for _ in 0..below(random, 4) {
        let at = below(random, datagram.len() as u64) as usize;
        let more = below(random, 1500) as usize;
        let byte = below(random, 256) as u8;
        match below(random, 3) {
            0 => datagram[at] ^= 1 << below(random, 8),
            1 => datagram.truncate(at.max(1)),
            _ => datagram.resize((at + more).max(1), byte),
        }
    }
    datagram
}

#[test]
fn fuzz_both_ends() {
    let findings = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let search = FuzzSearch { name: "datagram", findings, iterations: 20_000 };
    search.run(datagram, |random, bytes| {
        let mut server = server::Link::new(server::SessionId { slot: 1, key: KEY, nonce: 5 }, DatagramSize::DEFAULT);
        let mut client = client::Link::new(KEY, DatagramSize::DEFAULT, Time(1));
        let mut sent = 0;
        let mut out = |datagram: &[u8]| {
            assert!(datagram.len() <= DatagramSize::DEFAULT.bytes());
            sent += 1;
        };
        for step in 0..20 {
            let now = Time(1 + step * 1_000_000);
            let more = datagram(random);
            for bytes in [bytes, &more[..]] {
                if let Some((header, behind)) = Header::read(bytes)
                    && let Some(frame) = server.receive(now, &header, behind, below(random, 4) > 0, &mut out)
                {
                    assert!(frame::is_whole(frame));
                }
                if let Ok(Some(frame)) = client.receive(now, &mut bytes.to_vec()) {
                    assert!(frame::is_whole(frame));
                }
                let _ = server::Link::registration(&mut bytes.to_vec(), DatagramSize::DEFAULT);
                let _ = AddressValidation::new([1; 4]).answer_hello(now, "[::1]:1".parse().unwrap(), bytes, 1);
            }
            server.send(now, &response(1 + below(random, 4)), &mut out);
            let _ = client.send(now, &[register(), call(1, b"")].concat(), &mut out);
            let _ = client.on_timer(now, &mut out);
            server.flush(now, &mut out);
            client.flush(&mut out);
        }
        assert!(sent < 1000);
    });
}
