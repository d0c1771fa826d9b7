//! The rivals' best static numbers, found by search for each row and kept in
//! `ecosystem/proxy-tuned.json`.

use crate::contender::Numbers;
use crate::store;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::PathBuf;

pub(crate) struct Tuned {
    path: PathBuf,
    rows: Value,
}

impl Tuned {
    pub(crate) fn load() -> Result<Self> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("proxy-tuned.json");
        let rows = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("{}", path.display()))?,
            Err(_) => json!({}),
        };
        Ok(Tuned { path, rows })
    }

    /// Numbers of a row, by its name.
    pub(crate) fn get(&self, row: &str) -> Option<Numbers> {
        let row = self.rows.get(row)?;
        let number = |key: &str| row[key].as_u64();
        Some(Numbers {
            maxconn: number("haproxy_maxconn")?,
            queue_ms: number("haproxy_queue_ms")?,
            limit: number("nginx_limit_conn")?,
        })
    }

    /// Keeps numbers, with the goodput over the capacity that they had in the search.
    pub(crate) fn set(&mut self, row: &str, numbers: Numbers, haproxy: f64, nginx: f64) -> Result<()> {
        let rounded = |share: f64| (share * 1e3).round() / 1e3;
        self.rows[row] = json!({
            "haproxy_maxconn": numbers.maxconn, "haproxy_queue_ms": numbers.queue_ms, "haproxy_share": rounded(haproxy),
            "nginx_limit_conn": numbers.limit, "nginx_share": rounded(nginx),
        });
        store::write(&self.path, &self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Row;

    #[test]
    fn the_kept_numbers_are_whole_and_of_rows_that_there_are() {
        let tuned = Tuned::load().unwrap();
        for row in tuned.rows.as_object().unwrap().keys() {
            assert!(Row::named(row).is_some(), "{row}");
            let numbers = tuned.get(row).unwrap_or_else(|| panic!("{row}: --search {row}"));
            assert!(numbers.maxconn > 0 && numbers.queue_ms > 0 && numbers.limit > 0, "{row}");
        }
    }
}
