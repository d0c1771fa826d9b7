//! The list of all services. A service is added here, once, as a [`Case`] that lives in the service's own folder; the
//! programs take their names, arguments and help from this list. Never here: what a service does.

#![forbid(unsafe_code)]

pub mod data;

use leeward_core::units::UnitError;
use leeward_hdsearch::case::{HdSearchCase, HdSearchLeafCase};
use leeward_kv::case::KvCase;
use leeward_recommend::case::{RecommendCase, RecommendLeafCase};
use leeward_router::case::{RouterCase, RouterLeafCase};
use leeward_search::case::SearchCase;
use leeward_services::arguments::Argument;
use leeward_services::case::{Case, Requests};
use leeward_services::disk::DiskCase;
use leeward_services::echo::EchoCase;
use leeward_services::synthetic::SyntheticCase;
use leeward_services::tier::TierCase;
use leeward_services::wait::WaitCase;
use leeward_sets::case::{SetsCase, SetsLeafCase};
use std::sync::Arc;

/// All services, in the order in which they are listed. The first is served and asked if none is named.
const BUILTIN: [&dyn Case; 15] = [
    &SyntheticCase,
    &EchoCase,
    &WaitCase,
    &DiskCase,
    &TierCase,
    &KvCase,
    &SearchCase,
    &HdSearchCase,
    &HdSearchLeafCase,
    &RouterCase,
    &RouterLeafCase,
    &SetsCase,
    &SetsLeafCase,
    &RecommendCase,
    &RecommendLeafCase,
];

/// Services by name.
#[derive(Clone, Debug)]
pub struct Catalogue {
    cases: Vec<&'static dyn Case>,
}

impl Catalogue {
    /// All services that come with Leeward.
    pub fn builtin() -> Self {
        Catalogue { cases: BUILTIN.to_vec() }
    }

    /// The same with one more, for programs and tests that bring a service of their own.
    #[must_use]
    pub fn with(mut self, case: &'static dyn Case) -> Self {
        self.cases.push(case);
        self
    }

    /// The services in their order.
    pub fn cases(&self) -> impl Iterator<Item = &'static dyn Case> {
        self.cases.iter().copied()
    }

    /// Names of the services in their order.
    pub fn names(&self) -> Vec<&'static str> {
        self.cases().map(Case::name).collect()
    }

    /// The service of this name, or with this alias.
    pub fn find(&self, name: &str) -> Option<&'static dyn Case> {
        self.cases().find(|case| case.name() == name || case.aliases().contains(&name))
    }

    /// The arguments of all services, those that several share once.
    pub fn arguments(&self) -> Vec<&'static Argument> {
        let mut arguments: Vec<&Argument> = Vec::new();
        for argument in self.cases().flat_map(Case::arguments) {
            if arguments.iter().all(|known| known.name != argument.name) {
                arguments.push(argument);
            }
        }
        arguments
    }

    /// Reads what clients ask. The text begins with a service's name; any other is a service time, of the synthetic one.
    ///
    /// # Errors
    /// The service refuses the text; says what is accepted.
    ///
    /// ```
    /// use leeward_catalogue::Catalogue;
    ///
    /// let catalogue = Catalogue::builtin();
    /// assert_eq!(catalogue.requests("kv:usr:keys=24")?.to_string(), "kv:usr:keys=24");
    /// assert!(catalogue.requests("exp:10us")?.times().is_some());
    /// # Ok::<(), leeward_core::units::UnitError>(())
    /// ```
    pub fn requests(&self, text: &str) -> Result<Arc<dyn Requests>, UnitError> {
        let Some((case, name)) = self.begun(text) else { return SyntheticCase.requests(text) };
        case.requests(&format!("{}{}", case.name(), &text[name.len()..]))
    }

    /// The service that a text of [`Catalogue::requests`] names; `None` for a service time.
    pub fn named(&self, text: &str) -> Option<&'static dyn Case> {
        self.begun(text).map(|(case, _)| case)
    }

    /// The service with whose name, or alias, a text begins, and which of these it is: the longest.
    fn begun(&self, text: &str) -> Option<(&'static dyn Case, &'static str)> {
        let names = self.cases().flat_map(|case| {
            let own = std::iter::once(case.name()).chain(case.aliases().iter().copied());
            own.map(move |name| (case, name))
        });
        names.filter(|(_, name)| text.starts_with(name)).max_by_key(|(_, name)| name.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_arguments_are_of_their_own() {
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
            assert_eq!(catalogue.named(name).map(Case::name), Some(*name));
            assert!(!times.iter().any(|text| text.starts_with(name)), "{name} is how a service time begins");
        }
        for argument in catalogue.cases().flat_map(Case::arguments) {
            let shared = catalogue.arguments().into_iter().find(|known| known.name == argument.name).unwrap();
            // A check is a function, which may have several addresses.
            let told = |argument: &Argument| (argument.value_name, argument.help, argument.default, argument.elsewhere);
            assert_eq!(told(argument), told(shared), "one name, two arguments");
            assert!(argument.default.is_none() || argument.default_value().is_some(), "{}", argument.name);
        }
    }

    #[test]
    fn an_alias_is_taken_for_the_name() {
        let catalogue = Catalogue::builtin();
        for (alias, name) in [("set-algebra", "sets"), ("set-algebra-leaf", "sets-leaf")] {
            assert_eq!(catalogue.find(alias).map(Case::name), Some(name));
            assert_eq!(catalogue.requests(alias).unwrap().to_string(), name);
            assert!(!catalogue.names().contains(&alias));
        }
        assert_eq!(catalogue.requests("set-algebra:words=1-10").unwrap().to_string(), "sets:words=1-10");
        assert!(catalogue.requests("set-algebraic").is_err());
    }

    #[test]
    fn a_text_is_read_by_the_service_that_it_names() {
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
