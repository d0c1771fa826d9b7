//! The terminal during a demo, and its drawing thread. The clients' thread never draws, because
//! drawing would disturb the measurement. The terminal is restored however the demo ends.

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

/// Least interval between two frames, since each takes CPU time from the measurement.
const FRAME_MIN: Duration = Duration::from_millis(200);
/// Interval per drawing time, for large terminals and slow machines: drawing takes at most half a
/// percent of a CPU.
const FRAME_COST_FACTOR: u32 = 200;
/// Greatest interval between two frames.
const FRAME_MAX: Duration = Duration::from_secs(1);
/// Capacity of the event queue. A run has about ten events a second, so this is more than a
/// minute's.
const EVENTS_MAX: usize = 1_024;
/// The live view. Dropping it ends it.
pub(crate) struct Screen {
    events: SyncSender<DemoEvent>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Takes the terminal and draws `state`, updated by the events from now on. Stop keys request a
    /// stop through `interrupt`.
    ///
    /// # Errors
    /// Fails if the terminal does not support the live view.
    pub(crate) fn start(state: DemoState, interrupt: Interrupt) -> std::io::Result<Screen> {
        let canvas = take()?;
        let (sender, receiver) = sync_channel(EVENTS_MAX);
        let stop_flag = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&stop_flag);
        let thread = std::thread::Builder::new()
            .name("live view".into())
            .spawn(move || draw(canvas, state, &receiver, &interrupt, &end))
            .inspect_err(|_| restore())?;
        Ok(Screen { events: sender, is_stopped: stop_flag, thread: Some(thread) })
    }

    /// Sends an event to the drawing thread. Never blocks: an event that does not fit is dropped.
    pub(crate) fn send(&self, event: DemoEvent) {
        let _ = self.events.try_send(event);
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
    events: &Receiver<DemoEvent>,
    interrupt: &Interrupt,
    is_stopped: &AtomicBool,
) {
    let mut keyboard = Keyboard::open();
    while is_taken() && !is_stopped.load(Ordering::SeqCst) {
        let began = Instant::now();
        events.try_iter().for_each(|event| state.apply(event));
        state.is_stopping = interrupt.is_requested();
        if canvas.draw(|frame| view::draw(frame, &state)).is_err() {
            return interrupt.request(); // the terminal has closed, so nobody watches any more
        }
        keyboard.wait(interrupt, (began.elapsed() * FRAME_COST_FACTOR).clamp(FRAME_MIN, FRAME_MAX));
    }
}
