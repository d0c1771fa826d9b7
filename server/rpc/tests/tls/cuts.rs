//! However the network cuts bytes, both ends read the other's bytes once and in order; and no bytes
//! cause a panic.

use crate::certificates::Authority;
use leeward_rpc::client::TlsStream;
use leeward_rpc::tls::{ClientTls, ServerTls, Session};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::rc::Rc;
use std::sync::LazyLock;

/// Keys are made once, because that is slow.
static ENDS: LazyLock<(Authority, ServerTls, ClientTls)> = LazyLock::new(|| {
    let authority = Authority::new();
    let identity = authority.localhost();
    let (server, client) = (authority.server(Some(&authority)), authority.client(Some(identity)));
    (authority, server, client)
});

/// Bytes in transit in both directions.
#[derive(Default)]
struct Pipe {
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    /// Maximum bytes of the next reads and writes; 0 means no space, or no input.
    cuts: VecDeque<usize>,
}

impl Pipe {
    fn cut(&mut self) -> usize {
        self.cuts.pop_front().unwrap_or(usize::MAX)
    }
}

fn moved(count: usize) -> io::Result<usize> {
    if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
}

fn push(queue: &mut VecDeque<u8>, bytes: &[u8], max: usize) -> io::Result<usize> {
    let count = bytes.len().min(max);
    queue.extend(&bytes[..count]);
    moved(count)
}

fn pull(queue: &mut VecDeque<u8>, into: &mut [u8], max: usize) -> io::Result<usize> {
    let count = into.len().min(max).min(queue.len());
    queue.drain(..count).zip(into.iter_mut()).for_each(|(byte, target)| *target = byte);
    moved(count)
}

/// The client's end of the pipe.
#[derive(Clone)]
struct ClientEnd(Rc<RefCell<Pipe>>);

impl Read for ClientEnd {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        let max = wire.cut();
        pull(&mut wire.to_client, into, max)
    }
}

impl Write for ClientEnd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        let max = wire.cut();
        push(&mut wire.to_server, bytes, max)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The server's end, which reads into its own buffer, as the engine does.
struct ServerEnd {
    wire: Rc<RefCell<Pipe>>,
    session: Session,
}

impl ServerEnd {
    /// Reads once and appends the plaintext to `read`, at most `room` bytes at a time.
    fn read(&mut self, room: usize, read: &mut Vec<u8>) -> Result<(), leeward_rpc::tls::TlsError> {
        let (mut ciphertext, mut plaintext) = ([0; 16 * 1024], vec![0; room]);
        let taken = self.session.take(&mut plaintext);
        read.extend_from_slice(&plaintext[..taken]);
        if taken > 0 {
            return Ok(());
        }
        let count = {
            let mut wire = self.wire.borrow_mut();
            let max = wire.cut().min(room);
            pull(&mut wire.to_server, &mut ciphertext, max).unwrap_or(0)
        };
        let taken = self.session.absorb(&ciphertext[..count], &mut plaintext)?;
        read.extend_from_slice(&plaintext[..taken]);
        Ok(())
    }

    fn write(&mut self) {
        let wire = Rc::clone(&self.wire);
        let _ = self.session.send(&mut ServerWriter(wire));
    }
}

/// The server's end, for writing.
struct ServerWriter(Rc<RefCell<Pipe>>);

impl Write for ServerWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        let max = wire.cut();
        push(&mut wire.to_client, bytes, max)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ends(cuts: Vec<usize>) -> (TlsStream<ClientEnd>, ServerEnd, Rc<RefCell<Pipe>>) {
    let (_, server, client) = &*ENDS;
    let wire = Rc::new(RefCell::new(Pipe { cuts: cuts.into(), ..Pipe::default() }));
    let session = client.connect(&client.name_for("localhost:1").unwrap()).unwrap();
    let near = TlsStream::new(ClientEnd(Rc::clone(&wire)), session);
    (near, ServerEnd { wire: Rc::clone(&wire), session: server.accept().unwrap() }, wire)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_is_read_once_in_order(
        cuts in prop::collection::vec(prop_oneof![Just(0usize), 1usize..40, 1usize..20_000], 0..200),
        ask in 1usize..60_000,
        answer in 1usize..60_000,
        room in prop_oneof![1usize..600, Just(16_384)],
    ) {
        let (mut client_end, mut server_end, _) = ends(cuts);
        let bytes = |length: usize, step: usize| -> Vec<u8> { (0..length).map(|at| (at * step % 253) as u8).collect() };
        let (request, response) = (bytes(ask, 7), bytes(answer, 11));
        let (mut written, mut sealed, mut at_server, mut at_client) = (0, 0, Vec::new(), Vec::new());
        for round in 0.. {
            prop_assert!(round < 100_000, "stuck: {} of {ask}, {} of {answer}", at_server.len(), at_client.len());
            // The caller offers the rest again.
            match client_end.write(&request[written..]) {
                Ok(count) => written += count,
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            server_end.read(room, &mut at_server).unwrap();
            if !server_end.session.is_handshaking() && sealed < response.len() && !server_end.session.wants_send() {
                sealed += server_end.session.seal(&response[sealed..]);
            }
            server_end.write();
            let mut chunk = vec![0; room];
            match client_end.read(&mut chunk) {
                Ok(count) => at_client.extend_from_slice(&chunk[..count]),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            if at_server.len() >= ask && at_client.len() >= answer {
                break;
            }
        }
        prop_assert!(at_server == request && at_client == response);
        prop_assert_eq!(server_end.session.identity().unwrap().to_string(), "dns:localhost");
    }

    #[test]
    fn bytes_that_were_changed_on_their_way_end_the_session(
        place in 0usize..4_000, change in 1u8..=255, to_server in any::<bool>(),
    ) {
        let (mut client_end, mut server_end, wire) = ends(Vec::new());
        let (mut at_server, mut moved, mut is_changed) = (Vec::new(), 0, false);
        for _ in 0..50 {
            let wrote = client_end.write(b"hello");
            {
                let mut wire = wire.borrow_mut();
                let queue = if to_server { &mut wire.to_server } else { &mut wire.to_client };
                if !is_changed && let Some(byte) = place.checked_sub(moved).and_then(|at| queue.get_mut(at)) {
                    *byte ^= change;
                    is_changed = true;
                }
                moved += queue.len();
            }
            let read = server_end.read(16_384, &mut at_server);
            server_end.write();
            if read.is_err() || wrote.is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
                break;
            }
            match client_end.read(&mut [0; 100]) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => break,
                _ => {}
            }
        }
        // A changed record is never read.
        prop_assert!(at_server.chunks(5).all(|chunk| chunk == b"hello"));
    }

    #[test]
    fn any_handshake_bytes_are_an_error_or_incomplete(bytes in prop::collection::vec(any::<u8>(), 1..300), like in any::<bool>()) {
        let (_, server, _) = &*ENDS;
        let mut session = server.accept().unwrap();
        let bytes = if like { [&[0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3][..], &bytes].concat() } else { bytes };
        let _ = session.absorb(&bytes, &mut [0; 64]);
        prop_assert!(session.is_handshaking());
    }
}
