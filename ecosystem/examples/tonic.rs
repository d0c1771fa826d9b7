//! A tonic server: the layer, and the listener as its incoming connections.
use leeward_tower::{Listener, ms, slo};
use tonic::service::Routes;
use tonic::transport::Server;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let services = Routes::default(); // yours: `Routes::new(greeter)`
    let incoming = Listener::bind("127.0.0.1:3000").await?.incoming();
    Server::builder().layer(slo(ms(20))).add_routes(services).serve_with_incoming(incoming).await?;
    Ok(())
}
