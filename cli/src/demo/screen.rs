//! The terminal during a demo, and the thread that draws on it: never the clients' thread, which would be measured
//! drawing. Whatever ends the demo, the terminal is as it was before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::events::DemoEvent;
use super::state::DemoState;
use super::view;
use crate::interrupt::Interrupt;
use crate::keyboard::Keyboard;
use crate::terminal::{Canvas, is_taken, restore, take};

/// From one picture to the next, at least: each takes CPU time from what is measured.
const FRAME_MIN: Duration = Duration::from_millis(200);
/// On large terminals and slow machines as many times as long as a picture took: half a per cent of a CPU.
const FRAME_COST_FACTOR: u32 = 200;
/// From one picture to the next, at most.
const FRAME_MAX: Duration = Duration::from_secs(1);
/// News that wait for the next picture; a run has some ten a second, so more than a minute's.
const EVENTS_MAX: usize = 1_024;
/// The live view. Ends when dropped.
pub(crate) struct Screen {
    events: SyncSender<DemoEvent>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Takes the terminal and draws `state`, and what is told from now on. Keys that mean "stop" ask `interrupt`.
    ///
    /// # Errors
    /// The terminal does not do what is needed.
    pub(crate) fn start(state: DemoState, interrupt: Interrupt) -> std::io::Result<Screen> {
        let canvas = take()?;
        let (news, told) = sync_channel(EVENTS_MAX);
        let over = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&over);
        let thread = std::thread::Builder::new()
            .name("live view".into())
            .spawn(move || draw(canvas, state, &told, &interrupt, &end))
            .inspect_err(|_| restore())?;
        Ok(Screen { events: news, is_stopped: over, thread: Some(thread) })
    }

    /// Shows `news` soon. Never waits: what does not fit is left out.
    pub(crate) fn send(&self, news: DemoEvent) {
        let _ = self.events.try_send(news);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        restore();
    }
}

fn draw(
    mut canvas: Canvas,
    mut state: DemoState,
    told: &Receiver<DemoEvent>,
    interrupt: &Interrupt,
    over: &AtomicBool,
) {
    let mut keyboard = Keyboard::open();
    while is_taken() && !over.load(Ordering::SeqCst) {
        let began = Instant::now();
        told.try_iter().for_each(|news| state.apply(news));
        state.is_stopping = interrupt.is_requested();
        if canvas.draw(|frame| view::draw(frame, &state)).is_err() {
            return interrupt.request(); // the terminal has gone, and with it whoever wanted to see this
        }
        keyboard.wait(interrupt, (began.elapsed() * FRAME_COST_FACTOR).clamp(FRAME_MIN, FRAME_MAX));
    }
}
