//! TLS of `leeward serve`: which flags go together, and reading the files. Never here: handshakes.

use anyhow::anyhow;
use leeward_rpc::tls::{ServerFiles, ServerTls};

use super::args::ServeArgs;
use crate::failure::Failure;

/// TLS of the server, if it is asked for.
pub(super) fn open(args: &ServeArgs) -> Result<Option<ServerTls>, Failure> {
    let ServeArgs { tls_cert, tls_key, tls_client_ca, .. } = args;
    let refused = |words: &str| Err(Failure::Input(anyhow!("{words}")));
    let (cert, key) = match (tls_cert.clone(), tls_key.clone()) {
        (Some(cert), Some(key)) => (cert, key),
        (Some(_), None) => {
            return refused("--tls-cert: --tls-key is missing, the file with the certificate's private key");
        }
        (None, Some(_)) => return refused("--tls-key: --tls-cert is missing, the file with the key's certificate"),
        (None, None) if tls_client_ca.is_some() => {
            return refused("--tls-client-ca: --tls-cert and --tls-key are missing: a server shows a certificate, too");
        }
        (None, None) => return Ok(None),
    };
    if args.udp.is_some() {
        return refused(
            "--udp: datagrams are not encrypted; leave --udp out, or serve them by a second `leeward serve` without \
             --tls-cert",
        );
    }
    let files = ServerFiles { cert, key, client_ca: tls_client_ca.clone() };
    ServerTls::open(files).map(Some).map_err(|error| Failure::Input(anyhow!("TLS: {error}")))
}
