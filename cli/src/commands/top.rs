//! `leeward top`: what a running server does, and which of its locks it waits for.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use leeward_rpc::client::CallError;
use leeward_rpc::statistics::Statistics;
use ratatui::widgets::Paragraph;

use super::statistics_source::StatisticsSource;
use crate::admission;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::keyboard::Keyboard;
use crate::terminal;
use crate::tls::TlsArgs;
use crate::{stdout, top};

/// An overloaded server drops this question, too; then it is asked again, for so long.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
/// After a rejection.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Watch a running server: throughput, drops, delays, credits, and which of its locks it waits for
///
/// Rates are of the time between two looks. Locks are sorted by what was waited for them meanwhile; `waiting` is how many waited
/// on average. The percentiles of waits are since the server's start. In a terminal there is a live view, which ends with the
/// terminal; elsewhere one look. See docs/top.md.
#[derive(Debug, clap::Args)]
#[command(after_help = TOP)]
pub(crate) struct TopArgs {
    /// The server's address and port
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    /// From one look to the next
    #[arg(long, value_name = "SPAN", default_value = "1s")]
    pub(crate) interval: String,
    /// No live view: one text, after one interval
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
    /// Print the server's statistics as one JSON object, at once
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

const TOP: &str = "\
Examples:
  leeward top 127.0.0.1:7117
  leeward top 127.0.0.1:7117 --plain --interval 10s
  leeward top 127.0.0.1:7117 --json | jq '.locks[] | {name, waited_ns, refused}'";

/// The command.
pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    let interval = Duration::from_nanos(admission::parse_span("--interval", &args.interval)?.0);
    let interrupt = Interrupt::listen(StopMode::Prompt)?;
    let source = StatisticsSource::open(&args.address, args.tls.open()?, &interrupt)?;
    let first = query(&source, args, &interrupt)?;
    if args.json {
        return stdout::print(&first.to_json());
    }
    if args.plain || !terminal::supports_live_view() {
        sleep(interval, &interrupt)?;
        let second = query(&source, args, &interrupt)?;
        return stdout::print(&top::text(&args.address, &first, &second));
    }
    run_live(&source, args, interval, first, &interrupt)
}

/// Until somebody presses q, or the terminal has gone.
fn run_live(
    source: &StatisticsSource,
    args: &TopArgs,
    interval: Duration,
    first: Statistics,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let mut canvas = terminal::take().context("the terminal").map_err(Failure::Runtime)?;
    let mut keyboard = Keyboard::open();
    let (mut before, mut now) = (first.clone(), first);
    let mut heard = Instant::now();
    let mut trouble: Option<String> = None;
    let outcome = loop {
        let silence = trouble.as_deref().map(|why| top::NoAnswer { duration: heard.elapsed(), reason: why });
        let text = format!("{}\n\nq ends", top::live_text(&args.address, &before, &now, silence));
        if let Err(error) = canvas.draw(|frame| frame.render_widget(Paragraph::new(text), frame.area())) {
            break Err(Failure::Runtime(anyhow!("the terminal: {error}")));
        }
        keyboard.wait(interrupt, interval);
        if interrupt.is_requested() {
            break Ok(());
        }
        match source.query(interrupt, || keyboard.wait(interrupt, Duration::ZERO)) {
            // Asked to stop while the question was out.
            _ if interrupt.is_requested() => break Ok(()),
            Ok(newer) => {
                before = std::mem::replace(&mut now, newer);
                (heard, trouble) = (Instant::now(), None);
            }
            // It may come back, and what was known last is worth seeing.
            Err(error) => trouble = Some(format!("{error:#}")),
        }
    };
    terminal::restore();
    match (outcome, trouble) {
        (Ok(()), Some(why)) => Err(Failure::Runtime(anyhow!("{}: no answer at the end: {why}", args.address))),
        (outcome, _) => outcome,
    }
}

/// Asks until there is an answer.
fn query(source: &StatisticsSource, args: &TopArgs, interrupt: &Interrupt) -> Result<Statistics, Failure> {
    let began = Instant::now();
    loop {
        let error = match source.query(interrupt, || {}) {
            Ok(statistics) => return Ok(statistics),
            Err(_) if interrupt.is_requested() => return Err(Failure::Interrupted),
            Err(error) => error,
        };
        let again = matches!(error.downcast_ref(), Some(CallError::Rejected { .. } | CallError::Expired { .. }));
        if !again || began.elapsed() > RETRY_TIMEOUT {
            return Err(match error.downcast_ref() {
                Some(CallError::UnknownMethod { .. }) => {
                    Failure::Runtime(anyhow!("{}: a server without statistics", args.address))
                }
                _ => source.failure(error.context(args.address.clone())),
            });
        }
        sleep(RETRY_PAUSE, interrupt)?;
    }
}

/// Sleeps, unless told to stop.
fn sleep(span: Duration, interrupt: &Interrupt) -> Result<(), Failure> {
    let due = Instant::now() + span;
    while !interrupt.is_requested() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    Err(Failure::Interrupted)
}
