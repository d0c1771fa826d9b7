//! How many segments the answers of a service usually have.

/// Most segments of an answer that are told apart.
const MOST_ANSWERS: usize = 16;

/// Most segments of a question that are told apart.
const MOST_QUESTIONS: usize = 4;

/// Segments that an answer usually has, over the connections of one service: the number that
/// explains the counts of most connections from their beginning on.
#[derive(Debug, Default)]
pub(crate) struct UsualAnswer {
    /// Connections in this poll, and how many of them each size of an answer explains.
    compared: u32,
    answers: [u32; MOST_ANSWERS],
    /// The same for sizes of a question whose answer has one segment.
    questions: [u32; MOST_QUESTIONS],
    /// Answer segments for each segment of a question, as the last poll found them.
    usual: Option<f64>,
}

impl UsualAnswer {
    /// Takes the segments of a connection so far; `is_open` tells whether a question is open, if
    /// that is certain.
    pub(super) fn compare(&mut self, questions: u32, answers: u32, is_open: Option<bool>) {
        self.compared += 1;
        let (questions, answers) = (u64::from(questions), u64::from(answers));
        let explains = |asked: u64, answered: u64, size: u64| {
            let closed = is_open != Some(true) && answered == asked * size;
            closed || (is_open != Some(false) && asked > 0 && answered == (asked - 1) * size)
        };
        for (size, explained) in (1..).zip(&mut self.answers) {
            *explained += u32::from(explains(questions, answers, size));
        }
        for (size, explained) in (1..).zip(&mut self.questions).skip(1) {
            let asked = questions / size;
            *explained += u32::from(questions % size == 0 && explains(asked, answers, 1));
        }
    }

    /// Ends a poll.
    pub(crate) fn end_poll(&mut self) {
        if self.compared > 0 {
            let least = self.compared - self.compared / 4;
            let answers = commonest(&self.answers);
            let questions = commonest(&self.questions);
            // Most questions have one segment: only more connections can say otherwise.
            self.usual = match (answers, questions) {
                ((_, most), (Some(size), explained)) if explained > most && explained >= least => Some(size.recip()),
                ((size, most), _) if most >= least => size,
                _ => None,
            };
        }
        *self = UsualAnswer { usual: self.usual, ..UsualAnswer::default() };
    }

    /// Answer segments for each segment of a question; `None` if they differ, or are not known.
    pub(super) fn segments(&self) -> Option<f64> {
        self.usual
    }
}

/// The size that explains most connections, and how many. Two that explain as many tell nothing.
fn commonest(explained: &[u32]) -> (Option<f64>, u32) {
    let most = explained.iter().copied().max().unwrap_or(0);
    let mut sizes = (1_u32..).zip(explained).filter(|(_, explained)| **explained == most);
    match (sizes.next(), sizes.next()) {
        (Some((size, _)), None) => (Some(f64::from(size)), most),
        _ => (None, most),
    }
}
