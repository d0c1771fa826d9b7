//! Documents: synthetic ones with Zipf-distributed words, or those of the search service.
//!
//! Each synthetic document is drawn separately, so that a leaf draws only its share.

use leeward_search::corpus::CorpusError;
use leeward_search::{Document, corpus, token};
use leeward_workload::rng::{Purpose, Rng};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Number of different words in synthetic documents.
pub const VOCABULARY: u32 = 100_000;

/// Documents.
#[derive(Clone, Debug, PartialEq)]
pub enum Documents {
    /// Drawn from a seed.
    Synthetic {
        /// Number of documents.
        count: u32,
        /// Words per document.
        words: u32,
        /// Seed of the documents.
        seed: u64,
    },
    /// Real documents.
    Texts {
        /// Text from which [`leeward_services::tiers::queries::DataSource::parse`] reads them.
        source: String,
        /// Their texts.
        texts: Arc<[String]>,
    },
}

impl Documents {
    /// Returns the built-in documents of the search service.
    pub fn small() -> Self {
        Documents::from_corpus("small", corpus::small())
    }

    fn from_corpus(from: &str, documents: Vec<Document>) -> Self {
        let texts = documents.into_iter().map(|document| format!("{} {}", document.title, document.text)).collect();
        Documents::Texts { source: from.into(), texts }
    }

    /// Reads the documents of a file that `leeward corpus` has written.
    ///
    /// # Errors
    /// The file can't be read, or has another format.
    pub fn read(path: &Path) -> Result<Self, CorpusError> {
        Ok(Documents::from_corpus(&path.display().to_string(), corpus::read(path)?))
    }

    /// Returns the number of documents.
    pub fn count(&self) -> u32 {
        match self {
            Documents::Synthetic { count, .. } => *count,
            // Documents have 32-bit numbers, and a corpus has fewer.
            Documents::Texts { texts, .. } => texts.len() as u32,
        }
    }

    /// Calls `word` with each word of the documents with these numbers, in order.
    pub fn words(&self, numbers: Range<u32>, mut word: impl FnMut(u32, &str)) {
        match self {
            Documents::Synthetic { words, seed, .. } => {
                let mut name = String::new();
                for number in numbers {
                    let mut rng = document(*seed, number);
                    for _ in 0..*words {
                        write_name(zipf(&mut rng), &mut name);
                        word(number, &name);
                    }
                }
            }
            Documents::Texts { texts, .. } => {
                for number in numbers {
                    token::words(&texts[number as usize], |text| word(number, text));
                }
            }
        }
    }
}

fn document(seed: u64, number: u32) -> Rng {
    Rng::new(seed.wrapping_add(u64::from(number).wrapping_mul(0xD1B5_4A32_D192_ED03)), Purpose::Data)
}

/// Draws a word's rank from 1 to [`VOCABULARY`] by inversion.
///
/// The probability is nearly proportional to 1/rank (exactly to the logarithm of 1 + 1/rank).
pub fn zipf(rng: &mut Rng) -> u32 {
    let most = f64::from(VOCABULARY);
    // Less than the vocabulary plus one.
    (libm::exp(rng.unit() * libm::log(most + 1.0)).floor() as u32).clamp(1, VOCABULARY)
}

/// Returns the name of a word: letters that write its rank in base 26.
pub fn name(rank: u32) -> String {
    let mut name = String::new();
    write_name(rank, &mut name);
    name
}

fn write_name(rank: u32, name: &mut String) {
    name.clear();
    name.push('w');
    let mut rest = rank;
    while rest > 0 {
        name.push(char::from(b'a' + (rest % 26) as u8));
        rest /= 26;
    }
}
