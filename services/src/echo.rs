//! A service that sends the argument back: measures the cost of the server itself.

use crate::arguments::Values;
use crate::backend::{Backend, Bottleneck, InProcessService};
use crate::definition::{PrepareError, Progress, Requests, ServiceDefinition, Target};
use leeward_core::units::UnitError;
use leeward_rpc::generator::RequestGenerator;
use leeward_rpc::server::{Builder, Handler, HandlerError, Request, Server, ServerError};
use leeward_rpc::wire::Method;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// The echo service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Handler for Echo {
    fn call(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> Result<(), HandlerError> {
        reply.extend_from_slice(request.payload);
        Ok(())
    }
}

/// The echo service in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct EchoDefinition;

impl ServiceDefinition for EchoDefinition {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn summary(&self) -> &'static str {
        "Sends the argument back"
    }

    fn open(&self, _: &Values, _: usize, _: &Progress<'_>) -> Result<Box<dyn Backend>, PrepareError> {
        Ok(Box::new(EchoBackend))
    }

    fn requests_help(&self) -> &'static str {
        "bytes to send back: echo"
    }

    fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        match text {
            "echo" => Ok(Arc::new(EchoRequests)),
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

/// Requests of eight drawn bytes each, which the server sends back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EchoRequests;

impl Display for EchoRequests {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("echo")
    }
}

impl RequestGenerator for EchoRequests {
    fn generate(&self, random: u64, payload: &mut Vec<u8>) -> Method {
        payload.extend_from_slice(&random.to_le_bytes());
        Method(0)
    }

    fn is_answer(&self, random: u64, _: Method, answer: &[u8]) -> bool {
        answer == random.to_le_bytes()
    }
}

impl Requests for EchoRequests {
    fn is_cpu_bound(&self) -> bool {
        true
    }

    fn prepare(&self, _: &Target<'_>) -> Result<Option<Arc<dyn RequestGenerator>>, PrepareError> {
        Ok(Some(Arc::new(*self)))
    }

    fn prepare_in_process(&self, _: &Progress<'_>) -> Result<InProcessService, PrepareError> {
        let (backend, requests) = (Arc::new(EchoBackend), Arc::new(*self));
        Ok(InProcessService { backend, generator: Some(requests), description: None, bottleneck: Bottleneck::Cores })
    }
}
