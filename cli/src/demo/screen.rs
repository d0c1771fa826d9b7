//! The terminal during a demo, and the thread that draws on it: never the clients' thread, which would be measured
//! drawing. Whatever ends the demo, the terminal is as it was before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::news::News;
use super::state::State;
use super::view;
use crate::interrupt::Interrupt;
use crate::keyboard::Keyboard;
use crate::terminal::{Canvas, is_ours, restore, take};

/// From one picture to the next, at least: each takes CPU time from what is measured.
const FRAME: Duration = Duration::from_millis(200);
/// On large terminals and slow machines as many times as long as a picture took: half a per cent of a CPU.
const SPARING: u32 = 200;
/// From one picture to the next, at most.
const SLOWEST: Duration = Duration::from_secs(1);
/// News that wait for the next picture; a run has some ten a second, so more than a minute's.
const WAITING: usize = 1_024;
/// The live view. Ends when dropped.
pub(crate) struct Screen {
    news: SyncSender<News>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Takes the terminal and draws `state`, and what is told from now on. Keys that mean "stop" ask `interrupt`.
    ///
    /// # Errors
    /// The terminal does not do what is needed.
    pub(crate) fn start(state: State, interrupt: Interrupt) -> std::io::Result<Screen> {
        let canvas = take()?;
        let (news, told) = sync_channel(WAITING);
        let over = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&over);
        let thread = std::thread::Builder::new()
            .name("live view".into())
            .spawn(move || draw(canvas, state, &told, &interrupt, &end))
            .inspect_err(|_| restore())?;
        Ok(Screen { news, over, thread: Some(thread) })
    }

    /// Shows `news` soon. Never waits: what does not fit is left out.
    pub(crate) fn tell(&self, news: News) {
        let _ = self.news.try_send(news);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        restore();
    }
}

fn draw(mut canvas: Canvas, mut state: State, told: &Receiver<News>, interrupt: &Interrupt, over: &AtomicBool) {
    let mut keyboard = Keyboard::open();
    while is_ours() && !over.load(Ordering::SeqCst) {
        let began = Instant::now();
        told.try_iter().for_each(|news| state.note(news));
        state.stopping = interrupt.asked();
        if canvas.draw(|frame| view::draw(frame, &state)).is_err() {
            return interrupt.ask(); // the terminal has gone, and with it whoever wanted to see this
        }
        keyboard.listen(interrupt, (began.elapsed() * SPARING).clamp(FRAME, SLOWEST));
    }
}
