//! A connection to a leaf, shared by all tasks: one task writes requests, another delivers
//! responses.
//!
//! Does not contain the content of requests, or the use of responses.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use leeward_core::units::{CreditId, Priority};
use leeward_rpc::wire::{
    Budget, Call, Decoder, Encoder, Frame, Method, PayloadLimit, Register, RequestId, Side, Timestamp,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::codec;

/// Maximum number of calls that wait to be written; further callers wait.
const QUEUE: usize = 4_096;

/// A request to a leaf.
struct LeafCall {
    payload: Arc<[u8]>,
    answer: oneshot::Sender<Vec<u8>>,
}

/// Waiting callers; the index of each is its call number minus one.
#[derive(Default)]
struct Waiting {
    slots: Vec<Option<oneshot::Sender<Vec<u8>>>>,
    free: Vec<usize>,
}

impl Waiting {
    fn put(&mut self, answer: oneshot::Sender<Vec<u8>>) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(answer);
        slot as u64 + 1
    }

    fn take(&mut self, number: u64) -> Option<oneshot::Sender<Vec<u8>>> {
        let slot = usize::try_from(number.checked_sub(1)?).ok()?;
        let answer = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(answer)
    }
}

/// A connection to a leaf.
#[derive(Clone)]
pub(super) struct Link {
    calls: mpsc::Sender<LeafCall>,
}

impl Link {
    /// Connects and spawns both tasks on the current runtime.
    ///
    /// # Errors
    /// The leaf can't be reached, or does not speak the protocol.
    pub(super) async fn connect(leaf: SocketAddr) -> Result<Link> {
        let stream = TcpStream::connect(leaf).await.with_context(|| format!("connecting to the leaf {leaf}"))?;
        stream.set_nodelay(true)?;
        let (reader, mut writer) = stream.into_split();
        let register = Register { timestamp: Timestamp(0), demand: 0, payload_max: PayloadLimit::DEFAULT };
        writer.write_all(&codec::encoded(&Frame::Register(register))).await?;
        let (calls, queued) = mpsc::channel(QUEUE);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let writing = tokio::spawn(write(writer, queued, Arc::clone(&waiting)));
        tokio::spawn(async move {
            read(reader, &waiting).await;
            // Fail all pending requests: aborting the writer drops those not yet written, the reset
            // below the others.
            writing.abort();
            let _ = writing.await;
            *waiting.lock().unwrap_or_else(PoisonError::into_inner) = Waiting::default();
        });
        Ok(Link { calls })
    }

    /// Sends a request. The receiver gets the response, or closes if the leaf has none.
    pub(super) async fn call(&self, payload: Arc<[u8]>) -> oneshot::Receiver<Vec<u8>> {
        let (answer, answered) = oneshot::channel();
        // If the connection has ended, the request's sender is dropped, and the caller's receiver
        // closes.
        let _ = self.calls.send(LeafCall { payload, answer }).await;
        answered
    }
}

async fn write(mut writer: OwnedWriteHalf, mut queued: mpsc::Receiver<LeafCall>, waiting: Arc<Mutex<Waiting>>) {
    let encoder = Encoder::new(PayloadLimit::DEFAULT);
    let (mut calls, mut out) = (Vec::new(), Vec::new());
    // All pending requests go out in one write.
    while queued.recv_many(&mut calls, 64).await > 0 {
        out.clear();
        for LeafCall { payload, answer } in calls.drain(..) {
            let number = waiting.lock().unwrap_or_else(PoisonError::into_inner).put(answer);
            let Some(request) = RequestId::new(number) else { continue };
            let call = Call {
                request,
                timestamp: Timestamp(0),
                credit: CreditId::NONE,
                method: Method(0),
                demand: 0,
                budget: Budget::UNLIMITED,
                priority: Priority::HIGHEST,
                payload: &payload,
            };
            let _ = encoder.append(&Frame::Call(call), &mut out);
        }
        if writer.write_all(&out).await.is_err() {
            return;
        }
    }
}

async fn read(mut reader: OwnedReadHalf, waiting: &Mutex<Waiting>) {
    let mut decoder = Decoder::new(Side::Server, PayloadLimit::DEFAULT);
    while codec::fill(&mut reader, &mut decoder).await.is_some() {
        if let Err(error) = hand_out(&mut decoder, waiting) {
            eprintln!("error: a leaf: {error:#}");
            break;
        }
    }
}

fn hand_out(decoder: &mut Decoder, waiting: &Mutex<Waiting>) -> Result<()> {
    while let Some(frame) = decoder.next_frame()? {
        let (number, result) = match frame {
            Frame::Response(response) => (response.answer.request.value(), Some(response.payload.to_vec())),
            Frame::Drop(dropped) => (dropped.answer.request.value(), None),
            Frame::Failure(failure) => (failure.answer.request.value(), None),
            Frame::Welcome(_) | Frame::Credit(_) => continue,
            other => bail!("it sent a {} frame", other.kind()),
        };
        let answer = waiting.lock().unwrap_or_else(PoisonError::into_inner).take(number);
        if let (Some(answer), Some(result)) = (answer, result) {
            // The client may have disconnected.
            let _ = answer.send(result);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use leeward_rpc::wire::Ping;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn calls_fail_when_the_leaf_breaks_the_protocol() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let link = Link::connect(address).await.unwrap();
            let (mut leaf, _) = listener.accept().unwrap();
            let early = link.call(Arc::from(*b"early")).await;
            // Only clients send pings. The connection stays open: only the reader ends.
            leaf.write_all(&codec::encoded(&Frame::Ping(Ping { timestamp: Timestamp(0) }))).unwrap();
            assert!(early.await.is_err());
            for _ in 0..3 {
                assert!(link.call(Arc::from(*b"late")).await.await.is_err());
            }
        });
    }
}
