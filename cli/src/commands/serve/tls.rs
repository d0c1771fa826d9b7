//! TLS of `leeward serve`: checks the combination of its flags, and reads the files. Does not
//! contain handshakes.

use std::path::PathBuf;

use anyhow::anyhow;
use leeward_rpc::tls::{ServerFiles, ServerTls};

use super::args::ServeArgs;
use crate::failure::Failure;

/// Opens TLS for the server, if requested.
pub(super) fn open(args: &ServeArgs) -> Result<Option<ServerTls>, Failure> {
    let Some(files) = files("--tls", &args.tls_cert, &args.tls_key, &args.tls_client_ca)? else { return Ok(None) };
    if args.udp.is_some() {
        return Err(Failure::Input(anyhow!(
            "--udp: datagrams are not encrypted; leave --udp out, or serve them by a second `leeward serve` without \
             --tls-cert"
        )));
    }
    ServerTls::open(files).map(Some).map_err(|error| Failure::Input(anyhow!("TLS: {error}")))
}

/// Opens TLS for the admin port, if requested.
pub(super) fn open_admin(args: &ServeArgs, has_admin: bool) -> Result<Option<ServerTls>, Failure> {
    let ServeArgs { admin_tls_cert, admin_tls_key, admin_tls_client_ca, .. } = args;
    let Some(files) = files("--admin-tls", admin_tls_cert, admin_tls_key, admin_tls_client_ca)? else {
        return Ok(None);
    };
    if !has_admin {
        return Err(Failure::Input(anyhow!("--admin-tls-cert: --admin is missing, the address of the admin port")));
    }
    let opened = ServerTls::open_with_alpn(files, leeward_admin::ALPN);
    opened.map(Some).map_err(|error| Failure::Input(anyhow!("TLS of --admin: {error}")))
}

/// Files of a port whose flags start with `flag`.
fn files(
    flag: &str,
    cert: &Option<PathBuf>,
    key: &Option<PathBuf>,
    client_ca: &Option<PathBuf>,
) -> Result<Option<ServerFiles>, Failure> {
    let refused = |message: String| Err(Failure::Input(anyhow!(message)));
    match (cert.clone(), key.clone()) {
        (Some(cert), Some(key)) => Ok(Some(ServerFiles { cert, key, client_ca: client_ca.clone() })),
        (Some(_), None) => {
            refused(format!("{flag}-cert: {flag}-key is missing, the file with the certificate's private key"))
        }
        (None, Some(_)) => refused(format!("{flag}-key: {flag}-cert is missing, the file with the key's certificate")),
        (None, None) if client_ca.is_some() => refused(format!(
            "{flag}-client-ca: {flag}-cert and {flag}-key are missing: a server needs a certificate, too"
        )),
        (None, None) => Ok(None),
    }
}
