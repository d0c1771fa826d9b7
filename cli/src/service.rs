//! `--service` and the arguments of the catalogue's services, as flags of `leeward serve`.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::anyhow;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgMatches};
use leeward_catalogue::Catalogue;
use leeward_services::arguments::{Argument, Kind, UnsupportedPolicy, Value, Values};
use leeward_services::backend::Backend;
use leeward_services::definition::{Notice, PrepareError, ServiceDefinition};

use crate::failure::Failure;
use crate::progress::Spinner;

/// Name of the flag and of the key in a file.
pub(crate) const SERVICE: &str = "service";

/// A service of the catalogue, and the values of all services' arguments.
#[derive(Clone, Debug)]
pub(crate) struct ServiceArgs {
    pub(crate) definition: &'static dyn ServiceDefinition,
    pub(crate) values: Values,
}

impl ServiceArgs {
    /// Name of the service.
    pub(crate) fn name(&self) -> &'static str {
        self.definition.name()
    }

    /// True if the service has an argument of this name.
    pub(crate) fn accepts(&self, argument: &str) -> bool {
        self.definition.arguments().iter().any(|own| own.name == argument)
    }

    /// Number of ports that the service opens.
    pub(crate) fn ports(&self) -> usize {
        self.definition.ports(&self.values)
    }

    /// Rejects arguments of other services.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let is_foreign = |argument: &&Argument| {
            let value = self.values.get(argument.name);
            argument.unsupported == UnsupportedPolicy::Refused && !self.accepts(argument.name) && value.is_some()
        };
        for other in Catalogue::builtin().services() {
            let is_given = |argument: &&Argument| self.values.get(argument.name) != argument.default_value().as_ref();
            let given: Vec<&Argument> = other.arguments().iter().filter(is_foreign).filter(is_given).collect();
            if !given.is_empty() {
                let flags: Vec<String> = given.iter().map(|argument| format!("--{}", argument.name)).collect();
                let belong = if flags.len() == 1 { "belongs" } else { "belong" };
                let (flags, other, name) = (flags.join(" and "), other.name(), self.name());
                return Err(Failure::Input(anyhow!("{flags} {belong} to --service {other}, not to {name}")));
            }
        }
        Ok(())
    }

    /// Warnings about arguments of other services that are accepted and not used.
    pub(crate) fn unused_warnings(&self) -> Vec<String> {
        let (catalogue, name) = (Catalogue::builtin(), self.name());
        let is_unused = |argument: &&&Argument| {
            let value = self.values.get(argument.name);
            let is_ignored = argument.unsupported == UnsupportedPolicy::Ignored && !self.accepts(argument.name);
            is_ignored && value != argument.default_value().as_ref()
        };
        let message = |argument: &&Argument| {
            let flag = argument.name;
            let takes = |case: &&dyn ServiceDefinition| case.arguments().iter().any(|of| of.name == flag);
            let owners: Vec<&str> = catalogue.services().filter(takes).map(ServiceDefinition::name).collect();
            format!("--{flag} belongs to --service {}, and has no effect on {name}", owners.join(" and "))
        };
        catalogue.arguments().iter().filter(is_unused).map(message).collect()
    }

    /// Prepares the service's data for a server on `cores` cores, with progress and notes on
    /// stderr.
    pub(crate) fn open(&self, cores: usize) -> Result<Box<dyn Backend>, Failure> {
        let steps = RefCell::new(None);
        let progress = |notice: Notice<'_>| match notice {
            // A log gets each step; a terminal shows the current one.
            Notice::Step(text) if !std::io::stderr().is_terminal() => {
                _ = writeln!(std::io::stderr(), "{}: {text} ...", self.name());
            }
            Notice::Step(text) => steps.borrow_mut().get_or_insert_with(|| Spinner::new(self.name())).show(text),
            Notice::Note(text) => _ = writeln!(std::io::stderr(), "{text}"),
        };
        self.definition.open(&self.values, cores, &progress).map_err(failure)
    }
}

/// Failure to prepare a service.
pub(crate) fn failure(error: PrepareError) -> Failure {
    match error {
        PrepareError::Input(_) => Failure::Input(anyhow!(error)),
        _ => Failure::Runtime(anyhow!(error)),
    }
}

impl clap::Args for ServiceArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let catalogue = Catalogue::builtin();
        let names = catalogue
            .services()
            .map(|case| PossibleValue::new(case.name()).help(case.summary()).aliases(case.aliases().iter().copied()));
        let service = Arg::new(SERVICE)
            .long(SERVICE)
            .value_name("SERVICE")
            .help("Service: the work that requests do")
            .value_parser(PossibleValuesParser::new(names))
            .default_value(catalogue.names()[0]);
        catalogue
            .arguments()
            .into_iter()
            .fold(command.arg(service), |command, argument| command.arg(clap_arg(argument)))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Converts an argument to clap's form.
fn clap_arg(argument: &Argument) -> Arg {
    let arg = Arg::new(argument.name).long(argument.name).value_name(argument.value_name).help(argument.help);
    let arg = match argument.kind {
        Kind::Text | Kind::Checked(_) => arg.value_parser(clap::value_parser!(String)),
        Kind::Count { least, most } => {
            arg.value_parser(clap::value_parser!(u32).range(i64::from(least)..=i64::from(most)))
        }
        Kind::File => arg.value_parser(clap::value_parser!(PathBuf)),
    };
    match argument.default {
        Some(default) => arg.default_value(OsStr::new(default)),
        None => arg,
    }
}

impl clap::FromArgMatches for ServiceArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let catalogue = Catalogue::builtin();
        let named = matches.get_one::<String>(SERVICE).and_then(|name| catalogue.find(name));
        let case = named.ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingRequiredArgument))?;
        let mut values = Values::default();
        for argument in catalogue.arguments() {
            let name = argument.name;
            let value = match argument.kind {
                Kind::Text | Kind::Checked(_) => matches.get_one(name).cloned().map(Value::Text),
                Kind::Count { .. } => matches.get_one(name).copied().map(Value::Count),
                Kind::File => matches.get_one(name).cloned().map(Value::File),
            };
            if let Some(value) = value {
                values.set(name, value);
            }
        }
        Ok(ServiceArgs { definition: case, values })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_other_services_are_refused() {
        let catalogue = Catalogue::builtin();
        let refused = |service: &str, name: &'static str, value: Value| {
            let mut values = Values::defaults(catalogue.arguments());
            values.set(name, value);
            let args = ServiceArgs { definition: catalogue.find(service).unwrap(), values };
            args.check().err().map(|failure| failure.to_string())
        };
        assert_eq!(
            refused("echo", "segments", Value::Count(2)).unwrap(),
            "--segments belongs to --service search, not to echo"
        );
        let port = || Value::Text("127.0.0.1:0".into());
        assert_eq!(
            refused("synthetic", "memcached", port()).unwrap(),
            "--memcached belongs to --service kv, not to synthetic"
        );
        assert_eq!(refused("kv", "memcached", port()), None);
        assert_eq!(refused("echo", "segments", Value::Count(1)), None, "the default");
        assert_eq!(refused("echo", "memory", Value::Text("1GB".into())), None, "has always been ignored");
    }

    #[test]
    fn unused_arguments_are_reported() {
        let catalogue = Catalogue::builtin();
        let unused = |service: &str, memory: Option<&str>| {
            let mut values = Values::defaults(catalogue.arguments());
            if let Some(memory) = memory {
                values.set("memory", Value::Text(memory.into()));
            }
            ServiceArgs { definition: catalogue.find(service).unwrap(), values }.unused_warnings()
        };
        assert_eq!(
            unused("echo", Some("1GB")),
            ["--memory belongs to --service kv and router-leaf, and has no effect on echo"]
        );
        assert!(unused("echo", None).is_empty() && unused("kv", Some("1GB")).is_empty());
    }
}
