//! Addresses of listeners as operators write them. Does not contain sockets.

use std::borrow::Cow;

/// The address of a listener with its host: `:8080` means all addresses of this machine.
pub fn with_host(address: &str) -> Cow<'_, str> {
    if address.starts_with(':') { format!("0.0.0.0{address}").into() } else { address.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_all_addresses() {
        assert_eq!(with_host(":8080"), "0.0.0.0:8080");
        assert_eq!(with_host("[::1]:8080"), "[::1]:8080");
        assert_eq!(with_host("8080"), "8080");
    }
}
