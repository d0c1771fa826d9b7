//! A connection of HTTP/1.1, with one request in flight. One task drives both the connection and
//! its request, so that no task wakes another one per request.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::exchange::{Exchanged, exchange};
use crate::lifecycle::{ConnectionEnd, Lifecycle, error_chain};
use crate::response::{Label, Outcome};
use crate::shared::Shared;
use crate::state::Place;

/// The longest content that is copied behind the head, in bytes.
const FLAT_MAX: usize = 16 << 10;

/// Serves requests until the connection ends.
pub(crate) async fn serve<S>(shared: &Shared, place: Place, stream: S, lifecycle: &mut Lifecycle<'_>) -> ConnectionEnd
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut answered = 0;
    let mut builder = http1::Builder::new();
    // One buffer for head and short content: cheaper than a list of buffers.
    builder.writev(shared.config.body.len() > FLAT_MAX);
    let (mut sender, connection) = match builder.handshake(TokioIo::new(stream)).await {
        Ok(opened) => opened,
        Err(error) => return ConnectionEnd { answered, loss: Some(error_chain(&error)) },
    };
    lifecycle.set_open();
    let mut connection = pin!(connection);
    let closed = |answered, result: hyper::Result<()>| ConnectionEnd {
        answered,
        loss: result.err().map(|error| error_chain(&error)),
    };
    loop {
        let next = poll_fn(|cx| {
            // First: no request goes to a connection that the server has closed.
            if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                return Poll::Ready(Err(result));
            }
            match sender.poll_ready(cx) {
                Poll::Ready(Ok(())) => shared.state.borrow_mut().poll_job(shared.now(), place, cx).map(Ok),
                Poll::Ready(Err(error)) => Poll::Ready(Err(Err(error))),
                Poll::Pending => Poll::Pending,
            }
        });
        let job = match next.await {
            Ok(job) => job,
            Err(result) => return closed(answered, result),
        };
        let sent = shared.now();
        let rest = {
            let mut state = shared.state.borrow_mut();
            state.begin(place.slot, job);
            state.rest_of_budget(sent, &job)
        };
        let response = sender.try_send_request(shared.requests.build(job.kind, rest));
        let mut ended = None;
        let Exchanged { outcome, content_bytes } = {
            let mut exchange = pin!(exchange(response, shared.config.is_grpc));
            poll_fn(|cx| {
                if ended.is_none()
                    && let Poll::Ready(result) = connection.as_mut().poll(cx)
                {
                    ended = Some(result);
                }
                // The connection above makes all progress of the exchange, so that nothing else
                // has to wake this task.
                if let Poll::Ready(done) = exchange.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    return Poll::Ready(done);
                }
                if ended.is_some() {
                    return Poll::Ready(Exchanged::without_response(Outcome::Failed(Label::Name("closed"))));
                }
                if shared.state.borrow_mut().poll_aborted(place.slot, cx) {
                    return Poll::Ready(Exchanged::without_response(Outcome::TimedOut));
                }
                Poll::Pending
            })
            .await
        };
        shared.state.borrow_mut().end(shared.now(), place, sent, &outcome, content_bytes);
        match outcome {
            Outcome::Completed | Outcome::Rejected(_) => answered += 1,
            // A response with an error status is a response: the connection goes on.
            Outcome::Failed(Label::Status(_) | Label::Grpc(_)) => answered += 1,
            Outcome::Failed(code) => {
                let reason = match ended {
                    Some(Err(error)) => error_chain(&error),
                    _ => format!("{code:?}"),
                };
                return ConnectionEnd { answered, loss: Some(reason) };
            }
            // Its response would be taken for that of the next request.
            Outcome::TimedOut => return ConnectionEnd { answered: answered + 1, loss: None },
            Outcome::Unsent => {}
        }
        if let Some(result) = ended {
            return closed(answered, result);
        }
    }
}
