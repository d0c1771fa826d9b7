//! Writes a synthetic trace of a key-value store under load, to measure the reader's speed and
//! memory.
//!
//! `cargo run --release -p leeward-profile --example synthetic -- FOLDER EVENTS`.

use std::path::Path;

#[path = "support/store.rs"]
mod store;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(folder), Some(events)) = (args.next(), args.next()) else {
        return Err("arguments: a folder, and how many events".into());
    };
    let (written, nanos) = store::write(Path::new(&folder), events.parse()?)?;
    println!("{written} events over {} ms", nanos / 1_000_000);
    Ok(())
}
