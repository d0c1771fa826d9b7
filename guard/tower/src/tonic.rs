//! tonic's traits for the listener: a stream of connections whose requests carry a stamp. Never here: the layer, which tonic takes as
//! it is.

use crate::listener::{Incoming, Stamped};
use crate::stamp::Stamp;
use futures_core::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::transport::server::Connected;

impl Connected for Stamped {
    type ConnectInfo = Stamp;

    fn connect_info(&self) -> Stamp {
        self.stamp()
    }
}

impl Stream for Incoming {
    type Item = io::Result<Stamped>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Stamped>>> {
        self.get_mut().poll_accept(context).map(|connection| Some(Ok(connection)))
    }
}
