//! TLS flags of commands that connect to a server, and loading of their files. Does not contain
//! sessions.

use std::path::PathBuf;

use anyhow::anyhow;
use leeward_rpc::tls::{ClientFiles, ClientTls};

use crate::failure::Failure;

/// Flags of a client's TLS.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct TlsArgs {
    /// Connect with TLS, and trust servers with a certificate signed by the authorities in this PEM
    /// file (docs/tls.md)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Client certificate for servers that require one, in PEM, with its intermediate certificates
    #[arg(long, value_name = "FILE", requires = "tls_ca", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Name that the server's certificate must have, if it differs from the host in ADDRESS
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub(crate) tls_name: Option<String>,
}

impl TlsArgs {
    /// Reads the files, if TLS is requested.
    pub(crate) fn open(&self) -> Result<Option<ClientTls>, Failure> {
        self.open_for(leeward_rpc::tls::ALPN)
    }

    /// Reads the files for another protocol, with its ALPN name.
    pub(crate) fn open_for(&self, protocol: &'static [u8]) -> Result<Option<ClientTls>, Failure> {
        let Some(ca) = self.tls_ca.clone() else { return Ok(None) };
        let identity = self.tls_cert.clone().zip(self.tls_key.clone());
        let files = ClientFiles { ca, identity, name: self.tls_name.clone() };
        ClientTls::open_with_alpn(files, protocol).map(Some).map_err(|error| Failure::Input(anyhow!("TLS: {error}")))
    }
}
