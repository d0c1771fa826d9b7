//! `leeward why`: explains a rejection, by a request to the server's admin port.

use anyhow::anyhow;
use leeward_observe::DecisionId;

use super::admin_client;
use crate::failure::Failure;
use crate::stdout;
use crate::tls::TlsArgs;

/// Explain why a request was rejected
///
/// Asks the admin port of a running server (`leeward serve --admin`) for one of its decisions by
/// number. A rejection's number is in its message, in the header leeward-decision, and on the
/// dashboard. The server keeps its newest 65,536 decisions: all rejections, and one in 64
/// admissions.
#[derive(Debug, clap::Args)]
#[command(after_help = WHY)]
pub(crate) struct WhyArgs {
    /// The decision's number, such as 8f3a
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The server's admin address and port
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    pub(crate) address: String,
    /// Port that made the decision, if the server has several: rpc, memcached
    #[arg(long, value_name = "NAME")]
    pub(crate) port: Option<String>,
    /// Print the whole record as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

const WHY: &str = "\
Examples:
  leeward why 8f3a
  leeward why 8f3a 127.0.0.1:9464
  leeward why 8f3a localhost:9464 --tls-ca ca.pem      a port with --admin-tls-cert
  leeward why 8f3a --json | jq '{reason, delay_ns}'";

fn is_input_error(body: &str) -> bool {
    body.starts_with("no decision ") || body.starts_with("id: ")
}

/// Runs the command.
pub(crate) fn why(args: &WhyArgs) -> Result<(), Failure> {
    let id = args.id.parse::<DecisionId>();
    let id = id.map_err(|error| Failure::Input(anyhow!("`{}`: {error}", stdout::sanitize(&args.id))))?;
    let mut path = format!("/debug/why?id={id}");
    if let Some(port) = &args.port {
        if !port.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(Failure::Input(anyhow!("--port: letters, digits and hyphens")));
        }
        path += &format!("&port={port}");
    }
    let answer = admin_client::get(&args.address, &path, args.tls.open_for(leeward_admin::ALPN)?)?;
    let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
    match (answer.status, body["text"].as_str()) {
        (200, Some(_)) if args.json => stdout::print(answer.body.trim_end()),
        (200, Some(text)) => stdout::print(&stdout::sanitize(text)),
        // Message of the admin port: the number is malformed, or the decision is no longer kept.
        (400, _) | (404, _) if is_input_error(&answer.body) => {
            Err(Failure::Input(anyhow!("{}: {}", args.address, stdout::sanitize(answer.body.trim()))))
        }
        (404, _) => Err(Failure::Runtime(anyhow!("{}: no admin port: it has no page /debug/why", args.address))),
        (status, _) => {
            let body: String = answer.body.lines().next().unwrap_or_default().chars().take(200).collect();
            Err(Failure::Runtime(anyhow!("{}: HTTP status {status}: {}", args.address, stdout::sanitize(&body))))
        }
    }
}
