//! A client over a real socket that sends ahead, and accounts for every answer.

use leeward_pair::frames::{call_of, encode, register};
use leeward_rpc::server::Server;
use leeward_rpc::wire::{Decoder, Frame, Method, PayloadLimit, Side};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Wait for an answer: only so that a defect fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct PipelinedClient {
    stream: TcpStream,
    decoder: Decoder,
    out: Vec<u8>,
}

/// Content of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallResult {
    Result(Vec<u8>),
    Failure(String),
    Drop(String),
}

impl PipelinedClient {
    pub(crate) fn new(server: &Server) -> PipelinedClient {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut asking =
            PipelinedClient { stream, decoder: Decoder::new(Side::Server, PayloadLimit::DEFAULT), out: Vec::new() };
        asking.write_frame(&register());
        asking.send();
        asking
    }

    fn write_frame(&mut self, frame: &Frame<'_>) {
        self.out.extend(encode(frame));
    }

    /// A call that goes with the next [`Asking::send`].
    pub(crate) fn call(&mut self, request: u64, method: u32, payload: &[u8]) {
        self.write_frame(&call_of(Method(method), request, payload));
    }

    pub(crate) fn send(&mut self) {
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }

    /// The next answer: which request, and what.
    pub(crate) fn answer(&mut self) -> (u64, CallResult) {
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.next_answer().expect("an answer, however late")
    }

    /// The next answer, if it comes by then.
    pub(crate) fn answer_by(&mut self, then: Instant) -> Option<(u64, CallResult)> {
        // No time-out is written as one of nothing.
        let left = then.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
        self.stream.set_read_timeout(Some(left)).unwrap();
        self.next_answer()
    }

    fn next_answer(&mut self) -> Option<(u64, CallResult)> {
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                match frame {
                    Frame::Response(response) => {
                        return Some((response.answer.request.value(), CallResult::Result(response.payload.to_vec())));
                    }
                    Frame::Failure(failure) => {
                        let words = failure.message.as_str().to_string();
                        return Some((failure.answer.request.value(), CallResult::Failure(words)));
                    }
                    Frame::Drop(dropped) => {
                        return Some((
                            dropped.answer.request.value(),
                            CallResult::Drop(format!("{:?}", dropped.reason)),
                        ));
                    }
                    Frame::Error(error) => panic!("{error:?}"),
                    _ => continue,
                }
            }
            match self.stream.read(self.decoder.spare()) {
                Ok(0) => panic!("the tier has ended the connection"),
                Ok(count) => self.decoder.advance(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Asks once and waits.
    pub(crate) fn ask(&mut self, request: u64, method: u32, payload: &[u8]) -> CallResult {
        self.call(request, method, payload);
        self.send();
        let (answered, told) = self.answer();
        assert_eq!(answered, request);
        told
    }
}
