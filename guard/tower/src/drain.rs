//! The rest of a refused request's body. HTTP/1 can say nothing else on a connection before it is read: a little is
//! read, of much, of what does not come, and of what the client holds back until it is asked for, the connection closes
//! (RFC 9112 §9.3). Never here: HTTP/2, whose streams end one by one.

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

/// Most that is read of a refused request.
const MOST: u64 = 64 << 10;
/// Longest that is waited for it.
const LONGEST: Duration = Duration::from_millis(100);

/// Duty that a refused request's body leaves behind.
pub(crate) enum UnreadBody<B> {
    /// None: it is whole, or its stream can end alone.
    None,
    /// The connection closes with the answer.
    Close,
    /// Its rest is read first.
    Drain(Drain<B>),
}

impl<B: Body> UnreadBody<B> {
    pub(crate) fn of(request: &Parts, body: B) -> Self {
        if request.version >= Version::HTTP_2 || body.is_end_stream() {
            UnreadBody::None
        } else if expects_continue(&request.headers) || body.size_hint().lower() > MOST {
            UnreadBody::Close
        } else {
            UnreadBody::Drain(Drain { body, remaining: MOST, timer: None })
        }
    }
}

/// To read such a body would ask the client to send it.
fn expects_continue(headers: &HeaderMap) -> bool {
    headers.contains_key(EXPECT)
}

pin_project! {
    /// A body that is read and forgotten.
    pub(crate) struct Drain<B> {
        #[pin]
        body: B,
        remaining: u64,
        timer: Option<Pin<Box<Sleep>>>,
    }
}

impl<B: Body> Future for Drain<B> {
    /// Whether its end was read.
    type Output = bool;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut this = self.project();
        loop {
            match this.body.as_mut().poll_frame(context) {
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                Poll::Ready(Some(Ok(frame))) => {
                    // A frame without bytes is work, too.
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
            // A runtime without timers panics: then nothing is waited for.
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

    /// Frames of these sizes, and then its end or nothing more.
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
    async fn a_little_is_read_and_no_more() {
        assert!(whole(vec![], true).await);
        assert!(whole(vec![1_000; 64], true).await);
        assert!(!whole(vec![1_000; 67], true).await);
        assert!(!whole(vec![0; 100_000], true).await, "empty frames without end");
        assert!(!whole(vec![10], false).await, "the rest never comes");
    }

    #[test]
    fn without_timers_nothing_is_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(!runtime.block_on(whole(vec![10], false)));
    }

    #[test]
    fn much_and_what_is_held_back_closes_and_streams_end_alone() {
        let one = Version::HTTP_11;
        assert!(matches!(rest(one, None, vec![10], true), UnreadBody::Drain(_)));
        assert!(matches!(rest(one, None, vec![70_000], true), UnreadBody::Close));
        assert!(matches!(rest(one, Some("100-continue"), vec![10], true), UnreadBody::Close));
        assert!(matches!(rest(Version::HTTP_2, None, vec![70_000], true), UnreadBody::None));
    }
}
