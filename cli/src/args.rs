//! The command line: the list of commands. The arguments of each command are in its file in
//! `commands`.

use std::ffi::OsString;
use std::io::Write;

use anyhow::anyhow;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use leeward_compilers::Language;

use crate::commands::compile::MissingCompiler;
use crate::commands::{
    calibrate, cargo, compile, completions, corpus, data, demo, demo_proxy, demo_tiers, league, list, load, profile,
    proxy, record, replay, report, run, serve, sweep, top, train, tune, twin, verdicts, watch, why,
};
use crate::failure::Failure;
use crate::stdout;

/// Overload control: run the papers' experiments in simulation, compare controllers, and serve with
/// one.
#[derive(Debug, Parser)]
#[command(name = "leeward", version, max_term_width = 100, after_help = START)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const START: &str = "\
Start here:
  leeward demo                     an overload on this machine, in a live view
  leeward list                     the scenarios and controllers
  leeward run bw-overall --quick   a first result, with a report
  leeward watch :8080              the queue in front of any service on this machine, and why it stands there
  leeward help run                 all options of a run

Ctrl-C, SIGTERM or SIGHUP stops a command cleanly; again, more than 500 ms later, at once.
A live view ends when its terminal closes.

Exit codes:
  0    success
  1    run-time error: no server listens, another protocol answers, a peer disconnects, a full disk
  2    wrong input: a bad value, a file that is missing or of another kind, a folder in its place
  3    the load generator was too late to measure
  130  interrupted by Ctrl-C, SIGTERM or SIGHUP";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::DemoArgs),
    Run(run::RunArgs),
    List(list::ListArgs),
    Report(report::ReportArgs),
    Verdicts(verdicts::VerdictsArgs),
    Twin(twin::TwinArgs),
    League(league::LeagueArgs),
    Tune(tune::TuneArgs),
    Train(train::TrainArgs),
    Advise(train::AdviseArgs),
    Serve(serve::ServeArgs),
    Load(load::LoadArgs),
    Corpus(corpus::CorpusArgs),
    Data(data::DataArgs),
    Calibrate(calibrate::CalibrateArgs),
    Record(record::RecordArgs),
    Replay(replay::ReplayArgs),
    Cc(compile::CompilerArgs),
    #[command(name = "c++")]
    Cxx(compile::CompilerArgs),
    Cargo(cargo::CargoArgs),
    Profile(profile::ProfileArgs),
    Top(top::TopArgs),
    Watch(watch::WatchArgs),
    Proxy(proxy::ProxyArgs),
    Why(why::WhyArgs),
    Completions(completions::CompletionsArgs),
    Man(completions::ManArgs),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Command::Demo(args) => match &args.service {
                Some(service) => demo_tiers::demo(&args, service),
                None if args.proxy => demo_proxy::demo(&args),
                None => demo::demo(&args),
            },
            Command::Run(args) if !args.sweep.is_empty() => sweep::sweep(&args),
            Command::Run(args) => run::run(&args),
            Command::List(args) => list::list(&args),
            Command::Report(args) => report::report(&args),
            Command::Verdicts(args) => verdicts::verdicts(&args),
            Command::Twin(args) => twin::twin(&args),
            Command::League(args) => league::league(&args),
            Command::Tune(args) => tune::tune(&args),
            Command::Train(args) => train::train(&args),
            Command::Advise(args) => train::advise(&args),
            Command::Serve(args) => serve::serve(args),
            Command::Load(args) => load::load(&args),
            Command::Corpus(args) => corpus::corpus(&args),
            Command::Data(args) => data::data(&args),
            Command::Calibrate(args) => calibrate::calibrate(&args),
            Command::Record(args) => record::record(args),
            Command::Replay(args) => replay::replay(&args),
            Command::Cc(args) => report_missing_compiler("cc", compile::compile(Language::C, args)),
            Command::Cxx(args) => report_missing_compiler("c++", compile::compile(Language::Cxx, args)),
            Command::Cargo(args) => report_missing_compiler("cargo", cargo::cargo(args)),
            Command::Profile(args) => profile::profile(&args),
            Command::Top(args) => top::top(&args),
            Command::Watch(args) => watch::watch(&args),
            Command::Proxy(args) => proxy::proxy(&args),
            Command::Why(args) => why::why(&args),
            Command::Completions(args) => completions::completions(&args, Args::command()),
            Command::Man(args) => completions::man(&args, Args::command()),
        }
    }
}

impl Args {
    /// Parses the program's command line.
    pub(crate) fn read() -> Result<Args, clap::Error> {
        let mut command = Args::command();
        let matches = matches(&mut command, std::env::args_os().collect())?;
        let mut args = Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        let serve = match &mut args.command {
            Command::Serve(serve) => Some(serve),
            Command::Record(record) => Some(&mut record.serve),
            _ => None,
        };
        // Flags on the command line take precedence over a configuration file; default values do
        // not.
        if let (Some(serve), Some((_, flags))) = (serve, matches.subcommand()) {
            let written = |id: &&str| flags.value_source(id) == Some(ValueSource::CommandLine);
            serve.written = flags.ids().map(clap::Id::as_str).filter(written).map(Into::into).collect();
        }
        Ok(args)
    }
}

/// Matches a command line, with negative numbers accepted as values of flags.
///
/// clap takes the `-5` in `--demand -5` for a flag and suggests `-- -5`, which would be another
/// argument. So a number after a flag is joined to it, and the flag's own parser rejects it.
fn matches(command: &mut clap::Command, line: Vec<OsString>) -> Result<clap::ArgMatches, clap::Error> {
    command.try_get_matches_from_mut(&line).or_else(|error| match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidValue => {
            let joined = with_negative_values(&line);
            if joined.len() < line.len() { command.try_get_matches_from_mut(joined) } else { Err(error) }
        }
        _ => Err(error),
    })
}

/// Joins negative numbers to their flags: `--flag -5us` becomes `--flag=-5us`.
fn with_negative_values(line: &[OsString]) -> Vec<OsString> {
    let mut joined: Vec<OsString> = Vec::new();
    let end = line.iter().position(|word| word == "--").unwrap_or(line.len());
    for (index, word) in line.iter().enumerate() {
        let is_number = |word: &OsString| {
            let digits = word.to_str().and_then(|word| word.strip_prefix('-'));
            digits.is_some_and(|digits| digits.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.'))
        };
        let is_flag =
            |word: &&mut OsString| word.to_str().is_some_and(|word| word.starts_with("--") && !word.contains('='));
        match joined.last_mut().filter(is_flag) {
            Some(flag) if index < end && is_number(word) => {
                flag.push("=");
                flag.push(word);
            }
            _ => joined.push(word.clone()),
        }
    }
    joined
}

/// Prints help and version to stdout; turns clap's errors into a failure of one line.
pub(crate) fn report_clap_error(error: &clap::Error) -> Result<(), Failure> {
    let text = error.render();
    match error.kind() {
        // Prints with colours if the terminal supports them.
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => error.print().or_else(stdout::ignore_broken_pipe),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::Input(anyhow!("no command; `leeward --help` lists the commands")))
        }
        _ => Err(Failure::Input(anyhow!(first_paragraph(&text.to_string())))),
    }
}

/// Reports that the compiler of our command `name` cannot run; prints our own help if help was
/// requested.
fn report_missing_compiler(name: &str, missing: MissingCompiler) -> Result<(), Failure> {
    let MissingCompiler { wants_help, error } = missing;
    if !wants_help {
        return Err(Failure::Input(error));
    }
    let mut command = Args::command();
    command.build();
    let Some(command) = command.find_subcommand_mut(name) else { return Err(Failure::Runtime(anyhow!("no `{name}`"))) };
    stdout::print(&command.render_long_help().to_string())?;
    let _ = writeln!(std::io::stderr(), "note: this is the help of `leeward {name}` itself, because {error}");
    Ok(())
}

/// First paragraph of clap's message, without `error:` and usage, but with its suggestion.
fn first_paragraph(text: &str) -> String {
    let mut paragraphs = text.split("\n\n");
    let join_words = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut message = join_words(paragraphs.next().unwrap_or_default().trim_start_matches("error: "));
    if let Some(tip) = paragraphs.find_map(|part| part.trim().strip_prefix("tip: ")) {
        message += &format!("; {}", join_words(tip.lines().next().unwrap_or_default()));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn command_line_errors_are_one_line() {
        let check = |line: &str, expected: &str| {
            let refused = Args::try_parse_from(line.split(' ')).unwrap_err();
            let message = report_clap_error(&refused).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        };
        check("leeward reprot", "similar subcommand exists: 'report'");
        check("leeward run", "not provided: <SCENARIO>");
        check("leeward run x --plant dream", "accepted: sim, real");
        check("leeward run x --seed -1", "--seed");
        check("leeward run x --threads 0", "0 is not in 1..=1024");
        check("leeward", "no command");
    }

    #[test]
    fn a_negative_number_is_the_value_of_the_flag_before_it() {
        let read = |line: &str| {
            let matches = matches(&mut Args::command(), line.split(' ').map(OsString::from).collect());
            matches.and_then(|matches| Args::from_arg_matches(&matches))
        };
        let Ok(Args { command: Command::Load(load) }) = read("leeward load 127.0.0.1:1 --demand -5 --slo -2us --json")
        else {
            panic!("a parser of its own refuses them");
        };
        assert_eq!((load.demand.as_str(), load.admission.slo.as_str(), load.json), ("-5", "-2us", true));
        for (line, expected) in [
            ("leeward load 127.0.0.1:1 --clients -5", "invalid value '-5' for '--clients <N>'"),
            ("leeward load 127.0.0.1:1 --json -5", "unexpected value '-5' for '--json'"),
            ("leeward why -5", "unexpected argument '-5'"),
            ("leeward top a --plain -- -5", "unexpected argument '-5'"),
        ] {
            let message = report_clap_error(&read(line).unwrap_err()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
