//! `leeward serve --config FILE`: reads the flags of `serve` strictly from a TOML file, and prints
//! them as one.

use anyhow::anyhow;
use leeward_catalogue::Catalogue;
use leeward_core::params::{ParamError, RawParam};
use leeward_core::registry::Environment;
use leeward_core::units::Nanos;
use leeward_lab::ScenarioError;
use leeward_lab::scenario::settings::{Pair, Settings};
use leeward_services::arguments::{Argument, Kind, Value, size};
use leeward_services::tiers::CURVES;

use super::allocator::{self, Allocator};
use super::args::{IoUringMode, OFF_ON, ServeArgs, parse_idle};
use super::cores::CoreRange;
use super::otlp;
use super::shadow;
use crate::admission::{self, parse_raw};
use crate::failure::Failure;
use crate::service::SERVICE;

/// Flags of `serve` that a file may set, besides those of the services.
const KEYS: &[&str] = &[
    SERVICE,
    "admission",
    "slo",
    "rtt",
    "shadow",
    "enforce",
    "listen",
    "udp",
    "udp-size",
    "tls-cert",
    "tls-key",
    "tls-client-ca",
    "tls-tenants",
    "admin",
    "admin-tls-cert",
    "admin-tls-key",
    "admin-tls-client-ca",
    "otlp",
    "otlp-every",
    "cores",
    "allocator",
    "cpus",
    "idle",
    "io-uring",
    "connections",
    "receiving",
    "sending",
    "budget",
    "record",
    "threading-policy",
    "accept-curves",
    "set",
];

const IO_URING_MODES: [IoUringMode; 2] = [IoUringMode::Auto, IoUringMode::Off];
const SPAN_RANGE: std::ops::RangeInclusive<Nanos> = Nanos(1)..=Nanos::from_secs(3_600);

/// Sets the flags that the command line does not set from the file, if there is one.
pub(crate) fn apply(args: &mut ServeArgs) -> Result<(), Failure> {
    let Some(path) = args.config.clone() else { return Ok(()) };
    let settings = Settings::load(&path, &keys())?;
    fill(args, &settings)?;
    let pairs = settings.pairs("set")?;
    merge(args, &pairs);
    check(args, &settings, &pairs)
}

/// All keys that a file may have.
fn keys() -> Vec<&'static str> {
    let services = Catalogue::builtin().arguments().into_iter().map(|argument| argument.name);
    let (last, first) = KEYS.split_last().unwrap_or((&SERVICE, &[]));
    first.iter().copied().chain(services).chain([*last]).collect()
}

/// Sets the flags; checks every value, even if the command line overrides it.
fn fill(args: &mut ServeArgs, settings: &Settings) -> Result<(), ScenarioError> {
    let written = std::mem::take(&mut args.written);
    let free = |id: &str| !written.iter().any(|known| known == id);
    fn put<T>(target: &mut T, free: bool, value: Option<T>) {
        if let (true, Some(value)) = (free, value) {
            *target = value;
        }
    }
    let catalogue = Catalogue::builtin();
    let service = settings.choice(SERVICE, &catalogue.names())?;
    put(&mut args.service.definition, free(SERVICE), service.and_then(|index| catalogue.services().nth(index)));
    for argument in catalogue.arguments() {
        let value = service_value(argument, settings)?;
        if let (true, Some(value)) = (free(argument.name), value) {
            args.service.values.set(argument.name, value);
        }
    }
    put(&mut args.budget, free("budget"), settings.duration("budget", SPAN_RANGE)?.map(Some));
    let name = settings.line("admission")?;
    if let Some(name) = &name {
        leeward_controllers::builtin().find(name).map_err(|error| settings.error("admission", &error.to_string()))?;
    }
    put(&mut args.admission.name, free("name"), name);
    put(&mut args.admission.slo, free("slo"), settings.duration("slo", SPAN_RANGE)?);
    put(&mut args.admission.rtt, free("rtt"), settings.duration("rtt", SPAN_RANGE)?);
    shadow::fill(args, settings, free("shadow") && free("enforce"))?;
    put(&mut args.listen, free("listen"), settings.line("listen")?);
    put(&mut args.udp, free("udp"), settings.line("udp")?.map(Some));
    put(&mut args.udp_size, free("udp_size"), settings.count("udp-size", 1128..=8972)?.map(|bytes| bytes as u16));
    put(&mut args.tls_cert, free("tls_cert"), settings.line("tls-cert")?.map(|path| Some(path.into())));
    put(&mut args.tls_key, free("tls_key"), settings.line("tls-key")?.map(|path| Some(path.into())));
    let client_ca = settings.line("tls-client-ca")?;
    put(&mut args.tls_client_ca, free("tls_client_ca"), client_ca.map(|path| Some(path.into())));
    let tenants = settings.line("tls-tenants")?;
    put(&mut args.tls_tenants, free("tls_tenants"), tenants.map(|path| Some(path.into())));
    put(&mut args.admin, free("admin"), settings.line("admin")?.map(Some));
    let path = |name| settings.line(name).map(|path| path.map(|path| Some(path.into())));
    put(&mut args.admin_tls_cert, free("admin_tls_cert"), path("admin-tls-cert")?);
    put(&mut args.admin_tls_key, free("admin_tls_key"), path("admin-tls-key")?);
    put(&mut args.admin_tls_client_ca, free("admin_tls_client_ca"), path("admin-tls-client-ca")?);
    let receiver = settings.line("otlp")?;
    if let Some(text) = &receiver {
        otlp::parse_endpoint(text).map_err(|problem| settings.error("otlp", &problem))?;
    }
    put(&mut args.otlp, free("otlp"), receiver.map(Some));
    put(&mut args.otlp_every, free("otlp_every"), settings.duration("otlp-every", otlp::INTERVAL_RANGE)?);
    put(&mut args.cores, free("cores"), cores(settings)?);
    let policy = settings.line("allocator")?;
    if let Some(policy) = &policy {
        allocator::parse(policy).map_err(|problem| settings.error("allocator", &problem))?;
    }
    put(&mut args.allocator, free("allocator"), policy.map(Some));
    let cpus = settings.counts("cpus", 128, 0..=4_095)?;
    put(&mut args.cpus, free("cpus"), cpus.map(|cpus| cpus.into_iter().map(|cpu| cpu as usize).collect()));
    let policy = settings.line("idle")?;
    if let Some(policy) = &policy {
        parse_idle(policy).map_err(|error| settings.error("idle", error.to_string().trim_start_matches("--idle ")))?;
    }
    put(&mut args.idle, free("idle"), policy.map(Some));
    let when = settings.choice("io-uring", &IO_URING_MODES.map(IoUringMode::name))?;
    put(&mut args.io_uring, free("io_uring"), when.map(|index| IO_URING_MODES[index]));
    put(&mut args.connections, free("connections"), settings.count("connections", 1..=1_000_000)?);
    let receiving = settings.line("receiving")?;
    if let Some(text) = &receiving {
        size(text).map_err(|problem| settings.error("receiving", &problem))?;
    }
    put(&mut args.receiving, free("receiving"), receiving);
    let sending = settings.line("sending")?;
    if let Some(text) = &sending {
        size(text).map_err(|problem| settings.error("sending", &problem))?;
    }
    put(&mut args.sending, free("sending"), sending);
    put(&mut args.threading_policy, free("threading_policy"), settings.line("threading-policy")?);
    let accepts = settings.choice("accept-curves", &OFF_ON)?;
    put(&mut args.accept_curves, free("accept_curves"), accepts.map(|index| index == 1));
    put(&mut args.record, free("record"), settings.line("record")?.map(|path| Some(path.into())));
    args.written = written;
    Ok(())
}

/// Reads and checks the value of a service's argument.
fn service_value(argument: &Argument, settings: &Settings) -> Result<Option<Value>, ScenarioError> {
    let name = argument.name;
    let value = match argument.kind {
        Kind::Text | Kind::Checked(_) => settings.line(name)?.map(Value::Text),
        Kind::Count { least, most } => settings.count(name, least..=most)?.map(Value::Count),
        Kind::File => settings.line(name)?.map(|path| Value::File(path.into())),
    };
    if let Some(value) = &value {
        argument.check(value).map_err(|problem| settings.error(name, &problem))?;
    }
    Ok(value)
}

/// Reads the number of cores: an integer, or a range as text.
fn cores(settings: &Settings) -> Result<Option<CoreRange>, ScenarioError> {
    match settings.line("cores") {
        Ok(Some(text)) if text.contains("..") => {
            let range =
                text.parse().map_err(|problem: String| settings.error("cores", &format!("`{text}`; {problem}")));
            range.map(Some)
        }
        _ => Ok(settings.count("cores", 1..=128)?.map(|cores| CoreRange::up_to(cores as u16))),
    }
}

/// Puts the file's parameters before those of `--set`, except those that `--set` overrides.
fn merge(args: &mut ServeArgs, pairs: &[Pair]) {
    let overrides = std::mem::take(&mut args.admission.overrides);
    let is_set = |name: &str| overrides.iter().any(|pair| pair.split('=').next().is_some_and(|key| key.trim() == name));
    let free = pairs.iter().filter(|pair| !is_set(&pair.name));
    let written = |pair: &Pair| match &pair.value {
        RawParam::Text(text) => format!("{}={text}", pair.name),
        RawParam::Switch(on) => format!("{}={}", pair.name, if *on { "on" } else { "off" }),
        RawParam::Integer(number) => format!("{}={number}", pair.name),
        RawParam::Number(number) => format!("{}={number}", pair.name),
    };
    args.admission.overrides = free.map(written).chain(overrides.iter().cloned()).collect();
}

/// Checks the parameters against each other and against the resulting controller. Errors need the
/// file's line numbers, which only this file knows.
fn check(args: &ServeArgs, settings: &Settings, pairs: &[Pair]) -> Result<(), Failure> {
    let registry = leeward_controllers::builtin();
    let algorithm =
        registry.find(&args.admission.name).map_err(|error| Failure::Input(anyhow!("--admission: {error}")))?;
    let wrong = |name: &str, error: ParamError| {
        settings.error_in("set", name, &format!("{error} (the controller is `{}`)", algorithm.name))
    };
    for Pair { name, value } in pairs {
        algorithm.params(&[(name, value.clone())]).map_err(|error| wrong(name, error))?;
    }
    match build(args)? {
        Err(error) if settings.has("set") => Err(settings.error("set", &error.to_string()).into()),
        _ => Ok(()),
    }
}

/// Checks that the parameters are consistent, by making the controller.
fn build(args: &ServeArgs) -> Result<Result<(), ParamError>, Failure> {
    let (algorithm, params) = admission::controller(&args.admission)?;
    let slo = admission::parse_span("--slo", &args.admission.slo)?;
    let rtt = admission::parse_span("--rtt", &args.admission.rtt)?;
    if let Some(allocator) = Allocator::from_args(args)? {
        allocator.check()?;
    }
    let environment = allocator::environment(args, Environment::new(args.cores.max.into(), rtt, slo));
    Ok(algorithm.server(&params, &environment).map(drop))
}

/// Effective settings, in the syntax of a file for `--config`.
pub(crate) fn text(args: &ServeArgs) -> Result<String, Failure> {
    build(args)?.map_err(|error| Failure::Input(anyhow!("--set: {error}")))?;
    let mut text = format!(
        "service = {}\nadmission = {}\nslo = {}\nrtt = {}\nlisten = {}\ncores = {}\n",
        quoted(args.service.name()),
        quoted(&args.admission.name),
        quoted(&args.admission.slo),
        quoted(&args.admission.rtt),
        quoted(&args.listen),
        if args.cores.to_string().contains('.') { quoted(&args.cores.to_string()) } else { args.cores.to_string() },
    );
    if args.shadow {
        text += "shadow = \"on\"\n";
    }
    if let Some(share) = &args.enforce {
        text += &format!("enforce = {}\n", quoted(share));
    }
    if let Some(udp) = &args.udp {
        text += &format!("udp = {}\nudp-size = {}\n", quoted(udp), args.udp_size);
    }
    if let Some(admin) = &args.admin {
        text += &format!("admin = {}\n", quoted(admin));
    }
    if let Some(receiver) = &args.otlp {
        text += &format!("otlp = {}\notlp-every = {}\n", quoted(receiver), quoted(&args.otlp_every));
    }
    if let Some(allocator) = &args.allocator {
        text += &format!("allocator = {}\n", quoted(allocator));
    }
    if !args.cpus.is_empty() {
        text += &format!("cpus = {:?}\n", args.cpus);
    }
    text += &format!("idle = {}\nio-uring = {}\n", quoted(allocator::idle(args)), quoted(args.io_uring.name()));
    let (receiving, sending) = (quoted(&args.receiving), quoted(&args.sending));
    text += &format!("connections = {}\nreceiving = {receiving}\nsending = {sending}\n", args.connections);
    for argument in args.service.definition.arguments() {
        text += &match args.service.values.get(argument.name) {
            Some(Value::Text(value)) => format!("{} = {}\n", argument.name, quoted(value)),
            Some(Value::File(path)) => format!("{} = {}\n", argument.name, quoted(&path.display().to_string())),
            Some(Value::Count(count)) => format!("{} = {count}\n", argument.name),
            None => String::new(),
        };
    }
    if let Some(budget) = &args.budget {
        text += &format!("budget = {}\n", quoted(budget));
    }
    let chooses = args.service.values.text("threading").is_some_and(|text| text.ends_with(CURVES));
    if chooses && args.service.accepts("threading") {
        let accepts = OFF_ON[usize::from(args.accept_curves)];
        text +=
            &format!("threading-policy = {}\naccept-curves = {}\n", quoted(&args.threading_policy), quoted(accepts));
    }
    let files = [
        ("tls-cert", &args.tls_cert),
        ("tls-key", &args.tls_key),
        ("tls-client-ca", &args.tls_client_ca),
        ("tls-tenants", &args.tls_tenants),
        ("admin-tls-cert", &args.admin_tls_cert),
        ("admin-tls-key", &args.admin_tls_key),
        ("admin-tls-client-ca", &args.admin_tls_client_ca),
    ];
    for (name, path) in files.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?))) {
        text += &format!("{name} = {}\n", quoted(&path.display().to_string()));
    }
    if let Some(path) = &args.record {
        text += &format!("record = {}\n", quoted(&path.display().to_string()));
    }
    let pairs = args.admission.overrides.iter().filter_map(|pair| pair.split_once('='));
    let lines: Vec<String> = pairs
        .map(|(name, value)| match parse_raw(value.trim()) {
            RawParam::Text(text) => format!("{} = {}\n", name.trim(), quoted(&text)),
            number => format!("{} = {number}\n", name.trim()),
        })
        .collect();
    if !lines.is_empty() {
        text += &format!("\n[set]\n{}", lines.concat());
    }
    Ok(text)
}

/// Quotes a TOML string: its escapes are those of JSON, plus one for U+007F, which JSON does not
/// escape.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_survive_toml_quoting() {
        for text in ["127.0.0.1:7117", "a \"b\" \\ c", "tab\tnew\nline\u{7f}", "größer"] {
            let written = format!("listen = {}\n", quoted(text));
            let parsed = Settings::parse("x", &written, &keys());
            assert!(parsed.is_ok(), "{written}");
            if !text.contains(char::is_control) {
                assert_eq!(parsed.unwrap().line("listen").unwrap().as_deref(), Some(text));
            }
        }
    }
}
