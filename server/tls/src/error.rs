//! Errors that prevent or end a session: each has a reason that is counted, and a message with
//! advice.

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, OtherError};

/// Error that ended a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TlsError {
    /// The reason, to count.
    pub reason: TlsErrorReason,
    /// The reason, for people.
    pub message: String,
}

/// Kind of a session's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TlsErrorReason {
    /// The peer speaks another protocol than TLS.
    Plaintext,
    /// The peer has no certificate, and needs one.
    NoCertificate,
    /// This side does not trust the authority that signed the peer's certificate.
    UnknownIssuer,
    /// The peer's certificate has expired, or is not valid yet.
    Expired,
    /// The peer's certificate is for another name.
    WrongName,
    /// The peer's certificate is invalid for another reason.
    BadCertificate,
    /// The peer has rejected this side.
    RefusedByPeer,
    /// The sides have no version, cipher or protocol in common.
    Incompatible,
    /// Bytes that TLS does not allow.
    Garbage,
    /// Any other error.
    Other,
}

impl TlsErrorReason {
    /// The reason's name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            TlsErrorReason::Plaintext => "plaintext",
            TlsErrorReason::NoCertificate => "no-certificate",
            TlsErrorReason::UnknownIssuer => "unknown-issuer",
            TlsErrorReason::Expired => "expired",
            TlsErrorReason::WrongName => "wrong-name",
            TlsErrorReason::BadCertificate => "bad-certificate",
            TlsErrorReason::RefusedByPeer => "refused-by-peer",
            TlsErrorReason::Incompatible => "incompatible",
            TlsErrorReason::Garbage => "garbage",
            TlsErrorReason::Other => "other",
        }
    }
}

/// Side of a connection; selects the texts of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    fn peer(self) -> &'static str {
        match self {
            Side::Client => "the server",
            Side::Server => "the client",
        }
    }
}

impl TlsError {
    pub(crate) fn new(reason: TlsErrorReason, message: impl Into<String>) -> Self {
        TlsError { reason, message: message.into() }
    }

    /// Error for a server that answered in another protocol than TLS.
    pub(crate) fn plaintext() -> Self {
        TlsError::new(
            TlsErrorReason::Plaintext,
            "the server speaks no TLS at this port: connect without TLS, or serve with --tls-cert and --tls-key",
        )
    }

    /// Converts an error of rustls on this side.
    pub(crate) fn from_rustls(error: &Error, side: Side) -> Self {
        let peer = side.peer();
        match error {
            Error::NoCertificatesPresented => {
                TlsError::new(TlsErrorReason::NoCertificate, format!("{peer} sent no certificate"))
            }
            Error::InvalidCertificate(wrong) => certificate_error(wrong, peer),
            Error::AlertReceived(alert) => alert_error(*alert, side),
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => TlsError::new(
                TlsErrorReason::Incompatible,
                format!("{peer} and this side have no common protocol: {error}"),
            ),
            // An answer in another protocol begins with a byte that is no record type.
            Error::InvalidMessage(InvalidMessage::InvalidContentType) if side == Side::Client => TlsError::plaintext(),
            Error::InvalidMessage(_)
            | Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::DecryptError
            | Error::PeerSentOversizedRecord
            | Error::PeerMisbehaved(_) => TlsError::new(TlsErrorReason::Garbage, format!("{peer} breaks TLS: {error}")),
            _ => TlsError::new(TlsErrorReason::Other, format!("TLS with {peer}: {error}")),
        }
    }
}

fn certificate_error(error: &CertificateError, peer: &str) -> TlsError {
    let (reason, message) = match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            TlsErrorReason::UnknownIssuer,
            format!("{peer}'s certificate is not signed by a trusted authority (the file of authorities)"),
        ),
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            (TlsErrorReason::Expired, format!("{peer}'s certificate is not valid at this time: {error}"))
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            TlsErrorReason::WrongName,
            format!("{peer}'s certificate is for another name: {error}; --tls-name sets the expected name"),
        ),
        CertificateError::Other(OtherError(inner)) if is_ca_certificate(inner.as_ref()) => (
            TlsErrorReason::BadCertificate,
            format!(
                "{peer}'s certificate is that of an authority (CA:TRUE), such as `openssl req -x509` makes: use it to \
                 sign another one for {peer}"
            ),
        ),
        _ => (TlsErrorReason::BadCertificate, format!("{peer}'s certificate: {error}")),
    };
    TlsError::new(reason, message)
}

/// Whether a certificate was rejected because its owner may only sign others.
fn is_ca_certificate(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

fn alert_error(alert: AlertDescription, side: Side) -> TlsError {
    let peer = side.peer();
    let why = match (alert, side) {
        (AlertDescription::CertificateRequired, _) => "it wants a certificate (--tls-cert, --tls-key)".into(),
        (AlertDescription::UnknownCA | AlertDescription::DecryptError, Side::Client) => {
            "it does not trust the authority of this client's certificate".into()
        }
        (AlertDescription::UnknownCA | AlertDescription::DecryptError, Side::Server) => {
            "it does not trust the authority of this server's certificate".into()
        }
        (AlertDescription::CertificateExpired, _) => "this side's certificate has expired".into(),
        (AlertDescription::BadCertificate, _) => "it does not accept this side's certificate".into(),
        (AlertDescription::NoApplicationProtocol, _) => "it speaks another protocol over TLS".into(),
        (AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion, _) => {
            format!("no version or cipher in common ({alert:?})")
        }
        _ => format!("{alert:?}"),
    };
    TlsError::new(TlsErrorReason::RefusedByPeer, format!("{peer} rejected the TLS session: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_ca_certificate_used_by_a_server_is_rejected_with_a_hint() {
        let wrong = CertificateError::Other(OtherError(Arc::new(webpki::Error::CaUsedAsEndEntity)));
        let TlsError { reason, message: text } = TlsError::from_rustls(&Error::InvalidCertificate(wrong), Side::Client);
        assert_eq!(reason, TlsErrorReason::BadCertificate);
        assert!(text.contains("CA:TRUE") && text.contains("sign another one for the server"), "{text}");
    }
}
