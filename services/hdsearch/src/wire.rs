//! Arguments and results as bytes, little-endian. Nothing is copied when it is read.

use crate::distance::Neighbour;
use leeward_rpc::server::HandlerError;
use leeward_rpc::wire::Method;

/// `nearest`: how many are wanted (2 bytes), the dimensions (2), a 32-bit float for each. A leaf's argument goes on with a
/// count (4) and the numbers of the candidates (4 each). The result is a count (2), and for each a number (4) and the square
/// of its distance (4), the nearest first. The mid-tier's begins with two bytes: how many leaves it asked, how many of
/// those answered.
pub const NEAREST: Method = Method(0);
/// Neighbours that may be asked for.
pub const NEIGHBOURS_MAX: u16 = 1_000;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// How many neighbours are wanted.
    pub count: u16,
    /// The point's coordinates, four bytes each.
    pub point: &'a [[u8; 4]],
}

fn failure(words: String) -> HandlerError {
    HandlerError::Message(words)
}

impl<'a> Query<'a> {
    /// Reads a question about points of so many `dimensions`, and what follows it.
    ///
    /// # Errors
    /// It is cut short, about another space, wants nothing or too much, or a coordinate is no number.
    pub fn read(argument: &'a [u8], dimensions: usize) -> Result<(Self, &'a [u8]), HandlerError> {
        let ([wanted @ .., low, high], rest) =
            argument.split_first_chunk::<4>().ok_or_else(|| failure("a question that is cut short".into()))?;
        let (wanted, told) = (u16::from_le_bytes(*wanted), u16::from_le_bytes([*low, *high]));
        if usize::from(told) != dimensions {
            return Err(failure(format!("a point of {told} dimensions; accepted: {dimensions}")));
        }
        if !(1..=NEIGHBOURS_MAX).contains(&wanted) {
            return Err(failure(format!("{wanted} neighbours; accepted: 1 to {NEIGHBOURS_MAX}")));
        }
        let (point, rest) = rest
            .split_at_checked(4 * dimensions)
            .ok_or_else(|| failure(format!("a point of which only {} bytes are there", rest.len())))?;
        let (point, _) = point.as_chunks();
        if !point.iter().all(|value| f32::from_le_bytes(*value).is_finite()) {
            return Err(failure("a point with a coordinate that is no number".into()));
        }
        Ok((Query { count: wanted, point }, rest))
    }

    /// The coordinates as numbers.
    pub fn coordinates(&self) -> impl Iterator<Item = f32> {
        self.point.iter().map(|value| f32::from_le_bytes(*value))
    }

    /// Appends the argument.
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        // As many as were read.
        out.extend_from_slice(&(self.point.len() as u16).to_le_bytes());
        out.extend_from_slice(self.point.as_flattened());
    }
}

/// Appends a question as a client asks it.
pub fn append_query(wanted: u16, point: &[f32], out: &mut Vec<u8>) {
    let point: Vec<[u8; 4]> = point.iter().map(|value| value.to_le_bytes()).collect();
    Query { count: wanted, point: &point }.append(out);
}

/// Reads a leaf's candidates, which are all that is left.
///
/// # Errors
/// There are more or fewer than told.
pub fn read_candidates(rest: &[u8]) -> Result<impl Iterator<Item = u32>, HandlerError> {
    let told = rest.split_first_chunk::<4>().map(|(count, ids)| (u32::from_le_bytes(*count), ids.as_chunks::<4>()));
    match told {
        Some((count, (ids, []))) if ids.len() == count as usize => Ok(ids.iter().map(|id| u32::from_le_bytes(*id))),
        _ => Err(failure("other candidates than told".into())),
    }
}

/// Appends a leaf's candidates.
pub fn append_candidates(ids: &[u32], out: &mut Vec<u8>) {
    out.extend_from_slice(&(ids.len() as u32).to_le_bytes());
    out.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
}

/// Appends what was found.
pub fn append_neighbours(found: &[Neighbour], out: &mut Vec<u8>) {
    out.extend_from_slice(&(found.len() as u16).to_le_bytes());
    for Neighbour { id, distance } in found {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&distance.to_le_bytes());
    }
}

/// Reads what was found; `None` if these bytes are no such list.
pub fn read_neighbours(bytes: &[u8]) -> Option<impl Iterator<Item = Neighbour>> {
    let (count, found) = bytes.split_first_chunk()?;
    let (found, []) = found.as_chunks::<8>() else { return None };
    let neighbour = |bytes: &[u8; 8]| {
        let [a, b, c, d, distance @ ..] = *bytes;
        Neighbour { id: u32::from_le_bytes([a, b, c, d]), distance: f32::from_le_bytes(distance) }
    };
    let is_well = found.len() == usize::from(u16::from_le_bytes(*count))
        && found.iter().all(|bytes| neighbour(bytes).distance.is_finite());
    is_well.then(|| found.iter().map(neighbour))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(wanted in 1..=NEIGHBOURS_MAX, point in prop::collection::vec(-9f32..9.0, 1..40), ids: Vec<u32>) {
            let mut argument = Vec::new();
            append_query(wanted, &point, &mut argument);
            append_candidates(&ids, &mut argument);
            let (question, rest) = Query::read(&argument, point.len()).unwrap();
            prop_assert_eq!(question.count, wanted);
            prop_assert!(question.coordinates().eq(point.iter().copied()));
            prop_assert!(read_candidates(rest).unwrap().eq(ids.iter().copied()));
            let found: Vec<Neighbour> = ids.iter().map(|id| Neighbour { id: *id, distance: *id as f32 }).collect();
            let mut result = Vec::new();
            append_neighbours(&found, &mut result);
            prop_assert!(read_neighbours(&result).unwrap().eq(found));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, dimensions in 1usize..4) {
            if let Ok((_, rest)) = Query::read(&bytes, dimensions) {
                let _ = read_candidates(rest);
            }
            let _ = read_neighbours(&bytes);
        }
    }

    #[test]
    fn wrong_questions_are_refused_in_words() {
        let said = |wanted: u16, point: &[f32], dimensions: usize| {
            let mut argument = Vec::new();
            append_query(wanted, point, &mut argument);
            match Query::read(&argument, dimensions) {
                Err(HandlerError::Message(words)) => words,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(said(1, &[], 2), "a point of 0 dimensions; accepted: 2");
        assert_eq!(said(0, &[1.0], 1), "0 neighbours; accepted: 1 to 1000");
        assert_eq!(said(65_535, &[1.0], 1), "65535 neighbours; accepted: 1 to 1000");
        assert_eq!(said(1, &[f32::NAN], 1), "a point with a coordinate that is no number");
    }
}
