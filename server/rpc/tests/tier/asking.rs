//! A client over a real socket that sends ahead, and accounts for every answer.

use leeward_pair::frames::{bytes, call_of, register};
use leeward_rpc::server::Server;
use leeward_rpc::wire::{Decoder, Frame, Method, PayloadLimit, Side};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Wait for an answer: only so that a defect fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Asking {
    stream: TcpStream,
    decoder: Decoder,
    out: Vec<u8>,
}

/// Content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Result(Vec<u8>),
    Failure(String),
    Drop(String),
}

impl Asking {
    pub(crate) fn new(server: &Server) -> Asking {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut asking = Asking { stream, decoder: Decoder::new(Side::Server, PayloadLimit::DEFAULT), out: Vec::new() };
        asking.say(&register());
        asking.send();
        asking
    }

    fn say(&mut self, frame: &Frame<'_>) {
        self.out.extend(bytes(frame));
    }

    /// A call that goes with the next [`Asking::send`].
    pub(crate) fn call(&mut self, request: u64, method: u32, payload: &[u8]) {
        self.say(&call_of(Method(method), request, payload));
    }

    pub(crate) fn send(&mut self) {
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }

    /// The next answer: which request, and what.
    pub(crate) fn answer(&mut self) -> (u64, Told) {
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.next_answer().expect("an answer, however late")
    }

    /// The next answer, if it comes by then.
    pub(crate) fn answer_by(&mut self, then: Instant) -> Option<(u64, Told)> {
        // No time-out is written as one of nothing.
        let left = then.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
        self.stream.set_read_timeout(Some(left)).unwrap();
        self.next_answer()
    }

    fn next_answer(&mut self) -> Option<(u64, Told)> {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                match frame {
                    Frame::Response(response) => {
                        return Some((response.answer.request.value(), Told::Result(response.payload.to_vec())));
                    }
                    Frame::Failure(failure) => {
                        let words = failure.message.as_str().to_string();
                        return Some((failure.answer.request.value(), Told::Failure(words)));
                    }
                    Frame::Drop(dropped) => {
                        return Some((dropped.answer.request.value(), Told::Drop(format!("{:?}", dropped.reason))));
                    }
                    Frame::Error(error) => panic!("{error:?}"),
                    _ => continue,
                }
            }
            match self.stream.read(self.decoder.spare()) {
                Ok(0) => panic!("the tier has ended the connection"),
                Ok(count) => self.decoder.filled(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Asks once and waits.
    pub(crate) fn ask(&mut self, request: u64, method: u32, payload: &[u8]) -> Told {
        self.call(request, method, payload);
        self.send();
        let (answered, told) = self.answer();
        assert_eq!(answered, request);
        told
    }
}
