//! Slots with generations: the key of a removed value finds nothing, even if its slot is used
//! again.

/// Index of a slot, and the generation of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Key without a value: a slab has fewer slots.
    pub(super) const NONE: Key = Key { index: u32::MAX, generation: u32::MAX };
}

/// Values by key; the memory is reused.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (generation, slot) = &mut self.places[index as usize];
        *slot = Some(value);
        Key { index, generation: *generation }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, slot) = self.places.get_mut(key.index as usize)?;
        slot.as_mut().filter(|_| *generation == key.generation)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, slot) = self.places.get_mut(key.index as usize)?;
        let value = slot.take_if(|_| *generation == key.generation)?;
        *generation = generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_finds_nothing() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut 'b'));
        assert_eq!(slab.len(), 1);
    }
}
