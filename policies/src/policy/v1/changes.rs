//! Changes to lists in version 1 of policy files: names added to a list of the pack, and names removed from it.

use std::collections::BTreeMap;

use precast_base::{
    DType, Error, Result,
    document::{At, Source, placeless},
    names::did_you_mean,
};
use serde::{Deserialize, Serialize};

use super::{
    super::{
        Entry, Lists, Origin, Pack,
        lists::{Listed, Reader},
    },
    rules::NO_KIND,
};
use crate::{Op, precision::Treatment};

/// Changes to one list of the pack. Names are checked against the list of the pack, so their order does not matter.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ChangesV1 {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    add: Vec<At<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    remove: Vec<At<String>>,
}

impl ChangesV1 {
    pub fn is_empty(&self) -> bool {
        self.first().is_none()
    }

    /// Returns the first name that is added or removed.
    pub fn first(&self) -> Option<&At<String>> {
        self.add.first().or(self.remove.first())
    }
}

/// Item of a list: a kind of cells, or an op.
pub(super) trait Item: Ord + Clone {
    const LISTED: Listed;

    /// Returns the items with a name in the vocabulary of a pack.
    fn named(name: &str, pack: &Pack) -> Result<Vec<Self>>;
    fn entries(lists: &Lists) -> &BTreeMap<Self, Entry>;
    fn put(self, lists: &mut Lists, entry: Entry);
    fn remove(&self, lists: &mut Lists);
    fn name(&self) -> &str;
    /// Returns a name for this item alone in the vocabulary of a pack.
    fn written(&self, pack: &Pack) -> String;
}

impl Item for String {
    const LISTED: Listed = Listed::Cells;

    fn named(name: &str, _: &Pack) -> Result<Vec<Self>> {
        if name.is_empty() { Err(Error::list(NO_KIND)) } else { Ok(vec![name.into()]) }
    }

    fn entries(lists: &Lists) -> &BTreeMap<Self, Entry> {
        lists.cells()
    }

    fn put(self, lists: &mut Lists, entry: Entry) {
        lists.put_cell(self, entry);
    }

    fn remove(&self, lists: &mut Lists) {
        lists.remove_cell(self);
    }

    fn name(&self) -> &str {
        self
    }

    fn written(&self, _: &Pack) -> String {
        self.clone()
    }
}

impl Item for Op {
    const LISTED: Listed = Listed::Ops;

    fn named(name: &str, pack: &Pack) -> Result<Vec<Self>> {
        pack.op(name)
    }

    fn entries(lists: &Lists) -> &BTreeMap<Self, Entry> {
        lists.ops()
    }

    fn put(self, lists: &mut Lists, entry: Entry) {
        lists.put_op(self, entry);
    }

    fn remove(&self, lists: &mut Lists) {
        lists.remove_op(*self);
    }

    fn name(&self) -> &str {
        Op::name(*self)
    }

    fn written(&self, pack: &Pack) -> String {
        self.unambiguous_name(pack.system)
    }
}

/// Returns the entries of a list for a low dtype.
fn on_list<T: Item>(lists: &Lists, treatment: Treatment, low: DType) -> BTreeMap<T, Entry> {
    let on_it = T::entries(lists).iter().filter(|(_, entry)| entry.treatment == treatment && entry.counts(low));
    on_it.map(|(item, entry)| (item.clone(), entry.clone())).collect()
}

/// Context for changes to the lists of a pack.
pub(super) struct Changing<'a> {
    pub pack: &'a Pack,
    pub reader: Reader,
    pub dtype: DType,
    pub source: &'a Source<'a>,
}

impl Changing<'_> {
    /// Applies changes to lists, given in the order of [`Reader::named_lists`]. An item has one entry, so adding it to
    /// a list while it is on another is an error.
    pub fn apply<T: Item>(&self, lists: &mut Lists, changes: &[&ChangesV1]) -> Result<()> {
        let named = self.reader.named_lists();
        let mut additions = Vec::new();
        for (&(list, treatment), changes) in named.iter().zip(changes) {
            if let Some(name) = changes.first() {
                let read = self.reader.check_reads(T::LISTED, treatment);
                read.map_err(|error| self.source.error(name.place, error))?;
            }
            let (removed, added) = self.changed::<T>(&on_list(lists, treatment, self.dtype), changes, list)?;
            removed.iter().for_each(|item| item.remove(lists));
            additions.push((list, treatment, changes, added));
        }
        for (list, treatment, changes, added) in additions {
            for name in &changes.add {
                let items: Vec<T> = self.items(name)?;
                let is_new = |item: &&T| added.iter().any(|(new, _)| new == *item);
                let other = named.iter().filter(|(other, _)| *other != list).find(|(_, treatment)| {
                    let on_it = on_list::<T>(lists, *treatment, self.dtype);
                    items.iter().filter(is_new).any(|item| on_it.contains_key(item))
                });
                if let Some((other, _)) = other {
                    let what = T::LISTED;
                    let words = format!("`{}` is also on the {other} list of {what}; remove it there", name.value);
                    return Err(self.source.error(name.place, Error::list(words)));
                }
            }
            added.into_iter().for_each(|(item, origin)| item.put(lists, Entry::new(treatment, origin)));
        }
        Ok(())
    }

    fn items<T: Item>(&self, name: &At<String>) -> Result<Vec<T>> {
        T::named(&name.value, self.pack).map_err(|error| self.source.error(name.place, error))
    }

    /// Returns the items that a change removes from a list and adds to it. A name may denote several ops, and those
    /// that can be changed are changed.
    #[allow(clippy::type_complexity, reason = "two lists that are taken apart at once")]
    fn changed<T: Item>(
        &self,
        of_pack: &BTreeMap<T, Entry>,
        changes: &ChangesV1,
        list: &str,
    ) -> Result<(Vec<T>, Vec<(T, Origin)>)> {
        let what = T::LISTED;
        let (mut removed, mut added) = (Vec::<T>::new(), Vec::<(T, Origin)>::new());
        for name in &changes.remove {
            let on_it = |item: &T| of_pack.contains_key(item) && !removed.contains(item);
            let items: Vec<T> = self.items(name)?.into_iter().filter(on_it).collect();
            if items.is_empty() {
                let left: Vec<&str> = of_pack.keys().filter(|item| !removed.contains(item)).map(Item::name).collect();
                let near = did_you_mean(&name.value, left.iter().copied());
                let left = if left.is_empty() { "nothing".to_string() } else { left.join(", ") };
                let words = format!("`{}` is not on the {list} list of {what}{near}; on it: {left}", name.value);
                return Err(self.source.error(name.place, Error::list(words)));
            }
            removed.extend(items);
        }
        for name in &changes.add {
            let items: Vec<T> = self.items(name)?;
            let earlier = |item: &T| {
                let before = of_pack.get(item).map(|entry| &entry.origin);
                before.or(added.iter().find(|(known, _)| known == item).map(|(_, origin)| origin)).cloned()
            };
            let new: Vec<T> = items.iter().filter(|item| earlier(item).is_none()).cloned().collect();
            if let (true, Some(earlier)) = (new.is_empty(), items.first().and_then(earlier)) {
                let words = format!("`{}` is on the {list} list of {what} already, from {earlier}", name.value);
                return Err(self.source.error(name.place, Error::list(words)));
            }
            added.extend(new.into_iter().map(|item| (item, Origin::at(self.source, name.place))));
        }
        Ok((removed, added))
    }
}

/// Lists of a policy compared with those of its pack.
pub(super) struct Written<'a> {
    pack: &'a Pack,
    from: Lists,
    to: &'a Lists,
    low: DType,
}

impl<'a> Written<'a> {
    /// Compares the lists of a policy with those of its pack that the reader reads.
    ///
    /// # Errors
    /// [`ErrorKind::List`](crate::ErrorKind::List) for entries that are not read, and for differences that a file
    /// cannot express: it can only add names to the named lists and remove them.
    pub fn new(reader: Reader, pack: &'a Pack, from: Lists, to: &'a Lists, low: DType) -> Result<Self> {
        reader.check_lists(to)?;
        let is_named = |entry: &Entry| reader.named_lists().iter().any(|(_, treatment)| *treatment == entry.treatment);
        let differs = |op: &&Op| {
            let (before, after) = (from.ops().get(op), to.ops().get(op));
            let same = before.map(|entry| entry.treatment) == after.map(|entry| entry.treatment);
            !same && before.into_iter().chain(after).any(|entry| !is_named(entry))
        };
        let word = match from.ops().keys().chain(to.ops().keys()).find(differs) {
            Some(op) => format!("the entry of {op}"),
            None if (from.unlisted, from.unlisted_unpromoted) != (to.unlisted, to.unlisted_unpromoted) => {
                "what ops do that are on no list".to_string()
            }
            None if from.eligible != to.eligible => "which dtypes are cast".to_string(),
            None if from.by_first != to.by_first => "which ops go by their first input".to_string(),
            None => return Ok(Written { pack, from, to, low }),
        };
        let name = &pack.name;
        Err(Error::list(format!("the lists differ from those of {name} in {word}, which a policy file cannot say")))
    }

    /// Returns the changes to the list of a treatment.
    pub fn changes<T: Item>(&self, treatment: Treatment) -> ChangesV1 {
        let (from, to) = (on_list::<T>(&self.from, treatment, self.low), on_list::<T>(self.to, treatment, self.low));
        let missing = |of: &BTreeMap<T, Entry>, than: &BTreeMap<T, Entry>| {
            of.keys().filter(|item| !than.contains_key(item)).map(|item| placeless(item.written(self.pack))).collect()
        };
        ChangesV1 { add: missing(&to, &from), remove: missing(&from, &to) }
    }
}
