//! `leeward top`: shows the state of a running server, and the locks with the longest waits.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use leeward_rpc::client::CallError;
use leeward_rpc::statistics::Statistics;
use ratatui::widgets::Paragraph;

use super::statistics_source::{StatisticsSource, describe};
use crate::admission;
use crate::failure::Failure;
use crate::interrupt::{Interrupt, StopMode};
use crate::keyboard::Keyboard;
use crate::terminal;
use crate::tls::TlsArgs;
use crate::top::NoAnswer;
use crate::{stdout, top};

/// Time for which a rejected query is repeated: an overloaded server rejects queries, too.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of drawings while a query is late.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);
/// Pause after a rejection.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Watch a running server: throughput, drops, delays, credits, and the waits for its locks
///
/// Rates are of the time between two polls. Locks are sorted by the total wait in this time;
/// `waiting` is the mean number of waiting requests. The percentiles of waits count from the
/// server's start. A terminal gets a live view, which ends when the terminal closes; other outputs
/// get one text. See docs/top.md.
#[derive(Debug, clap::Args)]
#[command(after_help = TOP)]
pub(crate) struct TopArgs {
    /// The server's address and port
    #[arg(value_name = "ADDRESS")]
    pub(crate) address: String,
    /// Time between two polls
    #[arg(long, value_name = "SPAN", default_value = "1s")]
    pub(crate) interval: String,
    /// Print one text after one interval, instead of a live view
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

/// Runs the command.
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

/// Runs the live view until q is pressed or the terminal has closed.
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
    let mut answered = Instant::now();
    let mut problem: Option<String> = None;
    let mut draw = |before: &Statistics, now: &Statistics, silence: Option<NoAnswer<'_>>| {
        let text = format!("{}\n\nq ends", top::live_text(&args.address, before, now, silence));
        canvas.draw(|frame| frame.render_widget(Paragraph::new(text), frame.area())).map(drop)
    };
    let outcome = loop {
        let silence = problem.as_deref().map(|reason| NoAnswer { duration: answered.elapsed(), reason });
        if let Err(error) = draw(&before, &now, silence) {
            break Err(Failure::Runtime(anyhow!("the terminal: {error}")));
        }
        keyboard.wait(interrupt, interval);
        if interrupt.is_requested() {
            break Ok(());
        }
        let mut stale_from = answered + 2 * interval;
        let listen = || {
            keyboard.wait(interrupt, Duration::ZERO);
            // A query may take seconds to fail; meanwhile its screen must not look current.
            if Instant::now() >= stale_from {
                let reason = problem.as_deref().unwrap_or("the query is not answered yet");
                // The next drawing reports an error.
                let _ = draw(&before, &now, Some(NoAnswer { duration: answered.elapsed(), reason }));
                stale_from = Instant::now() + REDRAW_INTERVAL;
            }
        };
        match source.query(interrupt, listen) {
            // A stop was requested while the query ran.
            _ if interrupt.is_requested() => break Ok(()),
            Ok(newer) => {
                before = std::mem::replace(&mut now, newer);
                (answered, problem) = (Instant::now(), None);
            }
            // The server may come back, and its last statistics are still useful.
            Err(error) => problem = Some(describe(&error)),
        }
    };
    terminal::restore();
    match (outcome, problem) {
        (Ok(()), Some(reason)) => Err(Failure::Runtime(anyhow!("{}: no answer at the end: {reason}", args.address))),
        (outcome, _) => outcome,
    }
}

/// Queries until there is a response.
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
                    Failure::Runtime(anyhow!("{}: the server has no statistics", args.address))
                }
                _ => source.failure(&error.context(args.address.clone())),
            });
        }
        sleep(RETRY_PAUSE, interrupt)?;
    }
}

/// Sleeps, unless a stop is requested.
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
