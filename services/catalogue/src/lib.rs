//! The list of all services.
//!
//! For programs that offer services by name, such as `leeward serve`. Entry point:
//! [`Catalogue::builtin`].
//!
//! # Example
//! ```
//! use leeward_catalogue::Catalogue;
//!
//! let catalogue = Catalogue::builtin();
//! assert!(catalogue.names().contains(&"kv"));
//! // An alias: the paper's name of Set Algebra.
//! assert_eq!(catalogue.find("set-algebra").unwrap().name(), "sets");
//! assert_eq!(catalogue.requests("kv:usr:keys=24")?.to_string(), "kv:usr:keys=24");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A new service is added here, once, as a [`ServiceDefinition`] from the service's own folder. The
//! programs take names, arguments and help from this list. Does not contain any service's
//! behaviour.

#![forbid(unsafe_code)]

pub mod data;

use leeward_core::units::UnitError;
use leeward_hdsearch::definition::{HdSearchDefinition, HdSearchLeafDefinition};
use leeward_kv::definition::KvDefinition;
use leeward_recommend::definition::{RecommendDefinition, RecommendLeafDefinition};
use leeward_router::definition::{RouterDefinition, RouterLeafDefinition};
use leeward_search::definition::SearchDefinition;
use leeward_services::arguments::Argument;
use leeward_services::definition::{Requests, ServiceDefinition};
use leeward_services::disk::DiskDefinition;
use leeward_services::echo::EchoDefinition;
use leeward_services::synthetic::SyntheticDefinition;
use leeward_services::tier::TierDefinition;
use leeward_services::wait::WaitDefinition;
use leeward_sets::definition::{SetsDefinition, SetsLeafDefinition};
use std::sync::Arc;

/// All services, in listing order. The first is the default.
const BUILTIN: [&dyn ServiceDefinition; 15] = [
    &SyntheticDefinition,
    &EchoDefinition,
    &WaitDefinition,
    &DiskDefinition,
    &TierDefinition,
    &KvDefinition,
    &SearchDefinition,
    &HdSearchDefinition,
    &HdSearchLeafDefinition,
    &RouterDefinition,
    &RouterLeafDefinition,
    &SetsDefinition,
    &SetsLeafDefinition,
    &RecommendDefinition,
    &RecommendLeafDefinition,
];

/// Services by name.
#[derive(Clone, Debug)]
pub struct Catalogue {
    services: Vec<&'static dyn ServiceDefinition>,
}

impl Catalogue {
    /// Creates a catalogue of all services of Leeward.
    pub fn builtin() -> Self {
        Catalogue { services: BUILTIN.to_vec() }
    }

    /// Adds a service, for programs and tests with a service of their own.
    #[must_use]
    pub fn with(mut self, service: &'static dyn ServiceDefinition) -> Self {
        self.services.push(service);
        self
    }

    /// Iterates over the services in order.
    pub fn services(&self) -> impl Iterator<Item = &'static dyn ServiceDefinition> {
        self.services.iter().copied()
    }

    /// Returns the names of the services in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.services().map(ServiceDefinition::name).collect()
    }

    /// Finds the service with this name or alias.
    pub fn find(&self, name: &str) -> Option<&'static dyn ServiceDefinition> {
        self.services().find(|service| service.name() == name || service.aliases().contains(&name))
    }

    /// Returns the arguments of all services; a shared argument appears once.
    pub fn arguments(&self) -> Vec<&'static Argument> {
        let mut arguments: Vec<&Argument> = Vec::new();
        for argument in self.services().flat_map(ServiceDefinition::arguments) {
            if arguments.iter().all(|known| known.name != argument.name) {
                arguments.push(argument);
            }
        }
        arguments
    }

    /// Parses client requests. The text begins with a service's name; any other text is a service
    /// time for `synthetic`.
    ///
    /// # Errors
    /// The service rejects the text; the message lists the accepted forms.
    ///
    /// ```
    /// use leeward_catalogue::Catalogue;
    ///
    /// let catalogue = Catalogue::builtin();
    /// assert_eq!(catalogue.requests("kv:usr:keys=24")?.to_string(), "kv:usr:keys=24");
    /// assert!(catalogue.requests("exp:10us")?.service_times().is_some());
    /// # Ok::<(), leeward_core::units::UnitError>(())
    /// ```
    pub fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let Some((service, name)) = self.match_prefix(text) else { return SyntheticDefinition.requests(text) };
        service.requests(&format!("{}{}", service.name(), &text[name.len()..]))
    }

    /// Finds the service that a text of [`Catalogue::requests`] names; `None` for a service time.
    pub fn find_by_requests(&self, text: &str) -> Option<&'static dyn ServiceDefinition> {
        self.match_prefix(text).map(|(service, _)| service)
    }

    /// Finds the service with the longest name or alias that is a prefix of `text`, and that name.
    fn match_prefix(&self, text: &str) -> Option<(&'static dyn ServiceDefinition, &'static str)> {
        let names = self.services().flat_map(|service| {
            let own = std::iter::once(service.name()).chain(service.aliases().iter().copied());
            own.map(move |name| (service, name))
        });
        names.filter(|(_, name)| text.starts_with(name)).max_by_key(|(_, name)| name.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_names_and_arguments_are_unique() {
        let catalogue = Catalogue::builtin();
        let names = catalogue.names();
        assert_eq!(names[..7], ["synthetic", "echo", "wait", "disk", "tier", "kv", "search"]);
        assert_eq!(
            names[7..],
            ["hdsearch", "router", "sets", "recommend"].map(|name| [name.into(), format!("{name}-leaf")]).concat()
        );
        let times = ["exp:10us", "const:10us", "bimodal:10us", "lognormal:10us:1.5", "file:times.txt"];
        for name in &names {
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
            assert_eq!(catalogue.find_by_requests(name).map(ServiceDefinition::name), Some(*name));
            assert!(!times.iter().any(|text| text.starts_with(name)), "{name} is how a service time begins");
        }
        for argument in catalogue.services().flat_map(ServiceDefinition::arguments) {
            let shared = catalogue.arguments().into_iter().find(|known| known.name == argument.name).unwrap();
            // A check is a function pointer, and one function may have several addresses.
            let fields =
                |argument: &Argument| (argument.value_name, argument.help, argument.default, argument.unsupported);
            assert_eq!(fields(argument), fields(shared), "one name, two arguments");
            assert!(argument.default.is_none() || argument.default_value().is_some(), "{}", argument.name);
        }
    }

    #[test]
    fn an_alias_resolves_to_its_service() {
        let catalogue = Catalogue::builtin();
        for (alias, name) in [("set-algebra", "sets"), ("set-algebra-leaf", "sets-leaf")] {
            assert_eq!(catalogue.find(alias).map(ServiceDefinition::name), Some(name));
            assert_eq!(catalogue.requests(alias).unwrap().to_string(), name);
            assert!(!catalogue.names().contains(&alias));
        }
        assert_eq!(catalogue.requests("set-algebra:words=1-10").unwrap().to_string(), "sets:words=1-10");
        assert!(catalogue.requests("set-algebraic").is_err());
    }

    #[test]
    fn requests_are_parsed_by_the_service_they_name() {
        let catalogue = Catalogue::builtin();
        for text in ["echo", "kv:ycsb-a", "search:words=2-3,common=1,match=all,results=5", "lognormal:10us:2"] {
            assert_eq!(catalogue.requests(text).unwrap().to_string(), text);
        }
        for (wrong, accepted) in
            [("kv:tao", "kv:usr"), ("searching", "search:words=1-4"), ("echoes", "`echo`"), ("exp", "exp:10us")]
        {
            let error = catalogue.requests(wrong).unwrap_err().to_string();
            assert!(error.contains(accepted), "{error}");
        }
    }
}
