//! Encryption of a client's connections. Without the feature `tls`, the type exists with no
//! encryption.

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
