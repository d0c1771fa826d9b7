//! One exchange: waits for a response, counts its content without keeping it, and classifies it.

use std::future::{Future, poll_fn};
use std::pin::Pin;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;

use crate::request::RequestBody;
use crate::response::{Outcome, classify_error, classify_grpc, classify_http};

/// Result of one exchange.
pub(crate) struct Exchanged {
    pub(crate) outcome: Outcome,
    /// Length of the response's content.
    pub(crate) content_bytes: u64,
}

impl Exchanged {
    /// An exchange without a response.
    pub(crate) fn without_response(outcome: Outcome) -> Self {
        Exchanged { outcome, content_bytes: 0 }
    }
}

/// Drives an exchange to its end, the last byte of the content and the trailers included.
pub(crate) async fn exchange<F>(response: F, is_grpc: bool) -> Exchanged
where
    F: Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>>,
{
    let response = match response.await {
        Ok(response) => response,
        // The library returns a request of which it has sent nothing.
        Err(error) if error.message().is_some() => return Exchanged::without_response(Outcome::Unsent),
        Err(error) => return Exchanged::without_response(classify_error(error.error())),
    };
    let (head, mut content) = response.into_parts();
    let (mut content_bytes, mut trailers) = (0, None);
    while !content.is_end_stream() {
        match poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await {
            None => break,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => content_bytes += data.len() as u64,
                Err(frame) => trailers = frame.into_trailers().ok().or(trailers),
            },
            Some(Err(error)) => {
                let outcome = match classify_error(&error) {
                    // A part of the response has arrived, so the request was processed.
                    Outcome::Unsent => Outcome::Failed(crate::response::Label::Name("closed")),
                    outcome => outcome,
                };
                return Exchanged { outcome, content_bytes };
            }
        }
    }
    let outcome = match is_grpc {
        true => classify_grpc(head.status, &head.headers, trailers.as_ref()),
        false => classify_http(head.status, &head.headers),
    };
    Exchanged { outcome, content_bytes }
}
