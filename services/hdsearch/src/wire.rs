//! Arguments and results as bytes, little-endian. Reading copies nothing.

use crate::distance::Neighbour;
use leeward_rpc::server::HandlerError;
use leeward_rpc::wire::Method;

/// The method `nearest`.
///
/// - Argument: number of neighbours (2 bytes), dimensions (2), a 32-bit float for each. For a leaf,
///   a count (4) and the numbers of the candidates (4 each) follow.
/// - Result: a count (2), and for each neighbour a number (4) and the square of its distance (4),
///   the nearest first.
/// - The mid-tier's result begins with two bytes: the number of leaves that it asked, and the
///   number of those that answered.
pub const NEAREST: Method = Method(0);
/// Greatest number of neighbours per query.
pub const NEIGHBOURS_MAX: u16 = 1_000;

/// A query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// Number of requested neighbours.
    pub count: u16,
    /// The point's coordinates, four bytes each.
    pub point: &'a [[u8; 4]],
}

fn failure(message: String) -> HandlerError {
    HandlerError::Message(message)
}

impl<'a> Query<'a> {
    /// Reads a query about points of `dimensions` dimensions, and returns the rest of the argument.
    ///
    /// # Errors
    /// The query is cut short, has other dimensions or a wrong number of neighbours, or a
    /// coordinate is not finite.
    pub fn read(argument: &'a [u8], dimensions: usize) -> Result<(Self, &'a [u8]), HandlerError> {
        let ([neighbours @ .., low, high], rest) =
            argument.split_first_chunk::<4>().ok_or_else(|| failure("a question that is cut short".into()))?;
        let (neighbours, actual) = (u16::from_le_bytes(*neighbours), u16::from_le_bytes([*low, *high]));
        if usize::from(actual) != dimensions {
            return Err(failure(format!("a point of {actual} dimensions; accepted: {dimensions}")));
        }
        if !(1..=NEIGHBOURS_MAX).contains(&neighbours) {
            return Err(failure(format!("{neighbours} neighbours; accepted: 1 to {NEIGHBOURS_MAX}")));
        }
        let (point, rest) = rest
            .split_at_checked(4 * dimensions)
            .ok_or_else(|| failure(format!("a point of which only {} bytes are there", rest.len())))?;
        let (point, _) = point.as_chunks();
        if !point.iter().all(|value| f32::from_le_bytes(*value).is_finite()) {
            return Err(failure("a point with a coordinate that is no number".into()));
        }
        Ok((Query { count: neighbours, point }, rest))
    }

    /// Iterates over the coordinates.
    pub fn coordinates(&self) -> impl Iterator<Item = f32> {
        self.point.iter().map(|value| f32::from_le_bytes(*value))
    }

    /// Appends the argument.
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        // The number of dimensions was read from 16 bits.
        out.extend_from_slice(&(self.point.len() as u16).to_le_bytes());
        out.extend_from_slice(self.point.as_flattened());
    }
}

/// Appends a client's query.
pub fn append_query(neighbours: u16, point: &[f32], out: &mut Vec<u8>) {
    let point: Vec<[u8; 4]> = point.iter().map(|value| value.to_le_bytes()).collect();
    Query { count: neighbours, point: &point }.append(out);
}

/// Reads a leaf's candidates, which are the rest of its argument.
///
/// # Errors
/// The number of candidates differs from the count.
pub fn read_candidates(rest: &[u8]) -> Result<impl Iterator<Item = u32>, HandlerError> {
    let candidates =
        rest.split_first_chunk::<4>().map(|(count, ids)| (u32::from_le_bytes(*count), ids.as_chunks::<4>()));
    match candidates {
        Some((count, (ids, []))) if ids.len() == count as usize => Ok(ids.iter().map(|id| u32::from_le_bytes(*id))),
        _ => Err(failure("other candidates than told".into())),
    }
}

/// Appends a leaf's candidates.
pub fn append_candidates(ids: &[u32], out: &mut Vec<u8>) {
    out.extend_from_slice(&(ids.len() as u32).to_le_bytes());
    out.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
}

/// Appends neighbours.
pub fn append_neighbours(found: &[Neighbour], out: &mut Vec<u8>) {
    out.extend_from_slice(&(found.len() as u16).to_le_bytes());
    for Neighbour { id, distance } in found {
        out.extend_from_slice(&id.to_le_bytes());
        out.extend_from_slice(&distance.to_le_bytes());
    }
}

/// Reads neighbours; `None` if the bytes are malformed.
pub fn read_neighbours(bytes: &[u8]) -> Option<impl Iterator<Item = Neighbour>> {
    let (count, found) = bytes.split_first_chunk()?;
    let (found, []) = found.as_chunks::<8>() else { return None };
    let neighbour = |bytes: &[u8; 8]| {
        let [a, b, c, d, distance @ ..] = *bytes;
        Neighbour { id: u32::from_le_bytes([a, b, c, d]), distance: f32::from_le_bytes(distance) }
    };
    let is_valid = found.len() == usize::from(u16::from_le_bytes(*count))
        && found.iter().all(|bytes| neighbour(bytes).distance.is_finite());
    is_valid.then(|| found.iter().map(neighbour))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_round_trip(neighbours in 1..=NEIGHBOURS_MAX, point in prop::collection::vec(-9f32..9.0, 1..40), ids: Vec<u32>) {
            let mut argument = Vec::new();
            append_query(neighbours, &point, &mut argument);
            append_candidates(&ids, &mut argument);
            let (query, rest) = Query::read(&argument, point.len()).unwrap();
            prop_assert_eq!(query.count, neighbours);
            prop_assert!(query.coordinates().eq(point.iter().copied()));
            prop_assert!(read_candidates(rest).unwrap().eq(ids.iter().copied()));
            let found: Vec<Neighbour> = ids.iter().map(|id| Neighbour { id: *id, distance: *id as f32 }).collect();
            let mut result = Vec::new();
            append_neighbours(&found, &mut result);
            prop_assert!(read_neighbours(&result).unwrap().eq(found));
        }

        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes: Vec<u8>, dimensions in 1usize..4) {
            if let Ok((_, rest)) = Query::read(&bytes, dimensions) {
                let _ = read_candidates(rest);
            }
            let _ = read_neighbours(&bytes);
        }
    }

    #[test]
    fn invalid_queries_are_rejected_with_a_message() {
        let error = |neighbours: u16, point: &[f32], dimensions: usize| {
            let mut argument = Vec::new();
            append_query(neighbours, point, &mut argument);
            match Query::read(&argument, dimensions) {
                Err(HandlerError::Message(message)) => message,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(error(1, &[], 2), "a point of 0 dimensions; accepted: 2");
        assert_eq!(error(0, &[1.0], 1), "0 neighbours; accepted: 1 to 1000");
        assert_eq!(error(65_535, &[1.0], 1), "65535 neighbours; accepted: 1 to 1000");
        assert_eq!(error(1, &[f32::NAN], 1), "a point with a coordinate that is no number");
    }
}
