//! tonic's traits for the listener: a stream of connections whose requests carry a stamp. Does not
//! contain the layer, which tonic takes unchanged.

use crate::listener::{Incoming, StampedStream};
use crate::stamp::Stamp;
use futures_core::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::transport::server::Connected;

impl Connected for StampedStream {
    type ConnectInfo = Stamp;

    fn connect_info(&self) -> Stamp {
        self.stamp()
    }
}

impl Stream for Incoming {
    type Item = io::Result<StampedStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<StampedStream>>> {
        self.get_mut().poll_accept(context).map(|connection| Some(Ok(connection)))
    }
}
