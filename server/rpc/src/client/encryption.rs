//! Encryption of a client's connections, as a value that there is with the feature `tls` and without: without, there is only none.

/// Encryption of connections to a server, or none.
#[derive(Clone, Debug, Default)]
pub struct Encryption {
    #[cfg(feature = "tls")]
    pub(super) tls: Option<leeward_tls::ClientTls>,
}

#[cfg(feature = "tls")]
impl From<leeward_tls::ClientTls> for Encryption {
    fn from(tls: leeward_tls::ClientTls) -> Self {
        Encryption { tls: Some(tls) }
    }
}
