//! A client over a real socket that sends ahead, and accounts for every response.

use leeward_pair::frames::{call_of, encode, register};
use leeward_rpc::server::Server;
use leeward_rpc::wire::{Decoder, Frame, Method, PayloadLimit, Side};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Wait for a response: only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct PipelinedClient {
    stream: TcpStream,
    decoder: Decoder,
    out: Vec<u8>,
}

/// Content of a response.
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
        let mut client =
            PipelinedClient { stream, decoder: Decoder::new(Side::Server, PayloadLimit::DEFAULT), out: Vec::new() };
        client.write_frame(&register());
        client.send();
        client
    }

    fn write_frame(&mut self, frame: &Frame<'_>) {
        self.out.extend(encode(frame));
    }

    /// Queues a call for the next [`PipelinedClient::send`].
    pub(crate) fn call(&mut self, request: u64, method: u32, payload: &[u8]) {
        self.write_frame(&call_of(Method(method), request, payload));
    }

    pub(crate) fn send(&mut self) {
        self.stream.write_all(&self.out).unwrap();
        self.out.clear();
    }

    /// The next response, with its request id.
    pub(crate) fn answer(&mut self) -> (u64, CallResult) {
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.next_answer().expect("an answer, however late")
    }

    /// The next response, if it arrives by then.
    pub(crate) fn answer_by(&mut self, deadline: Instant) -> Option<(u64, CallResult)> {
        // A timeout of zero would mean no timeout.
        let remaining = deadline.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
        self.stream.set_read_timeout(Some(remaining)).unwrap();
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
                        let message = failure.message.as_str().to_string();
                        return Some((failure.answer.request.value(), CallResult::Failure(message)));
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

    /// Calls once and waits.
    pub(crate) fn ask(&mut self, request: u64, method: u32, payload: &[u8]) -> CallResult {
        self.call(request, method, payload);
        self.send();
        let (answered, result) = self.answer();
        assert_eq!(answered, request);
        result
    }
}
