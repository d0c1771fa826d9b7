//! `service`: drawn service times, or requests to a measured service.

use super::document::read_text;
use super::reader::Item;
use super::{ScenarioError, ServiceSpec};
use leeward_catalogue::Catalogue;
use leeward_core::units::Nanos;
use leeward_services::definition::Requests;
use leeward_sim::service_time::ServiceTime;
use std::path::Path;
use std::sync::Arc;

/// Maximum size of a file with an empirical distribution.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Placeholder for the service time of a measured service.
const PLACEHOLDER: ServiceTime = ServiceTime::Constant(Nanos::from_millis(1));

pub(super) fn service(item: &Item<'_>, folder: &Path) -> Result<ServiceSpec, ScenarioError> {
    let text = item.text()?;
    let (service, measured) = match text.strip_prefix("file:") {
        None => parse_service(item, text)?,
        Some(path) => {
            let path = folder.join(path);
            let error = |problem: String| item.error(format!("{}: {problem}", path.display()));
            let samples = read_text(&path, MAX_FILE_BYTES, "larger than 64 MB");
            let samples = samples.map_err(|problem| error(problem.to_string()))?;
            let service = ServiceTime::from_samples(&samples).map_err(|problem| error(problem.to_string()))?;
            if service.mean() == Nanos::ZERO {
                return Err(error("its mean is zero".into()));
            }
            (service, None)
        }
    };
    Ok(ServiceSpec { text: text.into(), service, requests: measured })
}

/// Reads drawn service times.
pub(super) fn service_time(item: &Item<'_>, folder: &Path) -> Result<ServiceTime, ScenarioError> {
    let spec = service(item, folder)?;
    match spec.requests {
        None => Ok(spec.service),
        Some(_) => Err(item.unexpected("a service time that is drawn, such as \"exp:10us\"")),
    }
}

/// Parses service times, or the requests to a measured service.
fn parse_service(item: &Item<'_>, text: &str) -> Result<(ServiceTime, Option<Arc<dyn Requests>>), ScenarioError> {
    let catalogue = Catalogue::builtin();
    let requests = catalogue.requests(text).map_err(|error| match catalogue.find_by_requests(text) {
        Some(_) => item.error(error.to_string()),
        None => item.error(format!("{error}, or `file:times.txt`")),
    })?;
    match requests.service_times().cloned() {
        Some(times) => Ok((times, None)),
        None => Ok((PLACEHOLDER, Some(requests))),
    }
}
