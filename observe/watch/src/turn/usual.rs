//! How many segments the answers of a service usually have.

/// Most segments of an answer that are looked for among connections without history.
const MOST_SEGMENTS: usize = 16;

/// Questions between polls from which they alone tell the usual answer.
const ENOUGH: f64 = 8.0;

/// Questions after which older ones count half.
const REMEMBERED: f64 = 4096.0;

/// Segments that an answer usually has, over the connections of one service.
#[derive(Debug, Default)]
pub(crate) struct UsualAnswer {
    questions: f64,
    answers: f64,
    /// Connections without history in this poll, and how many of them each number explains.
    compared: u32,
    explained: [u32; MOST_SEGMENTS],
    /// Number that explained most of them in the last poll.
    common: Option<f64>,
}

impl UsualAnswer {
    /// Ends a poll.
    pub(crate) fn end_poll(&mut self) {
        let most = self.explained.iter().copied().max().unwrap_or(0);
        let is_common = most > 0 && most >= self.compared - self.compared / 4;
        let mut best = (1_u32..).zip(self.explained).filter(|(_, explained)| *explained == most);
        // Two that explain as many tell nothing.
        self.common = match (best.next(), best.next()) {
            (Some((segments, _)), None) if is_common => Some(f64::from(segments)),
            _ => None,
        };
        (self.compared, self.explained) = (0, [0; MOST_SEGMENTS]);
    }

    /// Takes what passed on a connection between two polls.
    pub(super) fn learn(&mut self, questions: u32, answers: u32) {
        self.questions += f64::from(questions);
        self.answers += f64::from(answers);
        if self.questions > REMEMBERED {
            self.questions /= 2.0;
            self.answers /= 2.0;
        }
    }

    /// Takes the counts of a connection from its beginning, with or without an open question.
    pub(super) fn compare(&mut self, questions: u32, answers: u32) {
        self.compared += 1;
        for (segments, explained) in (1_u64..).zip(&mut self.explained) {
            let owed = [questions, questions.saturating_sub(1)].map(|questions| u64::from(questions) * segments);
            *explained += u32::from(owed.contains(&answers.into()));
        }
    }

    /// Segments of an answer for each segment of a question.
    pub(super) fn segments(&self) -> Option<f64> {
        let learned = (self.answers >= 1.0).then(|| self.answers / self.questions.max(1.0));
        if self.questions >= ENOUGH { learned.map(whole) } else { self.common.or(learned.map(whole)) }
    }

    /// Whether answers have the same number of segments, as far as is known.
    pub(super) fn is_constant(&self) -> bool {
        self.segments().is_some_and(|size| size.fract() == 0.0 || size.recip().fract() == 0.0)
    }
}

/// The whole number of answer segments, or of question segments, that is near `size`: a question
/// or an answer that is under way belongs to it.
fn whole(size: f64) -> f64 {
    let is_near = |size: f64| size >= 1.0 && (size - size.round()).abs() <= 0.1 * size.round();
    if is_near(size) {
        size.round()
    } else if is_near(size.recip()) {
        size.recip().round().recip()
    } else {
        size
    }
}
