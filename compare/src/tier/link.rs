//! A connection to a leaf, shared by all tasks: one task writes what is asked, another hands out what came. Never here:
//! what is asked, and what is made of the answers.

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

/// Calls that wait to be written, at most: callers wait beyond that.
const QUEUE: usize = 4_096;

/// A question to a leaf.
struct Question {
    payload: Arc<[u8]>,
    answer: oneshot::Sender<Vec<u8>>,
}

/// Callers that wait, by the number of their call less one.
#[derive(Default)]
struct Waiting {
    places: Vec<Option<oneshot::Sender<Vec<u8>>>>,
    free: Vec<usize>,
}

impl Waiting {
    fn put(&mut self, answer: oneshot::Sender<Vec<u8>>) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(answer);
        place as u64 + 1
    }

    fn take(&mut self, number: u64) -> Option<oneshot::Sender<Vec<u8>>> {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        let answer = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        Some(answer)
    }
}

/// A connection to a leaf.
#[derive(Clone)]
pub(super) struct Link {
    questions: mpsc::Sender<Question>,
}

impl Link {
    /// Connects, with both tasks on the runtime that this is called on.
    ///
    /// # Errors
    /// Nobody is there, or it does not speak the protocol.
    pub(super) async fn connect(leaf: SocketAddr) -> Result<Link> {
        let stream = TcpStream::connect(leaf).await.with_context(|| format!("connecting to the leaf {leaf}"))?;
        stream.set_nodelay(true)?;
        let (reader, mut writer) = stream.into_split();
        let register = Register { timestamp: Timestamp(0), demand: 0, payload_max: PayloadLimit::DEFAULT };
        writer.write_all(&codec::encoded(&Frame::Register(register))).await?;
        let (questions, asked) = mpsc::channel(QUEUE);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let writing = tokio::spawn(write(writer, asked, Arc::clone(&waiting)));
        tokio::spawn(async move {
            read(reader, &waiting).await;
            // A question that nobody can answer ends: those that are not written yet with the writer, the others here.
            writing.abort();
            let _ = writing.await;
            *waiting.lock().unwrap_or_else(PoisonError::into_inner) = Waiting::default();
        });
        Ok(Link { questions })
    }

    /// Asks; the answer comes through what is returned, which ends without one if the leaf has none.
    pub(super) async fn ask(&self, payload: Arc<[u8]>) -> oneshot::Receiver<Vec<u8>> {
        let (answer, answered) = oneshot::channel();
        // Without a link the sender is dropped, and whoever waits hears of it.
        let _ = self.questions.send(Question { payload, answer }).await;
        answered
    }
}

async fn write(mut writer: OwnedWriteHalf, mut asked: mpsc::Receiver<Question>, waiting: Arc<Mutex<Waiting>>) {
    let encoder = Encoder::new(PayloadLimit::DEFAULT);
    let (mut questions, mut out) = (Vec::new(), Vec::new());
    // What has gathered goes out in one write.
    while asked.recv_many(&mut questions, 64).await > 0 {
        out.clear();
        for Question { payload, answer } in questions.drain(..) {
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
            // The client may have gone.
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
    fn questions_end_where_the_leaf_breaks_the_protocol() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let link = Link::connect(address).await.unwrap();
            let (mut leaf, _) = listener.accept().unwrap();
            let early = link.ask(Arc::from(*b"early")).await;
            // Only clients send pings. The connection stays open: the reader alone ends.
            leaf.write_all(&codec::encoded(&Frame::Ping(Ping { timestamp: Timestamp(0) }))).unwrap();
            assert!(early.await.is_err());
            for _ in 0..3 {
                assert!(link.ask(Arc::from(*b"late")).await.await.is_err());
            }
        });
    }
}
