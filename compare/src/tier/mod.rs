//! The echo tier on Tokio, written as usual there: one task per request.
//!
//! The task calls every leaf over connections that all tasks share, and waits for all responses.
//! Its response has the number of leaves called, the number of correct echoes, and the argument, as
//! in `leeward serve --service tier`. The tier speaks Leeward's protocol, so that all contenders
//! have the same load and leaves.
//!
//! Does not contain admission control: no contender of this comparison has any.

mod codec;
mod link;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use leeward_core::server::Feedback;
use leeward_core::units::Credits;
use leeward_rpc::wire::{Answer, Call, Decoder, Frame, Nanos32, PayloadLimit, Pong, Regime, Response, Side, Welcome};
use link::Link;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

/// Maximum number of responses of a connection that wait to be written.
const QUEUE: usize = 1_024;

/// Arrangement of Tokio's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One runtime whose workers steal from each other, as `#[tokio::main]` makes it.
    Shared(usize),
    /// One runtime per thread; connections are assigned round-robin.
    Apart(usize),
}

/// Serves until the process ends.
///
/// # Errors
/// A runtime can't be built, or a leaf can't be reached.
pub(crate) fn serve(listener: TcpListener, leaves: &[SocketAddr], threads: Threads) -> Result<()> {
    ensure!(!leaves.is_empty(), "a tier needs leaves");
    let (count, workers) = match threads {
        Threads::Shared(workers) => (1, workers),
        Threads::Apart(count) => (count, 1),
    };
    let mut connection_senders = Vec::new();
    for _ in 0..count {
        let runtime = match threads {
            Threads::Shared(_) => {
                tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
            }
            Threads::Apart(_) => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        };
        connection_senders.push(start(runtime.context("tokio")?, leaves.to_vec()));
    }
    for (index, stream) in listener.incoming().enumerate() {
        let stream = stream.context("accepting")?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        connection_senders[index % connection_senders.len()].blocking_send(stream).context("a runtime has ended")?;
    }
    Ok(())
}

/// Runs a runtime on a thread of its own; returns the sender of its connections.
fn start(runtime: Runtime, leaves: Vec<SocketAddr>) -> mpsc::Sender<std::net::TcpStream> {
    let (send, mut receive) = mpsc::channel(64);
    std::thread::spawn(move || {
        let outcome = runtime.block_on(async move {
            let mut links = Vec::new();
            for leaf in leaves {
                links.push(Link::connect(leaf).await?);
            }
            let links: Arc<[Link]> = links.into();
            while let Some(stream) = receive.recv().await {
                let (reader, writer) = TcpStream::from_std(stream)?.into_split();
                let (answers, answered) = mpsc::channel(QUEUE);
                tokio::spawn(write(writer, answered));
                tokio::spawn(read(reader, answers, Arc::clone(&links)));
            }
            anyhow::Ok(())
        });
        if let Err(error) = outcome {
            eprintln!("error: {error:#}");
            std::process::exit(1);
        }
    });
    send
}

async fn write(mut writer: OwnedWriteHalf, mut answered: mpsc::Receiver<Vec<u8>>) {
    let (mut answers, mut out) = (Vec::new(), Vec::new());
    while answered.recv_many(&mut answers, 64).await > 0 {
        out.clear();
        answers.drain(..).for_each(|answer: Vec<u8>| out.extend_from_slice(&answer));
        if writer.write_all(&out).await.is_err() {
            return;
        }
    }
}

async fn read(mut reader: OwnedReadHalf, answers: mpsc::Sender<Vec<u8>>, links: Arc<[Link]>) {
    let mut decoder = Decoder::new(Side::Client, PayloadLimit::DEFAULT);
    while codec::fill(&mut reader, &mut decoder).await.is_some() {
        loop {
            let reply = match decoder.next_frame() {
                Ok(Some(Frame::Call(call))) => {
                    let (call, payload) = (Call { payload: &[], ..call }, Arc::from(call.payload));
                    tokio::spawn(handle(call, payload, answers.clone(), Arc::clone(&links)));
                    continue;
                }
                Ok(Some(Frame::Register(register))) => codec::encoded(&Frame::Welcome(Welcome {
                    timestamp: register.timestamp,
                    feedback: open(),
                    payload_max: PayloadLimit::DEFAULT,
                    regime: Regime::Open,
                })),
                Ok(Some(Frame::Ping(ping))) => codec::encoded(&Frame::Pong(Pong { timestamp: ping.timestamp })),
                Ok(Some(_)) => continue,
                Ok(None) => break,
                Err(_) => return,
            };
            if answers.send(reply).await.is_err() {
                return;
            }
        }
    }
}

/// Feedback with an unlimited window.
fn open() -> Feedback {
    Feedback { window: Credits(u32::MAX), ..Feedback::NONE }
}

async fn handle(call: Call<'static>, payload: Arc<[u8]>, answers: mpsc::Sender<Vec<u8>>, links: Arc<[Link]>) {
    let mut pending = Vec::with_capacity(links.len());
    for link in &*links {
        pending.push(link.call(Arc::clone(&payload)).await);
    }
    let mut right: u8 = 0;
    for answer in pending {
        right += u8::from(answer.await.is_ok_and(|bytes| bytes == *payload));
    }
    let mut result = Vec::with_capacity(2 + payload.len());
    // A comparison has at most 64 leaves, so the counts fit in a byte.
    result.extend_from_slice(&[links.len() as u8, right]);
    result.extend_from_slice(&payload);
    let answer =
        Answer { request: call.request, timestamp: call.timestamp, feedback: open(), sojourn: Nanos32::default() };
    let frame = Frame::Response(Response { answer, payload: &result });
    // The client may have disconnected.
    let _ = answers.send(codec::encoded(&frame)).await;
}
