//! Sends the argument back: what the server itself costs.

use crate::arguments::Values;
use crate::case::{Case, CaseError, Progress, Requests, Target};
use crate::served::{Backend, Bottleneck, Served};
use leeward_core::units::UnitError;
use leeward_rpc::ask::Ask;
use leeward_rpc::server::{Builder, Failed, Handler, Request, Server, ServerError};
use leeward_rpc::wire::Method;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// The echo service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Handler for Echo {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), Failed> {
        reply.extend_from_slice(request.payload);
        Ok(())
    }
}

/// The echo service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct EchoCase;

impl Case for EchoCase {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn summary(&self) -> &'static str {
        "Sends the argument back"
    }

    fn open(&self, _: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, CaseError> {
        Ok(Box::new(EchoBackend))
    }

    fn requests_help(&self) -> &'static str {
        "bytes to send back: echo"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        match text {
            "echo" => Ok(Arc::new(Echoes)),
            _ => Err(UnitError { written: text.chars().take(40).collect(), expected: "`echo`" }),
        }
    }
}

struct EchoBackend;

impl Backend for EchoBackend {
    fn start(&self, builder: Builder, address: &str) -> Result<Server, ServerError> {
        builder.start(address, Echo)
    }
}

/// Asks for eight bytes, drawn for each request, to be sent back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echoes;

impl Display for Echoes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("echo")
    }
}

impl Ask for Echoes {
    fn ask(&self, random: u64, payload: &mut Vec<u8>) -> Method {
        payload.extend_from_slice(&random.to_le_bytes());
        Method(0)
    }

    fn is_answer(&self, random: u64, _: Method, answer: &[u8]) -> bool {
        answer == random.to_le_bytes()
    }
}

impl Requests for Echoes {
    fn is_cpu_bound(&self) -> bool {
        true
    }

    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn Ask>>, CaseError> {
        Ok(Some(Arc::new(*self)))
    }

    fn both_ends(&self, _: &Progress<'_>) -> Result<Served, CaseError> {
        let (backend, ask) = (Arc::new(EchoBackend), Arc::new(*self));
        Ok(Served { backend, ask: Some(ask), words: None, bottleneck: Bottleneck::Cores })
    }
}
