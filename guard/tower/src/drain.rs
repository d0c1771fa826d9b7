//! Handling of a rejected request's unread body. On HTTP/1, a response can be followed by another
//! only after the body is read. The service reads a small body and closes the connection in other
//! cases: a large body, a stalled body, or `Expect: 100-continue` (RFC 9112 §9.3). Does not contain
//! HTTP/2, where each stream ends on its own.

use bytes::Buf;
use http::header::EXPECT;
use http::request::Parts;
use http::{Version, header::HeaderMap};
use http_body::Body;
use pin_project_lite::pin_project;
use std::future::Future;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Most bytes that are read of a rejected request.
const MOST: u64 = 64 << 10;
/// Longest wait for the bytes.
const LONGEST: Duration = Duration::from_millis(100);

/// Action that a rejected request's body requires.
pub enum UnreadBody<B> {
    /// None: the body is complete, or its stream ends on its own.
    None,
    /// The connection closes with the response.
    Close,
    /// The rest is read before the response.
    Drain(Drain<B>),
}

impl<B: Body> UnreadBody<B> {
    /// Decides about the body of a request that is rejected.
    pub fn of(request: &Parts, body: B) -> Self {
        if request.version >= Version::HTTP_2 || body.is_end_stream() {
            UnreadBody::None
        } else if expects_continue(&request.headers) || body.size_hint().lower() > MOST {
            UnreadBody::Close
        } else {
            UnreadBody::Drain(Drain { body, remaining: MOST, timer: None })
        }
    }
}

/// Reading the body of such a request would make the client send it.
fn expects_continue(headers: &HeaderMap) -> bool {
    headers.contains_key(EXPECT)
}

pin_project! {
    /// A body that is read and discarded.
    pub struct Drain<B> {
        #[pin]
        body: B,
        remaining: u64,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

impl<B: Body> Future for Drain<B> {
    /// Whether the end of the body was read.
    type Output = bool;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut this = self.project();
        loop {
            match this.body.as_mut().poll_frame(context) {
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                Poll::Ready(Some(Ok(frame))) => {
                    // A frame without bytes counts as one byte, because it costs work.
                    let bytes = frame.data_ref().map_or(0, |data| data.remaining() as u64).max(1);
                    match this.remaining.checked_sub(bytes) {
                        Some(remaining) => *this.remaining = remaining,
                        None => return Poll::Ready(false),
                    }
                }
                Poll::Pending => break,
            }
        }
        if this.timer.is_none() {
            // A runtime without timers panics; the body is then not awaited.
            match catch_unwind(|| Box::pin(sleep(LONGEST))) {
                Ok(timer) => *this.timer = Some(timer),
                Err(_) => return Poll::Ready(false),
            }
        }
        match this.timer.as_mut().map(|timer| timer.as_mut().poll(context)) {
            Some(Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::{Frame, SizeHint};

    /// Frames of these sizes; then the end, or a stall.
    struct Frames(Vec<usize>, bool);

    impl Body for Frames {
        type Data = std::io::Cursor<Vec<u8>>;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, std::io::Error>>> {
            match self.0.pop() {
                Some(size) => Poll::Ready(Some(Ok(Frame::data(std::io::Cursor::new(vec![0; size]))))),
                None if self.1 => Poll::Ready(None),
                None => Poll::Pending,
            }
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.iter().sum::<usize>() as u64)
        }
    }

    fn rest(version: Version, header: Option<&'static str>, sizes: Vec<usize>, ends: bool) -> UnreadBody<Frames> {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        parts.version = version;
        header.map(|value| parts.headers.insert(EXPECT, http::HeaderValue::from_static(value)));
        UnreadBody::of(&parts, Frames(sizes, ends))
    }

    async fn whole(sizes: Vec<usize>, ends: bool) -> bool {
        Drain { body: Frames(sizes, ends), remaining: MOST, timer: None }.await
    }

    #[tokio::test]
    async fn only_small_complete_bodies_are_drained() {
        assert!(whole(vec![], true).await);
        assert!(whole(vec![1_000; 64], true).await);
        assert!(!whole(vec![1_000; 67], true).await);
        assert!(!whole(vec![0; 100_000], true).await, "empty frames without end");
        assert!(!whole(vec![10], false).await, "the rest never comes");
    }

    #[test]
    fn a_drain_does_not_wait_without_a_timer() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(!runtime.block_on(whole(vec![10], false)));
    }

    #[test]
    fn large_and_withheld_bodies_close_only_http1_connections() {
        let one = Version::HTTP_11;
        assert!(matches!(rest(one, None, vec![10], true), UnreadBody::Drain(_)));
        assert!(matches!(rest(one, None, vec![70_000], true), UnreadBody::Close));
        assert!(matches!(rest(one, Some("100-continue"), vec![10], true), UnreadBody::Close));
        assert!(matches!(rest(Version::HTTP_2, None, vec![70_000], true), UnreadBody::None));
    }
}
