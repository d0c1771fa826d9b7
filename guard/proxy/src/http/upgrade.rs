//! Connections that leave HTTP, such as WebSocket: bytes pass in both directions. Does not contain
//! the requests that ask for it.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

/// Joins a client and a backend once both have left HTTP, until one of them ends.
pub(crate) fn join(client: OnUpgrade, backend: OnUpgrade) {
    tokio::spawn(async move {
        if let (Ok(client), Ok(backend)) = (client.await, backend.await) {
            let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
            // An end without notice is how such connections often end.
            let _ = copy_bidirectional(&mut client, &mut backend).await;
        }
    });
}
