//! An HTTP/1.1 server on the engine, with one route under admission control. `docs/http.md` is its
//! guide.
//!
//! - [`protocol`]: the whole protocol. Does not contain bodies of requests, other methods, TLS, or
//!   HTTP/2.

mod protocol;

use protocol::Http;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Http::default().start("127.0.0.1:8080", "/hello", |query| format!("hello {query}\n"))?;
    println!("Answers GET /hello, /healthz and /statistics on {}, until Enter is pressed.", server.address());
    std::io::stdin().read_line(&mut String::new())?;
    server.stop()?;
    Ok(())
}
