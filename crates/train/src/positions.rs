//! Errors about values of a run file, with the position of the value.

use precast::error::{Error, ErrorKind};
use precast_base::document::{Place, Source};

use super::RunFile;

impl RunFile {
    /// Adds the position of a key's value to an error, if the value is still the one that was read.
    pub(super) fn wrong(&self, key: &str, error: Error) -> Error {
        fn place<T: PartialEq>((read, place): &(T, Place), now: &T) -> Option<Place> {
            (read == now).then_some(*place)
        }
        let (name, text, places) = self.written.parts();
        let place = match key {
            "model" => place(&places.model, &self.model),
            "policy" => place(&places.policy, &self.policy),
            "data" => place(&places.data, &self.data),
            "loss" => {
                places.loss.as_ref().filter(|(read, _)| self.options.loss.as_ref() == Some(read)).map(|(_, at)| *at)
            }
            "weights" => {
                places.weights.as_ref().filter(|(read, _)| self.weights.as_ref() == Some(read)).map(|(_, at)| *at)
            }
            "augment" => place(&places.augment, &self.options.augment),
            "freeze" => place(&places.freeze, &self.freeze),
            "groups" => place(&places.groups, &self.options.groups),
            "test" => places.test.as_ref().and_then(|test| place(test, &self.test)),
            "split" => place(&places.split, &self.partition),
            "validation" => {
                let read = places.validation.as_ref().filter(|(read, _)| self.validation.as_ref() == Some(read));
                read.map(|(_, at)| *at)
            }
            _ => None,
        };
        let source = Source::new(name, text);
        match place {
            Some(place) => {
                let place = error.word().map_or(place, |word| source.place_in(place, word));
                source.error(place, error)
            }
            None => error,
        }
    }

    /// Adds the position of a group to an error about its pattern.
    pub(super) fn wrong_group(&self, error: Error) -> Error {
        if error.word().is_some() { self.wrong("groups", error.context("`groups`")) } else { error }
    }

    /// Adds a position as [`wrong`](RunFile::wrong) does, for a file that cannot be opened and for a column that it has
    /// not. Other errors within a file have their position there.
    pub(super) fn not_there(&self, key: &str, error: Error) -> Error {
        if error.kind() == ErrorKind::Io || error.word().is_some() { self.wrong(key, error) } else { error }
    }
}
