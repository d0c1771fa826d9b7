//! A client of a server that may reject requests: it sends fewer while the server rejects, and
//! sends deadlines.
use leeward_tower::{client::client, client::is_overload, ms};
use tower::{Layer, Service, ServiceExt, service_fn};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let http = reqwest::Client::new();
    let send = move |request: http::Request<reqwest::Body>| {
        let http = http.clone();
        async move { http.execute(request.try_into()?).await.map(http::Response::<reqwest::Body>::from) }
    };
    let mut service = client(ms(20)).layer(service_fn(send));
    let request = http::Request::get("http://127.0.0.1:3000/").body(reqwest::Body::default())?;
    let response = service.ready().await?.call(request).await?;
    println!("{}", if is_overload(&response) { "later" } else { "served" });
    Ok(())
}
